"""One task with n threads in a slot, fed as fast as it takes: a closed loop through real workers.

    feeder worker (no limit): sample rows → [task's worker in its slot] → sinks in the feeder worker

The task runs in the very worker a run uses, so frames, acks, kept rows and the sockets cost what they
cost there. The feeder's window keeps rows waiting at the task all the time.
"""

from __future__ import annotations

import threading
from pathlib import Path

import msgspec

from headgate.topology_runtime.calibration.quota import Quotas
from headgate.topology_runtime.calibration.watched import WatchedRig, cpu_s_of
from headgate.topology_runtime.messages import DataPlaneSettings
from headgate.topology_runtime.proc import rss_bytes
from headgate.topology_runtime.topology import Edge, Task, Topology
from headgate.topology_runtime.worker import meter as mt

SLOT, FEEDER = 0, 1  # numbers of the rig's workers
HERE = "headgate.topology_runtime.calibration.sample_rows"
SAMPLES, SINK = "calibration-samples", "calibration-sink"
FAST_TPS = 1e6  # offered: more than any task takes
WAITING_FRAMES = 8  # frames waiting for each thread: it never runs dry
START_S = 20.0


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
