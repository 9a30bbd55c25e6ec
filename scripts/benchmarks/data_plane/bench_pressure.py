"""Back-pressure: what workers hold, and what is lost, when something downstream is too slow. Two workers, full speed.

stopped-sink  the sink stands still for --seconds; memory of all workers meanwhile, its slope with the 95 % interval
              (Theil and Sen), rows sent again, rows lost, how long until rows move again
large-rows    the same with rows of 200 KB
large-keyed   the same, which pass a keyed task
grown-rows    the same with small rows of which a task makes such of 200 KB
kept-rows     2,000 rows a second of 20 KB, of which a task in the second worker keeps ten thousand, for --seconds: the
              most memory of each worker
keyed-rows    500 rows a second of 20 KB through a keyed task in the second worker, for --seconds: the same
slow-sink     a sink that takes 1,000 rows a second
slow-key      one key of twenty takes 1 ms a row, the others nothing
burst         500 rows/s, ten times as many for a second, a sink that takes 1,600: latency before, and after 8 s
"""
# bench: stopped-sink large-rows large-keyed grown-rows kept-rows keyed-rows slow-sink slow-key burst – memory, losses

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scipy.stats import theilslopes

from benchmarks.benchmark_runner import SCRIPTS
from benchmarks.data_plane.bench_pressure_tasks import ROWS_MOST
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.latency.latency_buckets import percentile_ns
from headgate.topology_runtime.platform import processes as proc
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

FULL_TPS = 20_000_000.0
WARM_UP_S, SAMPLE_S = 3.0, 0.25
MB = 1e6


SAME = Task("middle", run="benchmarks.data_plane.bench_pressure_tasks:same")
GROWN = Task("middle", run="benchmarks.data_plane.bench_pressure_tasks:Grown", params={"row_bytes": 200_000})
KEEPS = Task("middle", run="benchmarks.data_plane.bench_pressure_tasks:Thousands")
PASSED = Task(
    "middle",
    run="benchmarks.data_plane.bench_pressure_tasks:SlowForOne",
    params={"pause_s": 0.0},
    state="keyed",
)
SLOW_KEY = Task(
    "middle",
    run="benchmarks.data_plane.bench_pressure_tasks:SlowForOne",
    params={"pause_s": 0.001},
    state="keyed",
)


def topology(folder: Path, sink_pause_s: float, middle: Task, row_bytes: int) -> Topology:
    rows = {"row_bytes": row_bytes}
    edge = Edge("source", "middle")
    if middle.state == "keyed":
        edge = Edge(
            "source", "middle", grouping="fields", key="benchmarks.data_plane.bench_pressure_tasks:key_of"
        )
    sink = {"folder": str(folder), "pause_s": sink_pause_s}
    return Topology(
        "pressure",
        (
            Task(
                "source",
                kind="source",
                run="benchmarks.data_plane.bench_pressure_tasks:Numbered",
                params=rows,
                static=Static(),
            ),
            middle,
            Task("sink", run="benchmarks.data_plane.bench_pressure_tasks:Ticks", params=sink),
        ),
        (edge, Edge("middle", "sink")),
    )


@dataclass
class Pressed:
    """Two workers: the source in one, the sink in the other, the middle in either or both."""

    rig: Rig
    folder: Path

    def rss(self) -> int:
        return sum(proc.rss_bytes(self.rig.pid_of(slot)) for slot in (0, 1))

    def flat(self, seconds: float) -> dict[str, Any]:
        """Memory of both workers in so many seconds."""
        times, sizes, begin = [], [], time.monotonic()
        while (at := time.monotonic() - begin) < seconds:
            times.append(at)
            sizes.append(self.rss() / MB)
            self.rig.pump(SAMPLE_S)
        slope, _, low, high = theilslopes(sizes, times)
        return {
            "mb": round(sizes[0], 1),
            "mb_most": round(max(sizes), 1),
            "mb_per_s": round(float(slope), 4),
            "mb_per_s_95": [round(float(low), 4), round(float(high), 4)],
        }

    def end(self, timeout_s: float = 120.0) -> dict[str, int]:
        """Nothing more is read and all is done: what came, what never did, what came more than once."""
        self.rig.drain(timeout_s)
        emitted = self.rig.count("source", mt.SOURCE_EMITTED)
        if emitted > ROWS_MOST:
            sys.exit(f"error: {emitted} rows, more than are told apart")
        with (self.folder / "seen").open("rb") as file:
            seen = file.read(emitted)
        again = self.rig.count("source", mt.SOURCE_REPLAYED)
        lost, once = seen.count(0), seen.count(1)
        return {"rows": emitted, "lost": lost, "twice": emitted - lost - once, "sent_again": again}

    def p99_ms(self, seconds: float) -> float:
        before = self.rig.latencies("sink")
        self.rig.pump(seconds)
        return (
            percentile_ns([b - a for a, b in zip(before, self.rig.latencies("sink"), strict=True)], 0.99)
            / 1e6
        )


