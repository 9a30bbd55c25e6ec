"""A placement problem as its file has it, read with every fault in its place. Pure.

A group of tasks that are not alike gives their `costs` one by one: it is cut into parts of tasks of about one cost
(paper 2, section 5), and every part is a group of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from headgate.controller.models.field_reader import Fields
from headgate.controller.plan.placing.placement_problem import SLACK, Flow, Group, Node, Problem, balanced
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean, shown

ALIKE = 1.1  # tasks of one part cost at most so many times what the cheapest of it does
MOST_TASKS, MOST_ENTRIES = 1_000_000, 100_000


class Part(msgspec.Struct, frozen=True):
    """A group of the problem: of which group of the file, and which tasks of it (None: all, they are alike)."""

    id: str
    tasks: tuple[int, ...] | None = None


class Asked(msgspec.Struct, frozen=True):
    """The problem, and for each of its groups what it is in the file."""

    problem: Problem
    parts: tuple[Part, ...]


def asked_of(data: object, named: str) -> Asked:
    """What a file asks. Raises InvalidInput with every fault."""
    faults: list[str] = []
    top = Fields(data, "", faults, ("schema", "groups", "edges", "nodes", "balance"), strict=True)
    groups: dict[str, list[tuple[Part, Group]]] = {}
    for row in _rows(top, "groups", ("id", "tasks", "cost", "costs")):
        name = _name(row, groups)
        parts = list(_parts(row, name))
        groups.setdefault(name, parts)
    nodes: dict[str, Node] = {}
    for row in _rows(top, "nodes", ("id", "capacity")):
        name = _name(row, nodes)
        nodes.setdefault(name, Node(name, row.number("capacity")))
    flat = [(part, group) for parts in groups.values() for part, group in parts]
    flows = _flows(top, groups, {part: number for number, (part, _) in enumerate(flat)})
    tolerance = top.number("balance") if top.has("balance") else math.inf
    if not tolerance >= 1:
        top.fault("balance", f"expected a number of at least 1, got {shown(tolerance)}")
    if faults:
        raise InvalidInput(f"{named} is no placement problem", faults=faults)
    problem = Problem(tuple(group for _, group in flat), flows, tuple(nodes.values()))
    problem = balanced(problem, tolerance)
    return Asked(problem, tuple(part for part, _ in flat))


def _rows(top: Fields, key: str, known: Sequence[str]) -> list[Fields]:
    rows = top.objects(key, known)
    if isinstance(top.data.get(key), list) and not 1 <= len(rows) <= MOST_ENTRIES:
        top.fault(key, f"expected a list of 1 to {MOST_ENTRIES:,}, got {len(rows)} of them")
    return rows[:MOST_ENTRIES]


def _name(row: Fields, taken: Mapping[str, object]) -> str:
    name = row.text("id")
    if not name:
        row.fault("id", f"expected a name, got {shown(row.data.get('id'))}")
    elif name in taken:
        row.fault("id", f"{shown(name)} is there twice")
    return name


def _parts(row: Fields, name: str) -> Iterator[tuple[Part, Group]]:
    tasks = row.integer("tasks", 1, MOST_TASKS)
    if not row.has("costs"):
        yield Part(name), Group(name, tasks, row.number("cost"))
        return
    costs = row.data["costs"]
    if row.has("cost"):
        row.fault("cost", "either cost (of all tasks) or costs (of each), not both")
    if not isinstance(costs, list) or len(costs) != tasks:
        row.fault("costs", f"expected a list with the cost of each of {tasks} tasks")
        return
    numbered = {f"costs[{number}]": cost for number, cost in enumerate(costs)}
    listed = Fields(numbered, row.place, row.faults, ())
    each = [listed.number(place) for place in numbered]
    for members in alike(each):
        total = math.fsum(each[task] for task in members)
        yield Part(name, tuple(members)), Group(name, len(members), total)


def _flows(
    top: Fields, groups: Mapping[str, list[tuple[Part, Group]]], number_of: Mapping[Part, int]
) -> tuple[Flow, ...]:
    """Each edge between all parts of its groups, in proportion to their pairs of tasks (Eq. 1)."""
    taken: set[tuple[str, str]] = set()
    traffic: dict[tuple[int, int], float] = {}
    for row in top.objects("edges", ("from", "to", "traffic"))[:MOST_ENTRIES]:
        amount = row.number("traffic")
        source, target = (_end(row, key, groups) for key in ("from", "to"))
        if source is None or target is None:
            continue
        if source == target:
            row.fault("to", f"leads from {shown(source)} to itself")
        elif (source, target) in taken:
            row.fault("to", f"{shown(f'{source} → {target}')} is there twice")
        taken.add((source, target))
        pairs = sum(g.tasks for _, g in groups[source]) * sum(g.tasks for _, g in groups[target])
        for one, a in groups[source]:
            for other, b in groups[target]:
                low, high = sorted((number_of[one], number_of[other]))
                traffic[low, high] = traffic.get((low, high), 0.0) + amount * a.tasks * b.tasks / pairs
    return tuple(Flow(a, b, amount) for (a, b), amount in traffic.items())


def _end(row: Fields, key: str, groups: Mapping[str, object]) -> str | None:
    name = row.data.get(key)
    if isinstance(name, str) and name in groups:
        return name
    row.fault(key, f"no group {shown(name)}{did_you_mean(name, groups) if isinstance(name, str) else ''}")
    return None


def alike(costs: list[float]) -> list[list[int]]:
    """Tasks in parts of about one cost each, the cheapest first (section 5: one scan over them)."""
    parts: list[list[int]] = []
    for task in sorted(range(len(costs)), key=costs.__getitem__):
        if parts and costs[task] <= costs[parts[-1][0]] * ALIKE:
            parts[-1].append(task)
        else:
            parts.append([task])
    return parts


# ── Tasks made finer until they fit (paper 2, section 5). Pure ───
#
# The paper takes the greatest common divisor of all groups' costs and all nodes' capacities as the cost of
# every task, in hundredths: then tasks are all alike and fill nodes to the brim. Costs are rounded up to
# hundredths and capacities down.

UNITS = 100  # of a capacity of 1


def finer(problem: Problem) -> Problem | None:
    """The problem with tasks of one cost that fit; None when its nodes have no room for all of them."""
    costs = [_up(group.cost) for group in problem.groups]
    capacities = [_down(node.capacity) for node in problem.nodes]
    if sum(costs) > sum(capacities):
        return None
    size = math.gcd(*costs, *capacities)
    groups = tuple(
        Group(group.id, max(1, cost // size) if size else group.tasks, group.cost)
        for group, cost in zip(problem.groups, costs, strict=True)
    )
    return Problem(groups, problem.flows, problem.nodes)


def _up(cost: float) -> int:
    return math.ceil(cost * UNITS * (1 - SLACK))


def _down(capacity: float) -> int:
    return math.floor(capacity * UNITS * (1 + SLACK))
