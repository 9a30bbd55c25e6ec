"""Profiles in spare slots: which task is measured, where, why, and when that must end. Pure. Rules (decision 13):

1. Only while a committed plan is in force and nothing moves; whatever begins ends the profile.
2. In a slot without threads and worker, on a VM that has threads of the task (its rows stay there) and
   whose slots are bound by control groups.
3. Not sources, sinks, tasks of fixed size or exclusive ones: what they do twice is seen outside.
4. For `Settings.profile_spare_min` minutes of each hour at most, counted anew by a new controller.
5. The model that is most in doubt comes first. A task is left alone for an hour after its profile was
   complete, and for good after it failed; an interrupted profile goes on from what is known.
6. What is found is kept beside the run; nothing is planned with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from headgate.controller.knowledge.diagnoses import Residual
from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.membership import Membership
from headgate.controller.knowledge.model_data import model_of
from headgate.controller.knowledge.models import Model, cpu, peak
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.turn import Turn
from headgate.controller.knowledge.turns import Distrust, KeepModel
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.faults.words import significant
from headgate.topology_runtime.profiles import Profiled, ProfileSpec
from headgate.topology_runtime.topology import Topology

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
        if task.effects:
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


def spare_slots(k: Knowledge, members: Membership) -> list[Slot]:
    """Slots that nobody uses; the one that a plan would take last comes first."""
    taken = _used(k)
    vms = [m.vm for m in members.up() if m.binding in BOUND and m.vm.vm not in k.durable.held_dead]
    slots = [slot for vm in vms for slot in vm.all_slots() if slot not in taken]
    return sorted((slot for slot in slots if not has_worker(slot, members)), reverse=True)


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


def _moves(k: Knowledge, members: Membership, stage: str) -> str:
    """What goes on that no profile may disturb; empty when nothing does."""
    d = k.durable
    if stage != "running" or d.draining:
        return "the run ends"
    if d.rollout is None or d.waiting is not None or d.phase != "committed" or d.rollout.leaving:
        return "another plan comes into force"
    return "no plan is made by itself" if members.mass_loss or k.held else ""


# ── beginning and ending ────────────────────────────────────────────────────────────────────────


def consider(turn: Turn, members: Membership, residuals: Iterable[Residual], stage: str) -> None:
    """Begin a profile if there is a spare slot, a task to measure in it, and time."""
    k, now_ns = turn.knowledge, turn.now.mono_ns
    minutes, known = k.settings.profile_spare_min, k.profiles
    if not minutes or known.desired is not None or k.topology is None or k.plan is None:
        return
    budget_s = min(MOST_S, budget_left_s(known.spent, minutes, now_ns))
    if budget_s < LEAST_S or _moves(k, members, stage):
        return
    slots = spare_slots(k, members)
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


def watch(turn: Turn, members: Membership, stage: str) -> None:
    """End the profile as soon as anything needs its slot, or it has had its time."""
    k = turn.knowledge
    desired = k.profiles.desired
    if desired is None:
        return
    late_s = (turn.now.mono_ns - k.profiles.began_ns) / NS - desired.budget_s
    why = ""
    if desired.slot in _used(k):
        why = "its slot is needed"
    elif desired.slot.vm not in members.here:
        why = f"{desired.slot.vm} is gone"
    elif late_s > ANSWER_S:
        why = "its agent does not say how it ended"
    why = why or _moves(k, members, stage)
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


def heard(turn: Turn, said: Profiled) -> None:
    """An agent says how its profile ended."""
    k = turn.knowledge
    desired = k.profiles.desired
    if desired is None or (desired.number, desired.slot.vm) != (said.number, said.vm) or k.topology is None:
        return
    before = k.models[k.topology.by_name[desired.task].model_name]
    data, found = model_said(said.model, before.task)
    if said.model and found is None:
        turn.do(Distrust(said.vm, "a model that is none"))
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
        f"peak {significant(old_tps)} → {significant(new_tps)} tuples/s ({new_tps / old_tps - 1:+.0%}), "
        f"threads {old_threads} → {new_threads}, "
        f"CPU {cpu(before, old_threads):.0%} → {cpu(after, new_threads):.0%} of a slot"
    )
