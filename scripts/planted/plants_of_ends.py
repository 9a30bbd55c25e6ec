"""Bugs at the end of the input."""

from __future__ import annotations

from planted.planting import (
    EXECUTE,
    KEYED_ROWS,
    LEDGER,
    LOOP,
    SOURCE,
    WINDOWS,
    WORKER,
    Plant,
    one,
)

STEPS, END = f"{EXECUTE}/end_of_input.py", f"{EXECUTE}/run_end.py"
FINISH = "tests/worker/keyed_state/test_finish.py"
SOURCES = "tests/worker/sources/test_end_of_input.py"
PANES = "tests/worker/process/test_panes_at_the_end.py"
RUNS = "tests/enactment/test_runs_that_end.py"

OF_ENDS: tuple[Plant, ...] = (
    one(
        "a key is finished twice",
        KEYED_ROWS,
        "known = self.applied.outputs(groups, [key_range])\n        out = list(known[0]) if known else []",
        "known = None\n        out: list[Any] = []",
        test=FINISH,
    ),
    one(
        "keys of a range that moved are finished",
        KEYED_ROWS,
        "            if key_range in self.ranges.owned:\n                self._finish(row, now_ns, acks)",
        "            if 0 <= key_range:\n                self._finish(row, now_ns, acks)",
        test=FINISH,
    ),
    one(
        "keys are finished before the last rows are read",
        SOURCE,
        "elif end.finish and self.stopped_reading:",
        "elif end.finish:",
        test=SOURCES,
    ),
    one(
        "keys are finished before the panes above them have fired",
        STEPS,
        "    for task in in_order(topology):\n",
        "    for task in reversed(in_order(topology)):\n",
        ("at the sink", "not yet", "'left'"),
        shape="ends",
        seeds=300,
    ),
    one(
        "a step begins before the one before it is done",
        STEPS,
        "now.rests == end.number or",
        "abs(now.rests) >= end.number - 1 or",
        ("at the sink", "not yet", "'left'"),
        shape="ends",
        seeds=300,
    ),
    one(
        "a source holds still while rows are under way",
        LEDGER,
        "return self.waits is not None and self.open.get(self.attempt) == reduce(xor, self.waits.values(), 0)",
        "return self.waits is not None",
        test=SOURCES,
    ),
    one(
        "panes fire in a worker that came meanwhile",
        WINDOWS,
        "if (self.core.post.slot, self.core.post.incarnation) in end.workers:",
        "if end.workers:",
        test=PANES,
    ),
    one(
        "nobody minds that a worker was replaced",
        STEPS,
        "lost = end.workers != _workers(k) or ",
        "lost = ",
        test=RUNS,
    ),
    one(
        "nobody minds that rows were lost",
        SOURCE,
        "            self.rests = -end.number\n",
        "            pass\n",
        test=SOURCES,
    ),
    one(
        "half joins fire when a run is stopped",
        WINDOWS,
        "return not whole and self.max_age_s is None",
        "return False",
        test=PANES,
    ),
    one(
        "rows of panes are let go when these fire",
        WINDOWS,
        "rows = self._kept_by(pane, keeper, acks) if keeper else self._released(pane, acks)",
        "rows = self._released(pane, acks)",
        test=PANES,
    ),
    one(
        "the run ends before it is drained",
        END,
        "        drained = empty or go_on(turn, idle_ns)\n",
        "        drained = empty or go_on(turn, idle_ns) or not k.enacting\n",
        ("at the sink", "not yet", "'left'"),
        shape="ends",
        seeds=300,
    ),
    one(
        "no plan is made for a VM that is lost while the run ends",
        LOOP,
        'turn.stage in ("running", "ending", "draining") and',
        'turn.stage == "running" and',
        test=RUNS,
    ),
    one(
        "the end is told to a journal that takes nothing, and forgotten",
        END,
        "        if not k.durable.draining:  # the journal did not take it\n",
        "        if False:\n",
        test=RUNS,
    ),
    one(
        "a source that is started again reads what was known of it",
        SOURCE,
        "        if self._to_its_end:\n            return None\n",
        "",
        test=SOURCES,
    ),
    one(
        "words of a source that leaves are waited for",
        SOURCE,
        "            self.ends.clear()\n",
        "            return\n",
        test=SOURCES,
    ),
    one(
        "a machine is given back with events that nobody read",
        END,
        "if events := held_on(k, vm.vm):",
        "if events := 0:",
        test=RUNS,
    ),
    one(
        "a machine that nothing runs on is given back with events that nobody read",
        f"{EXECUTE}/rollout.py",
        " | {vm for _, vm in unread(k)}",
        "",
        test="tests/enactment/test_faults_and_stories.py",
    ),
    one(
        "rows that may have counted twice are forgotten by a restart",
        KEYED_ROWS,
        "        self.applied.again_at_most = again\n",
        "",
        test="tests/worker/keyed_state/test_snapshot_files.py",
    ),
    one(
        "what a lost source had open is not read again in its place",
        f"{EXECUTE}/handover.py",
        "if gap.thread not in there and reader is not None and _may_stand_in(k):",
        "if False:",
        test="tests/simulation/test_impatient_hand_over.py",
    ),
    one(
        "an orderly close takes the snapshot along",
        f"{WORKER}/process/task_thread.py",
        "        if keyed.rows.ranges.versions:\n",
        "        if False:\n",
        test="tests/worker/process/test_snapshots_at_a_close.py",
    ),
)
