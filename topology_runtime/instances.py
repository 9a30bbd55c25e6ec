"""From a task's `run` to what its threads call, and from an edge's `key` to the function that reads it.

Imports user code: in workers, in calibration and in the loader process only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Hashable
from dataclasses import replace
from operator import itemgetter
from typing import Any

import msgspec

from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.faults.drafts import Draft
from headgate.topology_runtime.faults.words import REFERENCE, shown
from headgate.topology_runtime.logic import Row, arriving_of, batched_of, effects_of, kind_of
from headgate.topology_runtime.references import last_lines, resolve
from headgate.topology_runtime.signatures import call_faults, state_faults, type_faults
from headgate.topology_runtime.topology import Task

# What an unmarked function or callable may be declared as; the mark only spares the declaration.
CALLED_KINDS = ("map", "flat_map", "filter")


def build(task: Task) -> Any:
    """What one thread of `task` runs: a fresh `Class(**params)`, or the function (with its params bound).

    Raises InvalidInput that names the task and what was tried."""
    if task.run is None:
        raise InvalidInput(f"task {task.name!r} has no `run`: it can be planned, not run")
    try:
        run = resolve(task.run)
    except HeadgateError as error:
        what = f"task {task.name!r}: cannot get {task.run!r}: {error.what}"
        raise InvalidInput(what, cause=error.cause, hint=error.hint, faults=error.faults) from error
    faults = [*call_faults(run, task.params, task.kind), *state_faults(run, task.state)]
    if faults:
        raise InvalidInput(f"task {task.name!r}: {task.run!r} does not fit", faults=faults)
    if not isinstance(run, type):
        return _bound(run, task.params)
    try:
        return run(**task.params)
    except Exception as error:  # user code may raise anything
        params = ", ".join(f"{key}={shown(value)}" for key, value in task.params.items())
        what = f"task {task.name!r}: {task.run.partition(':')[2]}({params}) raised {type(error).__name__}"
        raise InvalidInput(what, cause=last_lines(error)) from error


def _bound(function: Any, params: dict[str, Any]) -> Any:
    """The function with its params, and still with its marks (@flat_map, @keep_if, @batched)."""
    if not params:
        return function
    bound = functools.partial(function, **params)
    return functools.update_wrapper(bound, function)


def key_function(key: str | int | None) -> Callable[[Row], Hashable]:
    """row → plain key: a position (int), a field's name, or `module:function`. InvalidInput otherwise."""
    if key is None:
        raise InvalidInput("a 'fields' edge needs a key")
    if isinstance(key, str) and REFERENCE.fullmatch(key):
        function: Callable[[Row], Hashable] = resolve(key)
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
        faults += [f"{place}: {fault}" for fault in call_faults(run, told.params, told.kind)]
        faults += [f"{place}: {fault}" for fault in state_faults(run, told.state)]
    edges = [(number, edge) for number, edge in enumerate(draft.edges) if edge is not None]
    for number, edge in edges:
        if edge.grouping == "fields" and isinstance(edge.key, str) and REFERENCE.fullmatch(edge.key):
            place = f"edges[{number}].key {edge.key!r}"
            function = _resolved(place, edge.key, faults)
            if function is not None:
                faults += [f"{place}: {fault}" for fault in call_faults(function, {})]
    faults += type_faults(edges, runs)
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
    state = "keyed" if kind == "keyed" else task.state
    effects = effects_of(run) if task.effects is None else task.effects
    own = arriving_of(run)
    arriving = own if own is None or task.arriving is None else task.arriving
    if task.arriving and own is None:
        faults.append(f"tasks[{number}].arriving: {task.run} is no LiveSource, so it is read when it is due")
    batched = bool(batched_of(run))
    if task.batched and not batched:
        faults.append(f"tasks[{number}].batched: {task.run} is not @batched: it takes one row at a time")
    return msgspec.structs.replace(
        task, kind=kind, state=state, effects=effects, arriving=arriving, batched=batched
    )
