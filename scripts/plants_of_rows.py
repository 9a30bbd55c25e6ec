"""Bugs in how rows travel: ledgers, frames, kept rows, sources, keyed state."""

from __future__ import annotations

from planting import (
    ACKS,
    ATTEMPTS,
    BATCHES,
    BURIAL,
    CODE,
    COLUMNS,
    CORE,
    GATHERING,
    KEYED_ROWS,
    LATE,
    LEDGER,
    LOST,
    OUTBOX,
    OUTPUTS,
    PANES,
    SAVED,
    SOURCE,
    WANTED,
    WINDOWS,
    WORKER,
    Plant,
    one,
)

LEDGERS = (
    one(
        "a root is done when it is sent",
        LEDGER,
        "        if left == 0:",
        "        if left == 0 or not held:",
        LOST,
    ),
    one(
        "a fault sends nothing again",
        LEDGER,
        "self.again.extend(s for s in self._open if s not in waiting)",
        "self.again.extend(s for s in () if s not in waiting)",
        LATE,
        shape="line",
        kinds=("kill_worker",),
    ),
    one(
        "all that was read is acked",
        LEDGER,
        "return self.position if first is None else first.position",
        "return self.position",
        SAVED,
    ),
    one(
        "the window has no end",
        LEDGER,
        "        return max(0, room)\n",
        "        return self.window_rows\n",
        ("rows in flight",),
        shape="line",
        more={"queue_ms": 1800, "faults": 0, "rate_tps": 45.0},
    ),
    one(
        "a replay has the name of the first attempt",
        LEDGER,
        "        root.attempt += 1\n",
        "",
        LATE,
        shape="line",
        kinds=("kill_worker",),
    ),
    one(
        "a position is passed over",
        LEDGER,
        "        self.position += len(rows)\n",
        "        self.position += len(rows) + (self.sequence % 50 == 49)\n",
        (*SAVED, *LOST, *LATE),
    ),
    one(
        "what is done stays in flight",
        LEDGER,
        "        self.in_flight -= root.count\n",
        "",
        ("rows in flight", "the summary", "a full ledger", *LATE),
    ),
    one(
        "replays wait for those that are done",
        LEDGER,
        "        self.in_flight_bytes -= root.size_bytes\n        self._replaying.pop(root.sequence, None)\n",
        "        self.in_flight_bytes -= root.size_bytes\n",
        test="tests/worker/test_ledger.py",
    ),
    one(
        "open roots are said to be done",
        LEDGER,
        "return next(iter(self._open), self.sequence)",
        "return self.sequence",
        (*LATE, *LOST),
        shape="join",
    ),
    one(
        "kept rows fill the window",
        LEDGER,
        "            self._moves(root, -1)\n            self._learn",
        "            self._learn",
        LATE,
        shape="long holds",
        seeds=12,
    ),
    one(
        "late acks never count (B3)",
        LEDGER,
        "if root is None or ack.key.attempt not in root.open:",
        "if root is None or ack.key.attempt != root.attempt:",
        test="tests/worker/test_ledger.py",
    ),
    one(
        "a root that is past its deadline is forgotten",
        LEDGER,
        "                self.again.append(root.sequence)\n",
        "",
        test="tests/worker/test_ledger.py",
    ),
    one(
        "a kept root has the deadline of others",
        LEDGER,
        "root.deadline_ns = now_ns + KEPT_DEADLINE_NS",
        "root.deadline_ns = now_ns + FIRST_DEADLINE_NS",
        test="tests/worker/test_ledger.py",
    ),
)

