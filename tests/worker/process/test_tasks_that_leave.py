"""User code that calls `sys.exit`, as scripts do where a database is away: it fails, with its place, and is told."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from line_of_threads import host_of, line_of
from patience import PATIENCE_S, until

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import Source
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.process.task_thread import FrameWork, TaskThread


class Leaves:
    def open(self, context: Any) -> None:
        sys.exit(1)

    def __call__(self, row: Any) -> Any:
        return row


class Raises(Leaves):
    def open(self, context: Any) -> None:
        raise OSError("no database")


class Unread(Source):
    def read(self, position: int, limit: int) -> list[int]:
        sys.exit(1)


@pytest.mark.parametrize(("logic", "error"), [(Leaves, "SystemExit: 1"), (Raises, "OSError: no database")])
def test_a_task_that_leaves_in_open_fails_its_thread_with_its_place(
    logic: type[Leaves], error: str, tmp_path: Path
) -> None:
    tasks = (
        Task("source", kind="source", static=Static()),
        Task("asks", run=f"{__name__}:{logic.__name__}"),
    )
    topology = Topology("line", tasks, (Edge("source", "asks"),))
    host = host_of(Switchboard(Slot("vm", 0), 7), tmp_path)
    thread = TaskThread(
        m.ThreadSpec(2, "asks", Slot("vm", 0)), topology, host, host.meter.thread_record(), FrameWork
    )
    thread.start()
    until(lambda: bool(thread.failed) or not thread.is_alive())
    line = logic.open.__code__.co_firstlineno + 1
    assert thread.failed == f"{error} ({__file__}:{line} in open); it is tried again"
    thread.stopping = True
    thread.wake()
    thread.join(PATIENCE_S)


def test_a_source_that_leaves_is_read_again_later(tmp_path: Path) -> None:
    numbers = line_of(tmp_path, {}, Unread)["numbers"]
    numbers.work.turn()
    assert numbers.work.unreadable.startswith(f"cannot be read: SystemExit: 1 ({__file__}:")
