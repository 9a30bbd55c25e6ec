"""Several tasks profiled, side by side where the machine has room, within a budget of time."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path

import msgspec

from headgate.topology_runtime.calibration import store
from headgate.topology_runtime.calibration.awake import Awake
from headgate.topology_runtime.calibration.bench import BenchPlace
from headgate.topology_runtime.calibration.collecting import collect_rows, own_folder
from headgate.topology_runtime.calibration.profile_steps import Next, ProfileChoice
from headgate.topology_runtime.calibration.quota import Quotas
from headgate.topology_runtime.calibration.record import ProfileRecord
from headgate.topology_runtime.calibration.speed import Reference
from headgate.topology_runtime.calibration.task_profile import Conditions, TaskProfile
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.topology import Task, Topology

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


def profile(asked: ProfileRequest, tell: Callable[[ProfileRecord, Next | None], None]) -> list[ProfileRecord]:
    """Measure all, in the order of `asked.tasks`; a task that fails says so in its record and stops no
    other. `tell` hears of every step, and of the end of each task with None; what it raises ends all. However it ends,
    Ctrl-C included, no process, cgroup or temporary folder is left.

    Raises HeadgateError when no sample rows can be had."""
    until_s = time.monotonic() + asked.budget_s
    directory, quotas, stop = own_folder(), Quotas(), threading.Event()
    try:
        _collect(asked, directory)
        place = BenchPlace(directory, asked.user_paths, asked.slot_cores)
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
