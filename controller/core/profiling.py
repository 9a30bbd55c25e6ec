"""Profiles in spare slots (decision 13): which task is measured, where, why, and when that must end. Pure.

Of a run: only while a committed plan is in force and nothing moves, in a slot without threads and worker that control
groups bind, for so many minutes of each hour. Nothing is planned with what is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean

import msgspec
from msgspec.structs import replace

from headgate.controller.core.decisions import present
from headgate.controller.knowledge.diagnoses import Residual
from headgate.controller.knowledge.journal_records import (
    SubmissionDropped,
    SubmissionTaken,
    TaskMeasured,
)
from headgate.controller.knowledge.knowledge import FirstProfile, Knowledge, Turn
from headgate.controller.knowledge.loop_events import Distrust, Event, FromVm, KeepModel, Now
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.run_view import Measuring, TaskMeasuring
from headgate.controller.models.model_data import model_of
from headgate.controller.models.plans import Plan
from headgate.controller.models.task_models import Model, cpu, peak
from headgate.controller.plan.predict.slot_fit import fitted, near
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.wire.report_messages import Profiled, ProfileSpec
from headgate.topology_runtime.wording import counted, significant

NS = 1_000_000_000
HOUR_NS = 3600 * NS
LEAST_S, MOST_S = 10.0, 120.0  # of one profile: less measures nothing, more keeps others waiting
ANSWER_S = 10.0  # after its budget an agent has so long to say how it ended
DIFFERS = 0.2  # measured and predicted, relative: more than a model's usual error
CPU_LEAST = 0.05  # of a slot, predicted: below it the ratio is noise
BOUND = ("cgroup1", "cgroup2")
MODEL_MOST_BYTES = 1 << 18
NEVER_NS = 1 << 62


@dataclass(frozen=True, slots=True, order=True)
class Doubt:
    """Why a task's model should be measured again; the lowest is the most in doubt."""

    kind: int  # stale, differs, one probe, age
    size: float
    when: str
    place: int
    task: str
    why: str


# ── which task ──────────────────────────────────────────────────────────────────────────────────


def doubts(
    topology: Topology, models: Mapping[str, Model], stale: Mapping[str, str], off: Mapping[str, float]
) -> list[Doubt]:
    """The tasks that may be profiled, the most doubtful model first. stale: model → why it may no longer
    hold; off: task → how far measured and predicted are apart (`errors`)."""
    found: dict[str, Doubt] = {}
    for place, task in enumerate(topology.breadth_first):
        model = models.get(task.model_name)
        ends = topology.in_edges(task.name), topology.out_edges(task.name)
        if model is None or task.static is not None or task.exclusive or not all(ends):
            continue
        if task.side_effects:
            continue
        doubt = _doubt(task.name, place, model, stale.get(model.task), off.get(task.name, 0.0))
        found[model.task] = min(doubt, found.get(model.task, doubt))
    return sorted(found.values())


def _doubt(task: str, place: int, model: Model, stale: str | None, off: float) -> Doubt:
    when = str(model.more.get("measured_at", ""))
    if stale is not None:
        return Doubt(0, 0.0, when, place, task, f"its model may no longer hold: {stale}")
    if off > DIFFERS:
        return Doubt(1, -off, when, place, task, f"measured and predicted are {off:.0%} apart")
    if _probed_once(model):
        return Doubt(2, 0.0, when, place, task, "a point of its model rests on one probe")
    words = f"measured {when[:10]}" if when else "it does not say when it was measured"
    return Doubt(3, 0.0, when, place, task, f"its model is the oldest ({words})")


def _probed_once(model: Model) -> bool:
    points = model.more.get("points", ())
    return any(isinstance(point, dict) and point.get("trials") == 1 for point in points)


def errors(residuals: Iterable[Residual], plan: Plan) -> dict[str, float]:
    """Task → |measured / predicted − 1|, the largest of its rate and the CPU of the slots it is in."""
    found: dict[str, float] = {}
    in_slot: dict[str, set[str]] = {}
    for bundle in plan.placement.bundles:
        in_slot.setdefault(str(bundle.slot), set()).add(bundle.task)
    for residual in residuals:
        tasks: Iterable[str] = (residual.where,) if residual.what == "rate" else ()
        if residual.what == "cpu" and residual.predicted >= CPU_LEAST:
            tasks = in_slot.get(residual.where, ())
        for task in tasks:
            found[task] = max(found.get(task, 0.0), abs(residual.ratio - 1.0))
    return found


