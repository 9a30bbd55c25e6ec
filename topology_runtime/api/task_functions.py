"""From a task's `run` to what its threads call, and from an edge's `key` to the function that reads it.

Imports user code: in workers, in calibration and in the loader process only.
"""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from operator import itemgetter
from typing import Any

import msgspec

from headgate.topology_runtime.api.drafts import Draft
from headgate.topology_runtime.api.event_time_rules import time_faults
from headgate.topology_runtime.api.logic import (
    BATCHED_COLUMNS,
    CALL,
    Keyed,
    LiveSource,
    OffsetSource,
    Row,
    Sink,
    Source,
    To,
    Window,
    arriving_of,
    batched_of,
    concurrency_of,
    has_offsets,
    kind_of,
    side_effects_of,
)
from headgate.topology_runtime.api.references import last_lines, resolve
from headgate.topology_runtime.api.timed import Timed, is_timed, time_of_rows
from headgate.topology_runtime.api.topology import Edge, Task
from headgate.topology_runtime.connectors.secrets import with_secrets
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.wording import REFERENCE, did_you_mean, shown

# ── What a function or class of the user says about itself: which params it takes, which rows. Calls
# nothing
#
# Annotations are believed when they are plain classes; whatever else they are says nothing here.

PLAIN = (type(None), bool, int, float, str, bytes, datetime, list, tuple, dict)  # what rows are made of
BASES: tuple[type[object], ...] = (Source, LiveSource, OffsetSource, Sink, Window, Keyed, Timed)
MUST_DEFINE: dict[type[object], tuple[str, ...]] = {
    Source: ("read",),
    LiveSource: ("poll",),
    OffsetSource: ("seek", "poll"),
    Sink: ("write",),
    Window: ("ready", "finish"),
    Keyed: ("new", "process"),
    Timed: ("new", "process"),
}

Parameter = inspect.Parameter
_BY_PLACE = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD, Parameter.VAR_POSITIONAL)
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)


# ── can it be called? ───────────────────────────────────────────────────────────────────────────


def call_faults(run: Any, params: Mapping[str, Any], kind: str = "map", state: str = "none") -> Iterator[str]:
    """Why `run` with these params cannot be a task of this kind and state; nothing when it can."""
    if state == "keyed" and batched_of(run) and kind_of(run) != "keyed":
        yield "is @batched, and a task with state per key takes one row at a time: make it a Keyed, or leave the state"
    if state == "keyed" and is_async(run):
        yield "is async, and a task with state per key takes one row at a time: ask in a task before it"
    if isinstance(run, type):
        yield from _class_faults(run)
        yield from _form_faults(run)
        yield from _async_faults(run)
        faults = list(_params_faults(run, params, rows=0))
        yield from faults or _made_faults(run, params)
    elif isinstance(run, BASES):
        yield f"is an instance of {type(run).__name__}; name the class, each thread makes its own"
    elif not callable(run):
        yield f"is {type(run).__name__}, neither a function nor a class"
    else:
        yield from _function_faults(run, kind)
        yield from _form_faults(run)
        yield from _async_faults(run)
        yield from _params_faults(run, params, rows=1)


def _class_faults(kind: type) -> Iterator[str]:
    base = next((base for base in BASES if issubclass(kind, base)), None)
    form = batched_of(kind)
    if base is not None and form and not (base is Source and form == BATCHED_COLUMNS):
        yield f"{base.__name__} {kind.__name__} is @batched: functions are, and classes with __call__"
    if base is None:
        if not any("__call__" in vars(parent) for parent in kind.__mro__):
            yield f"class {kind.__name__} has no __call__(self, row)"
        return
    version = getattr(kind, "state_version", 1)
    if type(version) is not int or version < 1:
        yield f"{kind.__name__}.state_version is {shown(version)}: it is a whole number from 1 on"
    for name in MUST_DEFINE[base]:
        if getattr(kind, name) is getattr(base, name):
            yield f"{base.__name__} {kind.__name__} does not define {name}{_arguments(base, name)}"
    for name in (name for name in vars(base) if inspect.isfunction(vars(base)[name])):
        if not _takes_like(getattr(kind, name), getattr(base, name)):
            yield f"{kind.__name__}.{name} cannot be called as {name}{_arguments(base, name)}"
        if _awaits(getattr(kind, name)):
            yield f"{kind.__name__}.{name} is async: only functions and classes with __call__ may be"


