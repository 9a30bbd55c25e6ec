"""The domain: a topology 𝒢 = ⟨tasks, edges⟩ and the rates its tasks see. No I/O.

The struct fields are those of the file format `headgate/topology/v1`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Literal

import msgspec

from headgate.topology_runtime.wording import secrets_named

SCHEMA = "headgate/topology/v1"
ON_THE_WIRE = {
    "side_effects": "effects"
}  # keys of a task that peers of an older version know by another name
KEY_RANGES = 1024  # key ranges of a task reached by `fields` (protocol: Routing)

Grouping = Literal["shuffle", "fields", "all", "global", "direct", "local"]
Kind = Literal["source", "map", "flat_map", "filter", "hold", "keyed"]


class Static(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A task of fixed size (source, sink): mapped, reserving fractions of a slot, not counted in ρ.

    cpu_per_tps: what each row/s of the task takes of the slot's CPU besides `cpu`; left out, nothing."""

    threads: int = 1
    cpu: float = 0.0
    memory: float = 0.0
    cpu_per_tps: float | msgspec.UnsetType = msgspec.UNSET

    @property
    def cpu_each(self) -> float:
        """`cpu_per_tps`, 0 where it is left out."""
        return 0.0 if self.cpu_per_tps is msgspec.UNSET else float(self.cpu_per_tps)


