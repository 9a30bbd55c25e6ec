#!/usr/bin/env bash
# librdkafka: with its defaults the row that is being worked on is committed, and lost when the process is killed
#
# Guess     With `enable.auto.commit` a consumer sees rows again after a crash, and loses none: positions are committed
#           by the next `poll`, of rows that the application is done with, as by Java's client.
# Fact      `poll` stores the position behind the row that it returns, and a thread of the client commits what is stored
#           every `auto.commit.interval.ms` (5 s), whether or not there was another `poll`. A process that is killed while
#           it works on a row for longer than that does not get the row again, and nobody does. With
#           `enable.auto.offset.store=false` and `store_offsets` behind the work the row comes again.
# Versions  confluent-kafka 2.16.1 (librdkafka 2.16.0), Python 3.11; the client's mock cluster
# Date      2026-12-01
# Source    this script; CONFIGURATION.md of librdkafka says what enable.auto.offset.store does, not what it costs. Java's
#           KafkaConsumer documents at-least-once for rows of the last poll
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check confluent-kafka==2.16.1
cat >killed.py <<'PY'
"""Says which row it works on, and is killed two seconds later; the interval is a half, so as not to wait for long."""

import json
import os
import signal
import sys
import time

from confluent_kafka import Consumer

usual = {"auto.offset.reset": "earliest", "session.timeout.ms": 6000, "auto.commit.interval.ms": 500}
reader = Consumer(json.loads(sys.argv[1]) | usual)
reader.subscribe(["rows"])
while (row := reader.poll(0.1)) is None or row.error():
    pass
print(row.value().decode(), flush=True)
time.sleep(2)
os.kill(os.getpid(), signal.SIGKILL)
PY
timeout 110 tools/bin/python - <<'PYTHON'
import json
import subprocess
import sys

from confluent_kafka import Producer

mock = Producer({"test.mock.num.brokers": 1, "log_level": 0})
at = ",".join(f"{one.host}:{one.port}" for one in mock.list_topics(timeout=10).brokers.values())
for n in range(3):
    mock.produce("rows", str(n).encode(), partition=0)
mock.flush(10)


def worked_on(**more):
    """By one process after the other, all of them killed at their first row."""
    given = json.dumps({"bootstrap.servers": at, "group.id": f"group {more}"} | more)
    runs = [subprocess.run([sys.executable, "killed.py", given], capture_output=True, text=True) for _ in range(2)]
    return [run.stdout.strip() for run in runs]


usual, stored = worked_on(), worked_on(**{"enable.auto.offset.store": False})
print("rows that were worked on at each kill: with the defaults", usual, "and with positions stored by hand", stored)
sys.exit(not (usual == ["0", "1"] and stored == ["0", "0"]))
PYTHON
