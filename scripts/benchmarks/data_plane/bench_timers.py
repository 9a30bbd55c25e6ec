"""Timers of a task with event time, in one thread as a worker composes it: real rows, snapshots on disk, and what
timers give is acked at once. No sockets, no other thread.

keys     a timer for each of n keys, all due at one step of the watermark
one key  n timers of one key, due one after the other at one step of the watermark
"""
# bench: timers – setting and firing many timers, of many keys and of one

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from headgate.topology_runtime.api.logic import Exhausted, Source
from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.topology import Edge, Task, Timestamps, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SnapshotStore
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.process.called_thread import (
    INCARNATION,
    SLOT,
    CalledThread,
    batch_at,
    orders_for,
    ports_in,
)

US, FRAME = 1_000_000, 1024
SOURCE, TASK = 1, 2  # threads
CASES = {"keys": True, "one key": False}


class TimedRowsSource(Source):
    def read(self, position: int, limit: int) -> Sequence[Any]:
        raise Exhausted


class OnceAfter(Timed[Any, int, Any, Any]):
    """Gives a row when a timer fires, and keeps its count until there is no other."""

    at = 1

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int, time: Time) -> tuple[int, Iterable[Any]]:
        time.set(time.at_us + US)
        return state + 1, ()

    def on_timer(self, key: Any, at: int, state: int, time: Time) -> tuple[int | None, Iterable[Any]]:
        return state - 1 or None, [(key, at // US)]


HERE = "benchmarks.data_plane.bench_timers"
FLOW = Topology(
    "timers",
    (
        Task("source", kind="source", run=f"{HERE}:TimedRowsSource", timestamps=Timestamps(1)),
        Task("timed", kind="keyed", state="keyed", run=f"{HERE}:OnceAfter", timed=True),
        Task("after", run=f"{HERE}:print"),
    ),
    (Edge("source", "timed", grouping="fields", key=0), Edge("timed", "after")),
)


class ThreadAlone:
    """The world of the thread of a task: what it sends is acked."""

    slot, incarnation = SLOT, INCARNATION

    def __init__(self, flow: Topology, task: str, snapshots: Callable[[str, int], SnapshotStore]) -> None:
        self.sent: list[m.Frame] = []
        ports = replace(ports_in(self), snapshots=snapshots)
        self.called = CalledThread(flow.by_name[task], flow, ports, lambda seconds: None)
        self.called.build()
        self.called.begin()
        self.called.core.obey(orders_for(flow), time.monotonic_ns())

    def deliver(self, frames: Iterable[m.Frame]) -> None:
        self.sent += frames

    def send_acks(self, acks: Iterable[Any]) -> None: ...
    def send_word(self, word: Any) -> None: ...
    def write(self, done: Any, holding: int) -> None: ...
    def wall_ns(self) -> int:
        return time.time_ns()

    def look(self) -> int:
        """It looks round, and what it sent is done; how many rows those were."""
        core = self.called.core
        core.on_time(time.monotonic_ns())
        core.flush(time.monotonic_ns(), everything=True)
        sent, self.sent = self.sent, []
        if sent:
            acks = [m.Ack(root.key, root.id) for frame in sent for root in frame.roots]
            core.hear(acks, time.monotonic_ns())
        return sum(len(frame.rows) for frame in sent)


def measured(many: bool, timers: int) -> dict[str, float]:
    """Seconds to set them, to fire them (of CPU, too), and of the longest look round meanwhile."""
    with tempfile.TemporaryDirectory() as directory:
        world = ThreadAlone(FLOW, "timed", partial(SnapshotFiles, directory))
        core, begun = world.called.core, time.perf_counter()
        for first in range(0, timers, FRAME):
            rows = [(n if many else 0, 0 if many else n) for n in range(first, min(timers, first + FRAME))]
            batch = batch_at(SOURCE, first, first, (0, 0, first), rows)
            world.called.take(0, batch, time.monotonic_ns())
            core.on_time(time.monotonic_ns())
        set_s, begun, begun_cpu = time.perf_counter() - begun, time.perf_counter(), time.thread_time()
        core.hear(Watermark(SOURCE, TASK, (timers + 2) * US), time.monotonic_ns())
        longest_s, came = time.perf_counter() - begun, 0
        while came < timers:
            look_s = time.perf_counter()
            came += world.look()
            longest_s = max(longest_s, time.perf_counter() - look_s)
            if not core.behaviour.soon:
                time.sleep(0.001)
        assert isinstance(core.behaviour, TimedTask) and core.behaviour.rows.pending_rows == 0
        fire_s, cpu_s = time.perf_counter() - begun, time.thread_time() - begun_cpu
        return {"set_s": set_s, "fire_s": fire_s, "fire_cpu_s": cpu_s, "longest_look_s": longest_s}


def timers(timers: tuple[int, ...] = (30_000, 100_000, 300_000), case: str = "keys") -> list[dict[str, Any]]:
    return [{"timers": int(many)} | measured(CASES[case], int(many)) for many in timers]


BENCHMARKS = {"timers": timers}
