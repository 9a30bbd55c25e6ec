#!/usr/bin/env bash
# librdkafka: a consumer whose queue was full rests for a second
#
# Guess     `queued.min.messages` bounds what a consumer holds; it fetches on as soon as there is room.
# Fact      Once the bound is reached, the partition is not fetched for `fetch.queue.backoff.ms`, 1000 by default, however
#           soon the queue is empty: a reader that is quicker than that waits again and again. With 10 ms the
#           same rows come many times as quickly.
# Versions  confluent-kafka 2.16.1 (librdkafka 2.16.0), Python 3.11; the client's mock cluster
# Date      2026-11-29
# Source    this script; CONFIGURATION.md of librdkafka names the option and its default.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1
tools/bin/python - <<'PYTHON'
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

ROWS, QUEUE = 8000, 1000
mock = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 1, "log_level": 0})
servers = ",".join(f"{b.host}:{b.port}" for b in mock.list_topics(timeout=10).brokers.values())
producer = Producer({"bootstrap.servers": servers, "batch.num.messages": QUEUE, "log_level": 0})
for n in range(ROWS):
    producer.produce("rows", str(n), partition=0)
assert producer.flush(30) == 0


def seconds(**options):
    """To read them all, taking each row as soon as it is there."""
    config = {"bootstrap.servers": servers, "group.id": "g", "queued.min.messages": QUEUE, "log_level": 0}
    consumer = Consumer(config | {name.replace("_", "."): value for name, value in options.items()})
    consumer.assign([TopicPartition("rows", 0, 0)])
    start, rows = time.monotonic(), 0
    while rows < ROWS:
        rows += len(consumer.consume(QUEUE, 0.001))
    consumer.close()
    return time.monotonic() - start


usual, short = seconds(), seconds(fetch_queue_backoff_ms=10)
print(f"{ROWS} rows, {QUEUE} at once: {usual:.1f} s by default, {short:.1f} s with 10 ms")
sys.exit(0 if usual > 3 * short and usual > 1 else 1)
PYTHON
