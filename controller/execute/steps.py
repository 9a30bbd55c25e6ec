"""The state table of an enactment: what each phase waits for, what comes next, what when it is late. Pure.

    machines    every VM asked of the provider said HELLO         15 s: give up, hold the old plan
    prepared    every worker is up and connected both ways        10 s: go back to the old plan
    switched    every sender goes by the new routes, every        never goes back; alarm after 10 s
                leaving thread has its marks (it is in force)
    probation   three windows without strong evidence against     –
    committed   leaving threads end when they are empty           –

Rules (protocol: Plans):
 1. What counts is what was reported last; no phase remembers what it saw.
 2. VMs held dead, and workers that are quarantined, have no threads in an enactment: they block nothing [B2].
 3. A worker that dies only delays: its agent starts it again, with the same threads.
 4. Marks are states: `marked ≥ routes_number`, whoever sent them and when [B1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from typing import Literal

from controller.knowledge.records import Phase, Planned
from topology_runtime.cluster import Slot
from topology_runtime.messages import SourceNow, ThreadNow, ThreadWanted, Token, WorkerNow
from topology_runtime.topology import Topology

NS = 1_000_000_000
MACHINES_LIMIT_NS = 15 * NS  # a local VM is up in one second; a provider that needs longer has failed
PREPARED_LIMIT_NS = 10 * NS  # a worker is up in less than one second on a quiet machine
SWITCHED_ALARM_NS = 10 * NS
PROBATION_WINDOWS = 3
NAMED_MOST = 4  # things named in a sentence


@dataclass(frozen=True, slots=True)
class Sight:
    """What the VMs that are `up` reported last. `reported`: the token each VM obeys."""

    up: Set[str] = frozenset()
    workers: Mapping[Slot, WorkerNow] = field(default_factory=dict)
    sources: Mapping[int, SourceNow] = field(default_factory=dict)
    reported: Mapping[str, Token] = field(default_factory=dict)
    quarantined: Set[Slot] = frozenset()

    def thread(self, wanted: ThreadWanted) -> ThreadNow | None:
        """This thread as its present worker reports it."""
        worker = self.workers.get(wanted.slot)
        if worker is None or worker.state != "running":
            return None
        return next((now for now in worker.threads if now.thread == wanted.thread), None)


@dataclass(frozen=True, slots=True)
class Stand:
    """Where an enactment stands. `token`: the newest wanted state. `windows`: of probation, passed."""

    planned: Planned
    phase: Phase
    since_ns: int
    now_ns: int
    token: Token
    topology: Topology
    sight: Sight
    windows: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: stay, enter `phase`, or say that the phase is late; `why` names what is missing."""

    kind: Literal["stay", "enter", "late"]
    phase: Phase
    why: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table."""

    missing: Callable[[Stand], list[str]]
    then: Phase
    limit_ns: int | None


def awaited_machines(stand: Stand) -> list[str]:
    return [f"VM {vm}" for vm in stand.planned.awaits if vm not in stand.sight.up]


def not_ready(stand: Stand) -> list[str]:
    """Workers that are not up and connected under the newest wanted state."""
    return [f"worker {slot}" for slot in stand.planned.slots if not _ready(stand, slot)]


def _ready(stand: Stand, slot: Slot) -> bool:
    worker = stand.sight.workers.get(slot)
    return worker is not None and worker.state == "running" and worker.ready and worker.token >= stand.token


def failures(stand: Stand) -> list[tuple[int, str]]:
    """Threads whose logic could not be built, with the reason."""
    return [
        (now.thread, f"thread {now.thread} in {slot}: {now.failed}")
        for slot, worker in sorted(stand.sight.workers.items())
        for now in worker.threads
        if now.failed
    ]


def not_switched(stand: Stand) -> list[str]:
    """Threads that still send by older routes, and leaving ones that may still get rows by those."""
    return [text for thread in stand.planned.threads if (text := _behind(stand, thread))]


def _behind(stand: Stand, thread: ThreadWanted) -> str:
    now = stand.sight.thread(thread)
    name = f"thread {thread.thread} of {thread.task}"
    if now is None:
        return f"{name} (not reported)"
    if now.ended:
        return ""
    number = stand.planned.routes_number
    if stand.topology.out_edges(thread.task) and now.switched < number:
        return f"{name} (sends by routes {now.switched})"
    if thread.leaving and stand.topology.in_edges(thread.task) and now.marked < number:
        return f"{name} (not marked)"
    return ""


def windows_left(stand: Stand) -> list[str]:
    left = PROBATION_WINDOWS - stand.windows
    return [f"{left} windows of probation"] if left > 0 else []


def leaving(stand: Stand) -> list[str]:
    """Leaving threads that have not ended yet."""
    gone = set(ended_leavers(stand))
    return [f"thread {t.thread} of {t.task}" for t in stand.planned.leaving if t.thread not in gone]


def ended_leavers(stand: Stand) -> tuple[int, ...]:
    """Leaving threads that are no more, once the VM obeys the newest wanted state. One that lost its
    marks was started again: what it held is replayed, so it has nothing left to do."""
    return tuple(t.thread for t in stand.planned.leaving if _ended(stand, t))


def _ended(stand: Stand, thread: ThreadWanted) -> bool:
    if stand.sight.reported.get(thread.slot.vm, Token()) < stand.token:
        return False
    worker = stand.sight.workers.get(thread.slot)
    if worker is None or worker.state in ("exited", "quarantined"):
        return True
    now = stand.sight.thread(thread)
    if now is None:
        return worker.state == "running" and worker.token >= stand.token
    marked = not stand.topology.in_edges(thread.task) or now.marked >= stand.planned.routes_number
    return now.ended or not marked


TABLE: dict[Phase, Row] = {
    "machines": Row(awaited_machines, "prepared", MACHINES_LIMIT_NS),
    "prepared": Row(not_ready, "switched", PREPARED_LIMIT_NS),
    "switched": Row(not_switched, "probation", SWITCHED_ALARM_NS),
    "probation": Row(windows_left, "committed", None),
    "committed": Row(leaving, "committed", None),
}


def next_step(stand: Stand) -> Step:
    """What the table says now. In COMMITTED there is no further phase: it only says what still leaves."""
    row = TABLE[stand.phase]
    missing = row.missing(stand)
    if not missing and row.then != stand.phase:
        return Step("enter", row.then)
    if row.limit_ns is not None and stand.now_ns - stand.since_ns >= row.limit_ns:
        return Step("late", stand.phase, named(missing))
    return Step("stay", stand.phase, named(missing))


def named(missing: list[str]) -> str:
    """A few of them by name, the others by number."""
    more = len(missing) - NAMED_MOST
    return ", ".join(missing[:NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
