"""What can be wrong with edges, with what they lead to, and with paths along them. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from headgate.topology_runtime.faults import graph
from headgate.topology_runtime.faults.drafts import Draft
from headgate.topology_runtime.faults.tasks import is_keyed
from headgate.topology_runtime.faults.words import REFERENCE, Suggestions, number_faults, shown
from headgate.topology_runtime.topology import Edge, LatencyConstraint, Task

MAX_SELECTIVITY = 1000.0
MAX_ROW_BYTES = 1e9
HOP_MS = 0.05  # no row comes from one thread to another in less


class EdgeRules:
    """The rules of edges and of latency constraints over one draft."""

    def __init__(self, draft: Draft) -> None:
        self.draft = draft
        self.numbers: dict[str, int] = {}
        for number, task in enumerate(draft.tasks):
            if task is not None:
                self.numbers.setdefault(task.name, number)
        self.edges = [(number, edge) for number, edge in enumerate(draft.edges) if edge is not None]
        self._names_unsure = None in draft.tasks or not draft.tasks
        self._edges_unsure = None in draft.edges
        self._suggestions = Suggestions()

    def faults(self) -> Iterator[str]:
        """All faults, edges first."""
        yield from self._each()
        yield from self._into_tasks()
        yield from self._shape()
        joined = {(source, target) for _, source, target, _ in self._arcs(self._meant)}
        for number, limit in enumerate(self.draft.latency_constraints):
            if limit is not None:
                yield from self._constraint(f"latency_constraints[{number}]", limit, joined)

    def _each(self) -> Iterator[str]:
        first: dict[tuple[str, str], int] = {}
        for number, edge in self.edges:
            place = f"edges[{number}]"
            yield from self._unknown(f"{place}.from", edge.source)
            yield from self._unknown(f"{place}.to", edge.target)
            if edge.source == edge.target:
                yield f"{place} {shown(edge.source)}: leads from a task to itself"
            if first.setdefault((edge.source, edge.target), number) != number:
                text = f"{edge.source} → {edge.target}"
                yield f"{place} {shown(text)}: the same as edges[{first[edge.source, edge.target]}]"
            yield from number_faults(
                f"{place}.selectivity", edge.selectivity, 0.0, MAX_SELECTIVITY, open_low=True
            )
            if edge.row_bytes is not None:
                yield from number_faults(f"{place}.row_bytes", edge.row_bytes, 0.0, MAX_ROW_BYTES)
            yield from _key_faults(place, edge)

    def _unknown(self, place: str, name: str) -> Iterator[str]:
        """A name that no task has. When tasks are unreadable, it may be the name of one of them."""
        if name in self.numbers or self._names_unsure:
            return
        yield f"{place} {shown(name)}: no such task{self._suggestions.text(name, self.numbers)}"

    def _into_tasks(self) -> Iterator[str]:
        reached: dict[str, list[tuple[int, Edge]]] = {}
        for number, edge in self.edges:
            reached.setdefault(edge.target, []).append((number, edge))
        for number, task in enumerate(self.draft.tasks):
            if task is not None:
                yield from self._into_task(f"tasks[{number}]", task, reached.get(task.name, []))

    def _into_task(self, place: str, task: Task, edges: list[tuple[int, Edge]]) -> Iterator[str]:
        if task.kind == "source" and edges:
            yield f"{place} {shown(task.name)}: a source, but edges[{edges[0][0]}] leads to it"
        if is_keyed(task):
            yield from self._into_keyed(place, task, edges)
        yield from _global_faults(place, task, edges)

    def _into_keyed(self, place: str, task: Task, edges: list[tuple[int, Edge]]) -> Iterator[str]:
        if not edges and self.draft.whole:
            yield f"{place} {shown(task.name)}: has state per key, but no edge leads to it"
        for number, edge in edges:
            if edge.grouping != "fields":
                yield (
                    f"edges[{number}].grouping '{edge.grouping}': task {shown(task.name)} has state "
                    "per key, so every edge to it must be 'fields'"
                )

    def _shape(self) -> Iterator[str]:
        """Circles, pieces and rates; the last two only where all tasks are known by name."""
        names = [task.name if task else "" for task in self.draft.tasks]
        arcs = self._arcs(lambda name: self.numbers.get(name))
        circles = list(graph.circle_faults(names, arcs))
        yield from circles
        if not self.draft.whole or len(self.numbers) < len(names):
            return
        yield from graph.piece_faults(names, self._arcs(self._meant))
        if not circles and all(0 < selectivity <= MAX_SELECTIVITY for *_, selectivity in arcs):
            yield from graph.rate_faults(names, arcs)

    def _arcs(self, number_of: Callable[[str], int | None]) -> list[graph.Arc]:
        arcs = []
        for number, edge in self.edges:
            source, target = number_of(edge.source), number_of(edge.target)
            if source is not None and target is not None and source != target:
                arcs.append((number, source, target, edge.selectivity))
        return arcs

    def _meant(self, name: str) -> int | None:
        """A misspelt end joins pieces too, as far as a near name tells what was meant."""
        if name in self.numbers:
            return self.numbers[name]
        return self.numbers.get(self._suggestions.nearest(name, self.numbers) or "")

    def _constraint(
        self, place: str, limit: LatencyConstraint, joined: set[tuple[int, int]]
    ) -> Iterator[str]:
        yield from number_faults(f"{place}.limit_ms", limit.limit_ms, 0.0, math.inf, open_low=True)
        yield from number_faults(f"{place}.window_s", limit.window_s, 0.0, math.inf, open_low=True)
        if len(limit.path) < 2:
            yield f"{place}.path: needs two tasks or more"
        for step, name in enumerate(limit.path):
            yield from self._unknown(f"{place}.path[{step}]", name)
        hops, floor_ms = len(limit.path) - 1, HOP_MS * (len(limit.path) - 1)
        if hops and 0 < limit.limit_ms < floor_ms:
            alone = "1 hop alone takes" if hops == 1 else f"{hops} hops alone take"
            yield f"{place}.limit_ms: {limit.limit_ms:g}, but {alone} {floor_ms:g} ms or more"
        for step, (before, after) in enumerate(zip(limit.path, limit.path[1:], strict=False)):
            pair = self.numbers.get(before, -1), self.numbers.get(after, -1)
            if min(pair) >= 0 and pair not in joined and not self._edges_unsure:
                yield f"{place}.path[{step + 1}] {shown(after)}: no edge leads to it from {shown(before)}"


def _key_faults(place: str, edge: Edge) -> Iterator[str]:
    if edge.grouping != "fields":
        if edge.key is not None:
            yield f"{place}.key: only 'fields' edges have a key, and this one is '{edge.grouping}'"
        return
    if edge.key is None:
        yield f"{place}.key: missing; a 'fields' edge needs a position, a field's name or 'module:function'"
    elif isinstance(edge.key, int):
        if edge.key < 0:
            yield f"{place}.key: {edge.key} is not a position, which counts from 0"
    elif not edge.key or (":" in edge.key and not REFERENCE.fullmatch(edge.key)):
        yield f"{place}.key {shown(edge.key)}: neither a field's name nor 'module:function'"


def _global_faults(place: str, task: Task, edges: list[tuple[int, Edge]]) -> Iterator[str]:
    """`global` sends every row to one thread: other groupings beside it would want more of them."""
    to_one = [number for number, edge in edges if edge.grouping == "global"]
    if not to_one:
        return
    for number, edge in edges:
        if edge.grouping != "global":
            yield (
                f"edges[{number}].grouping '{edge.grouping}': edges[{to_one[0]}] is 'global', so task "
                f"{shown(task.name)} has one thread and every edge to it must be 'global'"
            )
    if task.static is not None and task.static.threads > 1:
        yield f"{place}.static.threads: {task.static.threads}, but a 'global' edge leads to one thread"
