"""Allocators and mappers that other packages install, added to those of ours when one is asked for.

What such a function does wrong is said to be its own: that it raises, or that its answer is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import wraps
from traceback import extract_tb
from typing import Any, ParamSpec, TypeVar

from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, Placement
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS, Allocator, Mapper
from headgate.topology_runtime.api.plugins import plugin
from headgate.topology_runtime.errors import HeadgateError, InvalidInput

P = ParamSpec("P")
T = TypeVar("T")


def add_installed(*, allocator: str | None = None, mapper: str | None = None) -> None:
    """A name that is none of ours is looked up in `headgate.allocators` and `headgate.mappers`, and used from then on
    as if it were. One that nobody installed is left to the checks of names. Raises InvalidInput for a broken one."""
    if allocator and allocator not in ALLOCATORS and (found := plugin("allocators", allocator)) is not None:
        row = _as(Allocator, found, allocator, lambda: Allocator(found, found.__module__))
        allocate = _blamed(f"allocator {allocator!r}", row.allocate, Allocation)
        ALLOCATORS[allocator] = replace(row, allocate=allocate)
    if mapper and mapper not in MAPPERS and (found := plugin("mappers", mapper)) is not None:
        words = (
            getattr(found, "__doc__", None) or f"{mapper} of {getattr(found, '__module__', '?')}."
        ).strip()
        first = words.partition("\n")[0]
        row = _as(Mapper, found, mapper, lambda: Mapper(found, found.__module__, first, spreads=True))
        MAPPERS[mapper] = replace(row, place=_placing(f"mapper {mapper!r}", row.place))


def _as(kind: Any, found: Any, name: str, made: Any) -> Any:
    """A row of the registry: as it was registered, or of a plain function."""
    if isinstance(found, kind):
        return found
    if not callable(found) or isinstance(found, type):
        what = f"{kind.__name__.lower()} {name!r} is {type(found).__name__}"
        raise InvalidInput(f"broken plug-in: {what}", hint=f"register a function or a {kind.__name__}")
    return made()


def _blamed(what: str, function: Callable[P, T], answer: type[T]) -> Callable[P, T]:
    """The same function; what it raises that is none of our errors, or another answer, is named as its fault."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            found = function(*args, **kwargs)
        except HeadgateError:
            raise
        except Exception as error:
            file = getattr(getattr(function, "__code__", None), "co_filename", "")
            lines = [at.lineno for at in extract_tb(error.__traceback__) if at.filename == file]
            place = f" ({file}, line {lines[-1]})" if lines else ""
            cause = f"{type(error).__name__}: {error}{place}"
            hint = "mend it; --debug shows the traceback"
            raise InvalidInput(f"{what} raised an error", cause=cause, hint=hint) from error
        if not isinstance(found, answer):
            given = type(found).__name__
            raise InvalidInput(f"{what} returned {given}", hint=f"return a {answer.__name__}")
        return found

    return called


def _placing(
    what: str, place: Callable[[Allocation, Room], Placement]
) -> Callable[[Allocation, Room], Placement]:
    """A mapper that puts every thread of the allocation into a slot of the room, or is named."""
    blamed = _blamed(what, place, Placement)

    def placed(allocation: Allocation, room: Room) -> Placement:
        found = blamed(allocation, room)
        if faults := list(_faults_of(found, allocation, room)):
            hint = "mend it, or raise Infeasible where the threads do not fit"
            raise InvalidInput(f"{what} returned a placement that cannot be", faults=faults, hint=hint)
        return found

    return placed


def _faults_of(found: Placement, allocation: Allocation, room: Room) -> Iterator[str]:
    """What no mapper may do, whatever its rules are."""
    usable, threads = set(room.slots()), Counter[str]()
    for bundle in found.bundles:
        threads[bundle.task] += bundle.threads
        if bundle.slot not in usable:
            yield f"slot {bundle.slot} is none of room.slots()"
    for task in allocation.tasks:
        if (there := threads.pop(task.task, 0)) != task.threads:
            yield f"task {task.task!r}: {there} threads are placed, {task.threads} allocated"
    for name in threads:
        yield f"task {name!r} is not in the allocation"
