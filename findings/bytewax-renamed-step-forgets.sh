#!/usr/bin/env bash
# bytewax: a step that has another name after a restart begins without its state, in the middle of the input
#
# Guess     Recovery refuses a flow that does not fit what is saved: a stateful step that is not in it any more, or one
#           that it has no state for although its source goes on in the middle.
# Fact      Neither is said. A renamed step begins anew, while the source goes on where it was: counts lack all rows from
#           before. Its old state stays in the store: named as before again, it goes on from there without the rows
#           between. A renamed *source* begins at the first row, and the old counts take all rows once more. Flink refuses
#           such a state unless it is told to leave it out.
# Versions  bytewax 0.21.1, Python 3.11
# Date      2026-12-01
# Source    this script; bytewax's documentation of recovery says that step ids should not change
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check bytewax==0.21.1
mkdir saved
timeout 120 tools/bin/python - <<'PYTHON'
import sys
from datetime import timedelta
from pathlib import Path

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import TestingSink, run_main


class Rows(StatefulSourcePartition):
    def __init__(self, begin, end):
        self.next, self.end = begin or 0, end

    def next_batch(self):
        if self.next == self.end:
            raise StopIteration
        self.next += 1
        return [("key", self.next)]

    def snapshot(self):
        return self.next


class Until(FixedPartitionedSource):
    def __init__(self, end):
        self.end = end

    def list_parts(self):
        return ["part"]

    def build_part(self, step_id, part, begin):
        return Rows(begin, self.end)


def counted(step, end, source="in"):
    """By the step of this name, once the source has given as many rows."""
    flow, found = Dataflow("flow"), []
    rows = op.input(source, flow, Until(end))
    counts = op.stateful_map(step, rows, lambda count, row: ((count or 0) + 1,) * 2)
    op.output("out", counts, TestingSink(found))
    run_main(flow, epoch_interval=timedelta(0), recovery_config=RecoveryConfig("saved"))
    return found[-1][1]


init_db_dir(Path("saved"), 1)
found = [counted("count", 10), counted("count", 20), counted("tally", 30), counted("count", 40)]
found.append(counted("count", 50, source="rows"))
print("counts, of 10, 20, 30, 40 and 50 rows:", found)
sys.exit(found != [10, 20, 10, 30, 80])
PYTHON
