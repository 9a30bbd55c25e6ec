"""The state table of an enactment: what each phase waits for, what comes next, what when it is late. Pure.

    machines    every VM asked of the provider said HELLO         15 s: give up, hold the old plan
    prepared    every worker is up and connected both ways        10 s: go back to the old plan
                every new thread has its object, or failed        – (a task's max_call_s fails it)
    switched    every sender goes by the new routes, every        never goes back; alarm after 10 s
                leaving thread has its marks (it is in force)
    probation   three windows without strong evidence against,    –
                at the end of the last rows are processed
    committed   leaving threads end when they are empty           –
    A run that ends judges no plan: one on probation stays there, and threads that leave end.

Rules (protocol: Plans):
 1. What counts is what was reported last; no phase remembers what it saw.
 2. VMs held dead, and workers that are quarantined, have no threads in an enactment: they block nothing [B2].
 3. A worker that dies only delays: its agent starts it again, with the same threads.
 4. Marks are states: `marked ≥ routes_number`, whoever sent them and when [B1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from headgate.controller.knowledge.journal_records import Phase, RolloutStarted
from headgate.controller.knowledge.membership import Membership
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wire.messages import ThreadSpec, Token

NS = 1_000_000_000
PREPARED_LIMIT_NS = 10 * NS  # a worker is up in less than one second on a quiet machine
SWITCHED_ALARM_NS = 10 * NS
PROBATION_WINDOWS = 3
NAMED_MOST = 4  # things named in a sentence


@dataclass(frozen=True, slots=True)
class RolloutProgress:
    """Where an enactment stands. `token`: the newest desired state. `windows`: of probation, passed.
    unproved: why it is not known that rows are processed under this plan."""

    planned: RolloutStarted
    phase: Phase
    since_ns: int
    now_ns: int
    token: Token
    topology: Topology
    members: Membership
    windows: int = 0
    unproved: str = ""
    machines_wait_ns: int = 120 * NS


@dataclass(frozen=True, slots=True)
class Step:
    """What to do: stay, enter `phase`, or say that the phase is late. `item`: something that is missing."""

    kind: Literal["stay", "enter", "late"]
    phase: Phase
    item: object = None


@dataclass(frozen=True, slots=True)
class StepRow:
    """One line of the table. items: what the phase is about; lacks: what an item still lacks, in words,
    or nothing; then: the next phase; limit_ns: how long it may take (machines: as it is set)."""

    items: Callable[[RolloutProgress], Sequence[Any]]
    lacks: Callable[[RolloutProgress, Any], str]
    then: Phase
    limit_ns: int | None


def _machine(stand: RolloutProgress, vm: str) -> str:
    return "" if vm in stand.members.here else f"VM {vm}"


def _worker(stand: RolloutProgress, slot: Slot) -> str:
    """Is its worker up and connected both ways under the newest desired state?"""
    worker = stand.members.workers.get(slot)
    ready = worker is not None and worker.state == "running" and worker.ready and worker.token >= stand.token
    return "" if ready else f"worker {slot}"


def _prepared(stand: RolloutProgress, item: Slot | ThreadSpec) -> str:
    """A worker, or a thread whose object is built. Rows would wait for it, or come twice if it cannot be built."""
    if isinstance(item, Slot):
        return _worker(stand, item)
    now = stand.members.thread(item)
    return f"thread {item.thread} of {item.task} (being built)" if now is not None and now.building else ""


def _begun(stand: RolloutProgress) -> tuple[Slot | ThreadSpec, ...]:
    """Workers, and threads that begin."""
    planned = stand.planned
    return (*planned.slots, *(thread for thread in planned.threads if thread.thread in planned.fresh))


def _switched(stand: RolloutProgress, thread: ThreadSpec) -> str:
    """Does it send by the new routes, and, if it is leaving, has it all its marks?"""
    now = stand.members.thread(thread)
    name = f"thread {thread.thread} of {thread.task}"
    if now is None:
        return f"{name} (not reported)"
    number = stand.planned.routes_number
    sends = stand.topology.out_edges(thread.task) or stand.topology.by_name[thread.task].state == "keyed"
    if not now.ended and sends and now.switched < number:
        return f"{name} (sends by routes {now.switched})"
    if not now.ended and thread.leaving and stand.topology.in_edges(thread.task) and now.marked < number:
        return f"{name} (not marked)"
    return ""


def _proof(stand: RolloutProgress, windows: int) -> str:
    left = windows - stand.windows
    return f"{left} windows of probation" if left > 0 else stand.unproved


def _left(stand: RolloutProgress, thread: ThreadSpec) -> str:
    return "" if _ended(stand, thread) else f"thread {thread.thread} of {thread.task}"


def ended_leavers(stand: RolloutProgress) -> tuple[int, ...]:
    """Leaving threads that are no more, once the VM obeys the newest desired state. One that lost its
    marks was started again: what it held is replayed, so it has nothing left to do."""
    return tuple(t.thread for t in stand.planned.leaving if _ended(stand, t))


def said_ended(members: Membership, thread: ThreadSpec) -> bool:
    """Was it reported that this thread has finished for good (its worker may be gone since)?"""
    worker = members.workers.get(thread.slot)
    return worker is not None and any(now.thread == thread.thread and now.ended for now in worker.threads)


def _ended(stand: RolloutProgress, thread: ThreadSpec) -> bool:
    if stand.members.tokens.get(thread.slot.vm, Token()) < stand.token:
        return False
    worker = stand.members.workers.get(thread.slot)
    if worker is None or worker.state in ("exited", "quarantined"):
        return True
    now = stand.members.thread(thread)
    if now is None:
        return worker.state == "running" and worker.token >= stand.token
    marked = not stand.topology.in_edges(thread.task) or now.marked >= stand.planned.routes_number
    return now.ended or not marked


TABLE: dict[Phase, StepRow] = {
    "machines": StepRow(lambda stand: stand.planned.awaits, _machine, "prepared", None),
    "prepared": StepRow(_begun, _prepared, "switched", PREPARED_LIMIT_NS),
    "switched": StepRow(lambda stand: stand.planned.threads, _switched, "probation", SWITCHED_ALARM_NS),
    "probation": StepRow(lambda stand: (PROBATION_WINDOWS,), _proof, "committed", None),
    "committed": StepRow(lambda stand: stand.planned.leaving, _left, "committed", None),
}


def next_step(stand: RolloutProgress, look_first: object = None) -> Step:
    """What the table says now. `look_first`: what was missing the last time; while it still is, nothing
    else is looked at. In COMMITTED there is no further phase: it only says what still leaves."""
    row = TABLE[stand.phase]
    if look_first is not None and row.lacks(stand, look_first):
        missing = look_first
    else:
        missing = next((item for item in row.items(stand) if row.lacks(stand, item)), None)
    if missing is None and row.then != stand.phase:
        return Step("enter", row.then)
    limit_ns = stand.machines_wait_ns if stand.phase == "machines" else row.limit_ns
    if limit_ns is not None and stand.now_ns - stand.since_ns >= limit_ns:
        return Step("late", stand.phase, missing)
    return Step("stay", stand.phase, missing)


def only_builds(stand: RolloutProgress) -> bool:
    """Are all workers of a plan that is prepared ready, and objects being built? A worker says when one takes long."""
    return stand.phase == "prepared" and not any(_worker(stand, slot) for slot in stand.planned.slots)


def waits_for(stand: RolloutProgress) -> str:
    """All that is missing, in words."""
    row = TABLE[stand.phase]
    return named([text for item in row.items(stand) if (text := row.lacks(stand, item))])


def never_ready(stand: RolloutProgress) -> frozenset[Slot]:
    """Slots whose workers are not up and connected both ways, with new threads only."""
    older = {t.slot for t in stand.planned.threads if t.thread not in stand.planned.fresh}
    return frozenset(slot for slot in stand.planned.slots if slot not in older and _worker(stand, slot))


def named(missing: list[str]) -> str:
    """A few of them by name, the others by number."""
    more = len(missing) - NAMED_MOST
    return ", ".join(missing[:NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
