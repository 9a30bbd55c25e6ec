"""A chain of real threads in one slot that are never started: a test takes their turns in its own thread."""

from __future__ import annotations

import sys
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Source, has_offsets
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process.source_thread import SourceWork
from headgate.topology_runtime.worker.process.task_thread import FrameWork, HeldLease, Host, TaskThread

NAMES = ("numbers", "pairs", "marked", "sink")
ROWS, SLOT, INCARNATION = 100, Slot("vm", 0), 7
held: list[int] = []  # who holds the first row of `pairs`, each time `marked` is called for it
first: list[Any] = []


class Numbers(Source):
    def read(self, position: int, limit: int) -> list[int]:
        return list(range(position, position + limit))


def pairs(row: int) -> tuple[int, str]:
    made = row, "a row"
    if row % ROWS == 0:
        first[:] = [made]
    return made


def marked(row: tuple[int, str]) -> int:
    return row[0]


def sink(row: int) -> None:
    if row % ROWS == 0:
        held.append(sys.getrefcount(first[0]))


def refuse(error: BaseException) -> None:
    raise error


def host_of(board: Switchboard, folder: Path, threads: dict[int, TaskThread] | None = None) -> Host:
    """What threads need of a worker, without one: no row of theirs may become a dead letter."""
    return Host(
        board,
        mt.Meter(mt.create()),
        str(folder),
        letters=lambda letter: pytest.fail(f"a dead letter: {letter}"),
        changed=lambda: None,
        crashed=refuse,
        lock=threading.Lock(),
        disk=DiskTroubles(),
        lease=HeldLease(),
        one=threading.Lock(),
        threads={} if threads is None else threads,
    )


def line_of(
    tmp_path: Path, modelled_tps: dict[int, float], source: type[Source] = Numbers, offset: int = 0
) -> dict[str, TaskThread]:
    """The threads by task, all in one slot and chained; their objects are built and their orders are there."""
    held.clear()
    tasks = tuple(
        Task(
            name,
            kind="source",
            run=f"{source.__module__}:{source.__name__}",
            static=Static(),
            arriving=has_offsets(source) or None,
            offsets=has_offsets(source),
        )
        if name == "numbers"
        else Task(name, run=f"{__name__}:{name}")
        for name in NAMES
    )
    topology = Topology("line", tasks, tuple(Edge(a, b) for a, b in pairwise(NAMES)))
    specs = tuple(m.ThreadSpec(number, name, SLOT) for number, name in enumerate(NAMES, 1))
    desired = m.DesiredState(
        token=m.Token(1, 1, 1),
        phase="committed",
        run="r",
        topology=topology,
        user_paths=(),
        threads=specs,
        routes_number=1,
        routes=tuple(m.Route(number, ((number + 2, 1.0),)) for number in range(len(topology.edges))),
        workers=(m.WorkerAt(SLOT, INCARNATION, "tcp://x:1"),),
        schedule=Schedule(wall_ns() - 10**12, ((0.0, 1e6),)),
        starts=(m.SourceStart("numbers", 0, 0, offset=offset),),
        settings=m.DataPlaneSettings(frame_rows=ROWS),
        chained=NAMES,
        modelled_tps=modelled_tps,
    )
    orders = orders_of(desired, SLOT, INCARNATION)
    board, threads = Switchboard(SLOT, INCARNATION), dict[int, TaskThread]()
    board.slot_of = orders.slot_of
    host = host_of(board, tmp_path, threads)
    for spec in specs:
        work = SourceWork if spec.task == "numbers" else FrameWork
        threads[spec.thread] = thread = TaskThread(spec, topology, host, host.meter.thread_record(), work)
        thread.startup()
        thread.orders = orders
        thread.inbox.put(None)
    for thread in list(threads.values())[1:]:
        thread.work.turn()
    threads[1].work.source.sizes.saw([(0, 0)])  # type: ignore[attr-defined]  # so its first root is as the others
    return {thread.task.name: thread for thread in threads.values()}