# ── where, and for how long ─────────────────────────────────────────────────────────────────────


def spare_slots(k: Knowledge) -> list[Slot]:
    """Slots that nobody uses; the one that a plan would take last comes first."""
    taken = _used(k) | k.withheld
    vms = [m.vm for m in k.members.up() if m.binding in BOUND and m.vm.vm not in k.durable.held_dead]
    slots = [slot for vm in vms for slot in vm.all_slots() if slot not in taken]
    return sorted((slot for slot in slots if not has_worker(slot, k.members)), reverse=True)


def _used(k: Knowledge) -> set[Slot]:
    """Slots with threads now or soon."""
    d = k.durable
    return {slot for planned in (d.rollout, d.waiting) if planned is not None for slot in planned.slots}


def has_worker(slot: Slot, members: Membership) -> bool:
    worker = members.workers.get(slot)
    return worker is not None and worker.state != "exited"


def budget_left_s(spent: Iterable[tuple[int, int]], minutes: float, now_ns: int) -> float:
    """Of `minutes` per hour, after profiles from … to (monotonic ns)."""
    since_ns = now_ns - HOUR_NS
    return minutes * 60 - sum(max(0, end - max(begin, since_ns)) for begin, end in spent) / NS


def _moves(k: Knowledge) -> str:
    """What goes on that no profile may disturb; empty when nothing does."""
    d = k.durable
    if k.ending.stage != "running" or d.draining:
        return "the run ends"
    if d.rollout is None or d.waiting is not None or d.phase != "committed" or d.rollout.leaving:
        return "another plan comes into force"
    return "no plan is made by itself" if k.members.mass_loss or k.held else ""


# ── beginning and ending ────────────────────────────────────────────────────────────────────────


