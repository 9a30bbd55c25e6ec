"""Connectors of messaging services: a file each, on its own client, which is imported late."""
