"""Every algorithm that places groups of tasks, by name, and an answer with its gap. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from headgate.controller.plan.placing.placement_problem import (
    SLACK,
    Counts,
    Flow,
    Problem,
    by_traffic,
    missing,
    saved,
)
from headgate.controller.plan.placing.placement_problem import missing as left_out
from headgate.controller.plan.placing.task_level import task_level
from headgate.controller.plan.placing.top_down import top_down
from headgate.controller.plan.predict.linear_program import TOLERANCE, LinearProgram
from headgate.topology_runtime.wording import did_you_mean

# ── The best placement there is, by integer programming over contents of nodes, and what no placement can
# exceed. Pure
#
# A *content* is how many tasks of each group share a node. What a node saves is quadratic in counts but a
# constant of its content, so choosing contents is linear: a column for each content that fits each size of
# node, taken as often as it is worth; each group's tasks are in all of them together (Gilmore and Gomory's
# cutting stock). Nodes of one size are not told apart, so nothing is tried twice. Where contents are too many
# to write down, a bound of each flow alone is left.

MOST_CONTENTS = 60_000  # that are written down
SECONDS = 20.0  # of the solver, unless more are given

Content = tuple[int, ...]


class Best(msgspec.Struct, frozen=True):
    """counts: the best that was found in time, None: nothing. bound: no placement of as many tasks saves more. proved:
    the time sufficed."""

    counts: Counts | None
    bound: float
    proved: bool


def optimal(problem: Problem, seconds: float = SECONDS) -> Best | None:
    """The best placement and its bound, which meet unless the time ran out; None where contents are too many."""
    table = _contents(problem)
    if table is None:
        return None
    program, columns = _program(problem, table)
    found = program.solve_whole(seconds)
    counts = _placed(problem, columns, found.x) if found.x is not None else None
    lost = sum(left_out(problem, counts).values()) if counts is not None else 0
    bound = min(problem.total_traffic, _penalty(problem) * lost - found.bound)
    return Best(counts, max(0.0, bound), found.proved)


def relaxed(problem: Problem) -> float:
    """What no placement exceeds, without looking for one: of contents that may be taken in parts, or of each flow by
    itself where there are too many contents."""
    by_flow = math.fsum(flow.traffic * _most_of(problem, flow) for flow in problem.flows)
    table = _contents(problem)
    if table is None:
        return by_flow
    program, _ = _program(problem, table)
    found = program.solve_whole(SECONDS, whole=[False] * len(program.costs))
    return min(by_flow, max(0.0, -found.bound))


def _contents(problem: Problem) -> dict[float, list[Content]] | None:
    """Size of node → every content that it holds; None where they are too many."""
    groups = problem.groups
    slack = SLACK * max((node.capacity for node in problem.nodes), default=0.0)
    table: dict[float, list[Content]] = {}
    written = 0
    for size in sorted({node.capacity for node in problem.nodes}, reverse=True):
        found: list[tuple[Content, float]] = [((), size + slack)]
        for group in groups:
            each = group.each
            most = [min(group.tasks, int(free / each) if each > 0 else group.tasks) for _, free in found]
            if written + sum(most) + len(most) > MOST_CONTENTS:
                return None
            found = [
                ((*content, count), free - count * each)
                for (content, free), fits in zip(found, most, strict=True)
                for count in range(fits + 1)
            ]
        written += len(found)
        table[size] = [content for content, _ in found if any(content)]
    return table


def _penalty(problem: Problem) -> float:
    """A task that is nowhere costs more than all traffic."""
    return problem.total_traffic + 1.0


def _program(
    problem: Problem, table: dict[float, list[Content]]
) -> tuple[LinearProgram, list[tuple[float, Content]]]:
    """Maximise what is saved (minimise its negative): a column per size and content, then one per group for tasks that
    are nowhere."""
    groups = problem.groups
    there = Counter(node.capacity for node in problem.nodes)
    columns = [(size, content) for size, contents in table.items() for content in contents]
    worth = [-_worth(problem, content) for _, content in columns]
    program = LinearProgram(
        [*worth, *(_penalty(problem) for _ in groups)],
        uppers=[*(float(there[size]) for size, _ in columns), *(float(group.tasks) for group in groups)],
    )
    for size, count in there.items():
        row = {column: 1.0 for column, (of, _) in enumerate(columns) if of == size}
        program.add(0.0, float(count), row)
    for place, group in enumerate(groups):
        row = {column: float(c[place]) for column, (_, c) in enumerate(columns) if c[place]}
        program.add(float(group.tasks), float(group.tasks), {**row, len(columns) + place: 1.0})
    return program, columns


def _worth(problem: Problem, content: Content) -> float:
    groups = problem.groups
    return sum(
        flow.traffic * content[flow.a] * content[flow.b] / (groups[flow.a].tasks * groups[flow.b].tasks)
        for flow in problem.flows
    )


def _placed(problem: Problem, columns: Sequence[tuple[float, Content]], x: Sequence[float]) -> Counts:
    nodes: dict[float, list[int]] = {}
    for place, node in enumerate(problem.nodes):
        nodes.setdefault(node.capacity, []).append(place)
    counts: list[dict[int, int]] = [{} for _ in problem.groups]
    for (size, content), taken in zip(columns, x, strict=False):
        for _ in range(round(taken)):
            taker = nodes[size].pop(0)
            for group, count in enumerate(content):
                if count:
                    counts[group][taker] = count
    return tuple(counts)


def _most_of(problem: Problem, flow: Flow) -> float:
    """The largest part of a flow that any placement saves. A node of capacity μ with the parts f and h of both groups
    holds a f + b h ≤ μ, where a and b are the groups' costs. So Σ f h is at most the largest μ / a (h adds up to 1),
    likewise μ / b; and since f h ≤ (a f + b h)² / 4ab, it is at most Σ s² / 4ab with Σ s = a + b and each s ≤ μ."""
    a, b = problem.groups[flow.a].cost, problem.groups[flow.b].cost
    sizes = sorted((node.capacity for node in problem.nodes), reverse=True)
    if not sizes:
        return 0.0
    most = 1.0
    for cost in (a, b):
        if cost > 0:
            most = min(most, sizes[0] / cost)
    if a > 0 and b > 0:
        left, squares = a + b, 0.0
        for size in sizes:
            part = min(size, left)
            squares += part * part
            left -= part
        most = min(most, squares / (4 * a * b))
    return most * (1 + TOLERANCE)


def worth_of(problem: Problem, counts: Counts) -> tuple[int, float]:
    """What placements are compared by: tasks that are nowhere (fewer is better), then what is saved."""
    return -sum(left_out(problem, counts).values()), saved(problem, counts)


# ── Ours: the better of task-level and top-down, then tasks moved and exchanged as long as that saves
# traffic. Pure
#
# Every step saves more than a rounding and keeps each node within its capacity, so it ends; `MOST_STEPS` and
# `MOST_LOOKS` bound it anyhow.

MOST_PAIRS = 20_000  # of tasks, up to which task-level allocation is tried as well
MOST_STEPS = 2_000  # that are taken
MOST_LOOKS = 2_000_000  # places looked at for them


def refined(problem: Problem) -> Counts:
    """How many tasks of each group go where; tasks that fit nowhere are left out."""
    starts = [top_down(problem)]
    if sum(problem.groups[f.a].tasks * problem.groups[f.b].tasks for f in problem.flows) <= MOST_PAIRS:
        starts.append(task_level(problem))
    return max((_Refining(problem, start).counts() for start in starts), key=lambda c: worth_of(problem, c))


class _Refining:
    def __init__(self, problem: Problem, start: Counts) -> None:
        self._at = [dict(at) for at in start]
        self._each = [group.each for group in problem.groups]
        self._links: list[dict[int, float]] = [{} for _ in problem.groups]
        for flow in problem.flows:
            link = flow.traffic / (problem.groups[flow.a].tasks * problem.groups[flow.b].tasks)
            self._links[flow.a][flow.b] = self._links[flow.b][flow.a] = link
        self._free = [node.capacity for node in problem.nodes]
        for group, at in enumerate(self._at):
            for node, count in at.items():
                self._free[node] -= count * self._each[group]
        self._slack = SLACK * max(self._free, default=0.0)
        self._least = 1e-9 * problem.total_traffic
        self._looks = 0

    def counts(self) -> Counts:
        for _ in range(MOST_STEPS):
            gain, steps = max(self._steps(), default=(0.0, ()), key=lambda found: found[0])
            if gain <= self._least:
                break
            for group, source, target in steps:
                self._move(group, source, target)
        return tuple(self._at)

    def _steps(self) -> Iterator[tuple[float, tuple[tuple[int, int, int], ...]]]:
        """(what it saves, the moves of one task each) of every move and exchange that nodes have room for."""
        nodes = range(len(self._free))
        for group, at in enumerate(self._at):
            for source in list(at):
                here = self._pull(group, source)
                for target in nodes:
                    if target == source or self._looks > MOST_LOOKS:
                        continue
                    self._looks += 1
                    there = self._pull(group, target)
                    if self._free[target] + self._slack >= self._each[group]:
                        yield there - here, ((group, source, target),)
                    yield from self._exchanges(group, source, target, there - here)

    def _exchanges(
        self, group: int, source: int, target: int, gain: float
    ) -> Iterator[tuple[float, tuple[tuple[int, int, int], ...]]]:
        for other, at in enumerate(self._at):
            if other == group or target not in at:
                continue
            self._looks += 1
            more = self._each[group] - self._each[other]
            if more > self._free[target] + self._slack or -more > self._free[source] + self._slack:
                continue
            back = self._pull(other, source) - self._pull(other, target)
            link = self._links[group].get(other, 0.0)
            yield gain + back - 2 * link, ((group, source, target), (other, target, source))

    def _pull(self, group: int, node: int) -> float:
        """What one task of a group says to all that is on a node."""
        return sum(link * self._at[other].get(node, 0) for other, link in self._links[group].items())

    def _move(self, group: int, source: int, target: int) -> None:
        at, each = self._at[group], self._each[group]
        at[source] -= 1
        if not at[source]:
            del at[source]
        at[target] = at.get(target, 0) + 1
        self._free[source] += each
        self._free[target] -= each


class Placer(msgspec.Struct, frozen=True):
    """`place`: None: by integer programming."""

    place: Callable[..., Counts] | None
    source: str


PLACERS = {
    "task-level": Placer(task_level, "paper 2, Alg. 1 to 3"),
    "top-down": Placer(top_down, "paper 2, Alg. 4 and 5"),
    "refined": Placer(refined, "ours: the better of both, improved step by step"),
    "optimal": Placer(
        None, "integer programming; the refined one where there are too many contents of nodes"
    ),
}


class JudgedPlacement(msgspec.Struct, frozen=True):
    """counts: per group, node → tasks. bound: no placement of all tasks saves more (None: tasks are nowhere).
    timed_out: the solver ran out of time before the bound was met."""

    counts: Counts
    saved: float
    missing: dict[str, int]
    bound: float | None
    timed_out: bool = False

    @property
    def gap(self) -> float | None:
        """By what part of the bound it may be below the best."""
        if self.bound is None:
            return None
        return max(0.0, 1 - self.saved / self.bound) if self.bound > 0 else 0.0


WAYS: dict[str, dict[str, Any]] = {"as-printed": {"as_printed": True}, "by-traffic": {"order": by_traffic}}
PAPERS = ("task-level", "top-down")  # may be asked for in these ways


def way_fault(algorithm: str) -> str:
    """What is wrong with `NAME`, or with `NAME:WAY` of an algorithm of the paper; nothing if it is empty."""
    name, *ways = algorithm.split(":")
    if name not in PLACERS:
        return f"no {name!r}, there are {', '.join(PLACERS)}{did_you_mean(name, PLACERS)}"
    if ways and name not in PAPERS:
        return f"{name} is taken as it is; {' and '.join(PAPERS)} take :{', :'.join(WAYS)}"
    unknown = [way for way in ways if way not in WAYS]
    return f"no way {unknown[0]!r}, there are {', '.join(WAYS)}" if unknown else ""


def placed(problem: Problem, algorithm: str) -> Counts:
    """The counts of an algorithm that needs no solver; `top-down:as-printed:by-traffic` of one of the paper's."""
    name, *ways = algorithm.split(":")
    place = PLACERS[name].place or refined
    return place(problem, **{word: value for way in ways for word, value in WAYS[way].items()})


def judged(problem: Problem, counts: Counts) -> JudgedPlacement:
    """An answer with its gap."""
    left, value = missing(problem, counts), saved(problem, counts)
    return JudgedPlacement(counts, value, left, None if left else max(value, relaxed(problem)))


def best(problem: Problem, seconds: float = SECONDS) -> JudgedPlacement:
    """The best placement; the best found when the time runs out, or where it is not looked for."""
    near = refined(problem)
    found = optimal(problem, seconds)
    if found is None:
        return judged(problem, near)
    counts = near
    if found.counts is not None:
        counts = max(near, found.counts, key=lambda one: worth_of(problem, one))
    left = missing(problem, counts)
    value = saved(problem, counts)
    return JudgedPlacement(counts, value, left, None if left else max(value, found.bound), not found.proved)