@contextmanager
def pressed(
    sink_pause_s: float = 0.0,
    modelled: float = 16384.0,
    row_bytes: int = 10,
    middle: Task = SAME,
    middle_in: Sequence[int] = (0,),
) -> Iterator[Pressed]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with (folder / "seen").open("wb") as file:
            file.truncate(ROWS_MOST)
        rig = Rig(
            topology(folder, sink_pause_s, middle, row_bytes),
            {"source": [0], "middle": [*middle_in], "sink": [1]},
            name,
            (str(SCRIPTS),),
            m.DataPlaneSettings(),
            {"source": modelled},
        )
        try:
            rig.start()
            yield Pressed(rig, folder)
        finally:
            rig.stop()


def stopped_sink(
    seconds: float = 15.0, row_bytes: int = 10, again_rows: int = 10_000, middle: Task = SAME
) -> dict[str, Any]:
    with pressed(row_bytes=row_bytes, middle=middle) as run:
        run.rig.offer([(0.0, FULL_TPS)])
        run.rig.pump(WARM_UP_S)
        (run.folder / "stop").touch()
        run.rig.pump(1.0)
        standing = run.rig.count("sink")
        found = run.flat(seconds)
        moved = run.rig.count("sink") - standing
        (run.folder / "stop").unlink()
        begin = time.monotonic()
        run.rig.wait(
            lambda: run.rig.count("sink") > standing + moved + again_rows, 60.0, "rows to move again"
        )
        again_s = time.monotonic() - begin
        run.rig.pump(2.0)
        return {**found, "moved_meanwhile": moved, "moving_again_s": round(again_s, 2), **run.end()}


def large_rows(seconds: float = 15.0) -> dict[str, Any]:
    return stopped_sink(seconds, row_bytes=200_000, again_rows=200)


def large_keyed(seconds: float = 15.0) -> dict[str, Any]:
    return stopped_sink(seconds, row_bytes=200_000, again_rows=200, middle=PASSED)


def grown_rows(seconds: float = 15.0) -> dict[str, Any]:
    return stopped_sink(seconds, again_rows=200, middle=GROWN)


def keeping(rate_tps: float = 2000.0, middle: Task = KEEPS) -> AbstractContextManager[Pressed]:
    """Rows of 20 KB before a task in the second worker that keeps them, or something of them."""
    return pressed(modelled=rate_tps, row_bytes=20_000, middle=middle, middle_in=(1,))


def kept_rows(seconds: float = 15.0, rate_tps: float = 2000.0, middle: Task = KEEPS) -> dict[str, Any]:
    with keeping(rate_tps, middle) as run:
        most = [0.0, 0.0]
        run.rig.offer([(0.0, rate_tps)])
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            run.rig.pump(SAMPLE_S)
            most = [max(mb, proc.rss_bytes(run.rig.pid_of(slot)) / MB) for slot, mb in enumerate(most)]
        return {"mb_of_source": round(most[0], 1), "mb_of_keeper": round(most[1], 1), **run.end()}


def keyed_rows(seconds: float = 15.0) -> dict[str, Any]:
    return kept_rows(seconds, 500.0, PASSED)


def slow_sink(seconds: float = 15.0) -> dict[str, Any]:
    with pressed(sink_pause_s=0.001, modelled=1000.0) as run:
        run.rig.offer([(0.0, FULL_TPS)])
        run.rig.pump(WARM_UP_S)
        return {**run.flat(seconds), **run.end()}


def slow_key(seconds: float = 15.0) -> dict[str, Any]:
    with pressed(modelled=1000.0, middle=SLOW_KEY, middle_in=(0, 1)) as run:
        run.rig.offer([(0.0, FULL_TPS)])
        run.rig.pump(WARM_UP_S)
        return {**run.flat(seconds), **run.end()}


def burst(seconds: float = 15.0) -> dict[str, Any]:
    with pressed(sink_pause_s=0.0005, modelled=1600.0) as run:
        run.rig.offer([(0.0, 500.0), (WARM_UP_S + 3.0, 5000.0), (WARM_UP_S + 4.0, 500.0)])
        run.rig.pump(WARM_UP_S)
        before = run.p99_ms(2.5)
        during = run.p99_ms(8.0)
        after = run.p99_ms(max(3.0, seconds / 4))
        found = {"before": before, "burst": during, "after": after}
        return {"p99_ms": {name: round(value, 1) for name, value in found.items()}, **run.end()}


BENCHMARKS = {
    "stopped-sink": stopped_sink,
    "large-rows": large_rows,
    "large-keyed": large_keyed,
    "grown-rows": grown_rows,
    "kept-rows": kept_rows,
    "keyed-rows": keyed_rows,
    "slow-sink": slow_sink,
    "slow-key": slow_key,
    "burst": burst,
}
