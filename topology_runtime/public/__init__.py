"""Runs stream topologies on slots of real machines, planned from measured models.

    from headgate import topology, flat_map

    @flat_map
    def split(line):
        return line.split()

    flow = topology("words")
    …

Everything here is imported on first use, so that `import headgate` costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headgate.topology_runtime.builder import topology as topology
    from headgate.topology_runtime.logic import Context as Context
    from headgate.topology_runtime.logic import Exhausted as Exhausted
    from headgate.topology_runtime.logic import Hold as Hold
    from headgate.topology_runtime.logic import Keyed as Keyed
    from headgate.topology_runtime.logic import LiveSource as LiveSource
    from headgate.topology_runtime.logic import Source as Source
    from headgate.topology_runtime.logic import To as To
    from headgate.topology_runtime.logic import any_thread as any_thread
    from headgate.topology_runtime.logic import batched as batched
    from headgate.topology_runtime.logic import effects as effects
    from headgate.topology_runtime.logic import flat_map as flat_map
    from headgate.topology_runtime.logic import keep_if as keep_if
    from headgate.topology_runtime.logic import no_effects as no_effects
    from headgate.topology_runtime.topology import Static as Static

_LOGIC = "headgate.topology_runtime.logic"
_PLACES = {
    "topology": "headgate.topology_runtime.builder",
    "Static": "headgate.topology_runtime.topology",
    "Context": _LOGIC,
    "Exhausted": _LOGIC,
    "Hold": _LOGIC,
    "Keyed": _LOGIC,
    "LiveSource": _LOGIC,
    "Source": _LOGIC,
    "To": _LOGIC,
    "any_thread": _LOGIC,
    "batched": _LOGIC,
    "effects": _LOGIC,
    "flat_map": _LOGIC,
    "keep_if": _LOGIC,
    "no_effects": _LOGIC,
}

__all__ = list(_PLACES)


def __getattr__(name: str) -> Any:
    """What is listed above, from where it is defined."""
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"module 'headgate' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(place), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
