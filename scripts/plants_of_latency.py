"""Bugs in who manages latency constraints, how long sequences take, and what is done about it."""

from __future__ import annotations

from planting import Plant, one

MANAGERS, SEQUENCES, MEASURES = (
    "topology_runtime/latency/managers.py",
    "topology_runtime/latency/sequences.py",
    "topology_runtime/latency/countermeasures.py",
)
WATCH = "topology_runtime/worker/latency_watch.py"
SHARED, ADDED, MEETING, HEARD, ASKED = (
    "tests/latency/test_who_manages_what.py",
    "tests/latency/test_slowest_sequences.py",
    "tests/latency/test_meeting_a_limit.py",
    "tests/latency/test_what_a_controller_hears_of_paths.py",
    "tests/worker/test_latency_watch.py",
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
        "a manager says once what it wants",
        WATCH,
        "                self._pace(path.wanted(), now_ns)\n",
        "                pass\n",
        test=ASKED,
    ),
    one(
        "what a manager wanted holds for ever",
        WATCH,
        "            wishes.by = {slot: said for slot, said in wishes.by.items() if now_ns - said[1] <= LAPSED_NS}\n",
        "",
        test=ASKED,
    ),
    one(
        "a manager may pace a channel that is not there",
        WATCH,
        "        return edge is not None and ends == (edge.source, edge.target)\n",
        "        return edge is not None\n",
        test=ASKED,
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
