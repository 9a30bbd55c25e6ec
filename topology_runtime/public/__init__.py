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

TYPE_CHECKING = False  # as `typing` has it, whose import takes longer than all of this
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from headgate.topology_runtime.api.builder import topology as topology
    from headgate.topology_runtime.api.logic import Context as Context
    from headgate.topology_runtime.api.logic import Exhausted as Exhausted
    from headgate.topology_runtime.api.logic import Keyed as Keyed
    from headgate.topology_runtime.api.logic import LiveSource as LiveSource
    from headgate.topology_runtime.api.logic import OffsetSource as OffsetSource
    from headgate.topology_runtime.api.logic import RowId as RowId
    from headgate.topology_runtime.api.logic import Sink as Sink
    from headgate.topology_runtime.api.logic import Source as Source
    from headgate.topology_runtime.api.logic import To as To
    from headgate.topology_runtime.api.logic import Window as Window
    from headgate.topology_runtime.api.logic import any_thread as any_thread
    from headgate.topology_runtime.api.logic import batched as batched
    from headgate.topology_runtime.api.logic import concurrent as concurrent
    from headgate.topology_runtime.api.logic import flat_map as flat_map
    from headgate.topology_runtime.api.logic import keep_if as keep_if
    from headgate.topology_runtime.api.logic import no_side_effects as no_side_effects
    from headgate.topology_runtime.api.logic import side_effects as side_effects
    from headgate.topology_runtime.api.side_table import SideTable as SideTable
    from headgate.topology_runtime.api.timed import Time as Time
    from headgate.topology_runtime.api.timed import Timed as Timed
    from headgate.topology_runtime.api.topology import Static as Static
    from headgate.topology_runtime.errors import ServiceAway as ServiceAway


def _places(folder: str, modules: dict[str, str]) -> dict[str, str]:
    """name → where it is defined, of the names in each module of a folder."""
    root = f"headgate.topology_runtime.{folder}"
    return {name: f"{root}.{module}" for module, names in modules.items() for name in names.split()}


def _imported(of: str, places: dict[str, str], name: str) -> Any:
    """What is listed, from where it is defined."""
    from importlib import import_module

    if of == "headgate" and name in MODULES:
        return import_module(f"headgate.{name}")
    if name not in places:
        raise AttributeError(f"module {of!r} has no attribute {name!r}{_meant(name, places)}")
    return getattr(import_module(places[name]), name)


def _meant(name: str, names: Iterable[str]) -> str:
    """What may have been meant, or all that there is."""
    if name.startswith("_"):
        return ""
    from difflib import get_close_matches

    close = get_close_matches(name, names, 1)
    return f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(sorted(names))}"


PLACES = _places(
    "api",
    {
        "builder": "topology",
        "logic": "Context Exhausted Keyed LiveSource OffsetSource RowId Sink Source To Window any_thread batched "
        "concurrent flat_map keep_if no_side_effects side_effects",
        "side_table": "SideTable",
        "timed": "Time Timed",
        "topology": "Static",
    },
) | {"ServiceAway": "headgate.topology_runtime.errors"}
MODULES = ("connectors", "tasks", "testing", "windows")
__all__ = list(PLACES)


def __getattr__(name: str) -> Any:
    return _imported("headgate", PLACES, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *MODULES})
