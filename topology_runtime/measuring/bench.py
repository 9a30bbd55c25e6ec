"""One task with n threads in a slot, fed as fast as it takes: a closed loop through real workers.

    feeder worker (no limit): sample rows → [task's worker in its slot] → sinks in the feeder worker

The task runs in the very worker a run uses, so frames, acks, buffered rows and the sockets cost what they
cost there. The feeder's window keeps rows waiting at the task all the time.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.collected_rows import Killed
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.measuring.row_spread import Calls
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.platform.processes import rss_bytes_of_all
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.testing.run_results import failed_row
from headgate.topology_runtime.wire.messages import DataPlaneSettings
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.rig import Rig

# ── A rig whose workers are watched while they are measured, and what an open-loop trial asks of it ─────

LOOK_S = 0.02
QUIET_S = 0.1  # by then every worker has heard that nothing is offered any more


class WatchedRig(Rig):
    """`what`: what is measured, for errors. A subclass says what is done and what that used."""

    what = "the topology"

    def done(self) -> int:
        raise NotImplementedError

    @property
    def cpu_s(self) -> float:
        """CPU time of the slots so far."""
        raise NotImplementedError

    @property
    def cores(self) -> float:
        """Of all slots together."""
        raise NotImplementedError

    @property
    def memory_bytes(self) -> int:
        """Of the slots' workers, above the bare worker."""
        raise NotImplementedError

    @property
    def threads_measured(self) -> int:
        raise NotImplementedError

    def watch(self, seconds: float) -> None:
        """Hear the workers for so long. Raises HeadgateError when one ended or a task fails."""
        self.wait_for(lambda: False, seconds)

    def until(self, so: Callable[[], bool], seconds: float, what: str) -> None:
        if not self.wait_for(so, seconds):
            raise HeadgateError(f"{self.what} did not {what} in {seconds:g} s: does it hang?")

    def wait_for(self, so: Callable[[], bool], seconds: float) -> bool:
        """Hear the workers until it is so, at most so long; was it?"""
        end_s = time.monotonic() + seconds
        while not so():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self._hear(min(left_s, LOOK_S))
            self.look()
        return True

    def look(self) -> None:
        """Raises when a worker ended or a task fails."""
        for worker in self._workers.values():
            code = worker.popen.poll()
            if code is not None and code < 0:
                raise Killed(f"a worker that measured {self.what} was killed", code)
            if code is not None:
                raise HeadgateError(f"a worker of {self.what} ended with exit code {code}")
            for thread in worker.report.threads if worker.report else ():
                if thread.failed:
                    raise HeadgateError(f"{self.what} cannot run", cause=thread.failed)
        letters = self.letters()
        if letters and 2 * len(letters) >= self.done():
            raise HeadgateError(f"{self.what} fails on most of its rows", cause=str(failed_row(letters[-1])))

    def quiet(self, seconds: float) -> int:
        """Nothing is offered any more; waits until all that was is done, at most so long. Gives the number
        of rows the source has given, from which an offer may go on."""

        def emitted() -> int:
            return sum(self.count(task.name, mt.SOURCE_EMITTED) for task in self.topology.sources)

        for _ in range(2):  # the first is late for what was emitted while it was on its way
            self.send("committed", Schedule(wall_ns(), ((0.0, 0.0),), base=float(emitted())))
            self.watch(QUIET_S)
            self.until(lambda: self.done() >= emitted(), seconds, "finish what was offered")
        return emitted()

    def sinks(self) -> list[str]:
        """Tasks at which rows end: latency from their offer is counted there."""
        ends = {edge.source for edge in self.topology.edges}
        return [task.name for task in self.topology.tasks if task.name not in ends]

    def end(self) -> None:
        for worker in self._workers.values():
            worker.popen.kill()
        self.stop()


def cpu_s_of(pid: int) -> float:
    """CPU time of a process with all its threads, to the nanosecond (clock_getcpuclockid of Linux)."""
    return time.clock_gettime(~pid << 3 | 2)


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

SLOT, FEEDER = 0, 1  # numbers of the rig's workers
HERE = "headgate.topology_runtime.worker.meters.sample_rows"
SAMPLES, SINK = "calibration-samples", "calibration-sink"
FAST_TPS = 1e6  # offered: more than any task takes
WAITING_FRAMES = 8  # frames waiting for each thread: it never runs dry
START_S = 20.0


class Stopped(Exception):
    """The calibration is being stopped."""


class BenchPlace(msgspec.Struct, frozen=True):
    directory: str
    user_paths: tuple[str, ...]
    slot_cores: float
    gap_s: float = DataPlaneSettings().gap_s
    said: int | None = None  # file to which its workers' output goes


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
    """`stop`: set when all shall end; `beside`: tasks that are in the slot too, with a thread each."""

    def __init__(
        self,
        topology: Topology,
        task: str,
        threads: int,
        rows_a_frame: int,
        place: BenchPlace,
        stop: threading.Event,
        beside: tuple[str, ...] = (),
    ) -> None:
        self._task, self._threads, self._place, self._stop = task, threads, place, stop
        self.what = f"task {task!r}"
        places = {
            t.name: [SLOT] * threads if t.name == task else [SLOT if t.name in beside else FEEDER]
            for t in topology.tasks
        }
        waiting = WAITING_FRAMES * rows_a_frame * threads
        super().__init__(
            topology,
            places,
            place.directory,
            user_paths=place.user_paths,
            settings=DataPlaneSettings(gap_s=place.gap_s, frame_rows=rows_a_frame),
            modelled_tps={t.name: float(waiting) for t in topology.sources},  # × window_s = 1: its window
            said=place.said,
        )
        self._is_source = any(t.name == task for t in topology.sources)

    # ── measuring ───────────────────────────────────────────────────────────────────────────────

    def begin(self, quotas: Quotas, name: str, number: int) -> None:
        """Workers up, the task's in its slot. The bare worker's memory is the base."""
        for slot in (SLOT, FEEDER):
            self.spawn(slot)
        self.until(lambda: all(w.endpoint for w in self._workers.values()), START_S, "start its worker")
        self._base_bytes = rss_bytes_of_all(self.pid)
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
        return self._base_bytes

    @property
    def memory_bytes(self) -> int:
        return rss_bytes_of_all(self.pid) - self._base_bytes

    def done(self) -> int:
        """Rows the task has taken in (a source: has emitted and seen acked)."""
        return self.count(self._task, mt.SOURCE_ACKED if self._is_source else mt.TUPLES_IN)

    def blocked(self) -> tuple[int, int, int]:
        """(ns its calls neither ran nor waited for the CPU, ns they waited for it, ns they took), all threads."""
        wait_ns, busy_ns = self.count(self._task, mt.WAIT_NS), self.count(self._task, mt.BUSY_NS)
        words, delay_ns = self._workers[SLOT].meter.words, 0
        for i in range(words[mt.H_THREADS]):
            delay_ns += run_delay_ns(self.pid, words[mt.HEADER + i * mt.THREAD_WORDS + mt.TID])
        return max(0, wait_ns - delay_ns), min(wait_ns, delay_ns), busy_ns

    def calls(self) -> tuple[Calls, Calls]:
        """So far: by what they took on the CPU, and off it."""
        count = partial(self.count, self._task)
        rows, calls, waited_ns = count(mt.TUPLES_IN), count(mt.CALLS), count(mt.WAIT_NS)
        ran = Calls(rows, calls, (count(mt.BUSY_NS) - waited_ns) / 1000, count(mt.RAN_SQUARES))
        return ran, Calls(rows, calls, waited_ns / 1000, count(mt.WAITED_SQUARES))

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
