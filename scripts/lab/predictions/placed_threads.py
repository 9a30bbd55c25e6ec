"""A whole topology on a given placement: several slots, each with its share of a core, fed by one worker that is not
limited: it runs sources, sinks and other tasks of fixed size."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.bench import FAST_TPS, START_S, WatchedRig, cpu_s_of
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.platform.processes import rss_bytes
from headgate.topology_runtime.wire.messages import DataPlaneSettings
from headgate.topology_runtime.worker.meters import meter as mt

PLACED_FEEDER = 0
ROWS_A_THREAD = 2  # in flight for each thread in a closed loop: none runs dry for long, and few rows queue


WINDOW = DataPlaneSettings(
    frame_rows=8
)  # a source's rows are acked frame by frame: large ones would come in bursts


class Use(msgspec.Struct, frozen=True):
    """What each slot had used at one moment: CPU seconds, resident bytes above the bare worker."""

    at_s: float
    cpu_s: dict[int, float]
    memory_bytes: dict[int, int]


class PlacedCounts(msgspec.Struct, frozen=True):
    """What the threads of one task in one slot have counted so far; `queue`: rows waiting now."""

    rows: int
    busy_ns: int
    wait_ns: int
    queue: int


class Placed(WatchedRig):
    """`placement`: slot number (from 1) → task → threads; `shares`: (slot, task) → part of the task's rows;
    `thread_tps`: task → what one of its threads is modelled for, which sizes frames as in a run. Set
    `chained` before `begin`: tasks whose threads may be run by the one before."""

    def __init__(
        self,
        topology: Topology,
        placement: Mapping[int, Mapping[str, int]],
        shares: Mapping[tuple[int, str], float],
        thread_tps: Mapping[str, float],
        directory: Path,
        slot_cores: float,
        user_paths: tuple[str, ...] = (),
    ) -> None:
        places: dict[str, list[int]] = {task.name: [] for task in topology.tasks}
        weights: dict[str, list[float]] = {}
        for slot, tasks in sorted(placement.items()):
            for task, threads in tasks.items():
                places[task] += [slot] * threads
                weights.setdefault(task, []).extend([shares[slot, task] / threads] * threads)
        for task, slots in places.items():
            if not slots:
                places[task] = [PLACED_FEEDER]
        window = ROWS_A_THREAD * sum(len(slots) for slots in places.values()) / WINDOW.window_s
        super().__init__(
            topology,
            places,
            str(directory),
            user_paths,
            WINDOW,
            {**thread_tps, **{task.name: window for task in topology.sources}},
            weights,
        )
        self._slots, self.slot_cores = sorted(placement), slot_cores
        self._base_bytes: dict[int, int] = {}

    def begin(self, quotas: Quotas) -> None:
        """Workers up, each slot's in its share of a core."""
        for slot in (PLACED_FEEDER, *self._slots):
            self.spawn(slot)
        self.until(lambda: all(w.endpoint for w in self._workers.values()), START_S, "start their workers")
        self._base_bytes = {slot: rss_bytes(self._workers[slot].popen.pid) for slot in self._slots}
        self.send("prepared")
        self.until(self.ready, START_S, "build their objects")
        for slot in self._slots:
            quotas.bind(self._workers[slot].popen.pid, f"slot{slot}", self.slot_cores, slot)

    def saturate(self) -> None:
        """As many rows as the window lets in."""
        self.offer([(0.0, FAST_TPS)])

    def done(self) -> int:
        """Rows of the sources that are acked, in whatever order: wholly processed, everywhere."""
        fields = (mt.SOURCE_ACKED, mt.SOURCE_ACKED_ABOVE)
        return sum(self.count(task.name, field) for task in self.topology.sources for field in fields)

    @property
    def cores(self) -> float:
        return self.slot_cores * len(self._slots)

    @property
    def cpu_s(self) -> float:
        return sum(self.use().cpu_s.values())

    @property
    def memory_bytes(self) -> int:
        return sum(self.use().memory_bytes.values())

    @property
    def threads_measured(self) -> int:
        return sum(thread.slot.number != PLACED_FEEDER for thread in self.threads)

    def groups(self) -> dict[tuple[int, str], PlacedCounts]:
        """(slot, task) → counts."""
        fields = (mt.TUPLES_IN, mt.BUSY_NS, mt.WAIT_NS, mt.QUEUE)
        found: dict[tuple[int, str], list[int]] = {}
        for slot in self._slots:
            words = self._workers[slot].meter.words
            for number in range(words[mt.H_THREADS]):
                record = mt.HEADER + number * mt.THREAD_WORDS
                if not words[record + mt.THREAD]:
                    continue
                sums = found.setdefault((slot, self.topology.tasks[words[record + mt.TASK]].name), [0] * 4)
                for field, word in enumerate(fields):
                    sums[field] += words[record + word]
        return {group: PlacedCounts(*sums) for group, sums in found.items()}

    def borrowers(self) -> int:
        """Threads that have run another one's frames."""
        words = [worker.meter.words for worker in self._workers.values()]
        records = (
            of[mt.HEADER + n * mt.THREAD_WORDS + mt.BORROWED_NS]
            for of in words
            for n in range(of[mt.H_THREADS])
        )
        return sum(borrowed_ns > 0 for borrowed_ns in records)

    def use(self) -> Use:
        pids = {slot: self._workers[slot].popen.pid for slot in self._slots}
        cpu_s = {slot: cpu_s_of(pid) for slot, pid in pids.items()}
        memory = {slot: rss_bytes(pid) - self._base_bytes[slot] for slot, pid in pids.items()}
        return Use(time.monotonic(), cpu_s, memory)
