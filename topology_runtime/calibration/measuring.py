"""All tasks of a topology measured, several side by side, each thread count after thread count."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

from topology_runtime.calibration import bench, search
from topology_runtime.calibration.bench import BenchPlace, Stopped
from topology_runtime.calibration.quota import Quotas
from topology_runtime.calibration.search import MeasuredRate
from topology_runtime.topology import Task, Topology

BUSY_SHARE = 0.8  # of this machine's cores, for what is measured at once
FEEDER_CORES = 1.0  # what feeds a slot may need as much CPU as the slot
USUAL_POINTS = 3  # expected per task until it is known better


@dataclass
class PointsDone:
    """Points done and expected, over all tasks. `tell(task, threads, done, of)` hears every change."""

    tell: Callable[[str, int, int, int], None]
    expected: dict[str, int] = field(default_factory=dict)
    done: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def at(self, task: str, threads: int, done: int, finished: bool = False) -> None:
        """`task` works on `threads` threads, `done` points are measured."""
        with self._lock:
            self.done[task] = done
            self.expected[task] = done if finished else max(self.expected.get(task, USUAL_POINTS), done + 1)
            self.tell(task, threads, sum(self.done.values()), sum(self.expected.values()))


@dataclass
class Measuring:
    """What is measured and how; `stop` ends it early."""

    topology: Topology
    place: BenchPlace
    quotas: Quotas
    seconds: float
    progress: PointsDone
    stop: threading.Event

    def all(self, tasks: dict[str, Task], done: Callable[[str, list[MeasuredRate]], None]) -> None:
        """Every model's task; `done(model, points)` as soon as one is finished. The first failure
        stops the others and is raised."""
        self.progress.expected.update(dict.fromkeys((task.name for task in tasks.values()), USUAL_POINTS))
        with ThreadPoolExecutor(
            side_by_side(self.place.slot_cores, len(tasks)), thread_name_prefix="calibrate"
        ) as pool:
            futures = {pool.submit(self._one, name, task, done) for name, task in tasks.items()}
            finished, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [error for future in finished if (error := future.exception()) is not None]
            if failed:
                self.stop.set()
                pool.shutdown(cancel_futures=True)
                raise next((error for error in failed if not isinstance(error, Stopped)), failed[0])

    def _one(self, model: str, task: Task, done: Callable[[str, list[MeasuredRate]], None]) -> None:
        done(model, self.points(task))

    def points(self, task: Task) -> list[MeasuredRate]:
        """The points of one task by rising thread counts. A source is one thread per partition."""
        most = 1 if not self.topology.in_edges(task.name) else search.MOST_THREADS
        points: list[MeasuredRate] = []
        while (threads := search.next_threads(points, most)) is not None:
            self.progress.at(task.name, threads, len(points))
            points.append(self.point(task, threads, points))
        self.progress.at(task.name, points[-1].threads, len(points), finished=True)
        return points

    def point(self, task: Task, threads: int, before: list[MeasuredRate]) -> MeasuredRate:
        """One point: again with larger frames when the rate shows that rows come closer together, and
        once more when something disturbed it."""
        per_thread_tps = before[-1].rate_tps / threads if before else 0.0
        measured = self._try(task, threads, per_thread_tps)
        per_thread_tps = measured.rate_tps / threads
        if search.frame_rows(per_thread_tps, self.place.gap_s) > 2 * measured.frame_rows:
            measured = self._try(task, threads, per_thread_tps)
        if search.disturbed(measured, search.waits(before or [measured])):
            measured = search.better(measured, self._try(task, threads, measured.rate_tps / threads))
        return measured

    def _try(self, task: Task, threads: int, per_thread_tps: float) -> MeasuredRate:
        measured = bench.measure(
            self.topology, task, threads, per_thread_tps, self.seconds, self.place, self.quotas, self.stop
        )
        return measured if self.quotas.enforced else search.within_slot(measured)


def side_by_side(slot_cores: float, most: int) -> int:
    """How many tasks at once leave the machine room."""
    at_once = BUSY_SHARE * (os.cpu_count() or 1) / (slot_cores * (1.0 + FEEDER_CORES))
    return max(1, min(most, int(at_once)))


def about(quotas: Quotas, place: BenchPlace, began: str) -> dict[str, Any]:
    """Keys of a model beside its points: how it was measured."""
    keys = {"binding": quotas.binding, "gap_s": place.gap_s, "measured_at": began}
    with contextlib.suppress(AttributeError):  # no load average on this system
        keys["load_average"] = os.getloadavg()[0]
    return keys
