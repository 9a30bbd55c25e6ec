"""What can be wrong with a task by itself: its names, numbers, state and params. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from headgate.topology_runtime.faults.drafts import Draft
from headgate.topology_runtime.faults.words import REFERENCE, name_faults, number_faults, shown
from headgate.topology_runtime.topology import Static, Task

MAX_STATIC_THREADS = 10_000  # more threads than any cluster of this version runs
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


def _is_plain_scalar(value: Any) -> bool:
    if type(value) is int:
        return -(2**63) <= value < 2**63
    if type(value) is str:
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    return value is None or type(value) is bool or (type(value) is float and math.isfinite(value))
