"""Allocators and mappers that other packages install, added to those of ours when one is asked for."""

from __future__ import annotations

from typing import Any

from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS, Allocator, Mapper
from headgate.topology_runtime.api.plugins import plugin
from headgate.topology_runtime.errors import InvalidInput


def add_installed(*, allocator: str | None = None, mapper: str | None = None) -> None:
    """A name that is none of ours is looked up in `headgate.allocators` and `headgate.mappers`, and used from then on
    as if it were. One that nobody installed is left to the checks of names. Raises InvalidInput for a broken one."""
    if allocator and allocator not in ALLOCATORS and (found := plugin("allocators", allocator)) is not None:
        ALLOCATORS[allocator] = _as(Allocator, found, allocator, lambda: Allocator(found, found.__module__))
    if mapper and mapper not in MAPPERS and (found := plugin("mappers", mapper)) is not None:
        words = (
            getattr(found, "__doc__", None) or f"{mapper} of {getattr(found, '__module__', '?')}."
        ).strip()
        first = words.partition("\n")[0]
        MAPPERS[mapper] = _as(
            Mapper, found, mapper, lambda: Mapper(found, found.__module__, first, spreads=True)
        )


def _as(kind: Any, found: Any, name: str, made: Any) -> Any:
    """A row of the registry: as it was registered, or of a plain function."""
    if isinstance(found, kind):
        return found
    if not callable(found) or isinstance(found, type):
        what = f"{kind.__name__.lower()} {name!r} is {type(found).__name__}"
        raise InvalidInput(f"broken plug-in: {what}", hint=f"register a function or a {kind.__name__}")
    return made()
