"""Topologies in Python.

>>> from headgate import topology
>>> flow = topology("words")
>>> lines = flow.source("lines", "words:Lines", path="book.txt")
>>> split = flow.task("split", "words:split").emits(8)  # about 8 words for each line
>>> count = flow.task("count", "words:Count", keyed=True)
>>> store = flow.task("store", "words:Store")
>>> lines >> split >> count.by("word") >> store.to_one()
<path from 'lines' to 'store'>
>>> [edge.grouping for edge in flow.build().edges]
['shuffle', 'fields', 'global']

What a task runs is a function, a class or its `module:attribute`. `a >> [b, c] >> d` fans out and in. The loader takes
the builder itself at `file.py:flow`; `flow.build()` gives the `Topology`, with all its faults told at once.
"""

from __future__ import annotations

import functools
import re
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, overload

import msgspec

from headgate.topology_runtime.api.drafts import draft_of, topology_from
from headgate.topology_runtime.api.event_time_rules import time_faults
from headgate.topology_runtime.api.logic import (
    Keyed,
    LiveSource,
    Source,
    Window,
    kind_of,
)
from headgate.topology_runtime.api.plugins import reference_of_plugin
from headgate.topology_runtime.api.references import being_imported, reference_of
from headgate.topology_runtime.api.task_functions import as_coded, call_faults, edge_faults
from headgate.topology_runtime.api.timed import Timed
from headgate.topology_runtime.api.topology import (
    Edge,
    Grouping,
    LatencyConstraint,
    Static,
    Task,
    Timestamps,
    Topology,
)
from headgate.topology_runtime.api.validate import raise_if_any, rule_faults
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import shown

if TYPE_CHECKING:
    from headgate.topology_runtime.testing.run_results import Result

Run = Callable[..., Any] | str
Key = str | int | Callable[[Any], Any]
Objects = dict[str, Any] | None  # reference → object

ONE_THREAD = Static(threads=1)  # what a source has unless told otherwise


class Path:
    """Tasks joined by `>>`: more can be joined before its `heads` and after its `tails`.

    >>> flow = Builder("fan")
    >>> flow.source("a") >> [flow.task("b"), flow.task("c")] >> flow.task("d")
    <path from 'a' to 'd'>
    >>> [f"{edge.source}{edge.target}" for edge in flow.build().edges]
    ['ab', 'ac', 'bd', 'cd']
    """

    def __init__(self, builder: Builder, heads: tuple[End, ...], tails: tuple[End, ...]) -> None:
        self.builder, self.heads, self.tails = builder, heads, tails

    def __rshift__(self, after: Path | Iterable[Path]) -> Path:
        return _joined(self, _fan(after))

    def __rrshift__(self, before: Iterable[Path]) -> Path:
        return _joined(_fan(before), self)

    def __repr__(self) -> str:
        ends = (", ".join(repr(end.name) for end in side) for side in (self.heads, self.tails))
        return "<path from {} to {}>".format(*ends)