def _arguments(base: type, name: str) -> str:
    return f"({', '.join(list(inspect.signature(getattr(base, name)).parameters)[1:])})"


def _takes_like(method: Any, model: Callable[..., Any]) -> bool:
    """Can `method` be called with as many arguments as `model`?"""
    signature = _signature(method)
    count = len(inspect.signature(model).parameters)
    try:
        if signature is not None:
            bound = count if inspect.isfunction(method) else count - 1  # static and class methods
            signature.bind(*[None] * bound)
    except TypeError:
        return False
    return True


def _function_faults(run: Any, kind: str) -> Iterator[str]:
    if inspect.isgeneratorfunction(run) and "flat_map" not in (kind, kind_of(run)) and not batched_of(run):
        yield "is a generator: mark it with @flat_map"
    if inspect.isasyncgenfunction(_called(run)) and "flat_map" not in (kind, kind_of(run)):
        yield "is an async generator: mark it with @flat_map"


def _form_faults(run: Any) -> Iterator[str]:
    if batched_of(run) == BATCHED_COLUMNS and kind_of(run) == "flat_map":
        yield "is @flat_map and takes columns: they cannot say which rows come of which; take rows (@batched)"


def is_async(run: Any) -> bool:
    """Is a call of this function, class or object to be awaited (or, an async generator, to be gone through)?"""
    return _awaits(_called(run))


def _called(run: Any) -> Any:
    """The function that is called for a row."""
    while isinstance(run, functools.partial):
        run = run.func
    return run if inspect.isroutine(run) else getattr(run if isinstance(run, type) else type(run), CALL, None)


def _awaits(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)


def _async_faults(run: Any) -> Iterator[str]:
    if is_async(run):
        if batched_of(run):
            yield "is async and @batched: an async task takes one row at a time, and @concurrent says how many at once"
        return
    if concurrency_of(run) is not None:
        yield "is @concurrent and not async: write `async def`, or leave the mark"
    names = [
        name for name in ("open", "close") if isinstance(run, type) and _awaits(getattr(run, name, None))
    ]
    if names:
        yield f"has an async {' and '.join(names)}, and its calls are not async: these are only where `__call__` is"


def _params_faults(run: Any, params: Mapping[str, Any], rows: int) -> Iterator[str]:
    signature = _signature(run)
    if signature is None:
        return
    known = list(signature.parameters.values())
    if rows:
        if not known or known[0].kind not in _BY_PLACE:
            yield "takes no row"
            return
        known = known[1:] if known[0].kind != Parameter.VAR_POSITIONAL else known
    names = [parameter.name for parameter in known if parameter.kind in _BY_NAME]
    if not any(parameter.kind == Parameter.VAR_KEYWORD for parameter in known):
        for name in params:
            if name not in names:
                yield f"takes no param {name!r}{did_you_mean(name, names)}"
    for parameter in known:
        optional = parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
        if not optional and parameter.default is Parameter.empty and parameter.name not in params:
            yield f"needs the param {parameter.name!r}"


def _made_faults(cls: type, params: Mapping[str, Any]) -> Iterator[str]:
    """What a class that says so (`made_to_check`) has to say of these params: making one does nothing else."""
    if not getattr(cls, "made_to_check", False):
        return
    try:
        made = cls(**params)
        if isinstance(made, Timed):
            time_of_rows(made, lambda place: itemgetter(0))
    except HeadgateError as error:
        told = ": ".join(filter(None, [error.what, ", ".join(error.faults), error.cause]))
        yield told + (f"; try {error.hint}" if error.hint else "")


def _signature(run: Any) -> inspect.Signature | None:
    """None for built-ins that do not tell."""
    try:
        return inspect.signature(run)
    except (ValueError, TypeError):
        return None


