"""Models that a submission lacks, measured in free slots of the hosts before it is planned. Pure. Rules (decision 42):

1. The submission is journaled when it is taken, and each model when it is measured: another life goes on with it.
2. A model is of one kind of machine (`Hello.machine`) and one size of slot. Each is measured on every kind that is
   there, in slots of the size that the first VM has; planned is with the one of the lowest peak.
3. One profile in a slot, and on a VM in half of its slots at once: what feeds a slot may need as much CPU.
4. A VM that is lost: its tasks go elsewhere. A VM that cannot measure is not asked again; when no other of its kind is
   left, or a task itself fails, the submission is dropped, with the name of the task and the cause.
5. Nothing is planned before all is measured; when it is dropped or withdrawn, agents are told to measure no more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import mean

from msgspec.structs import replace

from headgate.controller.core.deciding import present
from headgate.controller.core.spare_profiles import has_worker, model_said
from headgate.controller.knowledge.knowledge import FirstProfile, Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.models import Model, peak
from headgate.controller.knowledge.records import SubmissionDropped, SubmissionTaken, Submitted, TaskMeasured
from headgate.controller.knowledge.run_view import Measuring, TaskMeasuring
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Distrust, Event, FromVm, Now
from headgate.controller.plan.slot_fit import fitted, near
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.faults.words import counted, significant
from headgate.topology_runtime.profiles import Profiled, ProfileSpec
from headgate.topology_runtime.topology import Topology

NS = 1_000_000_000
BUDGET_S = 600.0  # of one profile; one takes half a minute
BEGIN_S = 30.0  # an agent that has its package begins within a second
ANSWER_S = 10.0  # after its budget it has so long to say how it ended
USUAL_S = 20.0  # of one profile, until one is over
AT_ONCE = 2  # one slot of so many of a VM is measured in at the same time

Submit = Callable[[Turn, Submitted], None]


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


def alike(k: Knowledge, members: Membership) -> tuple[Vm, ...]:
    """The VMs whose slots have as many cores as those of the first, and that have told of what kind they are."""
    vms = [vm for vm in present(k, members) if members.members[vm.vm].machine]
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


def go_on(turn: Turn, event: Event, members: Membership, stage: str, submit: Submit) -> None:
    """Begin what can be begun, end what must, and submit when nothing is lacking any more. What hosts say all the time
    changes nothing that the next tick does not see."""
    k = turn.knowledge
    if k.durable.taken is None:
        k.first.running.clear()
        return
    said = isinstance(event, FromVm) and not isinstance(event.message, Profiled)
    if said or stage != "running" or turn.now.mono_ns < k.journal_retry_ns:
        return
    _watch(turn, members)
    kinds = kinds_of(alike(k, members), members)
    left = lacking(k, kinds)
    told = all(member.binding for member in members.up())  # in this life
    if kinds and not left and told:
        _finish(turn, members, kinds, submit)
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
        _begin(turn, members, one, fit)


def _begin(turn: Turn, members: Membership, one: Lacking, vms: Iterable[Vm]) -> None:
    """In a free slot of the VM that does least, if there is one."""
    k = turn.knowledge
    used = [profile.spec.slot for profile in k.first.running.values()]
    free: list[tuple[int, int, Slot]] = []
    for place, vm in enumerate(vms):
        at_once = sum(slot.vm == vm.vm for slot in used)
        slots = (slot for slot in vm.all_slots() if slot not in used and not has_worker(slot, members))
        if at_once < max(1, vm.slots // AT_ONCE) and (slot := next(slots, None)) is not None:
            free.append((at_once, place, slot))
    if not free:
        return
    slot = min(free)[2]
    number = max(turn.now.wall_ns, max(k.first.running, default=0) + 1)
    spec = ProfileSpec(one.task, slot, number, BUDGET_S, samples=True)
    k.first.running[number] = FirstProfile(spec, one.model, one.machine, turn.now.mono_ns)
    turn.event("profile", f"{one.task} has no model and is measured in {slot}")


def _watch(turn: Turn, members: Membership) -> None:
    """Whose VM is gone, or says nothing, is measured elsewhere."""
    k = turn.knowledge
    for number, profile in list(k.first.running.items()):
        vm, task = profile.spec.slot.vm, profile.spec.task
        seconds = (turn.now.mono_ns - profile.began_ns) / NS
        if vm not in members.here:
            del k.first.running[number]
            turn.event("profile", f"{task} is measured elsewhere: {vm} is gone", level="warning")
        elif (seconds > BEGIN_S and not _runs(members, vm, number)) or seconds > BUDGET_S + ANSWER_S:
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


def heard(turn: Turn, said: Profiled) -> bool:
    """An agent says how a profile ended; False when it is none of these."""
    k = turn.knowledge
    profile = k.first.running.get(said.number)
    if profile is None or k.durable.taken is None or profile.spec.slot.vm != said.vm:
        return False
    spec = profile.spec
    _, found = model_said(said.model, profile.model)
    if said.model and found is None:
        turn.do(Distrust(said.vm, "a model that is none"))
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
        best = f"{significant(tps)} tuples/s at best, by {counted(threads, 'thread')} in a slot"
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


def _finish(turn: Turn, members: Membership, kinds: Mapping[str, list[Vm]], submit: Submit) -> None:
    """Plan with the models that were given, and of those measured with the slowest of each task."""
    k = turn.knowledge
    assert k.durable.taken is not None
    submitted, slowest = k.durable.taken.submitted, dict[str, Model]()
    for model in k.durable.measured:
        if model.slot.machine in kinds:
            slowest[model.task] = min(slowest.get(model.task, model), model, key=peak)
    first = present(k, members)[0]
    models = (*submitted.models, *slowest.values())
    try:
        fit = fitted(models, submitted.topology, first.slot_cores, first.slot_memory_bytes)
        submit(turn, replace(submitted, models=fit, wall_ns=turn.now.wall_ns))
    except HeadgateError as error:
        drop(turn, error.what, "; ".join(filter(None, (error.cause, *error.faults))), error.hint or "")
    k.first.running.clear()
    k.first.unfit.clear()


# ── what is shown ───────────────────────────────────────────────────────────────────────────────


def measuring(k: Knowledge, members: Membership, now: Now) -> Measuring | None:
    """How far it is; None when no submission waits."""
    taken = k.durable.taken
    if taken is None:
        return None
    kinds = kinds_of(alike(k, members), members)
    known = {(model.task, model.slot.machine) for model in k.durable.measured}
    at = {(profile.model, profile.machine): profile for profile in k.first.running.values()}
    tasks = tuple(
        _task(one, (one.model, one.machine) in known, at.get((one.model, one.machine)), members)
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
