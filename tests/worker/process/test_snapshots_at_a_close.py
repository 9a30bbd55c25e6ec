"""A thread of a keyed task that ends leaves its snapshot for the next one, unless another has all its keys."""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import pytest
from line_of_threads import host_of
from patience import until

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.snapshot_files import path_of, read
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process.task_thread import FrameWork, TaskThread

SLOT, INCARNATION = Slot("vm", 0), 7


class Sums(Keyed):
    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Any, state: int) -> tuple[int, Iterable[Any]]:
        return state + row[1], ()


def made_thread(tmp_path: Path, run: str = f"{__name__}:Sums") -> TaskThread:
    """Of a keyed task, with its orders; its object is not built yet."""
    tasks = Task("source", kind="source", static=Static()), Task("sums", kind="keyed", state="keyed", run=run)
    topology = Topology("sums", tasks, (Edge("source", "sums", grouping="fields", key=0),))
    specs = m.ThreadSpec(1, "source", SLOT), m.ThreadSpec(2, "sums", SLOT)
    routes = (m.Route(0, ((2, 1.0),), ((2, KEY_RANGES),)),)
    workers = (m.WorkerAt(SLOT, INCARNATION, "tcp://x:1"),)
    desired = m.DesiredState(
        m.Token(1, 1, 1), "committed", "run", topology, (), specs, 1, routes, workers=workers
    )
    orders = orders_of(desired, SLOT, INCARNATION)
    board = Switchboard(SLOT, INCARNATION)
    board.slot_of = orders.slot_of
    host = host_of(board, tmp_path)
    thread = TaskThread(specs[1], topology, host, host.meter.thread_record(), FrameWork)
    thread.orders = orders
    return thread


def thread_of(tmp_path: Path, run: str = f"{__name__}:Sums") -> TaskThread:
    thread = made_thread(tmp_path, run)
    thread.startup()
    thread.inbox.put(None)
    thread.work.turn()
    return thread


def frame_of(*rows: Any, position: int = 0) -> m.Frame:
    root = m.RootPart(m.RootKey(1, 1, position, 0), SLOT, 0, 0, position, 0, 0, 9)
    return m.Frame(0, 1, SLOT, 1, 2, [root], [(0, 0, len(rows), 0)], list(rows), 0, 0)


def keyed(thread: TaskThread) -> KeyedTask:
    behaviour = thread.core.behaviour
    assert isinstance(behaviour, KeyedTask)
    return behaviour


@pytest.mark.parametrize("moved", [False, True])
def test_a_snapshot_outlives_an_orderly_close_unless_all_keys_are_elsewhere(
    moved: bool, tmp_path: Path
) -> None:
    thread = thread_of(tmp_path)
    rows = keyed(thread).rows
    rows.claim(0)
    rows.take(frame_of(("a", 5)), 0)
    assert rows.states.of(range_of("a")) == {"a": 5}
    until(lambda: not keyed(thread).store.under_way)
    thread.core.on_time(time.monotonic_ns() + 10**10)
    until(lambda: not keyed(thread).store.under_way)
    path = path_of(str(tmp_path), "sums", 2)
    assert read(path) is not None
    if moved:
        rows.ranges.versions.clear()
    thread.work.close()
    until(lambda: Path(path).exists() != moved)
