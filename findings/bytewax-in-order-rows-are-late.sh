#!/usr/bin/env bash
# bytewax: rows in the order of their times are late when the process rests
#
# Guess     A row is late when a row with a later time (less the allowed wait) came before it. Rows of a key that come in
#           the order of their times are never late, however slowly they come.
# Fact      The watermark of `EventClock` goes on with the clock of the machine from the newest row on: a source, a sink
#           or a garbage collection that rests for longer than `wait_for_system_duration` makes all rows behind it late
#           until their times have caught up. Their windows lose them, with no word but in the stream `late`. A backlog
#           that is worked off more slowly than it came loses rows the same way.
# Versions  bytewax 0.21.1, Python 3.11
# Date      2026-11-29
# Source    this script; found by Nexmark's q11, where 37 of 3,453 bids of a session in perfect order were missing. The
#           documentation of EventClock says that the watermark advances by the system clock.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check bytewax==0.21.1
cat >in_order.py <<'PY'
import sys
import time
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.inputs import DynamicSource, StatelessSourcePartition
from bytewax.testing import TestingSink, run_main

BEGIN, ROWS, WAIT = datetime(2026, 1, 1, tzinfo=UTC), 100, timedelta(seconds=1)


class Part(StatelessSourcePartition):
    """A hundred rows of one second in order, ten at once; in the middle it rests for so many seconds."""

    def __init__(self, rest_s):
        self.next, self.rest_s = 0, rest_s

    def next_batch(self):
        if self.next == ROWS:
            raise StopIteration
        if self.next == ROWS // 2:
            time.sleep(self.rest_s)
        first, self.next = self.next, self.next + 10
        return [BEGIN + timedelta(milliseconds=10 * n) for n in range(first, self.next)]


class From(DynamicSource):
    def __init__(self, rest_s):
        self.rest_s = rest_s

    def build(self, step_id, worker_index, worker_count):
        return Part(self.rest_s)


def counted(rest_s):
    flow, counts, late = Dataflow("in_order"), [], []
    rows = op.input("in", flow, From(rest_s))
    clock = win.EventClock(lambda at: at, wait_for_system_duration=WAIT)
    minutes = win.TumblingWindower(timedelta(minutes=1), BEGIN)
    found = win.count_window("count", rows, clock, minutes, lambda at: "key")
    op.output("out", found.down, TestingSink(counts))
    op.output("late", found.late, TestingSink(late))
    run_main(flow)
    return sum(n for _, (_, n) in counts), len(late)


flowing, resting = counted(0), counted(3)
print("without a rest:", flowing, "counted and late; with one of 3 s:", resting)
sys.exit(0 if flowing == (100, 0) and resting == (50, 50) else 1)
PY
timeout 120 tools/bin/python in_order.py
