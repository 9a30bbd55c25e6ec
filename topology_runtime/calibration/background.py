"""`python -P -m topology_runtime.calibration.background ORDER`: one task profiled in a spare slot, beside a
run, on rows that the run's workers mirror. An agent starts it, and kills it when the slot is needed.

Only the measured worker is in the slot; this process and what feeds the task have the lowest priority.
Probes alone, no trials: a trial would say more of the run's neighbours than of the task.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path

import msgspec
from msgspec.structs import replace

from topology_runtime.calibration.bench import BenchPlace
from topology_runtime.calibration.profile_steps import QUICK
from topology_runtime.calibration.quota import Quotas
from topology_runtime.calibration.record import RECORDS
from topology_runtime.calibration.store import machine
from topology_runtime.calibration.task_profile import Conditions, TaskProfile
from topology_runtime.errors import HeadgateError
from topology_runtime.owner import die_with
from topology_runtime.topology import Topology
from topology_runtime.worker.mirror import mirrored

NICEST = 19
PROBE_S = 2.0
PROBE_ENDS_S = 2 * PROBE_S  # no probe is begun that would hardly end within the budget
ROWS_S, LOOK_S = 15.0, 0.1
WISH = replace(QUICK, threads_most=16)
FAILED = "failed.txt"  # in the order's directory: why it failed


class ProfileOrder(msgspec.Struct, frozen=True):
    """What to measure and where. mirror: the agent's folder; directory: for this profile alone; output: of
    models and of what is known already; enter: files by which a process enters the slot."""

    topology: Topology
    task: str
    number: int
    user_paths: tuple[str, ...]
    mirror: str
    directory: str
    output: str
    enter: tuple[str, ...]
    binding: str
    slot_cores: float
    slot_memory_bytes: int
    budget_s: float
    owner: int


class GivenSlot(Quotas):
    """A slot of the agent's, whose limits are in force already."""

    def __init__(self, order: ProfileOrder) -> None:
        self.binding, self._enter = order.binding, order.enter

    @property
    def enforced(self) -> bool:
        return True

    def bind(self, pid: int, name: str, cores: float, core: int | None) -> None:
        for file in self._enter:
            Path(file).write_text(str(pid))

    def remove(self) -> None:
        """It is the agent's."""


def run(order: ProfileOrder) -> None:
    """Measure; the model is written after every probe. Raises HeadgateError."""
    until_s = time.monotonic() + order.budget_s - PROBE_ENDS_S
    task = order.topology.by_name[order.task]
    shutil.copy(_rows(order), Path(order.directory, f"{task.name}.rows"))
    place = BenchPlace(order.directory, order.user_paths, order.slot_cores)
    slot = {"cores": order.slot_cores, "memory_bytes": order.slot_memory_bytes, "machine": machine()}
    conditions = Conditions(
        place, GivenSlot(order), slot, WISH, PROBE_S, Path(order.output), threading.Event(), until_s
    )
    profile = TaskProfile(order.topology, task, conditions, lambda record, step: None)
    record = profile.run()
    if record.failed is not None:
        raise record.failed
    if record.probes and profile.model()["complete"]:
        Path(order.output, RECORDS, f"{record.task}.jsonl").unlink(missing_ok=True)  # the next one is anew


def _rows(order: ProfileOrder) -> Path:
    """The first file of mirrored rows."""
    patience_s = min(ROWS_S, order.budget_s)
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        found = mirrored(order.mirror, order.number)
        if found:
            return found[0]
        time.sleep(LOOK_S)
    raise HeadgateError(f"no rows of task {order.task!r} came within {patience_s:g} s")


def main(file: str) -> int:
    order = msgspec.json.decode(Path(file).read_bytes(), type=ProfileOrder)
    die_with(order.owner)
    os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    try:
        run(order)
    except HeadgateError as error:
        Path(order.directory, FAILED).write_text(": ".join(filter(None, (error.what, error.cause))), "utf-8")
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
