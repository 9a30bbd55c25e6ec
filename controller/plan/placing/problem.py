"""Paper 2's problem (section 2) and what an answer to it is worth. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

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
