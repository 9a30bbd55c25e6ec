"""A placement problem as its file has it, read with every fault in its place. Pure.

A group of tasks that are not alike gives their `costs` one by one: it is cut into parts of tasks of about one cost
(paper 2, section 5), and every part is a group of the problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import msgspec

from headgate.controller.plan.placing.problem import Flow, Group, Node, Problem
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import did_you_mean, shown

ALIKE = 1.1  # tasks of one part cost at most so many times what the cheapest of it does
MOST_TASKS, MOST_ENTRIES = 1_000_000, 100_000
KEYS = {
    "": ("schema", "groups", "edges", "nodes"),
    "groups": ("id", "tasks", "cost", "costs"),
    "edges": ("from", "to", "traffic"),
    "nodes": ("id", "capacity"),
}


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
    reader = _ProblemReader()
    found = reader.read(data)
    if found is None or reader.faults:
        raise InvalidInput(f"{named} is no placement problem", faults=reader.faults)
    return found


class _ProblemReader:
    def __init__(self) -> None:
        self.faults: list[str] = []

    def read(self, data: object) -> Asked | None:
        if not isinstance(data, dict):
            self.faults.append(f"expected an object with groups, edges and nodes, got {shown(data)}")
            return None
        self._unknown("", data)
        groups: dict[str, list[tuple[Part, Group]]] = {}
        for place, row in self._rows(data, "groups", least=1):
            name = self._name(place, row, groups)
            parts = list(self._parts(place, row, name or ""))
            if name is not None:
                groups[name] = parts
        nodes: dict[str, Node] = {}
        for place, row in self._rows(data, "nodes", least=1):
            name = self._name(place, row, nodes)
            capacity = self._number(f"{place}.capacity", row, "capacity")
            if name is not None:
                nodes[name] = Node(name, capacity)
        flat = [(part, group) for parts in groups.values() for part, group in parts]
        flows = self._flows(data, groups, {part: number for number, (part, _) in enumerate(flat)})
        problem = Problem(tuple(group for _, group in flat), flows, tuple(nodes.values()))
        return Asked(problem, tuple(part for part, _ in flat))

    def _rows(
        self, data: Mapping[str, object], key: str, least: int = 0
    ) -> Iterator[tuple[str, dict[str, object]]]:
        rows = data.get(key)
        if not isinstance(rows, list) or not least <= len(rows) <= MOST_ENTRIES:
            want = f"a list with at least one {key[:-1]}" if least else "a list"
            got = shown(rows) if not isinstance(rows, list) or len(rows) < least else f"{len(rows)} of them"
            self.faults.append(f"{key}: expected {want}, got {got}")
            return
        for number, row in enumerate(rows):
            place = f"{key}[{number}]"
            if not isinstance(row, dict):
                self.faults.append(f"{place}: expected an object, got {shown(row)}")
                continue
            self._unknown(place, row)
            yield place, row

    def _unknown(self, place: str, row: Mapping[str, object]) -> None:
        known = KEYS[place.partition("[")[0]]
        for key in row:
            if key not in known:
                where = f"{place}.{key}" if place else str(key)
                self.faults.append(f"{where}: no such key{did_you_mean(str(key), known)}")

    def _name(self, place: str, row: Mapping[str, object], taken: Mapping[str, object]) -> str | None:
        name = row.get("id")
        if not isinstance(name, str) or not name:
            self.faults.append(f"{place}.id: expected a name, got {shown(name)}")
            return None
        if name in taken:
            self.faults.append(f"{place}.id: {shown(name)} is there twice")
            return None
        return name

    def _number(self, place: str, row: Mapping[str, object], key: str) -> float:
        return self._checked(place, row.get(key))

    def _checked(self, place: str, value: object) -> float:
        sound = isinstance(value, int | float) and not isinstance(value, bool)
        try:
            number = float(value) if sound else math.nan  # type: ignore[arg-type]
        except OverflowError:
            number = math.inf
        if not (math.isfinite(number) and number >= 0):
            self.faults.append(f"{place}: expected a finite number of at least 0, got {shown(value)}")
            return 0.0
        return number

    def _parts(self, place: str, row: Mapping[str, object], name: str) -> Iterator[tuple[Part, Group]]:
        tasks = row.get("tasks")
        if not isinstance(tasks, int) or isinstance(tasks, bool) or not 1 <= tasks <= MOST_TASKS:
            self.faults.append(
                f"{place}.tasks: expected a count from 1 to {MOST_TASKS:,}, got {shown(tasks)}"
            )
            tasks = 1
        if "costs" not in row:
            yield Part(name), Group(name, tasks, self._number(f"{place}.cost", row, "cost"))
            return
        costs = row["costs"]
        if "cost" in row:
            self.faults.append(f"{place}: either cost (of all tasks) or costs (of each), not both")
        if not isinstance(costs, list) or len(costs) != tasks:
            self.faults.append(f"{place}.costs: expected a list with the cost of each of {tasks} tasks")
            return
        each = [self._checked(f"{place}.costs[{number}]", cost) for number, cost in enumerate(costs)]
        for members in alike(each):
            total = math.fsum(each[task] for task in members)
            yield Part(name, tuple(members)), Group(name, len(members), total)

    def _flows(
        self,
        data: Mapping[str, object],
        groups: Mapping[str, list[tuple[Part, Group]]],
        number_of: Mapping[Part, int],
    ) -> tuple[Flow, ...]:
        """Each edge between all parts of its groups, in proportion to their pairs of tasks (Eq. 1)."""
        taken: set[tuple[str, str]] = set()
        traffic: dict[tuple[int, int], float] = {}
        for place, row in self._rows(data, "edges"):
            amount = self._number(f"{place}.traffic", row, "traffic")
            ends = [self._end(f"{place}.{key}", row.get(key), groups) for key in ("from", "to")]
            if None in ends:
                continue
            source, target = str(ends[0]), str(ends[1])
            if source == target:
                self.faults.append(f"{place}: leads from {shown(source)} to itself")
            elif (source, target) in taken:
                self.faults.append(f"{place}: {shown(f'{source} → {target}')} is there twice")
            taken.add((source, target))
            pairs = sum(g.tasks for _, g in groups[source]) * sum(g.tasks for _, g in groups[target])
            for one, a in groups[source]:
                for other, b in groups[target]:
                    ends_of = sorted((number_of[one], number_of[other]))
                    key = (ends_of[0], ends_of[1])
                    traffic[key] = traffic.get(key, 0.0) + amount * a.tasks * b.tasks / pairs
        return tuple(Flow(a, b, amount) for (a, b), amount in traffic.items())

    def _end(self, place: str, name: object, groups: Mapping[str, object]) -> str | None:
        if isinstance(name, str) and name in groups:
            return name
        near = did_you_mean(name, groups) if isinstance(name, str) else ""
        self.faults.append(f"{place}: no group {shown(name)}{near}")
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
