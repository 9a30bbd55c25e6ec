"""From what a user names to tasks that can be profiled: `[NAME=]file.py:attribute`, `module:attribute`, a
ready-made task's name, or the tasks of a topology.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.api.loading import check_runs, load
from headgate.topology_runtime.api.logic import Source
from headgate.topology_runtime.api.references import module_of_file
from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.measuring.collected_rows import collect_rows
from headgate.topology_runtime.tasks.ready_made import READY_MADE
from headgate.topology_runtime.wording import REFERENCE, did_you_mean, name_faults

# ── Events for profiling a task alone: lines of a file or made ones, in the form that the task takes ────

LINES_MOST = 1000  # of a file: rows are played again and again
SENSORS = 50


def made(position: int) -> str:
    """A line of made sensor events, always the same at the same position."""
    return json.dumps(
        {
            "id": position,
            "sensor": f"s{position % SENSORS}",
            "value": round(20 + (position * 7919 % 1000) / 100, 2),
            "time_ms": 1_700_000_000_000 + 250 * position,
        }
    )


FORMS: dict[str, Callable[[int, str], Any]] = {
    "text": lambda position, line: line,
    "json": lambda position, line: json.loads(line),
    "number": lambda position, line: position,
    "pair": lambda position, line: (position, line),
    "bytes": lambda position, line: line.encode(),
}


class SampleEvents(Source):
    """Endless events. path: a file with one per line (none: made ones); form: one of FORMS."""

    def __init__(self, form: str = "text", path: str | None = None) -> None:
        self._row = FORMS[form]
        self._lines = lines_of(Path(path)) if path is not None else None

    def read(self, position: int, limit: int) -> Sequence[Any]:
        return [self._row(p, self._line(p)) for p in range(position, position + limit)]

    def _line(self, position: int) -> str:
        if self._lines is None:
            return made(position)
        return self._lines[position % len(self._lines)]


def lines_of(path: Path) -> list[str]:
    """The first lines of a file, empty ones left out. Raises InvalidInput."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\r\n") for line, _ in zip(file, range(LINES_MOST), strict=False)]
    except OSError as error:
        raise InvalidInput(f"cannot read the events {path}", cause=error.strerror) from error
    kept = [line for line in lines if line.strip()]
    if not kept:
        raise InvalidInput(
            f"cannot read the events {path}", cause="it has no lines", hint="one event per line"
        )
    return kept


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

EVENTS = "headgate.topology_runtime.measuring.profile_subjects:SampleEvents"
SINK = "headgate.topology_runtime.worker.meters.sample_rows:swallow"
AFTER = "after"  # a task behind the one whose form of rows is looked for, so that it really runs


@dataclass(frozen=True)
class Subjects:
    """`tasks` of `topology`, its code found in `user_paths`; `forms`: task → the form of its rows."""

    topology: Topology
    tasks: tuple[Task, ...]
    user_paths: tuple[str, ...]
    forms: Mapping[str, str]


def of_topology(reference: str, names: Sequence[str]) -> Subjects:
    """The named tasks of a topology (none: all that are not of fixed size and may be run on samples). Raises
    InvalidInput."""
    loaded = load(reference, runs=True)
    known = {task.name: task for task in loaded.topology.tasks}
    faults = [f"there is no task {name!r}{did_you_mean(name, known)}" for name in names if name not in known]
    faults += [f"task {task.name!r} has no `run`" for task in loaded.topology.tasks if task.run is None]
    if faults:
        raise InvalidInput(f"topology {loaded.topology.name!r} cannot be profiled", faults=faults)
    chosen = [known[name] for name in names]
    if not names:
        spared = loaded.topology.unsampled
        own = [task for task in loaded.topology.breadth_first if task.static is None]
        chosen = [task for task in own if task.name not in spared]
        if not chosen and own:
            raise InvalidInput(
                "none of the tasks is run on sample rows unless it is named",
                cause=f"{', '.join(task.name for task in own)} may have side effects",
                hint="name those that may really run",
            )
    return Subjects(loaded.topology, tuple(chosen), loaded.user_paths, {})