TUPLES = (
    one(
        "one share for two input frames (A1)",
        OUTPUTS,
        "        share = self._random64()\n        given[root.key] = given.get(root.key, 0) ^ share\n"
        "        known = buffer.roots.get(root.key)\n        if known is not None:\n"
        "            known[1].id ^= share\n            return known[0]\n",
        "        known = buffer.roots.get(root.key)\n        if known is not None:\n"
        "            given[root.key] = given.get(root.key, 0) ^ known[1].id\n            return known[0]\n"
        "        share = self._random64()\n        given[root.key] = given.get(root.key, 0) ^ share\n",
        (*LOST, *LATE),
        shape="diamond",
    ),
    one(
        "full frames are sent twice",
        OUTPUTS,
        "frames, self.full = self.full, []",
        "frames, self.full = self.full * 2, []",
        ("duplicates", *LATE, *LOST),
    ),
    one(
        "full frames are forgotten",
        OUTPUTS,
        "frames, self.full = self.full, []",
        "frames, self.full = [], []",
        LATE,
    ),
    one(
        "kept rows are acked at once (A2)",
        ACKS,
        "yield BufferedRow(row, edge, root, offset, variant, random64(), along)",
        "yield BufferedRow(row, edge, root, offset, variant, 0, along)",
        LOST,
        shape="batch",
    ),
    one(
        "a pane's output names its first row only",
        ACKS,
        "for row in rows for root in row.roots if root.key != first.key}",
        "for row in rows for root in row.roots if root.key is None}",
        LOST,
        shape="join of sources",
    ),
    one(
        "what a batch finished is not recorded",
        WINDOWS,
        "            self._finish(rows)\n",
        "            pass\n",
        (*LOST, "named"),
        shape="batch",
    ),
    one(
        "what a sink finished is not recorded",
        CODE,
        "            self.results.finish(batch)\n",
        "            pass\n",
        LOST,
        shape="line",
    ),
    one(
        "rows of a frame share one identity",
        BURIAL,
        "        root.position + place[1],\n",
        "        root.position,\n",
        ("dead letter",),
        shape="failing",
    ),
    one(
        "a healthy row is buried with the one that failed",
        f"{WORKER}/attempts.py",
        "            if tries >= TRIES:\n                failures.append(failure(stopped, error))\n",
        "            if tries >= TRIES:\n                failures.append(failure(max(0, stopped - 1), error))\n",
        test="tests/worker/test_attempts.py",
    ),
    one(
        "a row that failed comes to nothing",
        CODE,
        "self.letters.append(letter_of(",
        "(lambda _: None)(letter_of(",
        LOST,
        shape="failing",
    ),
    one(
        "rows kept by a leaver go nowhere",
        WINDOWS,
        "            core.settle(self.windows.hand_over(self._keeper(orders), now_ns))\n",
        "            pass\n",
        LATE,
        shape="join",
    ),
    one(
        "frames are taken before there are routes",
        CORE,
        "self.may_work = self.routed and orders",
        "self.may_work = orders",
        (*LOST, *LATE),
        test="tests/simulation/test_found_by_seeds.py",
    ),
    one(
        "rows of different generations meet in a pane",
        PANES,
        "            if generation(present[0].root.key) > generation(kept.root.key):\n"
        "                return None\n            self._give_up(pane, position)\n",
        "            pass\n",
        test="tests/worker/test_window_panes.py",
    ),
    one(
        "rows of a source that is gone are kept",
        PANES,
        "            self._gone.add(thread)\n",
        "            continue\n",
        test="tests/worker/test_window_panes.py",
    ),
)

SOURCES = (
    Plant(
        "a leaver ends with a full ledger (A3)",
        (
            (
                SOURCE,
                "return self.ledger is None or self.ledger.empty",
                "return True",
            ),
            (
                SOURCE,
                "return self.stopped_reading and self.empty",
                "return self.stopped_reading",
            ),
        ),
        ("full ledger", "unaccounted", "reached no sink"),
        shape="line",
        more={"queue_ms": 1800, "faults": 0},
    ),
    one(
        "a leaving source reads on",
        SOURCE,
        "if not (self.leaving or draining):",
        "if not draining:",
        (*LATE, "duplicates", "not by routes"),
    ),
    one(
        "a source starts where the last one stopped reading",
        SOURCE,
        "        return start.position\n",
        "        return start.until\n",
        ("unaccounted", "reached no sink", "lacks", *SAVED),
    ),
    one(
        "a source is told of no fault",
        SOURCE,
        "self._faults, self._fault_due_ns = count, now_ns + FAULT_PAUSE_NS",
        "self._faults = count",
        LATE,
        shape="line",
        kinds=("kill_worker",),
    ),
    one(
        "read is taken for done (B5)",
        "controller/knowledge/knowledge.py",
        "self.main, self.main_done = max(self.main, now.acked)",
        "self.main, self.main_done = max(self.main, now.emitted)",
        SAVED,
    ),
    one(
        "positions go back (B5)",
        "controller/knowledge/knowledge.py",
        "self.main, self.main_done = max(self.main, now.acked)",
        "self.main, self.main_done = now.acked",
        SAVED,
        kinds=("kill_agent",),
    ),
    one(
        "a start is where reading ended",
        WANTED,
        "return None if waits else known.main\n",
        "return None if waits else known.emitted\n",
        ("unaccounted", "reached no sink", "lacks", *SAVED),
    ),
)

