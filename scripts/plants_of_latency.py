"""Bugs in who manages latency constraints, how long sequences take, and what is done about it."""

from __future__ import annotations

from planting import Plant, one

MANAGERS, SEQUENCES, MEASURES = (
    "topology_runtime/latency/managers.py",
    "topology_runtime/latency/sequences.py",
    "topology_runtime/latency/countermeasures.py",
)
SHARED, ADDED, MEETING, HEARD = (
    "tests/latency/test_who_manages_what.py",
    "tests/latency/test_slowest_sequences.py",
    "tests/latency/test_meeting_a_limit.py",
    "tests/latency/test_what_a_controller_hears_of_paths.py",
)
ACKS, OUTPUTS = "topology_runtime/worker/acks.py", "topology_runtime/worker/outputs.py"

OF_LATENCY: tuple[Plant, ...] = (
    one(
        "senders in slots without a receiver are forgotten",
        MANAGERS,
        "frozenset().union(self._astray, *(",
        "frozenset().union(*(",
        test=SHARED,
    ),
    one(
        "threads that no row reaches have a manager",
        MANAGERS,
        "        path.append(channels[-1].after(path[-1]))",
        "        path.append(receivers)",
        test=SHARED,
    ),
    one(
        "the anchor is in the fewest workers",
        MANAGERS,
        "key=lambda place: (-workers[place], fewest[place], place)",
        "key=lambda place: (workers[place], fewest[place], place)",
        test=SHARED,
    ),
    one(
        "the slowest way through a channel leaves out what comes after it",
        SEQUENCES,
        "threads_ms.get(target, 0.0) + beyond[target]\n",
        "threads_ms.get(target, 0.0)\n",
        test=ADDED,
    ),
    one(
        "what is not measured counts as a sequence",
        SEQUENCES,
        "            if sender in to[-1]:\n",
        "            if True:\n",
        test=ADDED,
    ),
    one(
        "what was measured before a step counts after it",
        MEASURES,
        "        if now_s < self._deaf_until_s:\n            return\n",
        "",
        test=MEETING,
    ),
    one(
        "gaps are the limit, not shares of it",
        MEASURES,
        "gap_ms = share_ms(limit_ms, found.fixed[pair], len(self._edges))",
        "gap_ms = share_ms(limit_ms, found.fixed[pair], 1)",
        test=MEETING,
    ),
    one(
        "a thread is in two chains",
        MEASURES,
        "free = taken.isdisjoint(pair) and",
        "free = pair not in self._chained and",
        test=MEETING,
    ),
    one(
        "idle threads get larger frames too",
        MEASURES,
        "for thread in pair) >= BUSY",
        "for thread in pair) >= 0.0",
        test=MEETING,
    ),
    one(
        "the alarm stays when all constraints hold",
        "controller/core/path_watch.py",
        'clear_alarm(turn, "latency", "all latency constraints hold")',
        "pass",
        test=HEARD,
    ),
    one(
        "a buffer leaves as all do, whatever was asked for",
        OUTPUTS,
        "self._paces[pace.edge, pace.target] = pace",
        "pass",
        test="tests/worker/test_paces_of_buffers.py",
    ),
)
