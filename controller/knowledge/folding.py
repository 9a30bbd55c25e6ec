"""How records add up to what is known: `fold`. Pure.

Live and in recovery alike, so that whatever was journaled is what is known, and taking back a record that could not
be written means keeping the value from before.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from headgate.controller.knowledge.records import (
    ALL_GO_BY_IT,
    Adopted,
    Booted,
    Cordoned,
    Draining,
    Durable,
    Ended,
    EventsGone,
    Gone,
    HandedOver,
    HeldDead,
    HoldCleared,
    Holds,
    Joined,
    MachineAsked,
    MachineReleased,
    Modelled,
    OfferTaken,
    PhaseEntered,
    PlanHeld,
    Recoded,
    Record,
    Rollout,
    RolloutStarted,
    Scheduled,
    SoFar,
    StandIn,
    StateLost,
    SubmissionDropped,
    SubmissionTaken,
    Submitted,
    TaskMeasured,
)
from headgate.topology_runtime.task_code import TaskCode
from headgate.topology_runtime.worker.ranges import of_runs, runs_of

ENDED_BY_NOW = 64  # boots whose times are kept: enough to see a row of crashes
REIGNS_KEPT = 1000  # the first and the newest ones; of the others only how many there were


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
    number = d.taken.number if d.taken is not None else 0
    return replace(d, run=r, taken=None, accepted=number)


def _taken(d: Durable, r: SubmissionTaken) -> Durable:
    return replace(d, taken=r, measured=r.known)


def _task_measured(d: Durable, r: TaskMeasured) -> Durable:
    of = r.model.task, r.model.slot.machine
    others = tuple(model for model in d.measured if (model.task, model.slot.machine) != of)
    return replace(d, measured=(*others, r.model))


def _dropped(d: Durable, r: SubmissionDropped) -> Durable:
    return replace(d, taken=None, dropped=r)


def _planned(d: Durable, r: RolloutStarted) -> Durable:
    slots, awaited = r.plan.slots.used, bool(r.awaits)
    rollout = Rollout(r.epoch, r.reason, r.plan.rate_tps, slots, r.wall_ns, awaited=awaited, plan=r.plan.id)
    rollouts = tuple(
        replace(known, rolled_back=True) if known.epoch == r.undoes else known for known in d.rollouts
    )
    d = replace(
        _with_rollouts(d, (*rollouts, rollout)),
        next_epoch=r.epoch + 1,
        next_thread=r.next_thread,
        next_routes=r.routes_number + 1,
    )
    if r.undoes:
        d = _held_but(d, r.undoes)
    if not r.undoes and r.reason != "rollback":  # it was made with the models that there are
        d = replace(d, refits={})
    if r.awaits:
        return replace(d, waiting=r)
    return _reigning(d, r, r.wall_ns)


def _with_rollouts(d: Durable, rollouts: tuple[Rollout, ...]) -> Durable:
    """A run of months has many: the first, which started it, and the newest are kept."""
    if len(rollouts) <= REIGNS_KEPT:
        return replace(d, rollouts=rollouts)
    first, old, *newest = rollouts
    dropped = d.rollouts_dropped
    if not old.abandoned:
        dropped = {**dropped, old.reason: dropped.get(old.reason, 0) + 1}
    return replace(d, rollouts=(first, *newest), rollouts_dropped=dropped)


def _reigning(d: Durable, r: RolloutStarted, wall_ns: int) -> Durable:
    """Agents are held to `r` from now on."""
    before = d.before
    if d.rollout is not None and d.phase in ALL_GO_BY_IT and d.rollout.epoch != r.undoes:
        before = d.rollout
    return replace(d, rollout=r, waiting=None, before=before, phase="prepared", phase_wall_ns=wall_ns)


def _entered(d: Durable, r: PhaseEntered) -> Durable:
    if r.phase == "abandoned":
        waiting = None if d.waiting is not None and d.waiting.epoch == r.epoch else d.waiting
        return _mark(_held_but(replace(d, waiting=waiting), r.epoch), r.epoch, abandoned=r.why)
    if r.phase == "prepared":
        assert d.waiting is not None and d.waiting.epoch == r.epoch, "only what waits can be prepared"
        return _reigning(d, _still_there(d.waiting, d.rollout), r.wall_ns)
    d = replace(d, phase=r.phase, phase_wall_ns=r.wall_ns)
    stamps = {"switched": "switched_ns", "probation": "in_force_ns", "committed": "committed_ns"}
    return _mark(d, r.epoch, **{stamps[r.phase]: r.wall_ns})


def _still_there(waiting: RolloutStarted, rollout: RolloutStarted | None) -> RolloutStarted:
    """`waiting` without the leaving threads that ended while it waited for its machines."""
    there = {thread.thread for thread in rollout.threads} if rollout is not None else set()
    kept = tuple(t for t in waiting.threads if not t.leaving or t.thread in there)
    return replace(waiting, threads=kept, already=tuple(n for n in waiting.already if n in there))


def _mark(d: Durable, epoch: int, **changes: Any) -> Durable:
    rollouts = tuple(replace(r, **changes) if r.epoch == epoch else r for r in d.rollouts)
    return replace(d, rollouts=rollouts)


def _adopted(d: Durable, r: Adopted) -> Durable:
    if d.rollout is None or d.rollout.epoch != r.epoch:
        return d
    return replace(d, rollout=replace(d.rollout, plan=r.plan, degraded=r.degraded), refits={})


def _gone(d: Durable, r: Gone) -> Durable:
    if d.rollout is None or d.rollout.epoch != r.epoch:
        return d
    gone = set(r.threads)
    threads = tuple(t for t in d.rollout.threads if t.thread not in gone)
    modelled = {n: tps for n, tps in d.rollout.modelled_tps.items() if n not in gone}
    return replace(d, rollout=replace(d.rollout, threads=threads, modelled_tps=modelled))


def _modelled(d: Durable, r: Modelled) -> Durable:
    if d.run is None:
        return d
    fresh = {model.task: model for model in r.models}
    return replace(d, run=replace(d.run, models=tuple(fresh.get(m.task, m) for m in d.run.models)))


def _offer_taken(d: Durable, r: OfferTaken) -> Durable:
    d = _modelled(d, Modelled(r.models, r.wall_ns))
    season = r.season if r.season is not None else d.season
    return replace(d, refit_s=d.refit_s | r.seconds, refits=d.refits | r.texts, season=season)


def _scheduled(d: Durable, r: Scheduled) -> Durable:
    return replace(d, schedule=r.schedule, started_ns=d.started_ns or r.schedule.start_ns)


def _draining(d: Durable, r: Draining) -> Durable:
    return replace(d, draining=r.reason, draining_ns=r.wall_ns)


def _held_dead(d: Durable, r: HeldDead) -> Durable:
    return replace(d, held_dead=r.vms)


def _handed_over(d: Durable, r: HandedOver) -> Durable:
    others = tuple(known for known in d.apart if known.thread != r.thread)
    return replace(d, apart=(*others, r) if r.acked < r.emitted else others)


def _stand_in(d: Durable, r: StandIn) -> Durable:
    if d.rollout is None:
        return d
    number = r.thread.thread
    apart = tuple(replace(gap, thread=number) if gap.thread == r.lost else gap for gap in d.apart)
    modelled = d.rollout.modelled_tps.get(r.lost)
    tps = d.rollout.modelled_tps | ({number: modelled} if modelled is not None else {})
    rollout = replace(d.rollout, threads=(*d.rollout.threads, r.thread), modelled_tps=tps)
    return replace(d, rollout=rollout, apart=apart, next_thread=number + 1)


def _holds(d: Durable, r: Holds) -> Durable:
    return replace(d, holders=(*(known for known in d.holders if known.task != r.task), r))


def _joined(d: Durable, r: Joined) -> Durable:
    return replace(d, joined=(*(vm for vm in d.joined if vm.vm != r.vm.vm), r.vm))


def _machine_asked(d: Durable, r: MachineAsked) -> Durable:
    return replace(
        d,
        machines=(*(vm for vm in d.machines if vm.vm != r.vm.vm), r.vm),
        asked_ns=d.asked_ns | {r.vm.vm: r.wall_ns},
        released=tuple(vm for vm in d.released if vm != r.vm.vm),
    )


def _machine_released(d: Durable, r: MachineReleased) -> Durable:
    return replace(
        d,
        machines=tuple(vm for vm in d.machines if vm.vm != r.vm),
        asked_ns={vm: at_ns for vm, at_ns in d.asked_ns.items() if vm != r.vm},
        released=(*(vm for vm in d.released if vm != r.vm), r.vm),
        joined=tuple(vm for vm in d.joined if vm.vm != r.vm),
        held_dead=tuple(vm for vm in d.held_dead if vm != r.vm),
        cordoned={vm: drains for vm, drains in d.cordoned.items() if vm != r.vm},
    )


def _seen(d: Durable, r: HoldCleared) -> Durable:
    return replace(d, mode=r.mode, cleared_ns=r.wall_ns, held_plan=None)


def _plan_held(d: Durable, r: PlanHeld) -> Durable:
    return replace(d, held_plan=r)


def _held_but(d: Durable, epoch: int) -> Durable:
    """The enactment of this number failed: if it was to be held, nothing is."""
    return replace(d, held_plan=None) if d.held_plan is not None and d.held_plan.epoch == epoch else d


def _state_lost(d: Durable, r: StateLost) -> Durable:
    lost = runs_of(of_runs(d.state_lost.get(r.task, ())) | of_runs(r.ranges))
    return replace(d, state_lost={**d.state_lost, r.task: lost})


def _events_gone(d: Durable, r: EventsGone) -> Durable:
    others = {vm: events for vm, events in d.events_gone.items() if vm != r.vm}
    return replace(d, events_gone=others | ({r.vm: r.events} if r.events else {}))


def _cordoned(d: Durable, r: Cordoned) -> Durable:
    return replace(d, cordoned=dict(r.vms))


def _recoded(d: Durable, r: Recoded) -> Durable:
    """The one before is kept, so that it may come back, and those that threads run."""
    if d.run is None:
        return d
    before = TaskCode(d.code, d.run.topology, d.run.user_paths, d.run.package)
    used = {thread.code for one in (d.rollout, d.waiting) if one is not None for thread in one.threads}
    kept = (code for code in d.codes if code.number in used)
    codes = {code.number: code for code in (*kept, before) if code.number != r.code.number}
    models = {model.task: model for model in (*d.run.models, *r.models)}
    run = replace(
        d.run,
        topology=r.code.topology,
        user_paths=r.code.user_paths,
        package=r.code.package,
        models=tuple(models.values()),
    )
    made = max(d.codes_made, r.code.number + 1)
    return replace(
        d,
        run=run,
        code=r.code.number,
        codes=tuple(codes.values()),
        codes_made=made,
        recoded_ns=r.wall_ns,
        given_up_code=r.by_itself,
    )


def _ended(d: Durable, r: Ended) -> Durable:
    if not d.lives:
        return d
    return replace(d, lives=(*d.lives[:-1], (d.lives[-1][0], r.wall_ns)))


def _so_far(_: Durable, r: SoFar) -> Durable:
    return r.durable


_FOLDS: dict[type, Any] = {
    Booted: _booted,
    Submitted: _submitted,
    SubmissionTaken: _taken,
    TaskMeasured: _task_measured,
    SubmissionDropped: _dropped,
    RolloutStarted: _planned,
    PhaseEntered: _entered,
    Adopted: _adopted,
    Gone: _gone,
    Scheduled: _scheduled,
    Modelled: _modelled,
    OfferTaken: _offer_taken,
    Draining: _draining,
    HandedOver: _handed_over,
    StandIn: _stand_in,
    HeldDead: _held_dead,
    Holds: _holds,
    Joined: _joined,
    MachineAsked: _machine_asked,
    MachineReleased: _machine_released,
    HoldCleared: _seen,
    PlanHeld: _plan_held,
    StateLost: _state_lost,
    EventsGone: _events_gone,
    Cordoned: _cordoned,
    Recoded: _recoded,
    Ended: _ended,
    SoFar: _so_far,
}
