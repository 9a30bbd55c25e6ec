"""Paper 2's problem (section 2) and what an answer to it is worth. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush

import msgspec

SLACK = 1e-9  # relative: what a sum of costs may be over a capacity by rounding


class Group(msgspec.Struct, frozen=True):
    """`tasks` tasks that are alike; `cost`: of all of them, in the unit of the nodes' capacities."""

    id: str
    tasks: int
    cost: float

    @property
    def each(self) -> float:
        return self.cost / self.tasks


class Flow(msgspec.Struct, frozen=True):
    """What all tasks of two groups say to each other, of `traffic` in all; each task to each alike."""

    a: int
    b: int
    traffic: float


class Node(msgspec.Struct, frozen=True):
    id: str
    capacity: float


class Problem(msgspec.Struct, frozen=True):
    """Flows name groups by their place, each pair of groups once."""

    groups: tuple[Group, ...]
    flows: tuple[Flow, ...]
    nodes: tuple[Node, ...]

    @property
    def total_traffic(self) -> float:
        return math.fsum(flow.traffic for flow in self.flows)

    @property
    def total_cost(self) -> float:
        return math.fsum(group.cost for group in self.groups)

    @property
    def total_capacity(self) -> float:
        return math.fsum(node.capacity for node in self.nodes)


Counts = tuple[Mapping[int, int], ...]  # per group: node → how many of its tasks are there
Order = Callable[[Problem], list[Flow]]  # in which pairs of groups come


def saved(problem: Problem, counts: Sequence[Mapping[int, int]]) -> float:
    """The traffic between tasks that share a node (φ of section 2.2)."""
    return math.fsum(
        flow.traffic * together(counts[flow.a], counts[flow.b])
        / (problem.groups[flow.a].tasks * problem.groups[flow.b].tasks)
        for flow in problem.flows
    )  # fmt: skip


def together(one: Mapping[int, int], other: Mapping[int, int]) -> int:
    """Pairs of tasks on one node."""
    if len(one) > len(other):
        one, other = other, one
    return sum(count * other.get(node, 0) for node, count in one.items())


def missing(problem: Problem, counts: Sequence[Mapping[int, int]]) -> dict[str, int]:
    """Group → how many of its tasks are nowhere, where any is."""
    left = {
        group.id: group.tasks - sum(at.values()) for group, at in zip(problem.groups, counts, strict=True)
    }
    return {name: count for name, count in left.items() if count}


def significance(problem: Problem) -> list[Flow]:
    """The flows by falling relative significance (Eq. 2): traffic for each unit of cost."""
    groups = problem.groups

    def worth(flow: Flow) -> float:
        cost = groups[flow.a].cost + groups[flow.b].cost
        return flow.traffic / cost if cost > 0 else math.inf

    return sorted(problem.flows, key=worth, reverse=True)  # stable: ties in their order


def by_traffic(problem: Problem) -> list[Flow]:
    """The flows by falling traffic of the groups: what top-down allocation is compared with (Fig. 8, TD-IMC)."""
    return sorted(problem.flows, key=lambda flow: flow.traffic, reverse=True)


def balanced(problem: Problem, tolerance: float) -> Problem:
    """The problem whose nodes hold `tolerance` (above 1) times what they would hold on average, and no more than they
    can: μ of a cluster that is to be evenly loaded (section 2.2)."""
    if math.isinf(tolerance):
        return problem
    most = tolerance * problem.total_cost / max(1, len(problem.nodes))
    nodes = tuple(Node(node.id, min(node.capacity, most)) for node in problem.nodes)
    return Problem(problem.groups, problem.flows, nodes)


def by_turns(a: int, b: int) -> Iterator[tuple[int, int]]:
    """Pairs of a and b tasks, the next of one group and then of the other: (0, 0), (1, 0), (1, 1), (2, 1), …"""
    m = n = 0
    while m < a and n < b:
        yield m, n
        if m + 1 < a and (m <= n or n + 1 == b):
            m += 1
        else:
            n += 1


def in_turns(a: int, b: int) -> Iterator[tuple[int, int]]:
    """All pairs of a and b tasks: those by turns, by which each has its place, then the others."""
    first = list(by_turns(a, b))
    yield from first
    seen = set(first)
    yield from ((m, n) for m in range(a) for n in range(b) if (m, n) not in seen)


# ── What is placed so far, and how much of each node is free. Pure ──────────────────────────────────────