def of_references(
    references: Sequence[str], params: Mapping[str, Any], events: Path | None = None, key: str | None = None
) -> Subjects:
    """Each task alone behind sample events. `params`: handed to every task; `events`: a file with one
    event per line; `key`: of keyed tasks. Raises InvalidInput with every fault."""
    named = [_named(reference, params) for reference in references]
    names = [task.name for task, _ in named]
    faults = [
        f"two tasks are called {name!r}: use NAME=TASK"
        for name in sorted(set(names))
        if names.count(name) > 1
    ]
    if faults:
        raise InvalidInput("the tasks cannot be profiled together", faults=faults)
    user_paths = tuple(dict.fromkeys([path for _, paths in named for path in paths] + [str(Path.cwd())]))
    forms: dict[str, str] = {}
    tasks: list[Task] = []
    for task, _ in named:
        alone = check_runs(_topology([(task, "text")], events, key), user_paths)
        kind = alone.by_name[task.name]
        forms[task.name] = _form(kind, events, key, user_paths)
        tasks.append(kind)
    topology = _topology([(task, forms[task.name]) for task in tasks], events, key)
    return Subjects(topology, tuple(topology.by_name[name] for name in names), user_paths, forms)


def _named(word: str, params: Mapping[str, Any]) -> tuple[Task, tuple[str, ...]]:
    """(the task, the folders its code is found in)."""
    name, equals, reference = word.partition("=")
    if not equals:
        name, reference = "", word
    if reference in READY_MADE:
        return Task(_sound(name or reference), run=READY_MADE[reference], params=dict(params)), ()
    run, paths = _run_of(reference)
    return Task(
        _sound(name or run.rpartition(".")[2].rpartition(":")[2]), run=run, params=dict(params)
    ), paths


def _sound(name: str) -> str:
    faults = list(name_faults("task", name))
    if faults:
        raise InvalidInput(f"{name!r} cannot be a task's name", faults=faults, hint="use NAME=TASK")
    return name


def _run_of(reference: str) -> tuple[str, tuple[str, ...]]:
    path, colon, attribute = reference.rpartition(":")
    if colon and path.endswith(".py"):
        if not Path(path).is_file():
            raise InvalidInput(f"{path}: no such file")
        module, root = module_of_file(Path(path))
        return f"{module}:{attribute}", (str(root),)
    if REFERENCE.fullmatch(reference):
        return reference, (str(Path.cwd()),)
    raise InvalidInput(
        f"{reference!r} names no task{did_you_mean(reference, READY_MADE)}",
        cause=f"ready-made are {', '.join(READY_MADE)}",
        hint="your own is file.py:function or module:Class",
    )


def _topology(tasks: Sequence[tuple[Task, str]], events: Path | None, key: str | None) -> Topology:
    path = {"path": str(events.resolve())} if events is not None else {}
    sources = [
        Task(f"{task.name}-events"[:64], "source", EVENTS, {"form": form, **path}) for task, form in tasks
    ]
    grouping: dict[str, Any] = {"grouping": "fields", "key": key} if key is not None else {}
    edges = [
        Edge(source.name, task.name, **grouping) for source, (task, _) in zip(sources, tasks, strict=True)
    ]
    return Topology("profile", (*sources, *(task for task, _ in tasks)), tuple(edges))


def _form(task: Task, events: Path | None, key: str | None, user_paths: Sequence[str]) -> str:
    """The first form of rows that the task works on. Raises HeadgateError: what it said to each."""
    said: dict[str, str] = {}
    for form in FORMS:
        alone = _topology([(task, form)], events, key)
        alone = msgspec.structs.replace(
            alone,
            tasks=(*alone.tasks, Task(AFTER, "flat_map", SINK)),
            edges=(*alone.edges, Edge(task.name, AFTER)),
        )
        with tempfile.TemporaryDirectory() as directory:
            file = Path(directory, "topology.json")
            file.write_bytes(msgspec.json.encode(alone))
            try:
                collect_rows(file, alone, [task.name, AFTER], user_paths, directory)
            except HeadgateError as error:
                said[form] = error.cause or error.what
                if "hangs" in error.what or "cannot run" in error.what:
                    raise
                continue
        return form
    raise HeadgateError(
        f"task {task.name!r} takes none of the sample events",
        faults=[f"{form}: {words}" for form, words in said.items()],
        hint="give events it understands: --input FILE, one per line",
    )


def params_of(words: Sequence[str]) -> dict[str, Any]:
    """`key=value` words; a value is JSON, or else text. Raises InvalidInput."""
    faults = [word for word in words if not word.partition("=")[0].isidentifier() or "=" not in word]
    if faults:
        raise InvalidInput("parameters are key=value", faults=[f"got {word!r}" for word in faults])
    return {key: _value(text) for key, _, text in (word.partition("=") for word in words)}


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
