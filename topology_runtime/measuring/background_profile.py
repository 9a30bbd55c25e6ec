"""`python -P -m headgate.topology_runtime.measuring.background_profile < ORDER`: one task profiled in a free slot.

An agent starts it, and kills it when the slot is needed.

Beside a run the rows are those that the run's workers mirror, and this process and what feeds the task have the lowest
priority. Before a run (no mirror) they are made here, by the tasks above it, and it is measured as `up` does on first
use. Only the measured worker is in the slot. Probes alone, no trials: a trial would say more of the neighbours than of
the task.
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

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.measuring.bench import BenchPlace
from headgate.topology_runtime.measuring.calibrate import DERATE
from headgate.topology_runtime.measuring.collected_rows import collect_rows
from headgate.topology_runtime.measuring.measuring_slots import Quotas
from headgate.topology_runtime.measuring.model_store import machine
from headgate.topology_runtime.measuring.profile_steps import QUICK, Next, next_step, steps_left
from headgate.topology_runtime.measuring.task_profile import RECORDS, Conditions, ProfileRecord, TaskProfile
from headgate.topology_runtime.platform.containment import (
    NOT_CONTAINED,
    NotContained,
    WorkerUser,
    become,
    check,
    give_up,
)
from headgate.topology_runtime.platform.disk import open_plain
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.worker.meters.row_copies import mirrored

NICEST = 19
PROBE_S = 2.0
PROBE_ENDS_S = 2 * PROBE_S  # no probe is started that would hardly end within the budget
ROWS_S, LOOK_S = 15.0, 0.1
WISH = replace(QUICK, threads_most=16)
FIRST_WISH = replace(QUICK, derate=DERATE)  # before a run
FAILED = "failed.txt"  # in the order's directory: why it failed
STANDS = "stands.json"  # there too: [points measured, of about so many]


class ProfileOrder(msgspec.Struct, frozen=True):
    """What to measure and where. mirror: the agent's folder, empty before a run; directory: for this profile alone;
    output: of models and of what is known already; enter: open files by which a process enters the slot, if it is
    bound; user: whom this process becomes, and all that it starts with it."""

    topology: Topology
    task: str
    number: int
    user_paths: tuple[str, ...]
    mirror: str
    directory: str
    output: str
    enter: tuple[int, ...]
    binding: str
    slot_cores: float
    slot_memory_bytes: int
    budget_s: float
    owner: int
    user: WorkerUser | None = None


class GivenSlot(Quotas):
    """A slot of the agent's, whose limits are in force already."""

    def __init__(self, order: ProfileOrder) -> None:
        self.binding, self._enter = order.binding, order.enter

    @property
    def enforced(self) -> bool:
        return True

    def bind(self, pid: int, name: str, cores: float, core: int | None) -> None:
        for file in self._enter:
            os.write(file, str(pid).encode("ascii"))

    def remove(self) -> None:
        """It is the agent's."""


def run(order: ProfileOrder, quotas: Quotas) -> None:
    """Measure; the model is written after every probe. Raises HeadgateError."""
    until_s = time.monotonic() + order.budget_s - PROBE_ENDS_S
    task = order.topology.by_name[order.task]
    _get_rows(order)
    place = BenchPlace(order.directory, order.user_paths, order.slot_cores)
    slot = {"cores": order.slot_cores, "memory_bytes": order.slot_memory_bytes, "machine": machine()}
    wish = WISH if order.mirror else FIRST_WISH

    def tell(record: ProfileRecord, step: Next) -> None:
        done = len(record.probes)
        _tell(order, done, done + max(1, steps_left(record.probes, (), wish)[0]))

    conditions = Conditions(
        place, quotas, slot, wish, PROBE_S, Path(order.output), threading.Event(), until_s
    )
    record = TaskProfile(order.topology, task, conditions, tell).run()
    if record.failed is not None:
        raise record.failed
    if record.probes and next_step(record.probes, record.trials, wish) is None:
        Path(order.output, RECORDS, f"{record.task}.jsonl").unlink(missing_ok=True)  # the next one is new


def _get_rows(order: ProfileOrder) -> None:
    """In the order's directory. Raises HeadgateError."""
    if order.mirror:
        shutil.copy(_mirrored(order), Path(order.directory, f"{order.task}.rows"))
        return
    file = Path(order.directory, "topology.json")
    file.write_bytes(msgspec.json.encode(order.topology))
    collect_rows(file, order.topology, [order.task], order.user_paths, order.directory)


def _mirrored(order: ProfileOrder) -> Path:
    """The first file of mirrored rows."""
    patience_s = min(ROWS_S, order.budget_s)
    end_s = time.monotonic() + patience_s
    while time.monotonic() < end_s:
        found = mirrored(order.mirror, order.number)
        if found:
            return found[0]
        time.sleep(LOOK_S)
    raise HeadgateError(f"no rows of task {order.task!r} came within {patience_s:g} s")


def _tell(order: ProfileOrder, done: int, of: int) -> None:
    """By rename, so that nobody reads half of it."""
    new = Path(order.directory, f"{STANDS}.new")
    new.write_bytes(msgspec.json.encode((done, of)))
    new.rename(Path(order.directory, STANDS))


def stands_in(directory: Path) -> tuple[int, int] | None:
    """How far the profile in this directory is; None before it has started, and of what makes no sense: the task's code
    can write there, too."""
    try:
        with open_plain(Path(directory, STANDS)) as file:
            done, of = msgspec.json.decode(file.read(64), type=tuple[int, int])
    except (OSError, msgspec.DecodeError):
        return None
    return (done, of) if 0 <= done <= of < 1 << 31 else None


def main() -> int:
    order = msgspec.json.decode(sys.stdin.buffer.read(), type=ProfileOrder)
    if order.user is not None:
        try:
            become(order.user)
            give_up()
            check(order.user)
        except NotContained as error:
            print(error, file=sys.stderr)
            return NOT_CONTAINED
    die_with(order.owner)
    if order.mirror:
        os.setpriority(os.PRIO_PROCESS, 0, NICEST)
    quotas = GivenSlot(order) if order.enter else Quotas()
    try:
        run(order, quotas)
    except HeadgateError as error:
        Path(order.directory, FAILED).write_text(": ".join(filter(None, (error.what, error.cause))), "utf-8")
        return error.exit_code
    finally:
        quotas.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
