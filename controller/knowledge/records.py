"""What the journal keeps, and what it adds up to: records and their fold. Frozen; no I/O.

`Durable` is everything a controller must still know after it was killed. It changes only through
`fold(durable, record)`, live and in recovery alike, so that whatever was journaled is what is known,
and taking back a record that could not be written means keeping the value from before.

An enactment (`Planned`) goes through these phases (protocol: Plans; `execute/steps.py` has the table):

    machines → prepared → switched → probation → committed          (or abandoned, from machines)
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from controller.knowledge.models import Model
from controller.knowledge.plans import Plan
from topology_runtime.cluster import Slot, Vm
from topology_runtime.messages import Keepers, Route, ThreadWanted
from topology_runtime.schedule import Schedule
from topology_runtime.topology import Topology
from topology_runtime.worker.ranges import of_runs, runs_of

Phase = Literal["none", "machines", "prepared", "switched", "probation", "committed", "abandoned"]
ALL_GO_BY_IT: frozenset[Phase] = frozenset({"probation", "committed"})  # every sender by its routes
ENDED_BY_NOW = 64  # boots whose times are kept: enough to see a row of crashes


class Booted(msgspec.Struct, frozen=True, tag="booted"):
    """A controller began its life; the first record of each life, written before anything is sent."""

    boot: int
    wall_ns: int


class Submitted(msgspec.Struct, frozen=True, tag="submitted"):
    """What this controller runs. `steps` and `period_s`: the offered load, before it has a start."""

    topology: Topology
    models: tuple[Model, ...]
    steps: tuple[tuple[float, float], ...]
    period_s: float
    user_paths: tuple[str, ...]
    wall_ns: int


class Planned(msgspec.Struct, frozen=True, tag="planned", dict=True):
    """A plan was decided; its enactment is number `epoch`.

    threads: all that exist from now on, of the plans before (leaving) and of this one.
    degraded: why it carries less than was asked for, or "".
    fresh: those that start with it. already: those that were leaving before.
    before_number, before_routes: by which rows go until it is SWITCHED.
    keepers: of keyed tasks, until it is in force (execute/keepers.py).
    awaits: VMs asked of the machines provider. undoes: the epoch that it rolls back, or 0."""

    epoch: int
    plan: Plan
    reason: str
    text: str
    wall_ns: int
    threads: tuple[ThreadWanted, ...]
    fresh: tuple[int, ...]
    already: tuple[int, ...]
    routes_number: int
    routes: tuple[Route, ...]
    before_number: int
    before_routes: tuple[Route, ...]
    modelled_tps: dict[int, float]
    next_thread: int
    awaits: tuple[str, ...] = ()
    undoes: int = 0
    degraded: str = ""
    keepers: tuple[Keepers, ...] = ()

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """Slots with threads, in order."""
        return tuple(sorted({thread.slot for thread in self.threads}))

    @cached_property
    def staying_slots(self) -> frozenset[Slot]:
        """Slots with threads that are not leaving."""
        return frozenset(thread.slot for thread in self.threads if not thread.leaving)

    @cached_property
    def by_number(self) -> dict[int, ThreadWanted]:
        return {thread.thread: thread for thread in self.threads}

    @cached_property
    def leaving(self) -> tuple[ThreadWanted, ...]:
        return tuple(thread for thread in self.threads if thread.leaving)


class Entered(msgspec.Struct, frozen=True, tag="entered"):
    """The enactment entered a phase; `why` when that is not the way forward."""

    epoch: int
    phase: Phase
    wall_ns: int
    why: str = ""


class Adopted(msgspec.Struct, frozen=True, tag="adopted"):
    """A new plan has the placement that runs already: it is in force as it is."""

    epoch: int
    plan: Plan
    degraded: str
    wall_ns: int


class Gone(msgspec.Struct, frozen=True, tag="gone"):
    """Leaving threads have ended and are wanted no more."""

    epoch: int
    threads: tuple[int, ...]


class Scheduled(msgspec.Struct, frozen=True, tag="scheduled"):
    """The offered load from now on."""

    schedule: Schedule


class Draining(msgspec.Struct, frozen=True, tag="draining"):
    """The run is ending: sources read no more."""

    reason: str
    wall_ns: int


class HeldDead(msgspec.Struct, frozen=True, tag="held_dead"):
    """The VMs that are waited for no more (all of them, each time)."""

    vms: tuple[str, ...]


class HandedOver(msgspec.Struct, frozen=True, tag="handed_over"):
    """A leaving source thread had its time to run empty: its successor reads from `emitted` on, and the positions
    from `acked` on that are open in its ledger stay its own, until they are done (then `acked` = `emitted`)."""

    task: str
    partition: int
    thread: int
    acked: int
    emitted: int


class Holds(msgspec.Struct, frozen=True, tag="holds"):
    """From now on this thread is the one of its exclusive task that may work, and no other."""

    task: str
    thread: int
    slot: Slot


class Joined(msgspec.Struct, frozen=True, tag="joined"):
    """A VM is there, with these slots."""

    vm: Vm


class MachineAsked(msgspec.Struct, frozen=True, tag="machine_asked"):
    """A VM will be asked of the provider: written before it is."""

    vm: Vm


class MachineReleased(msgspec.Struct, frozen=True, tag="machine_released"):
    """A VM will be given back: written before it is."""

    vm: str
    why: str


class Seen(msgspec.Struct, frozen=True, tag="seen"):
    """An operator cleared a hold, or changed the mode."""

    mode: str
    wall_ns: int


class StateLost(msgspec.Struct, frozen=True, tag="state_lost"):
    """Key ranges of a task, as (first, how many), went on at `thread` without (all of) their state."""

    task: str
    thread: int
    ranges: tuple[tuple[int, int], ...]
    wall_ns: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """This life ended as it should."""

    wall_ns: int


Record = (
    Booted
    | Submitted
    | Planned
    | Entered
    | Adopted
    | Gone
    | Scheduled
    | Draining
    | HandedOver
    | HeldDead
    | Holds
    | Joined
    | MachineAsked
    | MachineReleased
    | Seen
    | StateLost
    | Ended
)


class Reign(msgspec.Struct, frozen=True):
    """When a plan was decided, switched to, in force, committed (UTC ns, 0: not yet), for the summary."""

    epoch: int
    reason: str
    rate_tps: float
    slots: int
    decided_ns: int
    switched_ns: int = 0
    in_force_ns: int = 0
    committed_ns: int = 0
    rolled_back: bool = False
    abandoned: str = ""


class Durable(msgspec.Struct, frozen=True):
    """Everything a controller must still know after it was killed.

    reign: the enactment whose wanted state agents are held to, in phase `phase`, begun at
    `phase_wall_ns`. waiting: decided, its machines still awaited. before: the plan to go back to.
    started_ns: when the first tuple was due (UTC). machines: VMs had from the provider; released: given
    back to it. joined: VMs ever seen, with their slots. holders: of each exclusive task the thread that
    may work, or that did last. apart: leaving source threads with open positions whose successors read.
    state_lost: task → its key ranges that went on without their state."""

    boot: int = 0
    lives: tuple[tuple[int, int], ...] = ()  # (began, ended as it should or 0) in UTC ns
    run: Submitted | None = None
    reign: Planned | None = None
    phase: Phase = "none"
    phase_wall_ns: int = 0
    waiting: Planned | None = None
    before: Planned | None = None
    schedule: Schedule | None = None
    started_ns: int = 0
    draining: str = ""
    draining_ns: int = 0
    held_dead: tuple[str, ...] = ()
    holders: tuple[Holds, ...] = ()
    apart: tuple[HandedOver, ...] = ()
    machines: tuple[Vm, ...] = ()
    released: tuple[str, ...] = ()
    joined: tuple[Vm, ...] = ()
    mode: str = ""
    cleared_ns: int = 0
    next_epoch: int = 1
    next_thread: int = 0
    next_routes: int = 1
    reigns: tuple[Reign, ...] = ()
    state_lost: dict[str, tuple[tuple[int, int], ...]] = {}


def fold(d: Durable, record: Record) -> Durable:
    """What is known after `record`; knows no clock and no order but that of the records."""
    after: Durable = _FOLDS[type(record)](d, record)
    return after


def fold_all(records: tuple[Record, ...]) -> Durable:
    durable = Durable()
    for record in records:
        durable = fold(durable, record)
    return durable


def _booted(d: Durable, r: Booted) -> Durable:
    return replace(d, boot=r.boot, lives=(*d.lives[-ENDED_BY_NOW:], (r.wall_ns, 0)))


def _submitted(d: Durable, r: Submitted) -> Durable:
    return replace(d, run=r)


def _planned(d: Durable, r: Planned) -> Durable:
    reign = Reign(r.epoch, r.reason, r.plan.rate_tps, r.plan.slots.used, r.wall_ns)
    reigns = tuple(
        replace(known, rolled_back=True) if known.epoch == r.undoes else known for known in d.reigns
    )
    d = replace(
        d,
        reigns=(*reigns, reign),
        next_epoch=r.epoch + 1,
        next_thread=r.next_thread,
        next_routes=r.routes_number + 1,
    )
    if r.awaits:
        return replace(d, waiting=r)
    return _reigning(d, r, r.wall_ns)


def _reigning(d: Durable, r: Planned, wall_ns: int) -> Durable:
    """Agents are held to `r` from now on."""
    before = d.before
    if d.reign is not None and d.phase in ALL_GO_BY_IT and d.reign.epoch != r.undoes:
        before = d.reign
    return replace(d, reign=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)


def _entered(d: Durable, r: Entered) -> Durable:
    if r.phase == "abandoned":
        waiting = None if d.waiting is not None and d.waiting.epoch == r.epoch else d.waiting
        return _mark(replace(d, waiting=waiting), r.epoch, abandoned=r.why)
    if r.phase == "prepared":
        assert d.waiting is not None and d.waiting.epoch == r.epoch, "only what waits can be prepared"
        return _reigning(d, _still_there(d.waiting, d.reign), r.wall_ns)
    d = replace(d, phase=r.phase, phase_wall_ns=r.wall_ns)
    stamps = {"switched": "switched_ns", "probation": "in_force_ns", "committed": "committed_ns"}
    return _mark(d, r.epoch, **{stamps[r.phase]: r.wall_ns})


def _still_there(waiting: Planned, reign: Planned | None) -> Planned:
    """`waiting` without the leaving threads that ended while it waited for its machines."""
    there = {thread.thread for thread in reign.threads} if reign is not None else set()
    kept = tuple(t for t in waiting.threads if not t.leaving or t.thread in there)
    return replace(waiting, threads=kept, already=tuple(n for n in waiting.already if n in there))


def _mark(d: Durable, epoch: int, **changes: Any) -> Durable:
    reigns = tuple(replace(r, **changes) if r.epoch == epoch else r for r in d.reigns)
    return replace(d, reigns=reigns)


def _adopted(d: Durable, r: Adopted) -> Durable:
    if d.reign is None or d.reign.epoch != r.epoch:
        return d
    return replace(d, reign=replace(d.reign, plan=r.plan, degraded=r.degraded))


def _gone(d: Durable, r: Gone) -> Durable:
    if d.reign is None or d.reign.epoch != r.epoch:
        return d
    gone = set(r.threads)
    threads = tuple(t for t in d.reign.threads if t.thread not in gone)
    modelled = {n: tps for n, tps in d.reign.modelled_tps.items() if n not in gone}
    return replace(d, reign=replace(d.reign, threads=threads, modelled_tps=modelled))


def _scheduled(d: Durable, r: Scheduled) -> Durable:
    return replace(d, schedule=r.schedule, started_ns=d.started_ns or r.schedule.start_ns)


def _draining(d: Durable, r: Draining) -> Durable:
    return replace(d, draining=r.reason, draining_ns=r.wall_ns)


def _held_dead(d: Durable, r: HeldDead) -> Durable:
    return replace(d, held_dead=r.vms)


def _handed_over(d: Durable, r: HandedOver) -> Durable:
    others = tuple(known for known in d.apart if known.thread != r.thread)
    return replace(d, apart=(*others, r) if r.acked < r.emitted else others)


def _holds(d: Durable, r: Holds) -> Durable:
    return replace(d, holders=(*(known for known in d.holders if known.task != r.task), r))


def _joined(d: Durable, r: Joined) -> Durable:
    return replace(d, joined=(*(vm for vm in d.joined if vm.vm != r.vm.vm), r.vm))


def _machine_asked(d: Durable, r: MachineAsked) -> Durable:
    return replace(
        d,
        machines=(*(vm for vm in d.machines if vm.vm != r.vm.vm), r.vm),
        released=tuple(vm for vm in d.released if vm != r.vm.vm),
    )


def _machine_released(d: Durable, r: MachineReleased) -> Durable:
    return replace(
        d,
        machines=tuple(vm for vm in d.machines if vm.vm != r.vm),
        released=(*(vm for vm in d.released if vm != r.vm), r.vm),
        joined=tuple(vm for vm in d.joined if vm.vm != r.vm),
        held_dead=tuple(vm for vm in d.held_dead if vm != r.vm),
    )


def _seen(d: Durable, r: Seen) -> Durable:
    return replace(d, mode=r.mode, cleared_ns=r.wall_ns)


def _state_lost(d: Durable, r: StateLost) -> Durable:
    lost = runs_of(of_runs(d.state_lost.get(r.task, ())) | of_runs(r.ranges))
    return replace(d, state_lost={**d.state_lost, r.task: lost})


def _ended(d: Durable, r: Ended) -> Durable:
    if not d.lives:
        return d
    return replace(d, lives=(*d.lives[:-1], (d.lives[-1][0], r.wall_ns)))


_FOLDS: dict[type, Any] = {
    Booted: _booted,
    Submitted: _submitted,
    Planned: _planned,
    Entered: _entered,
    Adopted: _adopted,
    Gone: _gone,
    Scheduled: _scheduled,
    Draining: _draining,
    HandedOver: _handed_over,
    HeldDead: _held_dead,
    Holds: _holds,
    Joined: _joined,
    MachineAsked: _machine_asked,
    MachineReleased: _machine_released,
    Seen: _seen,
    StateLost: _state_lost,
    Ended: _ended,
}
