"""One task's profile: step after step until its model is complete; the model is written after each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

from msgspec.structs import replace

from headgate.topology_runtime.calibration import profile_steps, store
from headgate.topology_runtime.calibration.bench import Bench, BenchPlace, bench_topology
from headgate.topology_runtime.calibration.frames import call_rows, frame_rows, frames_that_hold
from headgate.topology_runtime.calibration.open_loop import run_trial
from headgate.topology_runtime.calibration.probing import probe
from headgate.topology_runtime.calibration.profile_steps import Next, Probe, ProfileChoice, Tried
from headgate.topology_runtime.calibration.quota import Quotas
from headgate.topology_runtime.calibration.record import ProfileRecord, RecordFile
from headgate.topology_runtime.calibration.speed import CORE_SPEED, SpeedMeter, SpeedSource
from headgate.topology_runtime.clock import wall_ns
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.faults.words import counted, significant
from headgate.topology_runtime.stability.trial import LONGEST_S, LONGEST_WAITS_S
from headgate.topology_runtime.topology import Task, Topology
from headgate.topology_runtime.utc import utc_iso

GLANCE_S = 1.0  # of a probe that only tells how large frames are
SILENCE_S = 10.0  # and a task's own longest call: then it hangs
SLOW_TPS = 1.0  # below one tuple per second a stream is hardly one


@dataclass(frozen=True)
class Conditions:
    """How everything of one profile is measured."""

    place: BenchPlace
    quotas: Quotas
    slot: dict[str, Any]
    wish: ProfileChoice
    seconds: float
    output: Path
    stop: threading.Event
    until_s: float = float("inf")  # the budget's end, monotonic
    awake: bool = False  # are the cores kept awake meanwhile?
    meter: Callable[[], SpeedSource] = SpeedMeter
    speed_of: str = CORE_SPEED


class TaskProfile:
    """Measures one task of a topology. `tell(record, next step)` hears before each step."""

    def __init__(
        self,
        topology: Topology,
        task: Task,
        conditions: Conditions,
        tell: Callable[[ProfileRecord, Next], None],
    ) -> None:
        self._topology, self._task, self._at, self._tell = topology, task, conditions, tell
        self._wish = conditions.wish
        if not topology.in_edges(task.name):  # a source is one thread per partition
            self._wish = replace(self._wish, threads_most=1)
        self.record = ProfileRecord(task.model_name)
        self._digest = store.digest(topology, conditions.place.user_paths, conditions.slot["memory_bytes"])
        head = {"digest": self._digest, "slot": conditions.slot, "binding": conditions.quotas.binding}
        self._core = crc32(task.name.encode())  # whichever it falls to, the same each time
        self._file = RecordFile(conditions.output, task.model_name, head)

    def run(self) -> ProfileRecord:
        """All steps, or those that the budget lets; a failing task keeps what was measured before."""
        for known in self._file.read():
            self.record.put(known)
        record, began_s = self.record, time.monotonic()
        try:
            while time.monotonic() < self._at.until_s:
                step = profile_steps.next_step(record.probes, record.trials, self._wish)
                if step is None:
                    break
                self._tell(record, step)
                self._measure(step)
                self.save()
        except HeadgateError as error:
            record.failed = error
        record.seconds = time.monotonic() - began_s
        if record.probes:
            self._note()
            self.save()
        return record

    def save(self) -> None:
        store.save(self._at.output, self.model())

    def model(self) -> dict[str, Any]:
        record = self.record
        about: dict[str, Any] = {
            "binding": self._at.quotas.binding,
            "awake": self._at.awake,
            "speed_of": self._at.speed_of,
            "digest": self._digest,
            **store.code_of(self._task, self._at.place.user_paths),
            "gap_s": self._at.place.gap_s,
            "measured_at": utc_iso(wall_ns()),
            "complete": profile_steps.next_step(record.probes, record.trials, self._wish) is None,
        }
        if record.notes:
            about["notes"] = record.notes
        return profile_steps.model_of(
            record.task, record.probes, record.trials, self._at.slot, about, self._wish.derate
        )

    # ── one step ────────────────────────────────────────────────────────────────────────────────

    def _measure(self, step: Next) -> None:
        rows = self._frame_rows(step)
        bench = self._bench(step.threads, rows)
        try:
            bench.begin(self._at.quotas, self._task.name, self._core)
            if step.what == "probe":
                measured: Probe | Tried = self._probe(bench, step.threads, rows, self._at.seconds)
            else:
                measured = self._trial(bench, step)
            self.record.put(measured)
            self._file.add(measured)
        finally:
            bench.end()

    def _frame_rows(self, step: Next) -> int:
        """Rows that come together while an edge waits its gap, at the rate that is expected; of a batched task, that
        are in a call when it has as much as it takes: what waits then comes together, up to its cap."""
        known, gap_s = self.record.probes, self._at.place.gap_s
        if known:
            near = min(known, key=lambda probe: abs(probe.threads - step.threads))
            rate_tps = step.rate_tps or max(near.rate_tps, near.rate_tps * step.threads / near.threads)
            tps = rate_tps / step.threads
            return call_rows(tps) if self._task.batched else frame_rows(tps, gap_s)
        if self._task.batched:
            return call_rows(self._glance(step.threads, call_rows(self._glance(step.threads, 1))))
        return frames_that_hold(lambda rows: self._glance(step.threads, rows), gap_s)

    def _glance(self, threads: int, rows: int) -> float:
        """Rows/s of a thread whose frames hold so many."""
        bench = self._bench(threads, rows)
        try:
            bench.begin(self._at.quotas, self._task.name, self._core)
            return self._probe(bench, threads, rows, min(GLANCE_S, self._at.seconds)).rate_tps / threads
        finally:
            bench.end()

    def _bench(self, threads: int, rows: int) -> Bench:
        file = Path(self._at.place.directory) / f"{self._task.name}.rows"
        small = bench_topology(self._topology, self._task, file)
        return Bench(small, self._task.name, threads, rows, self._at.place, self._at.stop)

    def _probe(self, bench: Bench, threads: int, rows: int, seconds: float) -> Probe:
        silence_s = SILENCE_S + self._task.max_call_s
        found = probe(bench, threads, rows, seconds, self._at.place.slot_cores, silence_s, self._at.meter)
        return found if self._at.quotas.enforced else profile_steps.within_slot(found)

    def _trial(self, bench: Bench, step: Next) -> Tried:
        waits = profile_steps.waits(self.record.probes)
        with self._at.meter() as meter:
            found = run_trial(bench, step.rate_tps, LONGEST_WAITS_S if waits else LONGEST_S, waits)
        return Tried(
            threads=step.threads,
            rate_tps=step.rate_tps,
            stable=found.stable,
            confidence=found.confidence,
            seconds=found.seconds,
            speed=meter.rounds_per_s,
            cpu=found.cpu,
            slope=found.slope,
            p99_s=found.p99_s,
            sparse=step.what == "sparse trial",
        )

    def _note(self) -> None:
        record = self.record
        best = max(record.probes, key=lambda probe: probe.rate_tps)
        fewest = min(probe.threads for probe in record.probes)  # many threads' stacks grow for a while
        leak = median(probe.leak_bytes for probe in record.probes if probe.threads == fewest)
        record.notes = []
        if best.rate_tps < SLOW_TPS:
            record.notes.append(
                f"does not reach one tuple per second: {significant(best.rate_tps, 2)} with "
                f"{counted(best.threads, 'thread')}"
            )
        if leak > 0:
            record.notes.append(f"keeps {leak:,.0f} bytes per tuple: its memory grows as long as it runs")