def consider(turn: Turn, residuals: Iterable[Residual]) -> None:
    """Begin a profile if there is a spare slot, a task to measure in it, and time."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    minutes, known = k.settings.profile_spare_min, k.profiles
    if not minutes or known.desired is not None or k.topology is None or k.plan is None:
        return
    budget_s = min(MOST_S, budget_left_s(known.spent, minutes, now_ns))
    if budget_s < LEAST_S or _moves(k):
        return
    slots = spare_slots(k)
    for doubt in doubts(k.topology, k.models, k.settings.stale, errors(residuals, k.plan)):
        slot = _beside(doubt.task, slots, k)
        if slot is not None and now_ns >= known.again_ns.get(doubt.task, 0):
            known.desired = ProfileSpec(doubt.task, slot, turn.now.wall_ns, budget_s)
            known.began_ns = now_ns
            turn.event("profile", f"{doubt.task} is profiled in spare slot {slot}: {doubt.why}")
            return


def _beside(task: str, slots: Iterable[Slot], k: Knowledge) -> Slot | None:
    """The first of these slots on a VM where the task works."""
    rollout = k.durable.rollout
    vms = (
        {thread.slot.vm for thread in rollout.threads if thread.task == task}
        if rollout is not None
        else set()
    )
    return next((slot for slot in slots if slot.vm in vms), None)


def watch(turn: Turn) -> None:
    """End the profile as soon as anything needs its slot, or it has had its time."""
    k = turn.knowledge
    desired = k.profiles.desired
    if desired is None:
        return
    late_s = (turn.now.mono_ns - k.profiles.began_ns) / NS - desired.budget_s
    why = ""
    if desired.slot in _used(k):
        why = "its slot is needed"
    elif desired.slot.vm not in k.members.here:
        why = f"{desired.slot.vm} is gone"
    elif late_s > ANSWER_S:
        why = "its agent does not say how it ended"
    why = why or _moves(k)
    if why:
        seconds = _over(turn, desired)
        text = f"the profile of {desired.task} in {desired.slot} was stopped after {seconds:.0f} s: {why}"
        turn.event("profile", text)


def _over(turn: Turn, desired: ProfileSpec, leave_ns: int = 0) -> float:
    """It is no longer desired, nor again for so long; how many seconds it was."""
    known, now_ns = turn.knowledge.profiles, turn.now.mono_ns
    known.desired = None
    known.spent = [part for part in known.spent if part[1] > now_ns - HOUR_NS]
    known.spent.append((known.began_ns, now_ns))
    if leave_ns:
        known.again_ns[desired.task] = now_ns + leave_ns
    return (now_ns - known.began_ns) / NS


# ── what came of it ─────────────────────────────────────────────────────────────────────────────


def spare_profile_heard(turn: Turn, said: Profiled) -> None:
    """An agent says how its profile ended."""
    k = turn.knowledge
    desired = k.profiles.desired
    if desired is None or (desired.number, desired.slot.vm) != (said.number, said.vm) or k.topology is None:
        return
    before = k.models[k.topology.by_name[desired.task].model_name]
    data, found = model_said(said.model, before.task)
    if said.model and found is None:
        turn.do(Distrust(said.vm, "an invalid model"))
    if found is None or said.error:
        seconds = _over(turn, desired, NEVER_NS)
        why = said.error or "nothing was measured"
        text = f"the profile of {desired.task} in {desired.slot} failed after {seconds:.0f} s: {why}"
        turn.event("profile", text, level="warning")
        return
    complete = data.get("complete") is True
    seconds = _over(turn, desired, HOUR_NS if complete else 0)
    source = {"vm": said.vm, "slot": desired.slot.number, "seconds": round(seconds, 1)}
    turn.do(KeepModel({**data, "provenance": "background", "profiled": source}))
    part = "" if complete else " so far"
    text = f"{desired.task} was profiled in {desired.slot}, {seconds:.0f} s{part}: {_change(before, found)}"
    turn.event("profiled", text, task=desired.task, model=before.task)


def model_said(said: bytes, name: str) -> tuple[dict[str, object], Model | None]:
    """(plain data, the model); None when these bytes are no model of that name."""
    if not said or len(said) > MODEL_MOST_BYTES:
        return {}, None
    try:
        data = msgspec.json.decode(said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}, None
    found, _ = model_of(data)
    return (data, found) if found is not None and found.task == name else ({}, None)


def _change(before: Model, after: Model) -> str:
    """The best rate of one slot and its CPU, old → new."""
    (old_tps, old_threads), (new_tps, new_threads) = peak(before), peak(after)
    return (
        f"peak {significant(old_tps)} → {significant(new_tps)} rows/s ({new_tps / old_tps - 1:+.0%}), "
        f"threads {old_threads} → {new_threads}, "
        f"CPU {cpu(before, old_threads):.0%} → {cpu(after, new_threads):.0%} of a slot"
    )


# ── Models that a submission lacks, measured in free slots of the hosts before it is planned (decision 42):
# each on every kind of machine that is there, in slots of the size that the first VM has; planned is with the
# one of the lowest peak. One profile in a slot, and on a VM in half of its slots at once.

BUDGET_S = 600.0  # of one profile; one takes half a minute
BEGIN_S = 30.0  # an agent that has its package begins within a second
USUAL_S = 20.0  # of one profile, until one is over
AT_ONCE = 2  # one slot of so many of a VM is measured in at the same time


@dataclass(frozen=True, slots=True, order=True)
class Lacking:
    """A model that is to be measured, by which task, on what kind of machine."""

    place: int
    machine: str
    model: str
    task: str


# ── what is lacking ─────────────────────────────────────────────────────────────────────────────


def unmodelled(topology: Topology, models: Iterable[Model]) -> dict[str, str]:
    """Model that is not there → the first task that uses it; if it can be, one that samples may be run on."""
    there, found = {model.task for model in models}, dict[str, str]()
    for task in sorted(topology.breadth_first, key=lambda task: task.name in topology.unsampled):
        if task.static is None and task.model_name not in there:
            found.setdefault(task.model_name, task.name)
    return found


def alike(k: Knowledge) -> tuple[Vm, ...]:
    """The VMs whose slots have as many cores as those of the first, and that have reported of what kind they are."""
    vms = [vm for vm in present(k) if k.members.members[vm.vm].machine]
    return tuple(vm for vm in vms if near(vm.slot_cores, vms[0].slot_cores))


def kinds_of(vms: Iterable[Vm], members: Membership) -> dict[str, list[Vm]]:
    """Kind of machine → its VMs."""
    found: dict[str, list[Vm]] = {}
    for vm in vms:
        found.setdefault(members.members[vm.vm].machine, []).append(vm)
    return found


def wanted(taken: SubmissionTaken, kinds: Iterable[str]) -> list[Lacking]:
    """Every model that the submission came without, on every kind."""
    submitted = taken.submitted
    tasks = unmodelled(submitted.topology, submitted.models)
    return sorted(
        Lacking(place, machine, model, task)
        for place, (model, task) in enumerate(tasks.items())
        for machine in kinds
    )


def lacking(k: Knowledge, kinds: Iterable[str]) -> list[Lacking]:
    """Of these, what is not measured yet."""
    assert k.durable.taken is not None
    known = {(model.task, model.slot.machine) for model in k.durable.measured}
    return [one for one in wanted(k.durable.taken, kinds) if (one.model, one.machine) not in known]


# ── going on ────────────────────────────────────────────────────────────────────────────────────


def go_on(turn: Turn, event: Event) -> None:
    """Start what can be started, end what must, and submit when nothing is lacking any more. What hosts say all the
    time changes nothing that the next tick does not see."""
    k = turn.knowledge
    if k.durable.taken is None:
        k.first.running.clear()
        return
    said = isinstance(event, FromVm) and not isinstance(event.message, Profiled)
    if said or turn.stage != "running" or turn.now.mono_ns < k.journal_retry_ns:
        return
    _watch(turn)
    kinds = kinds_of(alike(k), k.members)
    left = lacking(k, kinds)
    told = all(member.binding for member in k.members.up())  # in this life
    if kinds and not left and told:
        _finish(turn, kinds)
        return
    busy = {(profile.model, profile.machine) for profile in k.first.running.values()}
    for one in left:
        if (one.model, one.machine) in busy:
            continue
        fit = [vm for vm in kinds[one.machine] if vm.vm not in k.first.unfit]
        if not fit:
            why = "; ".join(f"{vm.vm}: {k.first.unfit[vm.vm]}" for vm in kinds[one.machine])
            drop(turn, f"task {one.task!r} could not be measured on any host", why)
            return
        _begin(turn, one, fit)


def _begin(turn: Turn, one: Lacking, vms: Iterable[Vm]) -> None:
    """In a free slot of the VM that does least, if there is one."""
    k = turn.knowledge
    used = [profile.spec.slot for profile in k.first.running.values()]
    out = k.withheld
    free: list[tuple[int, int, Slot]] = []
    for place, vm in enumerate(vms):
        at_once = sum(slot.vm == vm.vm for slot in used)
        free_now = (slot for slot in vm.all_slots() if slot not in out and slot not in used)
        slots = (slot for slot in free_now if not has_worker(slot, k.members))
        if at_once < max(1, vm.slots // AT_ONCE) and (slot := next(slots, None)) is not None:
            free.append((at_once, place, slot))
    if not free:
        return
    slot = min(free)[2]
    number = max(turn.now.wall_ns, max(k.first.running, default=0) + 1)
    spec = ProfileSpec(one.task, slot, number, BUDGET_S, samples=True)
    k.first.running[number] = FirstProfile(spec, one.model, one.machine, turn.now.mono_ns)
    turn.event("profile", f"{one.task} has no model and is measured in {slot}")


def _watch(turn: Turn) -> None:
    """Whose VM is gone, or says nothing, is measured elsewhere."""
    k = turn.knowledge
    for number, profile in list(k.first.running.items()):
        vm, task = profile.spec.slot.vm, profile.spec.task
        seconds = (turn.now.mono_ns - profile.began_ns) / NS
        if vm not in k.members.here:
            del k.first.running[number]
            turn.event("profile", f"{task} is measured elsewhere: {vm} is gone", level="warning")
        elif (seconds > BEGIN_S and not _runs(k.members, vm, number)) or seconds > BUDGET_S + ANSWER_S:
            begun = "does not begin" if seconds <= BUDGET_S + ANSWER_S else "does not say how it ended"
            _unfit(turn, number, f"its agent {begun}")


def _runs(members: Membership, vm: str, number: int) -> bool:
    report = members.members[vm].report
    return report is not None and any(at.number == number for at in report.profiles)


def _unfit(turn: Turn, number: int, why: str) -> None:
    first = turn.knowledge.first
    spec = first.running.pop(number).spec
    first.unfit[spec.slot.vm] = why
    turn.event("profile", f"{spec.task} could not be measured in {spec.slot}: {why}", level="warning")


def first_profile_heard(turn: Turn, said: Profiled) -> bool:
    """An agent says how a profile ended; False when it is another."""
    k = turn.knowledge
    profile = k.first.running.get(said.number)
    if profile is None or k.durable.taken is None or profile.spec.slot.vm != said.vm:
        return False
    spec = profile.spec
    _, found = model_said(said.model, profile.model)
    if said.model and found is None:
        turn.do(Distrust(said.vm, "an invalid model"))
    if said.of_task:
        drop(turn, f"task {spec.task!r} could not be measured in {spec.slot}", said.error)
    elif found is None or said.error:
        _unfit(turn, said.number, said.error or f"nothing was measured in {spec.budget_s:g} s")
    else:
        del k.first.running[said.number]
        seconds = (turn.now.mono_ns - profile.began_ns) / NS
        k.first.seconds.append(seconds)
        turn.record(TaskMeasured(replace(found, slot=replace(found.slot, machine=profile.machine))))
        tps, threads = peak(found)
        best = f"{significant(tps)} rows/s at best, by {counted(threads, 'thread')} in a slot"
        turn.event("profiled", f"{spec.task} was measured in {spec.slot}, {seconds:.0f} s: {best}")
    return True


def drop(turn: Turn, what: str, cause: str = "", hint: str = "") -> None:
    """The submission is not run."""
    k = turn.knowledge
    assert k.durable.taken is not None
    name = k.durable.taken.submitted.topology.name
    turn.record(SubmissionDropped(k.durable.taken.number, what, cause, hint))
    k.first.running.clear()
    k.first.unfit.clear()
    turn.event("dropped", f"{name} is not run: {what}" + (f": {cause}" if cause else ""), level="warning")


def _finish(turn: Turn, kinds: Mapping[str, list[Vm]]) -> None:
    """Plan with the models that were given, and of those measured with the slowest of each task."""
    k = turn.knowledge
    assert k.durable.taken is not None
    submitted, slowest = k.durable.taken.submitted, dict[str, Model]()
    for model in k.durable.measured:
        if model.slot.machine in kinds:
            slowest[model.task] = min(slowest.get(model.task, model), model, key=peak)
    first = present(k)[0]
    models = (*submitted.models, *slowest.values())
    try:
        fit = fitted(models, submitted.topology, first.slot_cores, first.slot_memory_bytes)
        turn.submit(replace(submitted, models=fit, wall_ns=turn.now.wall_ns))
    except HeadgateError as error:
        drop(turn, error.what, "; ".join(filter(None, (error.cause, *error.faults))), error.hint or "")
    k.first.running.clear()
    k.first.unfit.clear()


# ── what is shown ───────────────────────────────────────────────────────────────────────────────


def measuring(k: Knowledge, now: Now) -> Measuring | None:
    """How far it is; None when no submission waits."""
    taken = k.durable.taken
    if taken is None:
        return None
    kinds = kinds_of(alike(k), k.members)
    known = {(model.task, model.slot.machine) for model in k.durable.measured}
    at = {(profile.model, profile.machine): profile for profile in k.first.running.values()}
    tasks = tuple(
        _task(one, (one.model, one.machine) in known, at.get((one.model, one.machine)), k.members)
        for one in wanted(taken, kinds)
    )
    return Measuring(taken.number, taken.submitted.topology.name, taken.by, _left_s(k, kinds, now), tasks)


def _task(one: Lacking, known: bool, profile: FirstProfile | None, members: Membership) -> TaskMeasuring:
    if known or profile is None:
        return TaskMeasuring(one.task, one.model, one.machine, "measured" if known else "waiting")
    slot, number = profile.spec.slot, profile.spec.number
    member = members.members.get(slot.vm)
    said = member.report.profiles if member is not None and member.report is not None else ()
    done, of = next(((at.done, at.of) for at in said if at.number == number), (0, 0))
    return TaskMeasuring(one.task, one.model, one.machine, "measuring", str(slot), done, of)


def _left_s(k: Knowledge, kinds: Mapping[str, list[Vm]], now: Now) -> float | None:
    """About how long it still takes; None while no VM is there."""
    each_s = mean(k.first.seconds) if k.first.seconds else USUAL_S
    left = lacking(k, kinds)
    longest_s = 0.0
    for machine, vms in kinds.items():
        at_once = sum(max(1, vm.slots // AT_ONCE) for vm in vms)
        rounds = -(-sum(one.machine == machine for one in left) // at_once)
        began_ns = [p.began_ns for p in k.first.running.values() if p.machine == machine]
        spent_s = (now.mono_ns - min(began_ns)) / NS if began_ns else 0.0
        longest_s = max(longest_s, rounds * each_s - min(spent_s, each_s * (rounds > 0)))
    return round(longest_s, 1) if kinds else None


def may_plan(k: Knowledge) -> bool:
    """Nothing is on its way, and a plan may be made by itself."""
    return k.durable.phase == "committed" and not k.enacting and not k.hold and k.settings.plan is None
