"""Lines of real workers, source → … → store: built, run, and what they stored."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Edge, Grouping, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.rig import Rig

HERE = str(Path(__file__).parent)
SOURCE = Task("source", kind="source", run="rig_tasks:Ids", static=Static())
STORE = Task("store", kind="hold", run="rig_tasks:Lines")
STRICT = m.DataPlaneSettings(strict=True)
KINDS = {"even": "filter", "twice": "flat_map"}  # of batched tasks, which say it of themselves otherwise
JOIN = Topology(
    "join",
    (
        SOURCE,
        Task("left", run="rig_tasks:left"),
        Task("right", run="rig_tasks:right"),
        Task("pair", kind="hold", run="rig_tasks:Pair"),
        STORE,
    ),
    (
        Edge("source", "left"),
        Edge("source", "right"),
        Edge("left", "pair", grouping="fields", key="id"),
        Edge("right", "pair", grouping="fields", key="id"),
        Edge("pair", "store"),
    ),
)


def line(
    *names: str, module: str = "rig_tasks", source: str = "rig_tasks:Ids", grouping: Grouping = "shuffle"
) -> Topology:
    """Each task runs the function of its name in that module."""
    kinds = KINDS if module == "batch_tasks" else {}
    tasks = [Task(name, kind=kinds.get(name, "map"), run=f"{module}:{name}") for name in names]  # type: ignore[arg-type]
    key = "id" if grouping == "fields" else None
    ends = itertools.pairwise(["source", *names, "store"])
    edges = tuple(Edge(a, b, grouping=grouping, key=key) for a, b in ends)
    return Topology("line", (replace(SOURCE, run=source), *tasks, STORE), edges)


def rig_of(
    topology: Topology,
    places: Mapping[str, Sequence[int]],
    folder: Path,
    settings: m.DataPlaneSettings = STRICT,
    **more: Any,
) -> Rig:
    """`stored` reads what its store writes below `folder`."""
    (folder / "out").mkdir()
    params = {"folder": str(folder / "out")}
    tasks = (replace(task, params=params) if task.name == "store" else task for task in topology.tasks)
    return Rig(replace(topology, tasks=tuple(tasks)), places, str(folder), (HERE,), settings, **more)


@contextmanager
def started(rig: Rig) -> Iterator[Rig]:
    try:
        rig.start()
        yield rig
    finally:
        rig.stop()


def emitted(rig: Rig, rate_tps: float, seconds: float) -> int:
    """Offer a rate for so long, drain and stop; how many rows the source emitted."""
    with started(rig):
        rows = rig.emit(rate_tps, seconds)
        rig.pump(0.3)
    return rows


def killed(rig: Rig, rate_tps: float, slots: Sequence[int]) -> int:
    """The same, while each of these workers is killed and comes back in turn."""
    with started(rig):
        rig.offer([(0.0, rate_tps)])
        for slot in slots:
            rig.pump(0.7)
            rig.kill(slot)
            rig.respawn(slot)
        rig.pump(0.5)
        rig.drain()
        return max(source.emitted for source in rig.sources())


def stored(folder: Path) -> Counter[int]:
    return Counter(int(text) for path in (folder / "out").iterdir() for text in path.read_text().split())
