"""A worker that is killed between the two has recorded rows that come again, never acked rows that are nowhere."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.instances import key_function
from headgate.topology_runtime.messages import ThreadSpec
from headgate.topology_runtime.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.worker.acks import Addressed
from headgate.topology_runtime.worker.snapshots import SnapshotFiles
from headgate.topology_runtime.worker.thread_core import Ports, ThreadCore
from headgate.topology_runtime.worker.user_code import ToRecord

SLOT = Slot("vm1", 0)
STATIC = Static(1, 0.1, 0.1)
TOPOLOGY = Topology(
    "line", (Task("source", kind="source", static=STATIC), Task("sink")), (Edge("source", "sink"),)
)


class Worker:
    slot, incarnation = SLOT, 1

    def __init__(self) -> None:
        self.done: list[str] = []

    def deliver(self, frames: Iterable[Any]) -> None: ...
    def send_word(self, word: Any) -> None: ...

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        self.done.append("acked")

    def write(self, done: ToRecord, holding: int) -> None:
        self.done.append("recorded")


def test_what_was_finished_is_recorded_before_it_is_acked() -> None:
    worker = Worker()
    ports = Ports(worker, worker, partial(SnapshotFiles, ""), lambda: 1, key_function)
    core = ThreadCore(ThreadSpec(1, "sink", SLOT), TOPOLOGY, ports)
    core.settle([])
    assert worker.done == ["recorded", "acked"]
