"""The best placement there is, by integer programming over contents of nodes, and what no placement can exceed. Pure.

A *content* is how many tasks of each group share a node. What a node saves is quadratic in counts but a constant of its
content, so choosing contents is linear: a column for each content that fits each size of node, taken as often as it is
worth; each group's tasks are in all of them together (Gilmore and Gomory's cutting stock). Nodes of one size are not
told apart, so nothing is tried twice. Where contents are too many to write down, a bound of each flow alone is left.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from headgate.controller.plan.linear_program import TOLERANCE, LinearProgram
from headgate.controller.plan.placing.problem import SLACK, Counts, Flow, Problem, saved
from headgate.controller.plan.placing.problem import missing as left_out

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