class Timestamps(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The event time of a source's rows: `at`: a field's name, a position or `module:function`; it gives a number in
    `unit` since 1970, a datetime or its text. lateness: how much older than the newest row so far one may be that is
    still expected, s. idle: a partition without new rows for so long is waited for no more, s. max_drift: a partition
    is read at most so far ahead of the slowest one of all that come to the same tasks with event time, s (None: as far
    as it goes)."""

    at: str | int
    unit: Literal["s", "ms", "us", "ns"] = "s"
    lateness: float = 0.0
    idle: float = 30.0
    max_drift: float | None = None


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One task tᵢ. `run` is `module:attribute`; absent when the topology is only planned. side_effects: is what it
    does felt outside (None: as its code says, else only a sink's is)? Then it is not run on sample rows. arriving: of a
    source that cannot be read twice, whether its rows are taken as they come (None: as its code says); the others are
    paced by the offered rates. offsets: they come, and can be read again from an offset, as its code says. batched: its
    code takes the rows of a call together, as it says itself. timed: it has event time and timers, as its code says.
    timestamps: of a source whose rows have an event time. state_version: of its states, as its code says. unchained:
    its threads neither run others nor are run by others, whatever chaining would do (paper 4, section 3.6)."""

    name: str
    kind: Kind = "map"
    run: str | None = None
    params: dict[str, Any] = {}
    model: str | None = None
    static: Static | None = None
    state: Literal["none", "keyed"] = "none"
    exclusive: bool = False
    max_call_s: float = 10.0
    side_effects: bool | None = msgspec.field(default=None, name=ON_THE_WIRE["side_effects"])
    arriving: bool | None = None
    batched: bool = False
    offsets: bool = False
    timed: bool = False
    timestamps: Timestamps | None = None
    state_version: int = 1
    unchained: bool = False

    @property
    def spooled(self) -> bool:
        """Is it a source that cannot be read twice, so that its rows go through a spool?"""
        return self.arriving is not None and not self.offsets

    @property
    def movable(self) -> bool:
        """May a thread of it be given up where it does not run? The events of a spool are on its VM, and of an
        exclusive task no second thread may begin while the first may. State is read from the snapshots there."""
        return not (self.exclusive or self.spooled)

    @property
    def partitions(self) -> int:
        """Of a source: threads, each of which reads its share."""
        return self.static.threads if self.static else 1

    @property
    def model_name(self) -> str:
        return self.model or self.name


class Edge(
    msgspec.Struct,
    frozen=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    rename={"source": "from", "target": "to"},
):
    """tᵢ → tⱼ: `selectivity` σ output rows per input row of tᵢ, and how rows choose a thread of tⱼ.
    row_bytes: of one of its rows between slots; left out, it is measured."""

    source: str
    target: str
    selectivity: float = 1.0
    grouping: Grouping = "shuffle"
    key: str | int | None = None
    row_bytes: float | None = None


class LatencyConstraint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: tuple[str, ...]
    limit_ms: float
    window_s: float = 15.0


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, dict=True):
    """Tasks and edges in file order. Built by `builder.Builder`, `loading.load` or `parse`."""

    name: str
    tasks: tuple[Task, ...]
    edges: tuple[Edge, ...] = ()
    latency_constraints: tuple[LatencyConstraint, ...] = ()
    schema: str = SCHEMA

    @cached_property
    def by_name(self) -> dict[str, Task]:
        return {task.name: task for task in self.tasks}

    @cached_property
    def sources(self) -> tuple[Task, ...]:
        """Tasks without in-edges: they take the input rate Ω."""
        reached = {edge.target for edge in self.edges}
        return tuple(task for task in self.tasks if task.name not in reached)

    @cached_property
    def arriving(self) -> tuple[Task, ...]:
        """Sources whose rows are taken as they come."""
        return tuple(task for task in self.sources if task.arriving)

    @cached_property
    def sinks(self) -> tuple[Task, ...]:
        leaving = {edge.source for edge in self.edges}
        return tuple(task for task in self.tasks if task.name not in leaving)

    @cached_property
    def variables(self) -> tuple[str, ...]:
        """The environment variables that params refer to."""
        named = (one for task in self.tasks for one in secrets_named(task.params))
        return tuple(dict.fromkeys(name for kind, name in named if kind == "ENV"))

    @cached_property
    def unsampled(self) -> tuple[str, ...]:
        """Tasks that are not run on sample rows, in breadth-first order: those with side effects, a sink unless it says
        otherwise, and those behind them, which samples do not reach. Tasks of fixed size are never measured."""
        found: list[str] = []
        for task in self.breadth_first:
            behind = any(edge.source in found for _, edge in self.in_edges(task.name))
            sink = not self.out_edges(task.name) and bool(self.in_edges(task.name))
            if behind or (sink if task.side_effects is None else task.side_effects):
                found.append(task.name)
        return tuple(found)

    @cached_property
    def timed(self) -> tuple[str, ...]:
        """Tasks with event time, each behind those that it is downstream of."""
        return tuple(task.name for task in self.breadth_first if task.timed)

    @cached_property
    def _upstream(self) -> dict[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for task in self.breadth_first:
            before = {edge.source for _, edge in self.in_edges(task.name)}
            found[task.name] = frozenset(before.union(*(found[name] for name in before)))
        return found

    def upstream(self, task: str) -> frozenset[str]:
        """All tasks from which rows come to this one, by whatever way."""
        return self._upstream[task]

    def sources_with_times(self, task: str) -> tuple[Task, ...]:
        """Sources with timestamps from which rows come to this task: its watermark is of them."""
        return tuple(one for one in self.sources if one.timestamps and one.name in self.upstream(task))

    def timed_below(self, task: str) -> tuple[str, ...]:
        """Tasks with event time that rows of this one come to, by whatever way."""
        return tuple(name for name in self.timed if task in self.upstream(name))

    def read_beside(self, source: str) -> tuple[Task, ...]:
        """Sources with timestamps that come to a task with event time together with this one, itself among them."""
        below = self.timed_below(source)
        return tuple(
            one for one in self.sources if one.timestamps and set(below) & set(self.timed_below(one.name))
        )

    @cached_property
    def exclusive(self) -> tuple[str, ...]:
        """Tasks of which never two threads may work at once."""
        return tuple(task.name for task in self.tasks if task.exclusive)

    @cached_property
    def _leaving(self) -> dict[str, tuple[tuple[int, Edge], ...]]:
        return _by_end(self.tasks, self.edges, lambda edge: edge.source)

    @cached_property
    def _entering(self) -> dict[str, tuple[tuple[int, Edge], ...]]:
        return _by_end(self.tasks, self.edges, lambda edge: edge.target)

    def out_edges(self, task: str) -> tuple[tuple[int, Edge], ...]:
        """(edge number, edge) of the edges that leave `task`; the number is the place in the file."""
        return self._leaving.get(task, ())

    def in_edges(self, task: str) -> tuple[tuple[int, Edge], ...]:
        return self._entering.get(task, ())

    @cached_property
    def breadth_first(self) -> tuple[Task, ...]:
        """Tasks in topological order by breadth: sources first, ties in file order."""
        place = {task.name: i for i, task in enumerate(self.tasks)}
        waiting = {task.name: len(self.in_edges(task.name)) for task in self.tasks}
        level = [task.name for task in self.tasks if waiting[task.name] == 0]
        order: list[Task] = []
        while level:
            following: list[str] = []
            for name in level:
                order.append(self.by_name[name])
                for _, edge in self.out_edges(name):
                    waiting[edge.target] -= 1
                    if waiting[edge.target] == 0:
                        following.append(edge.target)
            level = sorted(following, key=place.__getitem__)
        return tuple(order)

    def rates(self, input_rate_tps: float) -> dict[str, float]:
        """GetRate (paper 0, section 6): task → ωᵢ in rows/s when every source takes Ω."""
        rates: dict[str, float] = {}
        for task in self.breadth_first:
            edges = self.in_edges(task.name)
            rates[task.name] = (
                sum(rates[e.source] * e.selectivity for _, e in edges) if edges else input_rate_tps
            )
        return rates

    @cached_property
    def digest(self) -> str:
        """Names what is planned and run; equal topologies have equal digests however they were written."""
        plain = [
            [t.name, t.run, t.params, t.model_name, t.static, t.state, t.exclusive, float(t.max_call_s)]
            for t in self.tasks
        ]
        edges = [[e.source, e.target, float(e.selectivity), e.grouping, e.key] for e in self.edges]
        times = [[t.name, t.timestamps] for t in self.tasks if t.timestamps is not None]
        unchained = [t.name for t in self.tasks if t.unchained]
        said = [
            self.name,
            plain,
            edges,
            *([times] if times else []),
            *([{"unchained": unchained}] if unchained else []),
        ]
        return digest_of(msgspec.json.encode(said, order="deterministic"))


def digest_of(*parts: bytes) -> str:
    """Sixteen hex digits that name these bytes."""
    import hashlib  # 3.5 MB, which a worker does without

    h = hashlib.sha256()
    for part in parts:
        h.update(len(part).to_bytes(8, "big") + part)
    return h.hexdigest()[:16]


def _by_end(
    tasks: Iterable[Task], edges: Iterable[Edge], end: Callable[[Edge], str]
) -> dict[str, tuple[tuple[int, Edge], ...]]:
    found: dict[str, list[tuple[int, Edge]]] = {task.name: [] for task in tasks}
    for number, edge in enumerate(edges):
        found.setdefault(end(edge), []).append((number, edge))
    return {name: tuple(those) for name, those in found.items()}


def document_of(topology: Topology) -> dict[str, Any]:
    """The topology as its file has it, `schema` included; what has its default value is left out."""
    tasks = [
        _renamed(task, {wire: key for key, wire in ON_THE_WIRE.items()})
        for task in msgspec.to_builtins(topology.tasks)
    ]
    return {"schema": topology.schema, **msgspec.to_builtins(topology), "tasks": tasks}


def topology_of_document(document: Any) -> Topology:
    """What `document_of` gave, or the same with the names of the wire. Raises msgspec.ValidationError."""
    if isinstance(document, dict) and isinstance(document.get("tasks"), list):
        document = {**document, "tasks": [_renamed(task, ON_THE_WIRE) for task in document["tasks"]]}
    return msgspec.convert(document, Topology)


def _renamed(task: Any, names: dict[str, str]) -> Any:
    return {names.get(key, key): value for key, value in task.items()} if isinstance(task, dict) else task
