"""Windows of event time over the events of Nexmark, in one thread as a worker composes it: the same frames as rows and
as columns, in turn in one run. Real timers and snapshots on disk; what windows give is acked at once. No sockets, no
other thread.

auction   bids of an auction, 10 s every 2 s: five results of it, of half of the auctions in no more than a few rows
seller    auctions of a seller, 10 s, two aggregates
category  auctions of a category, 10 s, five aggregates: many rows of few keys

us: µs of CPU of a row; takes_us: of it what taking rows costs, the rest being timers, results and snapshots.
"""
# bench: windows – windows of event time over rows and over columns

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from benchmarks.benchmark_runner import SCRIPTS, spread
from headgate import windows as w
from headgate.topology_runtime.api.timed import LATEST_US
from headgate.topology_runtime.api.topology import Edge, Task, Timestamps, Topology
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.state_moves import Watermark
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.operators.timed_task import TimedTask
from headgate.topology_runtime.worker.process.called_thread import (
    INCARNATION,
    SLOT,
    CalledThread,
    orders_for,
    ports_in,
)
from headgate.topology_runtime.worker.rows.columns import columns_in

sys.path.insert(0, str(SCRIPTS.parent / "examples" / "nexmark"))

from auction_events import Auctions

SOURCE, TASK, FRAME, RATE, LOOK_EVERY = 1, 2, 256, 5_000.0, 64
PAUSE_S = 0.02  # for a snapshot
FORMS = ("rows", "columns")
FIVE = w.several(
    n=w.count(),
    all=w.sum_of("reserve"),
    mean=w.mean_of("reserve"),
    low=w.min_of("reserve"),
    high=w.max_of("reserve"),
)
CASES: dict[str, tuple[str, Any, Any]] = {  # kind of events, windows, aggregate; by the key of this name
    "auction": ("bid", w.sliding(10, 2), w.count()),
    "seller": ("auction", w.tumbling(10), w.several(n=w.count(), high=w.max_of("reserve"))),
    "category": ("auction", w.tumbling(10), FIVE),
}


def flow_of(key: str) -> Topology:
    timestamps = Timestamps("date_time", unit="ms")
    source = "benchmarks.data_plane.bench_timers:TimedRowsSource"
    tasks = (
        Task("source", kind="source", run=source, timestamps=timestamps),
        Task("windows", kind="keyed", state="keyed", run="headgate.windows:EventWindow", timed=True),
        Task("after", run="benchmarks.data_plane.bench_timers:print"),
    )
    edges = Edge("source", "windows", grouping="fields", key=key), Edge("windows", "after")
    return Topology("windows", tasks, edges)


class WindowsAlone:
    """The thread's world: what it sends is acked. results: rows that came so far."""

    slot, incarnation = SLOT, INCARNATION

    def __init__(self, directory: str, key: str) -> None:
        self.sent: list[m.Frame] = []
        self.results = 0
        flow, (_, windows, aggregate) = flow_of(key), CASES[key]
        ports = replace(ports_in(self), snapshots=lambda task, thread: SnapshotFiles(directory, task, thread))
        self.called = CalledThread(flow.by_name["windows"], flow, ports, lambda seconds: None)
        self.called.logic = w.EventWindow(at="date_time", unit="ms", windows=windows, aggregate=aggregate)
        self.called.begin()
        self.core = self.called.core
        self.core.obey(orders_for(flow), time.monotonic_ns())

    def deliver(self, frames: Iterable[m.Frame]) -> None:
        self.sent += frames

    def send_acks(self, acks: Iterable[Any]) -> None: ...
    def send_word(self, word: Any) -> None: ...
    def write(self, done: Any, holding: int) -> None: ...
    def wall_ns(self) -> int:
        return time.time_ns()

    def take(self, rows: Any, first: int) -> None:
        """A frame, of a root of its own; those before it are done."""
        root = m.RootPart(m.RootKey(SOURCE, INCARNATION, first, 0), SLOT, 0, 0, first, 0, first, 1)
        ends, now_ns = (TASK, [root], [(0, 0, len(rows), 0)], rows), time.monotonic_ns()
        self.core.take(m.Frame(0, SOURCE, SLOT, INCARNATION, *ends, now_ns, now_ns), now_ns)

    def end(self) -> None:
        """All windows end, and what they give is done."""
        self.core.hear(Watermark(SOURCE, TASK, LATEST_US), time.monotonic_ns())
        assert isinstance(self.core.behaviour, TimedTask)
        while self.core.behaviour.soon or self.core.behaviour.rows.pending_rows:
            self.look()
            time.sleep(PAUSE_S)

    def look(self) -> None:
        """Timers that are due fire; what the thread sent is done."""
        while True:
            self.core.on_time(time.monotonic_ns())
            self.core.flush(time.monotonic_ns(), everything=True)
            sent, self.sent = self.sent, []
            if sent:
                self.results += sum(len(frame.rows) for frame in sent)
                acks = [m.Ack(root.key, root.id) for frame in sent for root in frame.roots]
                self.core.hear(acks, time.monotonic_ns())
            if not self.core.behaviour.soon:
                return


def once(key: str, form: str, rows: int) -> dict[str, float]:
    """CPU of all threads (snapshots are written by one beside)."""
    events, kind = Auctions(events=rows * 50, rate=RATE), CASES[key][0]
    frames: list[tuple[Any, int]] = []
    for first in range(0, rows, FRAME):
        columns = columns_in(events.columns(kind, first, min(FRAME, rows - first)))
        frames.append((columns if form == "columns" else columns.rows(), int(columns[0]["date_time"])))
    with tempfile.TemporaryDirectory() as directory:
        world, ends_ns, begun_ns = WindowsAlone(directory, key), 0, time.process_time_ns()
        for number, (some, at_ms) in enumerate(frames):
            if number % LOOK_EVERY == 0:
                look_ns = time.process_time_ns()
                world.core.hear(Watermark(SOURCE, TASK, at_ms * 1000), time.monotonic_ns())
                world.look()
                ends_ns += time.process_time_ns() - look_ns
            world.take(some, number * FRAME)
        look_ns = time.process_time_ns()
        world.end()
        ends_ns += time.process_time_ns() - look_ns
        took_ns = time.process_time_ns() - begun_ns
    return {"us": took_ns / 1e3 / rows, "ends_us": ends_ns / 1e3 / rows, "results": world.results}


def windows(repeats: int = 5, rows: int = 200_000, case: str = ",".join(CASES)) -> list[dict[str, Any]]:
    """case: some of these, with commas."""
    table = []
    for key in case.split(","):
        found: dict[str, list[dict[str, float]]] = {form: [] for form in FORMS}
        for _ in range(repeats):
            for form in FORMS:
                found[form].append(once(key, form, rows))
        for form in FORMS:
            line: dict[str, Any] = {
                "case": key,
                "form": form,
                "us": spread([one["us"] for one in found[form]]),
            }
            line["takes_us"] = statistics.median(one["us"] - one["ends_us"] for one in found[form])
            table.append(line | {"results": found[form][0]["results"]})
    return table


BENCHMARKS = {"windows": windows}
