"""Files that a topology's params name: `package:PATH` is a file of the package, wherever that is unpacked. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.topology import Topology

IN_PACKAGE = "package:"
TOPOLOGY = ".headgate-topology.json"  # the topology itself, so that it is signed with the code

Changed = Callable[[str, str], str]  # (TASK.PARAM, text) → text


def changed(topology: Topology, change: Changed) -> Topology:
    """The same with every text in its params changed."""
    tasks = tuple(
        replace(
            task,
            params={key: _changed(f"{task.name}.{key}", value, change) for key, value in task.params.items()},
        )
        if task.params
        else task
        for task in topology.tasks
    )
    return replace(topology, tasks=tasks)


def placed(topology: Topology, folder: str) -> Topology:
    """With the files of its package where they are on this host."""

    def place(_: str, text: str) -> str:
        return f"{folder}/{text.removeprefix(IN_PACKAGE)}" if text.startswith(IN_PACKAGE) else text

    return changed(topology, place)


def _changed(place: str, value: Any, change: Changed) -> Any:
    if isinstance(value, str):
        return change(place, value)
    if isinstance(value, list | tuple):
        return type(value)([_changed(place, one, change) for one in value])
    if isinstance(value, dict):
        return {key: _changed(place, one, change) for key, one in value.items()}
    return value