class End(Path):
    """A task as the end of edges: how rows choose its thread, and how many rows it emits for each.

    >>> Builder("clicks").task("count").by("user").emits(0.5)
    <task 'count' of topology 'clicks'>
    """

    def __init__(
        self,
        builder: Builder,
        name: str,
        grouping: Grouping = "shuffle",
        key: Key | None = None,
        selectivity: float = 1.0,
    ) -> None:
        super().__init__(builder, (self,), (self,))
        self.name, self.grouping, self.key, self.selectivity = name, grouping, key, selectivity

    def _with(self, grouping: Grouping, key: Key | None = None) -> End:
        return End(self.builder, self.name, grouping, key, self.selectivity)

    def shuffle(self) -> End:
        """Each row goes to any thread, in proportion to what the threads can carry (the default)."""
        return self._with("shuffle")

    def by(self, key: Key) -> End:
        """Rows of one key go to one thread. key: a position, a field's name, or a function of the row."""
        return self._with("fields", key)

    def all(self) -> End:
        """Every thread gets every row."""
        return self._with("all")

    def to_one(self) -> End:
        """All rows go to one thread."""
        return self._with("global")

    def direct(self) -> End:
        """The sender names the thread of each row: it emits `logic.To`."""
        return self._with("direct")

    def local_first(self) -> End:
        """Rows stay in their process where a thread is there."""
        return self._with("local")

    def emits(self, selectivity: float) -> End:
        """How many rows it emits for each row it takes, on average: its edges' selectivity."""
        return End(self.builder, self.name, self.grouping, self.key, selectivity)

    def side_effects(self, felt: bool = True) -> End:
        """Is what the task does felt outside? Then it is not run on sample rows (see `logic.side_effects`)."""
        self.builder.mark(self.name, side_effects=felt)
        return self

    def unchained(self) -> End:
        """Its threads neither run others nor are run by others: each call in its own thread, each row through a
        buffer, also where chains would lower the latency.

        >>> flow = topology("halves")
        >>> _ = flow.source("numbers") >> flow.task("halve").unchained()
        >>> [task.unchained for task in flow.build().tasks]
        [False, True]"""
        self.builder.mark(self.name, unchained=True)
        return self

    def timestamps(
        self,
        at: Key,
        *,
        unit: str = "s",
        lateness: float = 0.0,
        idle: float = 30.0,
        max_drift: float | None = None,
    ) -> End:
        """Of a source: how to get the event time of its rows, which tasks with event time wait for (`Timed`).

        at: a field's name, a position or a function of the row; it gives a number in `unit` ("s", "ms", "us", "ns")
        since 1970, a datetime, or its text ("2026-11-29T20:15:00Z"; UTC where it has no zone). lateness: a row may be
        older than the newest so far by so many seconds, and is still expected. idle: a partition without new rows for
        so many seconds is waited for no more. max_drift: no partition of this source is read further than so many
        seconds ahead of the slowest partition that comes to the same tasks with event time (None: it is not looked at).
        A row whose time cannot be got goes on and moves no watermark."""
        self.builder.times[self.name] = at, Timestamps("", unit, lateness, idle, max_drift)  # type: ignore[arg-type]
        return self

    def __repr__(self) -> str:
        return f"<task {self.name!r} of topology {self.builder.name!r}>"


def _fan(paths: Path | Iterable[Path]) -> Path:
    if isinstance(paths, Path):
        return paths
    every = list(paths)
    if not every or not all(isinstance(path, Path) for path in every):
        raise TypeError("`>>` joins tasks, paths of tasks, and lists of them that are not empty")
    heads = tuple(head for path in every for head in path.heads)
    return Path(every[0].builder, heads, tuple(tail for path in every for tail in path.tails))


def _joined(before: Path, after: Path) -> Path:
    for tail in before.tails:
        for head in after.heads:
            if tail.builder is not head.builder:
                raise TypeError(f"{tail!r} and {head!r} are of different topologies")
            before.builder.edges.append((tail, head))
    return Path(before.builder, before.heads, after.tails)


class ClassLacksMethods:
    """What mypy takes a task for whose class does not define all that its base asks for. There is none."""