# ── which rows? ─────────────────────────────────────────────────────────────────────────────────


def edge_faults(edges: Iterable[tuple[int, Edge]], runs: Mapping[str, tuple[str, Any]]) -> Iterator[str]:
    """Edges whose two ends say by annotation that their rows differ, and edges that would tear windows by key apart.
    `runs`: task → (kind, run)."""
    for number, edge in edges:
        if edge.grouping in ("shuffle", "local") and _has_windows_by_key(runs.get(edge.target)):
            yield (
                f"edges[{number}].grouping {edge.grouping!r}: {edge.target} has windows by its `key`, and with more "
                "threads each would have a part of a window; `.by(…)` sends the rows of a key to one thread"
            )
        if edge.grouping != "global" and getattr(runs.get(edge.target, ("", None))[1], "one_thread", False):
            yield (
                f"edges[{number}].grouping {edge.grouping!r}: {edge.target} may have one thread only; `.to_one()` "
                "(grouping: global) sends all rows to one"
            )
        if edge.source not in runs:
            continue
        gives = gives_of(*runs[edge.source])
        place = f"edges[{number}] {edge.source} → {edge.target}"
        if not _plain_enough(gives):
            yield f"{place}: {edge.source} gives {_name(gives)}, which is no plain value"
        takes = takes_of(*runs[edge.target]) if edge.target in runs else None
        if not _fits(gives, takes):
            yield f"{place}: {edge.source} gives {_name(gives)}, {edge.target} takes {_name(takes)}"


def _has_windows_by_key(run: tuple[str, Any] | None) -> bool:
    return run is not None and run[0] == "hold" and getattr(run[1], "key", Window.key) is not Window.key


def _name(annotation: Any) -> str:
    return getattr(annotation, "__name__", str(annotation))


def takes_of(kind: str, run: Any) -> Any:
    """The annotation of the rows that a `run` of this kind takes; None when it says nothing."""
    if kind == "source":
        return None
    if kind == "hold":
        return _parameter_type(getattr(run, "key", None), 1)
    if kind == "keyed":
        return _parameter_type(getattr(run, "process", None), 2)
    takes = _parameter_type(run.__call__, 1) if isinstance(run, type) else _parameter_type(run, 0)
    return _in_form(run, takes)


def gives_of(kind: str, run: Any) -> Any:
    """The annotation of one row that a `run` of this kind gives; None when it says nothing."""
    if kind == "filter":
        return takes_of(kind, run)
    if kind == "source":
        reads = getattr(run, "read", None) or getattr(run, "poll", None)
        return None if batched_of(run) else _element(_return_type(reads))
    if kind == "hold":
        return _element(_return_type(getattr(run, "finish", None)))
    if kind == "keyed":
        pair = typing.get_args(_return_type(getattr(run, "process", None)))
        return _element(pair[1]) if len(pair) == 2 else None
    returned = _return_type(run.__call__ if isinstance(run, type) else run)
    returned = _in_form(run, returned)
    return _element(returned) if kind == "flat_map" else returned


def _in_form(run: Any, annotation: Any) -> Any:
    """The annotation of one of the rows that a batched task takes or gives; columns tell none."""
    form = batched_of(run)
    if form == BATCHED_COLUMNS:
        return None
    return _element(annotation) if form else annotation


def _hints(function: Any) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function)
    except Exception:  # an annotation that cannot be evaluated says nothing
        return {}


def _return_type(function: Any) -> Any:
    return _hints(function).get("return")


def _parameter_type(function: Any, place: int) -> Any:
    signature = _signature(function)
    names = list(signature.parameters) if signature is not None else []
    return _hints(function).get(names[place]) if place < len(names) else None


def _element(sequence: Any) -> Any:
    """X of Iterable[X], list[X], Iterator[X], tuple[X, ...]."""
    arguments = typing.get_args(sequence)
    if typing.get_origin(sequence) is tuple:
        return arguments[0] if len(arguments) == 2 and arguments[1] is Ellipsis else None
    return arguments[0] if arguments else None


