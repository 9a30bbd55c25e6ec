"""Streams and keys of Redis, and queues of AMQP."""
