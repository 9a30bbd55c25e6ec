"""Every fault of a topology, each with its place, so that one reading fixes them all (of type: drafts.py). Pure.

A place is where it stands in the file: `edges[1].to 'skore': no such task; did you mean 'score'?`.
Time is linear in tasks and edges, so that a hostile file costs no more than a large one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from headgate.topology_runtime.api.drafts import Draft, draft_of, topology_from
from headgate.topology_runtime.api.topology import (
    SCHEMA,
    Edge,
    LatencyConstraint,
    Static,
    Task,
    Timestamps,
    Topology,
)
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import (
    REFERENCE,
    Suggestions,
    name_faults,
    number_faults,
    secret_faults,
    shown,
)

# ── What is wrong with the shape of a topology: circles, pieces, rates that explode. Pure, linear ───
#
# `Arc` = (edge number, from, to, selectivity); tasks are numbers. Every start comes through here, so networkx
# is asked only about a topology that is refused.

Arc = tuple[int, int, int, float]

NAMES_SHOWN = 10  # task names in one fault
MAX_RATE_GAIN = 1e9  # rows/s at a task for 1 row/s of input: above, rates are typing errors


def circle_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """One fault for each knot of tasks that reach each other, with a shortest circle through its first."""
    if len(_in_order(len(names), arcs)) == len(names):
        return
    import networkx  # 0.2 s, which only a topology pays that is refused

    numbers = {(source, target): number for number, source, target, _ in reversed(arcs)}
    graph = networkx.DiGraph(list(numbers))
    knots = (knot for knot in networkx.strongly_connected_components(graph) if len(knot) > 1)
    for first, knot in sorted((min(knot), knot) for knot in knots):
        inside = graph.subgraph(knot)
        far = networkx.single_source_shortest_path_length(inside.reverse(copy=False), first)
        second = min(inside[first], key=far.__getitem__)
        circle = [first, *networkx.shortest_path(inside, second, first)]
        way = " → ".join([*_cut([names[task] for task in circle[:-1]]), names[first]])
        yield f"edges[{numbers[circle[-2], first]}]: tasks go round in a circle: {way}"


def _in_order(size: int, arcs: Sequence[Arc]) -> list[int]:
    """The tasks, each after all that lead to it, without those in circles or behind them."""
    waiting = [0] * size
    leaving: list[list[int]] = [[] for _ in range(size)]
    for _, source, target, _ in arcs:
        waiting[target] += 1
        leaving[source].append(target)
    ready = [task for task, count in enumerate(waiting) if count == 0]
    for task in ready:  # grows
        for target in leaving[task]:
            waiting[target] -= 1
            if waiting[target] == 0:
                ready.append(target)
    return ready


def piece_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """A topology is one piece: every task is joined to every other, whatever the direction."""
    root = list(range(len(names)))

    def find(task: int) -> int:
        while root[task] != task:
            root[task] = task = root[root[task]]
        return task

    for _, source, target, _ in arcs:
        root[find(source)] = find(target)
    pieces: dict[int, list[str]] = {}
    for task, name in enumerate(names):
        pieces.setdefault(find(task), []).append(name)
    if len(pieces) > 1:
        texts = _cut(["{" + ", ".join(_cut(piece)) + "}" for piece in pieces.values()])
        yield f"edges: the tasks are in {len(pieces)} pieces that no edge joins: {', '.join(texts)}"


def rate_faults(names: Sequence[str], arcs: Sequence[Arc]) -> Iterator[str]:
    """Selectivities along a way multiply: the first task whose rate runs away in a graph without
    circles."""
    leaving: list[list[tuple[int, float]]] = [[] for _ in names]
    rates = [1.0] * len(names)
    for _, source, target, selectivity in arcs:
        rates[target] = 0.0
        leaving[source].append((target, selectivity))
    for task in _in_order(len(names), arcs):
        if not rates[task] <= MAX_RATE_GAIN:
            gain = f"{rates[task]:.3g} rows for each row of the input"
            yield f"tasks[{task}] {names[task]!r}: would see {gain}; look at the selectivities before it"
            return
        for target, selectivity in leaving[task]:
            rates[target] += rates[task] * selectivity


def _cut(words: list[str]) -> list[str]:
    more = len(words) - NAMES_SHOWN
    return [*words[:NAMES_SHOWN], f"… {more} more"] if more > 0 else words


# ── What can be wrong with a task by itself: its names, numbers, state and params. Pure ─────────────────

MAX_STATIC_THREADS = 10_000  # more threads than any cluster of this version runs
MAX_LATENESS_S = 1e9  # 30 years
MAX_PARAMS_DEPTH = 32  # lists in lists in `params`


def task_faults(draft: Draft) -> Iterator[str]:
    """Faults of all tasks, in file order."""
    first: dict[str, int] = {}
    for number, task in enumerate(draft.tasks):
        if task is None:
            continue
        place = f"tasks[{number}]"
        yield from name_faults(f"{place}.name", task.name)
        if first.setdefault(task.name, number) != number:
            yield f"{place}.name {shown(task.name)}: used twice, first by tasks[{first[task.name]}]"
        yield from _one_task_faults(place, task)


def _one_task_faults(place: str, task: Task) -> Iterator[str]:
    if task.run is not None and not REFERENCE.fullmatch(task.run):
        yield f"{place}.run {shown(task.run)}: not of the form 'module:attribute'"
    if task.model is not None:
        yield from name_faults(f"{place}.model", task.model)
    yield from number_faults(f"{place}.max_call_s", task.max_call_s, 0.0, math.inf, open_low=True)
    if task.static is not None:
        yield from _static_faults(f"{place}.static", task.static)
        if task.exclusive and task.static.threads > 1:
            yield f"{place}.static.threads: {task.static.threads}, but an exclusive task has one thread"
    if is_keyed(task) and task.kind in ("source", "filter"):
        yield f"{place}.state: a {task.kind} has no state per key"
    if task.timestamps is not None:
        yield from _timestamps_faults(f"{place}.timestamps", task, task.timestamps)
    for key, value in task.params.items():
        yield from _plain_faults(f"{place}.params.{key}", value, MAX_PARAMS_DEPTH)


def is_keyed(task: Task) -> bool:
    """Has it state per key, so that only `fields` edges may lead to it?"""
    return task.kind == "keyed" or task.state == "keyed"


def _static_faults(place: str, static: Static) -> Iterator[str]:
    yield from number_faults(f"{place}.threads", static.threads, 1, MAX_STATIC_THREADS)
    yield from number_faults(f"{place}.cpu", static.cpu, 0.0, 1.0)
    yield from number_faults(f"{place}.memory", static.memory, 0.0, 1.0)
    yield from number_faults(f"{place}.cpu_per_tps", static.cpu_each, 0.0, 1.0)


def _timestamps_faults(place: str, task: Task, times: Timestamps) -> Iterator[str]:
    if task.kind != "source":
        yield f"{place}: only a source has them, and this is a {task.kind}"
    if isinstance(times.at, int):
        if times.at < 0:
            yield f"{place}.at: {times.at} is not a position, which counts from 0"
    elif not times.at or (":" in times.at and not REFERENCE.fullmatch(times.at)):
        yield f"{place}.at {shown(times.at)}: neither a field's name nor 'module:function'"
    yield from number_faults(f"{place}.lateness", times.lateness, 0.0, MAX_LATENESS_S)
    yield from number_faults(f"{place}.idle", times.idle, 0.0, MAX_LATENESS_S, open_low=True)
    if times.max_drift is not None:
        yield from number_faults(f"{place}.max_drift", times.max_drift, 0.0, MAX_LATENESS_S, open_low=True)


def _plain_faults(place: str, value: Any, depth: int) -> Iterator[str]:
    """Params travel as JSON: None, bool, int of 64 bits, finite float, text, lists and mappings of them."""
    if depth == 0:
        yield f"{place}: nested deeper than {MAX_PARAMS_DEPTH}"
    elif isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str):
                yield from _plain_faults(f"{place}.{key}", item, depth - 1)
            else:
                yield f"{place}: the key {shown(key)} is not text"
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from _plain_faults(f"{place}[{number}]", item, depth - 1)
    elif not _is_plain_scalar(value):
        yield f"{place}: {shown(value)} is not a plain JSON value"
    elif isinstance(value, str):
        yield from secret_faults(place, value)


def _is_plain_scalar(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or type(value) is bool or (type(value) is float and math.isfinite(value))


# ── What can be wrong with edges, with what they lead to, and with paths along them. Pure ───────────────

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
        circles = list(circle_faults(names, arcs))
        yield from circles
        if not self.draft.whole or len(self.numbers) < len(names):
            return
        yield from piece_faults(names, self._arcs(self._meant))
        if not circles and all(0 < selectivity <= MAX_SELECTIVITY for *_, selectivity in arcs):
            yield from rate_faults(names, arcs)

    def _arcs(self, number_of: Callable[[str], int | None]) -> list[Arc]:
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


# ── All of them ─────────────────────────────────────────────────────────────────────────────────────────

MAX_TASKS = 1_000  # what the planner is measured for
MAX_EDGES = 10_000
MAX_BYTES = 1 << 20  # of a topology's file, and of its JSON, which every desired state carries


def faults_of(topology: Topology) -> list[str]:
    """All faults of a topology, in file order; none for a valid one."""
    draft, faults = draft_of(topology)
    return faults + rule_faults(draft)


def topology_of(data: object, what: str) -> tuple[Topology, frozenset[int]]:
    """(topology, numbers of tasks whose kind the data gives) of a file's plain data, or of a Topology
    made by hand. Raises InvalidInput with all faults; `what` names the thing in its first line."""
    draft, faults = draft_of(data)
    faults += rule_faults(draft)
    raise_if_any(faults, what)
    return topology_from(draft), draft.kinds_given


def raise_if_any(faults: Sequence[str], what: str) -> None:
    """InvalidInput with all these faults, if there are any."""
    if faults:
        count = "a fault" if len(faults) == 1 else f"{len(faults)} faults"
        raise InvalidInput(f"{what} has {count}; nothing was applied", faults=faults)


def run_faults(topology: Topology) -> list[str]:
    """What keeps a valid topology from being *run*: a task without `run`, an inlet that is no source."""
    reached = {edge.target for edge in topology.edges}
    faults = []
    for number, task in enumerate(topology.tasks):
        if task.run is None:
            faults.append(f"tasks[{number}].run: missing; task {task.name!r} can be planned, not run")
        elif task.name not in reached and task.kind != "source":
            what = f"no edge leads to it, so it must be a source, not a {task.kind}"
            faults.append(f"tasks[{number}] {task.name!r}: {what}")
    return faults


def rule_faults(draft: Draft) -> list[str]:
    """Faults against the rules, of all that could be read."""
    return [*_top_faults(draft), *task_faults(draft), *EdgeRules(draft).faults(), *_size_faults(draft)]


def _top_faults(draft: Draft) -> Iterator[str]:
    if draft.schema is not None and draft.schema != SCHEMA:
        yield f"schema {shown(draft.schema)}: must be {SCHEMA!r}"
    if draft.name is not None:
        yield from name_faults("name", draft.name)
    if draft.whole and not draft.tasks:
        yield "tasks: there is none"
    for what, count, limit in (
        ("tasks", len(draft.tasks), MAX_TASKS),
        ("edges", len(draft.edges), MAX_EDGES),
    ):
        if count > limit:
            yield f"{what}: {count:,} are more than the {limit:,} allowed"


def _size_faults(draft: Draft) -> Iterator[str]:
    """The JSON that travels; a draft with other faults may not even have one."""
    try:
        size = len(msgspec.json.encode((draft.tasks, draft.edges)))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return  # params that are not plain have faults of their own
    if size > MAX_BYTES:
        yield f"topology: {size:,} bytes as JSON are more than the {MAX_BYTES:,} allowed"