def _plain_class(annotation: Any) -> type | None:
    if typing.is_typeddict(annotation):
        return dict
    if not isinstance(annotation, type) or annotation in (Any, object, To):
        return None
    return annotation


def _plain_enough(gives: Any) -> bool:
    """No for a class whose instances cannot be rows; abstract ones (Mapping …) may stand for plain ones."""
    kind = _plain_class(gives)
    if kind is None or inspect.isabstract(kind) or getattr(kind, "_is_protocol", False):
        return True
    return kind in PLAIN


def _fits(gives: Any, takes: Any) -> bool:
    given, taken = _plain_class(gives), _plain_class(takes)
    if given is None or taken is None:
        return True
    try:
        return issubclass(given, taken) or (taken is float and issubclass(given, int))
    except TypeError:  # a protocol that cannot be asked
        return True


def gave_none(task: str, run: Any) -> str:
    """What to say of a task from whose calls None went on as a row."""
    code = getattr(inspect.unwrap(_called(run)), "__code__", None)
    place = f" ({code.co_filename}:{code.co_firstlineno})" if code is not None else ""
    return (
        f"task {task!r}{place} returned None, and that went on as a row: return the row "
        "(@keep_if leaves rows out, @flat_map gives none or many)"
    )


# What an unmarked function or callable may be declared as; the mark only spares the declaration.
CALLED_KINDS = ("map", "flat_map", "filter")


def build(task: Task, find: Callable[[str], Any] = resolve) -> Any:
    """What one thread of `task` runs: a fresh `Class(**params)`, or the function (with its params bound). Secrets that
    params refer to are read now. find: the object of a reference.

    Raises InvalidInput that names the task and what was tried."""
    if task.run is None:
        raise InvalidInput(f"task {task.name!r} has no `run`: it can be planned, not run")
    try:
        run = find(task.run)
    except HeadgateError as error:
        what = f"task {task.name!r}: cannot get {task.run!r}: {error.what}"
        raise InvalidInput(what, cause=error.cause, hint=error.hint, faults=error.faults) from error
    faults = list(call_faults(run, task.params, task.kind, task.state))
    if faults:
        raise InvalidInput(f"task {task.name!r}: {task.run!r} does not fit", faults=faults)
    if (version := state_version_of(run)) != task.state_version:
        raise InvalidInput(
            f"task {task.name!r} has states of version {task.state_version}, and its code is of version {version}",
            cause="a run keeps the version with which it began; states are migrated where another begins",
            hint="`headgate checkpoint create`, and `headgate up --from-checkpoint` with this code",
        )
    try:
        params = with_secrets(task.params, getattr(run, "reads_references", ()))
    except HeadgateError as error:
        raise InvalidInput(f"task {task.name!r}: {error.what}", cause=error.cause, hint=error.hint) from error
    if not isinstance(run, type):
        return _bound(run, params)
    try:
        return run(**params)
    except Exception as error:  # user code may raise anything
        given = ", ".join(f"{key}={shown(value)}" for key, value in task.params.items())
        what = f"task {task.name!r}: {task.run.partition(':')[2]}({given}) raised {type(error).__name__}"
        raise InvalidInput(what, cause=last_lines(error)) from error


def _bound(function: Any, params: dict[str, Any]) -> Any:
    """The function with its params, and still with its marks (@flat_map, @keep_if, @batched)."""
    if not params:
        return function
    bound = functools.partial(function, **params)
    return functools.update_wrapper(bound, function)


def key_function(key: str | int | None, find: Callable[[str], Any] = resolve) -> Callable[[Row], Hashable]:
    """row → plain key: a position (int), a field's name, or `module:function`. InvalidInput otherwise."""
    if key is None:
        raise InvalidInput("a 'fields' edge needs a key")
    if isinstance(key, str) and REFERENCE.fullmatch(key):
        function: Callable[[Row], Hashable] = find(key)
        return function
    return itemgetter(key)