STATES = (
    one(
        "a range comes without its state (A4)",
        KEYED_ROWS,
        "if offer is not None and offer.version > version:",
        "if offer is not None and offer.version < version:",
        ("lacks", "says"),
        shape="keyed",
        more={"faults": 0},
    ),
)

LEAVING = (
    one(
        "a small frame overtakes what waits",
        OUTBOX,
        "if not self._items and (channel",
        "if (channel",
        test="tests/worker/test_outbox.py",
    ),
    one(
        "the sender sleeps over what it did not take at once",
        OUTBOX,
        "        if self._items:\n            self.wake()",
        "        pass",
        test="tests/worker/test_outbox.py",
    ),
)

LETTERS = (
    one(
        "a letter whose row died again counts as done",
        CORE,
        "        if results.refused:\n",
        "        if results.refused and False:\n",
        ("reached no sink",),
        shape="failing",
    ),
    one(
        "a letter is dropped when it is sent",
        "controller/execute/sending_again.py",
        "for serial in line.here.keys() & frozenset(now.done):",
        "for serial in line.here.keys() & line.there:",
        ("reached no sink",),
        shape="failing",
    ),
    one(
        "a letter that is asked for once more is taken for the same sending",
        "controller/knowledge/letters.py",
        "        self.asked[number] = self._serial\n",
        "        self.asked[number] = number\n",
        test="tests/dead_letters/test_letters_asked_for.py",
    ),
    one(
        "letters of a turn that could not be journaled are forgotten",
        "controller/monitor/hearing.py",
        "    counts.letters.put_back(records)\n",
        "",
        ("never written", "vanished"),
        shape="failing",
        kinds=("fail_journal",),
    ),
)

TOGETHER = (
    one(
        "a batched task may give fewer rows than it took",
        BATCHES,
        "        if len(results) != len(rows):\n",
        "        if len(results) > len(rows):\n",
        test="tests/worker/test_batched_tasks.py",
    ),
    one(
        "all rows of a call that raised are dead letters",
        ATTEMPTS,
        "            if stop - start == 1:\n                failures.append(failure(start, last))\n",
        "            if stop > start:\n                failures += [failure(n, last) for n in range(start, stop)]\n",
        test="tests/worker/test_batched_tasks.py",
    ),
    one(
        "a root of frames that are taken together has the id of the first",
        GATHERING,
        "        known.id ^= root.id\n",
        "",
        test="tests/worker/test_gathered_frames.py",
    ),
    one(
        "columns that are joined become floats",
        COLUMNS,
        "((array.dtype, array.shape[1:]) for array in one.arrays)",
        "(array.shape[1:] for array in one.arrays)",
        test="tests/worker/test_columns.py",
    ),
    one(
        "objects in columns pass unseen",
        COLUMNS,
        "        return all(_code(column) != OBJECTS for column in self._columns)\n",
        "        return True\n",
        test="tests/worker/test_columns.py",
    ),
)

OF_ROWS: tuple[Plant, ...] = (*LEDGERS, *TUPLES, *SOURCES, *STATES, *LEAVING, *LETTERS, *TOGETHER)