class Bins:
    """`free`: of each node; `at`: per group, node → tasks; `on`: per node, its groups; `left`: per group, tasks that
    are nowhere yet."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.each = [group.each for group in problem.groups]
        self.slack = SLACK * max([node.capacity for node in problem.nodes], default=0.0)
        self.free = [node.capacity for node in problem.nodes]
        self.at: list[dict[int, int]] = [{} for _ in problem.groups]
        self.on: list[set[int]] = [set() for _ in problem.nodes]
        self.left = [group.tasks for group in problem.groups]
        self._heap = [(-free, node) for node, free in enumerate(self.free)]
        heapify(self._heap)
        self._queue: list[tuple[float, int]] | None = (
            None  # of a group whose tasks are left: nodes that may make room
        )

    def emptiest(self) -> int:
        """The node with the most free; the first of several."""
        heap, free = self._heap, self.free
        while -heap[0][0] != free[heap[0][1]]:  # was noted before something was put there
            heappop(heap)
        return heap[0][1]

    def fits(self, group: int, node: int) -> int:
        """How many tasks of a group a node holds."""
        each = self.each[group]
        if each <= 0:
            return self.left[group]
        return int((self.free[node] + self.slack) / each)

    def put(self, group: int, node: int, tasks: int) -> None:
        if tasks <= 0:
            return
        at = self.at[group]
        at[node] = at.get(node, 0) + tasks
        self.on[node].add(group)
        self.left[group] -= tasks
        self._set_free(node, self.free[node] - tasks * self.each[group])

    @property
    def counts(self) -> Counts:
        return tuple(self.at)

    def fuse(self, one: int, other: int) -> tuple[int, int] | None:
        """Put all that is on the smaller of two nodes onto the other, if that holds it (Alg. 1, lines 18 to 23):
        (the node that is empty now, the other)."""
        nodes = self.problem.nodes
        emptied, kept = (one, other) if nodes[one].capacity < nodes[other].capacity else (other, one)
        load = nodes[emptied].capacity - self.free[emptied]
        if load > self.free[kept] + self.slack:
            return None
        for group in self.on[emptied]:
            at = self.at[group]
            at[kept] = at.get(kept, 0) + at.pop(emptied)
        self.on[kept] |= self.on[emptied]
        self.on[emptied] = set()
        self._set_free(kept, self.free[kept] - load)
        self._set_free(emptied, nodes[emptied].capacity)
        return emptied, kept

    def put_rest(self, repair: bool = True) -> None:
        """Alg. 3: what is left, the dearest first, one by one to the emptiest node. repair: a task that fits nowhere
        has one other task moved out of its way; if tasks are out then, all is put anew so that they fit, whatever it
        saves."""
        if not any(self.left):
            return
        order = sorted(
            (g for g, left in enumerate(self.left) if left), key=lambda g: self.each[g], reverse=True
        )
        for group in order:
            self._queue = None
            while self.left[group]:
                found: int | None = self.emptiest()
                if not self.fits(group, self.emptiest()):
                    found = self._room_made(self.each[group]) if repair else None
                if found is None:
                    break
                self.put(group, found, 1)
        if repair and any(self.left):
            self._place_again()

    def _room_made(self, need: float) -> int | None:
        """The emptiest node that holds `need` once one task of it is moved to another, which is done.

        What is free only falls here, so a node that was of no use to a task is none to the next of its group, unless
        something was put there: `_queue` has the others."""
        free, first = self.free, self.emptiest()
        if self._queue is None:
            self._queue = [(-left, node) for node, left in enumerate(free)]
            heapify(self._queue)
        while self._queue:
            noted, node = self._queue[0]
            if -noted == free[node]:
                if free[node] + free[first] + 2 * self.slack < need:  # what moves is at most what `first` has
                    return None
                other = self._second() if node == first else first
                most = -math.inf if other is None else free[other] + self.slack
                for group in sorted(self.on[node]):
                    each = self.each[group]
                    if other is not None and each < need <= free[node] + each + self.slack and each <= most:
                        self.take(group, node)
                        self.put(group, other, 1)
                        return node
            heappop(self._queue)
        return None

    def _second(self) -> int | None:
        """The node with the most free but for the emptiest."""
        heap, first = self._heap.copy(), self.emptiest()
        while heap:
            noted, node = heappop(heap)
            if -noted == self.free[node] and node != first:
                return node
        return None

    def _place_again(self) -> None:
        """All tasks, the dearest first, each to the fullest node that holds it; kept if all of them fit."""
        fresh = Bins(self.problem)
        rising = sorted(
            (free, node) for node, free in enumerate(fresh.free)
        )  # of nodes by what they have free
        for group in sorted(range(len(self.each)), key=self.each.__getitem__, reverse=True):
            while fresh.left[group]:
                place = bisect_left(rising, (self.each[group] - self.slack, -1))
                while place < len(rising) and not fresh.fits(group, rising[place][1]):  # by a rounding
                    place += 1
                if place == len(rising):
                    return
                _, node = rising.pop(place)
                fresh.put(group, node, min(fresh.left[group], fresh.fits(group, node)))
                insort(rising, (fresh.free[node], node))
        self.free, self.at, self.on, self.left = fresh.free, fresh.at, fresh.on, fresh.left
        self._heap = fresh._heap

    def take(self, group: int, node: int) -> None:
        """One task off a node."""
        at = self.at[group]
        at[node] -= 1
        if not at[node]:
            del at[node]
            self.on[node].discard(group)
        self.left[group] += 1
        self._set_free(node, self.free[node] + self.each[group])

    def _set_free(self, node: int, free: float) -> None:
        self.free[node] = free
        heappush(self._heap, (-free, node))
        if self._queue is not None:
            heappush(self._queue, (-free, node))
