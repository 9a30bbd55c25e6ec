"""Paper 2's problem (section 2) and what an answer to it is worth. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


# ── What is placed so far, and how much of each node is free. Pure ──────────────────────────────────────


class Bins:
    """`free`: of each node; `at`: per group, node → tasks; `left`: per group, tasks that are nowhere yet."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.each = [group.each for group in problem.groups]
        self.slack = SLACK * max([node.capacity for node in problem.nodes], default=0.0)
        self.free = [node.capacity for node in problem.nodes]
        self.at: list[dict[int, int]] = [{} for _ in problem.groups]
        self.left = [group.tasks for group in problem.groups]
        self._heap = [(-free, node) for node, free in enumerate(self.free)]
        heapify(self._heap)

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
        for at in self.at:
            moved = at.pop(emptied, 0)
            if moved:
                at[kept] = at.get(kept, 0) + moved
        self._set_free(kept, self.free[kept] - load)
        self._set_free(emptied, nodes[emptied].capacity)
        return emptied, kept

    def put_rest(self) -> None:
        """Alg. 3: what is left, the dearest first, one by one to the emptiest node; a task that fits nowhere has one
        other task moved out of its way. If tasks are out then, all is put anew so that they fit, whatever it saves."""
        if not any(self.left):
            return
        order = sorted(
            (g for g, left in enumerate(self.left) if left), key=lambda g: self.each[g], reverse=True
        )
        for group in order:
            while self.left[group]:
                found: int | None = self.emptiest()
                if not self.fits(group, self.emptiest()):
                    found = self._room_made(self.each[group])
                if found is None:
                    break
                self.put(group, found, 1)
        if any(self.left):
            self._place_again()

    def _room_made(self, need: float) -> int | None:
        """The emptiest node that holds `need` once one task of it is moved to another, which is done."""
        order = sorted(range(len(self.free)), key=self.free.__getitem__, reverse=True)
        for node in order:
            for group, at in enumerate(self.at):
                each = self.each[group]
                if not (at.get(node) and each < need <= self.free[node] + each + self.slack):
                    continue
                other = next((n for n in order if n != node), None)
                if other is not None and each <= self.free[other] + self.slack:
                    self.take(group, node)
                    self.put(group, other, 1)
                    return node
        return None

    def _place_again(self) -> None:
        """All tasks, the dearest first, each to the fullest node that holds it; kept if all of them fit."""
        fresh = Bins(self.problem)
        for group in sorted(range(len(self.each)), key=self.each.__getitem__, reverse=True):
            while fresh.left[group]:
                nodes = [node for node in range(len(fresh.free)) if fresh.fits(group, node)]
                if not nodes:
                    return
                node = min(nodes, key=fresh.free.__getitem__)
                fresh.put(group, node, min(fresh.left[group], fresh.fits(group, node)))
        self.free, self.at, self.left, self._heap = fresh.free, fresh.at, fresh.left, fresh._heap

    def take(self, group: int, node: int) -> None:
        """One task off a node."""
        at = self.at[group]
        at[node] -= 1
        if not at[node]:
            del at[node]
        self.left[group] += 1
        self._set_free(node, self.free[node] + self.each[group])

    def _set_free(self, node: int, free: float) -> None:
        self.free[node] = free
        heappush(self._heap, (-free, node))
