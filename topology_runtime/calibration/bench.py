"""One task with n threads in a slot, fed as fast as it takes: a closed loop through real workers.

    feeder worker (no limit): sample rows → [task's worker in its slot] → sinks in the feeder worker

The task runs in the very worker a run uses, so frames, acks, kept rows and the sockets cost what they
cost there. The feeder's window keeps rows waiting at the task all the time.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import msgspec

from topology_runtime.calibration.quota import Quotas
from topology_runtime.calibration.search import MeasuredRate, frame_rows
from topology_runtime.calibration.watched import WatchedRig, cpu_s_of, rss_bytes
from topology_runtime.errors import HeadgateError
from topology_runtime.messages import DataPlaneSettings
from topology_runtime.topology import Edge, Task, Topology
from topology_runtime.worker import meter as mt

SLOT, FEEDER = 0, 1  # numbers of the rig's workers
HERE = "topology_runtime.calibration.samples"
SAMPLES, SINK = "calibration-samples", "calibration-sink"
FAST_TPS = 1e6  # offered: more than any task takes
WAITING_FRAMES = 8  # frames waiting for each thread: it never runs dry
WARM_UP = 0.25  # of a point's time is not counted
ROWS_A_THREAD = 8  # a point lasts until each thread has done this many …
LONGEST = 4.0  # … or this many times as long as asked
START_S = 20.0
SILENCE_S = 5.0  # and a task's own longest call: then it hangs


class Stopped(Exception):
    """The calibration is being stopped."""


class BenchPlace(msgspec.Struct, frozen=True):
    """Where and how tasks are measured."""

    directory: str
    user_paths: tuple[str, ...]
    slot_cores: float
    gap_s: float = DataPlaneSettings().gap_s


def bench_topology(topology: Topology, task: Task, rows: Path) -> Topology:
    """The task between what gives it its sample rows and sinks that do nothing; names of the tasks
    above it stay, because a task that keeps rows is told them."""
    above = [edge for _, edge in topology.in_edges(task.name)]
    play: list[Task] = []
    edges: list[Edge] = []
    if len(above) == 1:
        play = [Task(above[0].source, "source", f"{HERE}:Replay", {"path": str(rows)})]
    elif above:
        play = [Task(SAMPLES, "source", f"{HERE}:Replay", {"path": str(rows), "tagged": True})]
        for name in dict.fromkeys(edge.source for edge in above):
            play.append(Task(name, "flat_map", f"{HERE}:Only", {"source": name}))
            edges.append(Edge(SAMPLES, name))
    below = [edge for _, edge in topology.out_edges(task.name)]
    sinks = [Task(f"{SINK}-{number}", "flat_map", f"{HERE}:swallow") for number, _ in enumerate(below)]
    edges += [msgspec.structs.replace(edge) for edge in above]
    edges += [Edge(task.name, sink.name) for sink in sinks]
    measured = msgspec.structs.replace(task, static=None)
    return Topology(name=f"calibrate-{task.name}"[:64], tasks=(*play, measured, *sinks), edges=tuple(edges))


class Bench(WatchedRig):
    """`number`: which of the slots side by side this is. `stop`: set when all shall end."""

    def __init__(
        self,
        topology: Topology,
        task: str,
        threads: int,
        rows_a_frame: int,
        place: BenchPlace,
        stop: threading.Event,
    ) -> None:
        self._task, self._threads, self._place, self._stop = task, threads, place, stop
        self.what = f"task {task!r}"
        self._rows_a_frame = rows_a_frame
        places = {t.name: [SLOT] * threads if t.name == task else [FEEDER] for t in topology.tasks}
        waiting = WAITING_FRAMES * rows_a_frame * threads
        super().__init__(
            topology,
            places,
            place.directory,
            user_paths=place.user_paths,
            settings=DataPlaneSettings(gap_s=place.gap_s, frame_rows=rows_a_frame),
            modelled_tps={t.name: float(waiting) for t in topology.sources},  # × window_s = 1: its window
        )
        self._is_source = any(t.name == task for t in topology.sources)

    # ── measuring ───────────────────────────────────────────────────────────────────────────────

    def begin(self, quotas: Quotas, name: str, number: int) -> None:
        """Workers up, the task's in its slot. The bare worker's memory is the base."""
        for slot in (SLOT, FEEDER):
            self.spawn(slot)
        self.until(lambda: all(w.endpoint for w in self._workers.values()), START_S, "start its worker")
        self._base_bytes = rss_bytes(self.pid)
        self.send("prepared")
        self.until(self.ready, START_S, "build its objects")
        quotas.bind(self.pid, name, self._place.slot_cores, number)

    @property
    def pid(self) -> int:
        return self._workers[SLOT].popen.pid

    def measure(self, seconds: float) -> MeasuredRate:
        """One point: rate, CPU and memory at full load for about so long."""
        self.offer([(0.0, FAST_TPS)])
        silence_s = SILENCE_S + self.topology.by_name[self._task].max_call_s
        self.until(lambda: self.done() > 0, silence_s, "finish a row")
        self.wait_for(lambda: False, WARM_UP * seconds)
        began_s, cpu_s, done = time.monotonic(), cpu_s_of(self.pid), self.done()
        blocked_ns, busy_ns = self.blocked()
        enough = done + ROWS_A_THREAD * self._threads
        self.wait_for(lambda: False, (1.0 - WARM_UP) * seconds)
        self.wait_for(lambda: self.done() >= enough, (LONGEST - 1.0) * seconds)
        rows, long_s = self.done() - done, time.monotonic() - began_s
        if rows == 0:
            raise HeadgateError(f"task {self._task!r} finished no row in {long_s:.1f} s")
        blocked_to_ns, busy_to_ns = self.blocked()
        return MeasuredRate(
            threads=self._threads,
            rate_tps=rows / long_s,
            cpu=(cpu_s_of(self.pid) - cpu_s) / long_s / self._place.slot_cores,
            memory_bytes=rss_bytes(self.pid) - self._base_bytes,
            blocked=max(0.0, (blocked_to_ns - blocked_ns) / max(1, busy_to_ns - busy_ns)),
            seconds=long_s,
            rows=rows,
            frame_rows=self._rows_a_frame,
            worker_bytes=self._base_bytes,
        )

    @property
    def cores(self) -> float:
        return self._place.slot_cores

    @property
    def cpu_s(self) -> float:
        return cpu_s_of(self.pid)

    @property
    def threads_measured(self) -> int:
        return self._threads

    @property
    def base_bytes(self) -> int:
        """The bare worker's memory."""
        return self._base_bytes

    @property
    def memory_bytes(self) -> int:
        return rss_bytes(self.pid) - self._base_bytes

    def done(self) -> int:
        """Rows the task has taken in (a source: has emitted and seen acked)."""
        return self.count(self._task, mt.SOURCE_ACKED if self._is_source else mt.TUPLES_IN)

    def blocked(self) -> tuple[int, int]:
        """(ns its calls neither ran nor waited for the CPU, ns its calls took), all threads."""
        wait_ns, busy_ns = self.count(self._task, mt.WAIT_NS), self.count(self._task, mt.BUSY_NS)
        words, delay_ns = self._workers[SLOT].meter.words, 0
        for i in range(words[mt.H_THREADS]):
            delay_ns += run_delay_ns(self.pid, words[mt.HEADER + i * mt.THREAD_WORDS + mt.TID])
        return max(0, wait_ns - delay_ns), busy_ns

    def look(self) -> None:
        if self._stop.is_set():
            raise Stopped
        super().look()


def run_delay_ns(pid: int, thread: int) -> int:
    """Time a thread was ready to run and did not, throttling by its quota included; 0 where not told."""
    try:
        return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text("ascii").split()[1])
    except (OSError, IndexError):
        return 0


def measure(  # one measurement needs all of these
    topology: Topology,
    task: Task,
    threads: int,
    per_thread_tps: float,
    seconds: float,
    place: BenchPlace,
    quotas: Quotas,
    stop: threading.Event,
) -> MeasuredRate:
    """One point of one task in a fresh worker. `per_thread_tps`: expected, it sizes the frames."""
    rows = Path(place.directory) / f"{task.name}.rows"
    small = bench_topology(topology, task, rows)
    bench = Bench(small, task.name, threads, frame_rows(per_thread_tps, place.gap_s), place, stop)
    try:
        bench.begin(quotas, task.name, threads)
        return bench.measure(seconds)
    finally:
        bench.end()