def filled(draft: Draft) -> tuple[Draft, list[str]]:
    """(draft with the kinds that the user's code tells, faults of all that is named in `run` and `key`)."""
    faults: list[str] = []
    tasks: list[Task | None] = list(draft.tasks)
    runs: dict[str, tuple[str, Any]] = {}
    for number, task in enumerate(tasks):
        if task is None or task.run is None or not REFERENCE.fullmatch(task.run):
            continue
        place = f"tasks[{number}].run {task.run!r}"
        run = _resolved(place, task.run, faults)
        if run is None:
            continue
        tasks[number] = told = _with_kind(number, task, run, draft, faults)
        runs[told.name] = told.kind, run
        faults += [f"{place}: {fault}" for fault in call_faults(run, told.params, told.kind, told.state)]
    edges = [(number, edge) for number, edge in enumerate(draft.edges) if edge is not None]
    for number, edge in edges:
        if edge.grouping == "fields" and isinstance(edge.key, str) and REFERENCE.fullmatch(edge.key):
            place = f"edges[{number}].key {edge.key!r}"
            function = _resolved(place, edge.key, faults)
            if function is not None:
                faults += [f"{place}: {fault}" for fault in call_faults(function, {})]
    faults += edge_faults(edges, runs)
    there = [(number, task) for number, task in enumerate(tasks) if task is not None]
    faults += time_faults(there, [edge for _, edge in edges], runs)
    return replace(draft, tasks=tuple(tasks)), faults


def _resolved(place: str, reference: str, faults: list[str]) -> Any:
    try:
        return resolve(reference)
    except HeadgateError as error:
        cause = "".join(f"\n      {line.strip()}" for line in (error.cause or "").splitlines())
        faults += [f"{place}: {error.what}{cause}", *(f"{place}: {fault}" for fault in error.faults)]
        return None


def _with_kind(number: int, task: Task, run: Any, draft: Draft, faults: list[str]) -> Task:
    """The task with the kind of its code; a kind that the file gives must agree with it."""
    kind = kind_of(run)
    marked = hasattr(run, "__headgate_kind__")
    if number in draft.kinds_given and task.kind != kind:
        if not marked and task.kind in CALLED_KINDS and kind in CALLED_KINDS:
            kind = task.kind
        else:
            faults.append(f"tasks[{number}].kind {task.kind!r}: {task.run} is a {kind}")
    if task.arriving and arriving_of(run) is None:
        faults.append(f"tasks[{number}].arriving: {task.run} is no LiveSource, so it is read when it is due")
    if task.offsets and not has_offsets(run):
        faults.append(f"tasks[{number}].offsets: {task.run} is no OffsetSource")
    if task.arriving is False and has_offsets(run):
        faults.append(
            f"tasks[{number}].arriving: {task.run} is an OffsetSource: its rows are taken as they come"
        )
    if task.timed and not is_timed(run):
        faults.append(f"tasks[{number}].timed: {task.run} is no Timed")
    if task.state_version not in (1, version := state_version_of(run)):
        faults.append(f"tasks[{number}].state_version {task.state_version}: {task.run} says {version}")
    if task.batched and not batched_of(run):
        faults.append(f"tasks[{number}].batched: {task.run} is not @batched: it takes one row at a time")
    return as_coded(task, run, kind)


def state_version_of(run: Any) -> int:
    """Of the states that its code keeps."""
    is_keyed = isinstance(run, type) and issubclass(run, Keyed | Timed)
    return int(run.state_version) if is_keyed else 1


def as_coded(task: Task, run: Any, kind: str) -> Task:
    """The task of this kind, with what its code says of itself."""
    own = arriving_of(run)
    return msgspec.structs.replace(
        task,
        kind=kind,
        state="keyed" if kind == "keyed" else task.state,
        side_effects=side_effects_of(run) if task.side_effects is None else task.side_effects,
        arriving=own if own is None or task.arriving is None else task.arriving,
        batched=bool(batched_of(run)),
        offsets=has_offsets(run),
        timed=is_timed(run),
        state_version=state_version_of(run),
    )
