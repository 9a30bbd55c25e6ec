"""A whole topology on a given placement: several slots, each with its share of a core, fed by one worker
that is not limited. For trials of predictions.

    feeder (no limit): sources, sinks and other tasks of fixed size → slots 1, 2, … with the threads placed there
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from topology_runtime.calibration.bench import FAST_TPS, START_S, cpu_s_of, rss_bytes
from topology_runtime.calibration.quota import Quotas
from topology_runtime.errors import HeadgateError
from topology_runtime.messages import Settings
from topology_runtime.topology import Topology
from topology_runtime.worker import meter as mt
from topology_runtime.worker.rig import Rig

FEEDER = 0
ROWS_A_THREAD = 8  # in flight for each thread in a closed loop: none runs dry
LOOK_S = 0.02


class Use(msgspec.Struct, frozen=True):
    """What each slot had used at one moment: CPU seconds, resident bytes above the bare worker."""

    at_s: float
    cpu_s: dict[int, float]
    memory_bytes: dict[int, int]


class Placed(Rig):
    """`placement`: slot number (from 1) → task → threads; `shares`: (slot, task) → part of the task's rows."""

    def __init__(
        self,
        topology: Topology,
        placement: Mapping[int, Mapping[str, int]],
        shares: Mapping[tuple[int, str], float],
        directory: Path,
        user_paths: tuple[str, ...] = (),
        settings: Settings | None = None,
    ) -> None:
        places: dict[str, list[int]] = {task.name: [] for task in topology.tasks}
        weights: dict[str, list[float]] = {}
        for slot, tasks in sorted(placement.items()):
            for task, threads in tasks.items():
                places[task] += [slot] * threads
                weights.setdefault(task, []).extend([shares[slot, task] / threads] * threads)
        for task, slots in places.items():
            if not slots:
                places[task] = [FEEDER]
        in_flight = ROWS_A_THREAD * sum(len(slots) for slots in places.values())
        super().__init__(
            topology,
            places,
            str(directory),
            user_paths,
            settings or Settings(),
            {task.name: float(in_flight) for task in topology.sources},  # × window_s: its window
            weights,
        )
        self._slots = sorted(placement)
        self._base_bytes: dict[int, int] = {}

    def begin(self, quotas: Quotas, slot_cores: float) -> None:
        """Workers up, each slot's in its share of a core."""
        for slot in (FEEDER, *self._slots):
            self.spawn(slot)
        self.until(lambda: all(w.endpoint for w in self._workers.values()), START_S, "start their workers")
        self._base_bytes = {slot: rss_bytes(self._workers[slot].popen.pid) for slot in self._slots}
        self.send("prepared")
        self.until(self.ready, START_S, "build their objects")
        for slot in self._slots:
            quotas.bind(self._workers[slot].popen.pid, f"slot{slot}", slot_cores, slot)

    def saturate(self) -> None:
        """As many rows as the window lets in."""
        self.offer([(0.0, FAST_TPS)])

    def done(self) -> int:
        """Rows of the sources that are acked: wholly processed, everywhere."""
        return sum(self.count(task.name, mt.SOURCE_ACKED) for task in self.topology.sources)

    def use(self) -> Use:
        pids = {slot: self._workers[slot].popen.pid for slot in self._slots}
        cpu_s = {slot: cpu_s_of(pid) for slot, pid in pids.items()}
        memory = {slot: rss_bytes(pid) - self._base_bytes[slot] for slot, pid in pids.items()}
        return Use(time.monotonic(), cpu_s, memory)

    def pause(self, seconds: float) -> None:
        """Hear the workers for so long. Raises HeadgateError when one ended or a task fails."""
        self.until_or(lambda: False, seconds)

    def until(self, so: Callable[[], bool], seconds: float, what: str) -> None:
        if not self.until_or(so, seconds):
            raise HeadgateError(f"the workers did not {what} in {seconds:g} s")

    def until_or(self, so: Callable[[], bool], seconds: float) -> bool:
        """Wait until it is so, at most so long; was it?"""
        end_s = time.monotonic() + seconds
        while not so():
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            self._hear(min(left_s, LOOK_S))
            self._look()
        return True

    def _look(self) -> None:
        for slot, worker in self._workers.items():
            if worker.popen.poll() is not None:
                raise HeadgateError(f"the worker of slot {slot} ended")
            for thread in worker.report.threads if worker.report else ():
                if thread.failed:
                    raise HeadgateError(f"a thread of slot {slot} cannot run", cause=thread.failed)
        letters = self.letters()
        if letters and 2 * len(letters) >= self.done():
            raise HeadgateError("most rows fail", cause=letters[-1].error)

    def end(self) -> None:
        """No process of it is left."""
        for worker in self._workers.values():
            worker.popen.kill()
        self.stop()