class Builder:
    """A topology as it is being written. Faults wait for `build`, which tells them all.

    `tasks`: each with the object that it runs (None: none, or named by text); `edges`: sender, receiver.

    >>> flow = Builder("half")
    >>> _ = flow.source("numbers") >> flow.task("halve", exclusive=True)
    >>> flow.latency("numbers", "halve", limit_ms=200)
    >>> [task.name for task in flow.build().tasks]
    ['numbers', 'halve']
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.tasks: list[tuple[Task, Any]] = []
        self.edges: list[tuple[End, End]] = []
        self.latency_constraints: list[LatencyConstraint] = []
        self.times: dict[str, tuple[Any, Timestamps]] = {}  # of sources

    # A class that lacks a method is told by mypy where it is given: it matches none of the first overloads.
    @overload
    def source(self, name: str, run: type[Source], /, **options: Any) -> End: ...
    @overload
    def source(self, name: str, run: type[LiveSource], /, **options: Any) -> End: ...
    @overload
    def source(
        self, name: str, run: Callable[..., Source | LiveSource], /, **options: Any
    ) -> ClassLacksMethods: ...
    @overload
    def source(self, name: str, run: Run | None = None, /, **options: Any) -> End: ...
    def source(
        self,
        name: str,
        run: Run | None = None,
        /,
        *,
        threads: int | None = None,
        static: Static | None = ONE_THREAD,
        model: str | None = None,
        exclusive: bool = False,
        **params: Any,
    ) -> Any:
        """A task that rows come from: a `Source`, `LiveSource` or `OffsetSource`, of one thread by default; each of
        `threads` reads a part."""
        if threads is not None:
            static = msgspec.structs.replace(static or ONE_THREAD, threads=threads)
        return self._add(Task(name, "source", None, params, model, static, exclusive=exclusive), run)

    @overload
    def task(self, name: str, run: type[Keyed], /, **options: Any) -> End: ...
    @overload
    def task(self, name: str, run: type[Timed], /, **options: Any) -> End: ...
    @overload
    def task(self, name: str, run: type[Window], /, **options: Any) -> End: ...
    @overload
    def task(
        self, name: str, run: Callable[..., Keyed | Timed | Window], /, **options: Any
    ) -> ClassLacksMethods: ...
    @overload
    def task(self, name: str, run: Run | None = None, /, **options: Any) -> End: ...
    def task(
        self,
        name: str,
        run: Run | None = None,
        /,
        *,
        keyed: bool = False,
        static: Static | None = None,
        model: str | None = None,
        exclusive: bool = False,
        max_call_s: float = 10.0,
        **params: Any,
    ) -> Any:
        """A task that takes rows. run: a function of one row, or a class (see `logic`), with its params;
        none in a topology that is only planned. keyed: it keeps state per key (`logic.Keyed` always does)."""
        state: Literal["none", "keyed"] = "keyed" if keyed else "none"
        return self._add(Task(name, "map", None, params, model, static, state, exclusive, max_call_s), run)

    def mark(self, name: str, **said: bool) -> None:
        """Of the tasks of this name, whether what they do is felt outside (`side_effects`), or they are `unchained`."""
        self.tasks = [
            (msgspec.structs.replace(task, **said) if task.name == name else task, run)
            for task, run in self.tasks
        ]

    def latency(self, *path: End | str, limit_ms: float, window_s: float = 15.0) -> None:
        """Rows shall take at most `limit_ms` along this path of tasks, on average over a window."""
        names = tuple(end if isinstance(end, str) else end.name for end in path)
        self.latency_constraints.append(LatencyConstraint(names, limit_ms, window_s))

    def build(self, objects: Objects = None) -> Topology:
        """The topology. Raises InvalidInput with every fault and its place.

        objects: it is to run in this very process: takes the object of every reference, and none needs to be one that
        another process finds."""
        faults: list[str] = []
        topology = Topology(
            name=self.name,
            tasks=tuple(
                self._timed(f"tasks[{i}]", _named(f"tasks[{i}].run", *made, faults, objects), faults, objects)
                for i, made in enumerate(self.tasks)
            ),
            edges=tuple(
                _edge(f"edges[{i}].key", *ends, faults, objects) for i, ends in enumerate(self.edges)
            ),
            latency_constraints=tuple(self.latency_constraints),
        )
        draft, wrong_types = draft_of(topology)
        runs = {task.name: (kind_of(run), _function(run)) for task, run in self.tasks if run is not None}
        faults += edge_faults(enumerate(topology.edges), runs)
        faults += time_faults(list(enumerate(topology.tasks)), topology.edges, runs)
        faults += wrong_types + rule_faults(draft)
        raise_if_any([self._with_names(fault) for fault in faults], f"topology {self.name!r}")
        return topology_from(draft)

    def run(self, inputs: Mapping[str, Iterable[Any]] | None = None, *, rows: int = 100) -> Result:
        """Run it here and now, in this process, and print what reaches its sinks as it comes: at most `rows` rows of
        each source, or of `inputs` all. Sinks do what they do. For a notebook or a script; `headgate up` runs it for
        real, `headgate.testing` tests it. At the end of a file, it does nothing where headgate imports that file."""
        from headgate.topology_runtime.testing.in_process import run_here, show
        from headgate.topology_runtime.testing.run_results import Result

        if being_imported():
            if threading.current_thread() is threading.main_thread():  # once, not in every thread of a worker
                print(
                    f"topology {self.name}: run() is left out, as this file is only imported", file=sys.stderr
                )
            return Result({}, [], {})
        return run_here(self, inputs, rows, show)

    def _add(self, task: Task, run: Run | None) -> End:
        if isinstance(run, str):
            run = run if ":" in run else reference_of_plugin(run)
            task, run = msgspec.structs.replace(task, run=run), None
        self.tasks.append((task, run))
        return End(self, task.name)

    def _timed(self, place: str, task: Task, faults: list[str], objects: Objects) -> Task:
        """The task with its timestamps, if it has any."""
        if task.name not in self.times:
            return task
        at, times = self.times[task.name]
        if callable(at):
            faults += [f"{place}.timestamps.at {_said(at)}: {fault}" for fault in call_faults(at, {})]
            at = _reference(f"{place}.timestamps.at", at, faults, objects)
        return msgspec.structs.replace(task, timestamps=msgspec.structs.replace(times, at=at))

    def _with_names(self, fault: str) -> str:
        """Python has no edge numbers to look at, so each edge is named by its ends too."""
        place = re.match(r"edges\[(\d+)\]", fault)
        if place is None:
            return fault
        tail, head = self.edges[int(place[1])]
        names = f" {tail.name} → {head.name}"
        return fault if names in fault else f"{place[0]}{names}{fault[place.end() :]}"


topology = Builder


def _function(run: Any) -> Any:
    return run.func if isinstance(run, functools.partial) else run


def _named(place: str, task: Task, run: Any, faults: list[str], objects: Objects = None) -> Task:
    """The task with the reference, params and kind of what it runs."""
    if run is None:
        return task
    function, params = _function(run), dict(task.params)
    if isinstance(run, functools.partial):
        params = {**run.keywords, **params}
        if run.args:
            faults.append(f"{place}: give the params of a partial by name, not by place")
    kind = kind_of(function)
    found = call_faults(function, params, state=task.state)
    faults += [f"{place} {_said(function)}: {fault}" for fault in found]
    if (kind == "source") != (task.kind == "source"):
        faults.append(f"{place} {_said(function)}: is a {kind}, so it belongs in `{_verb(kind)}(…)`")
    task = msgspec.structs.replace(task, run=_reference(place, function, faults, objects), params=params)
    return as_coded(task, function, kind)


def _verb(kind: str) -> str:
    return "source" if kind == "source" else "task"


def _said(run: Any) -> str:
    return str(getattr(run, "__qualname__", None) or shown(run))


def _edge(place: str, tail: End, head: End, faults: list[str], objects: Objects = None) -> Edge:
    key = head.key
    if callable(key):
        faults += [f"{place} {_said(key)}: {fault}" for fault in call_faults(key, {})]
        key = _reference(place, key, faults, objects)
    return Edge(tail.name, head.name, tail.selectivity, head.grouping, key)


def _reference(place: str, run: Any, faults: list[str], objects: Objects = None) -> str:
    """Its `module:attribute`; for one that has none, a stand-in beside the fault. Within this process: any name."""
    if objects is not None:
        name = "here:" + re.sub(r"\W+", "_", str(getattr(run, "__qualname__", "function")))
        while objects.setdefault(name, run) is not run:
            name += "_"
        return name
    try:
        return reference_of(run)
    except InvalidInput as error:
        faults.append(f"{place}: {error.what}")
        return "unknown:unknown"
