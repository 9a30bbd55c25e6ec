"""Bugs in what bounds the memory of what is in flight, for scripts/mutate."""

from __future__ import annotations

from planting import APPLIED, CORE, KEYED, KEYED_ROWS, LEDGER, SOURCE, Plant, one

OF_BOUNDS: tuple[Plant, ...] = (
    one(
        "what stands still is sent again and again",
        LEDGER,
        "        moves = now_ns - self._last_done_ns < STUCK_NS\n",
        "        moves = True\n",
        test="tests/worker/test_ledger.py",
    ),
    one(
        "rows that a task makes large count as they were read",
        CORE,
        "        made_bytes = self._sizes.made_bytes(batch.rows, len(roots))\n",
        "        made_bytes = 0\n",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "all is in flight before it is known what becomes of it",
        LEDGER,
        "                fit = min(fit, AT_FIRST_ROWS - moving)\n",
        "                fit = int(fit)\n",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "rows that grow while they are kept count as if they were not",
        LEDGER,
        "            if not root.kept:\n                self.in_flight_bytes += made",
        "            if root:\n                self.in_flight_bytes += made",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "rows that were let go are sent again as none",
        SOURCE,
        "        if len(root.rows) == root.count:\n",
        "        if root.rows is not None:\n",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "rows that were let go wait for the next look at a live source",
        SOURCE,
        "            quiet = self.spool is None and now_ns < self.quiet_until_ns\n",
        "            quiet = now_ns < self.quiet_until_ns\n",
        test="tests/worker/test_arriving_sources.py",
    ),
    one(
        "all rows that are kept are held by their source as well",
        LEDGER,
        "        if way < 0 and self.window_bytes and self.held_bytes > self.window_bytes:\n",
        "        if self.held_bytes < 0:\n",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "large rows in flight are as many as small ones",
        LEDGER,
        "            room = min(room, max(fit, self.least_rows - moving))\n",
        "",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "rows that are done still take room by their bytes",
        LEDGER,
        "        self.in_flight_bytes -= root.size_bytes\n        self._replaying",
        "        self._replaying",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "a task that waits in many threads waits for large rows",
        SOURCE,
        "IN_FLIGHT_BYTES, ROWS_A_THREAD * len(orders.task_of)",
        "IN_FLIGHT_BYTES, 0",
        test="tests/worker/test_bytes_in_flight.py",
    ),
    one(
        "what came of rows is kept as long as they are known",
        APPLIED,
        "            elif frame.came:\n",
        "            elif frame is None:\n",
        test="tests/worker/test_applied_and_done.py",
    ),
    one(
        "roots of a source before it was started anew count as done by its new sequence",
        APPLIED,
        "        return root.key.incarnation == incarnation and root.key.sequence < floor\n",
        "        return incarnation >= 0 and root.key.sequence < floor\n",
        test="tests/worker/test_applied_and_done.py",
    ),
    one(
        "large rows that came of a state are not told to the source",
        KEYED_ROWS,
        "                acks.made = self.results.around.number, acks.made[1] + made_bytes\n",
        "                acks.made = 0, 0\n",
        test="tests/worker/test_applied_and_done.py",
    ),
    one(
        "a snapshot waits a second however much it will have to hold",
        KEYED,
        " or rows.uncovered_bytes >= SNAPSHOT_BYTES\n",
        "\n",
        test="tests/worker/test_applied_and_done.py",
    ),
)
