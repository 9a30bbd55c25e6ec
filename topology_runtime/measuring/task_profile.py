"""One task's profile: step after step until its model is complete; the model is written after each."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any
from zlib import crc32

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.measuring import profile_steps
from headgate.topology_runtime.measuring.bench import Bench, BenchPlace, bench_topology
from headgate.topology_runtime.measuring.bench_trials import probe, run_trial
from headgate.topology_runtime.measuring.collected_rows import collect_rows, own_folder
from headgate.topology_runtime.measuring.crossing_cost import CORES as CROSSING_CORES
from headgate.topology_runtime.measuring.crossing_cost import CrossingCost
from headgate.topology_runtime.measuring.machine_speed import CORE_SPEED, Reference, SpeedMeter, SpeedSource
from headgate.topology_runtime.measuring.measuring_slots import Awake, Quotas
from headgate.topology_runtime.measuring.profile_steps import (
    Glance,
    Next,
    Probe,
    ProfileChoice,
    Tried,
    call_rows,
    frame_rows,
    frames_when_full,
    row_and_frame,
)
from headgate.topology_runtime.measuring.wake_cost import CROSSING, FRAME, ROWS
from headgate.topology_runtime.platform.clock import wall_ns
from headgate.topology_runtime.stability.trial_evidence import LONGEST_S, LONGEST_WAITS_S
from headgate.topology_runtime.wire.run_options import FRAME_ROWS, cap_at
from headgate.topology_runtime.wording import counted, significant, utc_iso

# ── What was measured of one task so far, and its file: a profile that was stopped goes on from it ──────
#
# DIR/.profile/<task>.jsonl   a head that says of what, then every probe and trial as measured

RECORDS = ".profile"
Measured = Probe | Tried | Glance


@dataclass
class ProfileRecord:
    """`notes`: what people should know, a line each; `failed`: why it was not finished."""

    task: str
    probes: list[Probe] = field(default_factory=list)
    glances: list[Glance] = field(default_factory=list)
    trials: list[Tried] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failed: HeadgateError | None = None
    seconds: float = 0.0

    def put(self, measured: Measured) -> None:
        if isinstance(measured, Probe):
            self.probes.append(measured)
        elif isinstance(measured, Glance):
            self.glances.append(measured)
        else:
            self.trials.append(measured)


class RecordFile:
    """`head`: what this is a record of; one with another head is started again."""

    def __init__(self, folder: Path, task: str, head: dict[str, Any]) -> None:
        self._path, self._head = folder / RECORDS / f"{task}.jsonl", head

    def read(self) -> list[Measured]:
        """What is known already. The file is then whole again, should a kill have torn its last line."""
        lines = self._path.read_bytes().splitlines() if self._path.exists() else []
        known = read_record(lines, self._head)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_bytes(b"".join(map(_line, (self._head, *known))))
        return known

    def add(self, measured: Measured) -> None:
        with self._path.open("ab") as file:
            file.write(_line(measured))


def _line(value: Any) -> bytes:
    return msgspec.json.encode(value) + b"\n"


def read_record(lines: Sequence[bytes], head: dict[str, Any]) -> list[Measured]:
    """What a record with this head holds, up to a line that a kill tore; nothing when it has another."""
    found: list[Measured] = []
    try:
        if not lines or msgspec.json.decode(lines[0]) != head:
            return []
        for line in lines[1:]:
            found.append(msgspec.json.decode(line, type=Measured))
    except msgspec.DecodeError:  # torn
        return found
    return found


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

WAITS_BELOW = (
    0.5  # of the slot's CPU: who waits leaves more of it (a call of microseconds tells nothing else)
)
GLANCE_S = 1.0  # of a probe that only tells how large frames are
SILENCE_S = 10.0  # and a task's own longest call: then it hangs
SLOW_TPS = 1.0  # below one row per second a stream is hardly one


@dataclass(frozen=True)
class Conditions:
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
    crossing: CrossingCost | None = None  # what a row costs that comes from a slot and goes to another


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
        size = conditions.slot["memory_bytes"]
        self._digest = store.digest(topology, task.model_name, conditions.place.user_paths, size)
        head = {"digest": self._digest, "slot": conditions.slot, "binding": conditions.quotas.binding}
        self._core = crc32(task.name.encode())  # whichever it falls to, the same each time
        self._waiting_tps = 0.0  # of a thread that waits, with single rows
        self._crossing: float | None = None
        self._file = RecordFile(conditions.output, task.model_name, head)

    def run(self) -> ProfileRecord:
        """All steps, or those that the budget lets; a failing task keeps what was measured before."""
        for known in self._file.read():
            self.record.put(known)
        record, began_s = self.record, time.monotonic()
        try:
            while time.monotonic() < self._at.until_s:
                self._look_at_crossing()
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
        if self._frames_of_run and (costs := row_and_frame(record.glances)) is not None:
            about |= {ROWS: record.probes[0].frame_rows, FRAME: costs[1]}
            about |= {CROSSING: self._crossing} if self._crossing is not None else {}
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
                measured: Measured = self._probe(bench, step.threads, rows, self._at.seconds)
            else:
                measured = self._trial(bench, step)
            self._keep(measured)
        except OSError:  # of a process that is no more
            bench.look()
            raise
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
            if self._task.batched:
                return call_rows(tps)
            return cap_at(FRAME_ROWS, tps) if self._frames_of_run else frame_rows(tps, gap_s)
        if self._task.batched:
            return call_rows(self._glance(step.threads, call_rows(self._glance(step.threads, 1))))
        cores = self._at.place.slot_cores
        rows = frames_when_full(lambda rows: self._glance(step.threads, rows), cores)
        return max(rows, frame_rows(self._waiting_tps, gap_s))

    def _look_at_crossing(self) -> None:
        """Of a task whose frames are those of a run, also where a profile goes on."""
        if self._crossing is None and self._frames_of_run and self._at.crossing is not None:
            seconds = self._at.crossing.seconds()
            self._crossing = None if seconds is None else seconds / self._at.place.slot_cores

    @property
    def _frames_of_run(self) -> bool:
        """Its frames are as large as a run has them."""
        return len(self.record.glances) > 1

    def _glance(self, threads: int, rows: int) -> float:
        """Rows/s of a thread whose frames hold so many; 0 of one that waits, since its calls are no longer for that."""
        bench = self._bench(threads, rows)
        try:
            bench.begin(self._at.quotas, self._task.name, self._core)
            found = self._probe(bench, threads, rows, min(GLANCE_S, self._at.seconds))
        finally:
            bench.end()
        if profile_steps.waits([found]) and found.cpu < WAITS_BELOW and not self._task.batched:
            self._waiting_tps = found.rate_tps / threads
            return 0.0
        if not self._task.batched:
            self._keep(Glance(rows, found.rate_tps, found.cpu))
        return found.rate_tps / threads

    def _keep(self, measured: Measured) -> None:
        self.record.put(measured)
        self._file.add(measured)

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
        _, delay_ns, busy_ns = bench.blocked()
        with self._at.meter() as meter:
            found = run_trial(bench, step.rate_tps, LONGEST_WAITS_S if waits else LONGEST_S, waits)
        _, delayed_ns, took_ns = bench.blocked()
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
            delayed=max(0.0, (delayed_ns - delay_ns) / max(1, took_ns - busy_ns)),
        )

    def _note(self) -> None:
        record = self.record
        best = max(record.probes, key=lambda probe: probe.rate_tps)
        fewest = min(probe.threads for probe in record.probes)  # many threads' stacks grow for a while
        leak = median(probe.leak_bytes for probe in record.probes if probe.threads == fewest)
        record.notes = []
        if best.rate_tps < SLOW_TPS:
            record.notes.append(
                f"does not reach one row per second: {significant(best.rate_tps, 2)} with "
                f"{counted(best.threads, 'thread')}"
            )
        if leak > 0:
            record.notes.append(f"keeps {leak:,.0f} bytes per row: its memory grows as long as it runs")
        if (share := profile_steps.delay_taken_off(record.probes)) > 0:
            record.notes.append(
                f"waited for a CPU that others used for {share:.0%} of its time: its rates are without that"
            )
        if self._frames_of_run and self._at.crossing is not None and self._at.crossing.why:
            record.notes.append(self._at.crossing.why)


# ── Several tasks profiled, side by side where the machine has room, within a budget of time ────────────

LOOK_S = 0.2
BUSY_SHARE = 0.8  # of this machine's cores, for what is measured at once
FEEDER_CORES = 1.0  # what feeds a slot may need as much CPU as the slot


@dataclass(frozen=True)
class ProfileRequest:
    """What is to be profiled, and how. `budget_s`: no step begins later; `seconds`: of a probe, at least."""

    topology: Topology
    tasks: tuple[Task, ...]
    user_paths: tuple[str, ...]
    output: Path
    slot_cores: float
    slot_memory_bytes: int
    wish: ProfileChoice = ProfileChoice()
    seconds: float = 3.0
    budget_s: float = float("inf")
    at_once: int | None = None
    said: int | None = None  # file to which the output of tasks goes


def profile(asked: ProfileRequest, tell: Callable[[ProfileRecord, Next | None], None]) -> list[ProfileRecord]:
    """Measure all, in the order of `asked.tasks`; a task that fails says so in its record and stops no
    other. `tell` hears of every step, and of the end of each task with None; what it raises ends all. However it ends,
    Ctrl-C included, no process, cgroup or temporary folder is left.

    Raises HeadgateError when no sample rows can be had."""
    until_s = time.monotonic() + asked.budget_s
    directory, quotas, stop = own_folder(), Quotas(), threading.Event()
    try:
        _collect(asked, directory)
        place = BenchPlace(directory, asked.user_paths, asked.slot_cores, said=asked.said)
        slot = {
            "cores": asked.slot_cores,
            "memory_bytes": asked.slot_memory_bytes,
            "machine": store.machine(),
        }
        at_once = asked.at_once or side_by_side(asked.slot_cores, len(asked.tasks))
        with Awake() as awake, Reference(quotas) as reference:
            conditions = Conditions(
                place,
                quotas,
                slot,
                asked.wish,
                asked.seconds,
                asked.output,
                stop,
                until_s,
                awake=awake.so,
                meter=reference.meter,
                speed_of=reference.speed_of,
                crossing=CrossingCost(replace(place, slot_cores=CROSSING_CORES), quotas, stop),
            )
            return _side_by_side(asked, conditions, at_once, tell)
    finally:
        quotas.remove()
        shutil.rmtree(directory, ignore_errors=True)


def _collect(asked: ProfileRequest, directory: str) -> None:
    file = Path(directory, "topology.json")
    file.write_bytes(msgspec.json.encode(asked.topology))
    collect_rows(file, asked.topology, [task.name for task in asked.tasks], asked.user_paths, directory)


def _side_by_side(
    asked: ProfileRequest,
    conditions: Conditions,
    at_once: int,
    tell: Callable[[ProfileRecord, Next | None], None],
) -> list[ProfileRecord]:
    lock = threading.Lock()

    def telling(record: ProfileRecord, step: Next | None) -> None:
        with lock:
            tell(record, step)

    def one(task: Task) -> ProfileRecord:
        profile = TaskProfile(asked.topology, task, conditions, telling)
        record = profile.run()
        telling(record, None)
        return record

    with ThreadPoolExecutor(at_once, thread_name_prefix="profile") as pool:
        futures = [pool.submit(one, task) for task in asked.tasks]
        try:
            while wait(futures, LOOK_S).not_done:  # short waits, so that Ctrl-C is heard
                _raise_failure(futures)
            _raise_failure(futures)
        except BaseException:
            conditions.stop.set()
            pool.shutdown(cancel_futures=True)
            raise
        return [future.result() for future in futures]


def _raise_failure(futures: Sequence[Future[ProfileRecord]]) -> None:
    """What no record holds is raised: a programming error, or what `tell` raised."""
    for future in futures:
        error = future.exception() if future.done() else None
        if isinstance(error, HeadgateError):
            raise error
        if error is not None:
            raise HeadgateError("a profile failed", cause=f"{type(error).__name__}: {error}") from error


def side_by_side(slot_cores: float, most: int) -> int:
    """How many tasks at once leave the machine room."""
    at_once = BUSY_SHARE * (os.cpu_count() or 1) / (slot_cores * (1.0 + FEEDER_CORES))
    return max(1, min(most, int(at_once)))
