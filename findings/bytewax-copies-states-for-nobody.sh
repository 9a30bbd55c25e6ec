#!/usr/bin/env bash
# bytewax: states are copied at the end of each epoch, though no recovery is set
#
# Guess     Snapshots of states are for recovery. A flow that is run without a RecoveryConfig makes none, and the length
#           of its epochs costs it nothing.
# Fact      At the end of each epoch `snapshot` is called for every key that had a row in it, with or without a
#           RecoveryConfig; the windowing operators then deep-copy all open windows of the key. Without recovery the
#           copies are thrown away. Few notice with the default of ten seconds; with one second, a sliding window over
#           14,720 rows (Nexmark's q5) took 6.6 s of CPU; 18,400 rows take 1.5 s with the default (one run each, on a
#           busy machine, where a run has more epochs).
# Versions  bytewax 0.21.1, Python 3.11
# Date      2026-11-29
# Source    this script; found by Nexmark's q5, which grew slower than its rows. The docstring of
#           `StatefulLogic.snapshot` says "periodically" and "for recovery", and nothing of runs without it.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check bytewax==0.21.1
cat >copies.py <<'PY'
import copy
import sys
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.operators import StatefulLogic
from bytewax.testing import TestingSink, TestingSource, run_main

ROWS, BEGIN = 100, datetime(2026, 1, 1, tzinfo=UTC)


class Counting(StatefulLogic):
    """How many rows; and how often that was asked for."""

    snapshots = 0

    def __init__(self, state):
        self.state = state or 0

    def on_item(self, value):
        self.state += 1
        return [], False

    def snapshot(self):
        Counting.snapshots += 1
        return self.state


def snapshots(epoch):
    flow, Counting.snapshots = Dataflow("rows"), 0
    rows = op.input("in", flow, TestingSource([("key", n) for n in range(ROWS)], batch_size=1))
    op.output("out", op.stateful("count", rows, Counting), TestingSink([]))
    run_main(flow, epoch_interval=epoch)
    return Counting.snapshots


def copied(epoch):
    """Deep copies of a window's metadata, of a hundred rows in one window."""
    flow, before = Dataflow("windows"), Copies.of_windows
    rows = op.input("in", flow, TestingSource([BEGIN + timedelta(seconds=n / 10) for n in range(ROWS)], batch_size=1))
    clock = win.EventClock(lambda at: at, wait_for_system_duration=timedelta(hours=1))
    minutes = win.TumblingWindower(timedelta(minutes=1), BEGIN)
    op.output("out", win.count_window("count", rows, clock, minutes, lambda at: "key").down, TestingSink([]))
    run_main(flow, epoch_interval=epoch)
    return Copies.of_windows - before


class Copies:
    of_windows = 0


def watched(value, *more, deepcopy=copy.deepcopy):
    Copies.of_windows += type(value).__name__.endswith("WindowerState")
    return deepcopy(value, *more)


copy.deepcopy = watched
short, long = timedelta(0), timedelta(hours=1)
seen = [snapshots(short), snapshots(long), copied(short), copied(long)]
print("no recovery; an epoch a row, an epoch for all: snapshots", seen[:2], "copies of windows", seen[2:])
sys.exit(0 if seen[0] >= ROWS and seen[1] <= 2 and seen[2] >= ROWS and seen[3] <= 2 else 1)
PY
timeout 120 tools/bin/python copies.py
