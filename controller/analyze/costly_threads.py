"""The one thread whose rows cost more CPU than those of its siblings, window after window. Pure.

Siblings are threads of one task on VMs of one speed. Compared is CPU per row with the median of the others, in windows
in which each had rows enough and was not throttled; a thread that had fewer rows than they is not judged, since rows
that come alone cost more (decision 20). All the others have to agree, and so has another thread on its VM: where a
neighbour makes rows costly, it is the VM that is slow (`vm_speeds_seen`). Tasks whose threads get rows by key, and
sources, are left alone: their rows differ.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology

WINDOWS = 6  # in a row
COSTLY = 1.2  # times the siblings' median
ALIKE = 1.1  # … of all others, at most
SIBLINGS = 3  # at least
ROWS_LEAST = 200
ROWS_PART = 0.7  # of the siblings' median
THROTTLED_MOST = 0.01  # of the window


class ThreadCost(NamedTuple):
    """Of one window. speed: of its VM; throttled: part of the window in which its slot was."""

    thread: int
    task: str
    slot: Slot
    speed: float
    rows: float
    cpu_s: float
    throttled: float


class CostlyThread(NamedTuple):
    """Its rows cost so many times what its siblings' do."""

    thread: int
    task: str
    slot: Slot
    times: float


def comparable(topology: Topology) -> frozenset[str]:
    """Tasks whose threads get any of the rows alike.

    >>> from headgate.topology_runtime.api.topology import Edge, Task
    >>> tasks = Task("source", kind="source"), Task("any"), Task("by_key")
    >>> edges = Edge("source", "any"), Edge("any", "by_key", grouping="fields")
    >>> sorted(comparable(Topology("t", tasks, edges)))
    ['any']
    """
    into: defaultdict[str, set[str]] = defaultdict(set)
    for edge in topology.edges:
        into[edge.target].add(edge.grouping)
    return frozenset(
        task.name
        for task in topology.tasks
        if into[task.name] == {"shuffle"} and task.kind not in ("source", "keyed") and task.state != "keyed"
    )


def costly_in(window: Sequence[ThreadCost]) -> tuple[CostlyThread, ...]:
    """Those that are costly in this window, of tasks that may be compared."""
    alike: defaultdict[tuple[str, float], list[ThreadCost]] = defaultdict(list)
    for one in window:
        if one.rows >= ROWS_LEAST and one.cpu_s > 0 and one.throttled <= THROTTLED_MOST:
            alike[one.task, one.speed].append(one)
    times = {
        thread: part for of in alike.values() if len(of) > SIBLINGS for thread, part in _times(of).items()
    }
    judged = [one for of in alike.values() for one in of if one.thread in times]
    return tuple(
        CostlyThread(one.thread, one.task, one.slot, times[one.thread])
        for one in judged
        if times[one.thread] >= COSTLY
        and _alone(one, judged, times)
        and _many(one, alike[one.task, one.speed])
    )


class CostlyThreads:
    """Windows of one plan after the other; `judged`: how many in a row each thread was costly in."""

    def __init__(self) -> None:
        self.judged: dict[int, list[CostlyThread]] = {}

    def add(self, window: Sequence[ThreadCost]) -> CostlyThread | None:
        """The thread that is costly in as many windows as it takes, up to this one."""
        now = {one.thread: one for one in costly_in(window)}
        self.judged = {number: [*self.judged.get(number, []), one] for number, one in now.items()}
        for seen in self.judged.values():
            if len(seen) >= WINDOWS and len({one.slot for one in seen}) == 1:
                return seen[-1]._replace(times=median(one.times for one in seen))
        return None


def _cost(one: ThreadCost) -> float:
    return one.cpu_s / one.rows


def _times(of: Sequence[ThreadCost]) -> dict[int, float]:
    """Thread → its cost, times the median of all others."""
    costs = sorted(map(_cost, of))
    found = {}
    for one in of:
        cost, low = _cost(one), bisect_left(costs, _cost(one))
        near = [costs[place + (place >= low)] for place in ((len(of) - 2) // 2, (len(of) - 1) // 2)]
        found[one.thread] = cost / (sum(near) / 2)
    return found


def _many(one: ThreadCost, of: Sequence[ThreadCost]) -> bool:
    return one.rows >= ROWS_PART * median(other.rows for other in of if other is not one)


def _alone(one: ThreadCost, judged: Sequence[ThreadCost], times: dict[int, float]) -> bool:
    """Are all its siblings as they were, and is there a thread in another slot of its VM that is?"""
    others = [other for other in judged if other is not one]
    near = [other for other in others if other.slot.vm == one.slot.vm]
    siblings = [other for other in others if other.task == one.task and other.speed == one.speed]
    return (
        any(other.slot != one.slot for other in near)
        and all(times[other.thread] < ALIKE for other in (*near, *siblings))
    )  # fmt: skip
