"""The verifier: what any sound plan obeys, checked on the finished plan and nothing the mappers kept. Pure.

always      every thread is placed once, in a slot there is, and as many as allocated · tasks of one
            thread have one · rates follow GetRate · counts agree · the plan is of this topology and these
            models, and its routing and interference exist · shares of each task sum to one · the
            placement supports the predicted rate and the shares give the predicted use of slots · no VM's link
            has to carry more than it holds · by measured models no slot holds more memory than it has
by mapper   see `mapper_rules`; of a plan that kept threads where they were only what it carries and holds
replacing   the supported rate is no less than that of the plan it replaces, up to the planned rate
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from headgate.controller.models.plan_data import models_digest
from headgate.controller.models.plans import UNLIMITED_TPS, Plan
from headgate.controller.models.task_models import Model, unknown_tasks
from headgate.controller.plan.allocators.allocation_rules import lone_tasks
from headgate.controller.plan.mappers.mapper_rules import overdraft, unsupported
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.prediction import INTERFERENCES, ROUTINGS, slot_uses
from headgate.controller.plan.predict.slot_fit import overfull_slots
from headgate.controller.plan.predict.state_memory import in_slots
from headgate.controller.plan.predict.vm_links import overfull, too_much
from headgate.controller.plan.schedulers import MAPPERS
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import significant


def faults_of(
    plan: Plan,
    topology: Topology,
    models: Mapping[str, Model],
    replaces: Plan | None = None,
    by_mapper: bool = True,
) -> list[str]:
    """Every rule that `plan` breaks, in words; empty for a sound plan. `replaces`: the plan that it would
    take the place of, which runs and could stay. by_mapper: it was allocated and mapped by these models."""
    faults = [*_wrong_origin(plan, topology, models), *_wrong_rates(plan, topology)]
    faults += _misplaced(plan, topology)
    if faults:
        return [*faults, *_wrong_counts(plan)]  # the other rules take these for granted
    most = overdraft(topology, models)
    faults += [*_wrong_counts(plan), *_wrong_shares(plan), *_wrong_prediction(plan, topology, models)]
    mapper = MAPPERS.get(plan.mapper) if by_mapper else None
    rules = mapper.rules if mapper is not None else ()
    if plan.allocation.kept:
        rules = tuple(rule for rule in rules if rule is unsupported)
        faults += _overfull(plan)
    faults += [fault for rule in rules for fault in rule(plan, most)]
    if mapper is not None:
        faults += overfull_slots(plan.placement, topology, models, plan.vms, _states(plan))
    faults += [f"link: {too_much(link)}" for link in overfull(plan, topology)]
    faults += _worse(plan, replaces, most) if replaces is not None else ()
    return faults


def _overfull(plan: Plan) -> Iterator[str]:
    """Of threads that were kept: no slot is predicted to hold more than its memory."""
    for use in plan.prediction.slots:
        if use.memory > 1 + TOLERANCE:
            yield f"slot {use.vm}/{use.slot} would hold {use.memory:.4f} of its memory"


def _wrong_origin(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> Iterator[str]:
    if plan.topology_digest != topology.digest:
        yield f"plan is for another topology ({plan.topology_digest}, not {topology.digest})"
    elif plan.models_digest != models_digest(topology, models):
        yield "plan is from other models"
    if plan.routing not in ROUTINGS:
        yield f"unknown routing {plan.routing!r}, there are {', '.join(ROUTINGS)}"
    if plan.interference not in INTERFERENCES:
        yield f"unknown interference {plan.interference!r}, there are {', '.join(INTERFERENCES)}"
    if plan.allocation.allocator != plan.allocator:
        yield f"allocation is by {plan.allocation.allocator}, the plan says {plan.allocator}"


def _misplaced(plan: Plan, topology: Topology) -> Iterator[str]:
    slots = {slot for vm in plan.vms for slot in vm.all_slots()}
    bundles = Counter((bundle.slot, bundle.task) for bundle in plan.placement.bundles)
    placed = plan.placement.by_task()
    for bundle in plan.placement.bundles:
        if bundle.slot not in slots:
            yield f"slot {bundle.slot} of task {bundle.task!r} is in no VM of the plan"
        if bundle.threads < 1:
            yield f"slot {bundle.slot} has {bundle.threads} threads of task {bundle.task!r}"
    yield from (
        f"task {task!r} is listed twice in slot {slot}" for (slot, task), n in bundles.items() if n > 1
    )
    desired = {task.task: task.threads for task in plan.allocation.tasks}
    for name in desired.keys() | placed.keys():
        if placed[name] != desired.get(name, 0):
            yield f"task {name!r}: {placed[name]} threads are placed, {desired.get(name, 0)} allocated"
    lone = lone_tasks(topology)
    for task in plan.allocation.tasks:
        if task.task in lone and not task.static and task.threads != 1:
            yield f"task {task.task!r} runs in one thread only and has {task.threads}"


def _wrong_counts(plan: Plan) -> Iterator[str]:
    counts, used = plan.slots, plan.placement.slots_used()
    total = sum(vm.slots for vm in plan.vms)
    if counts.used != used or counts.total != total:
        yield f"slots: says {counts.used} of {counts.total} are used, has {used} of {total}"
    if counts.estimated != plan.allocation.slots:
        yield f"slots: says {counts.estimated} are estimated, the allocation {plan.allocation.slots}"
    names = Counter(vm.vm for vm in plan.vms)
    yield from (f"VM {vm!r} is listed {n} times" for vm, n in names.items() if n > 1)


def _wrong_rates(plan: Plan, topology: Topology) -> Iterator[str]:
    margin = plan.allocation.margin
    margin *= plan.prediction.sure.margin if plan.prediction.sure is not None else 1.0
    rates = topology.rates(plan.rate_tps * margin)
    if sorted(rates) != sorted(task.task for task in plan.allocation.tasks):
        yield "allocation: not the tasks of the topology, each once"
        return
    for task in plan.allocation.tasks:
        if not math.isclose(task.rate_tps, rates[task.task], rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            sees = significant(rates[task.task], 6)
            yield f"task {task.task!r}: allocated for {significant(task.rate_tps, 6)} rows/s, sees {sees}"
        if task.threads < 1:
            yield f"task {task.task!r} has no thread"


def _wrong_shares(plan: Plan) -> Iterator[str]:
    sums: defaultdict[str, float] = defaultdict(float)
    groups = {(bundle.slot, bundle.task) for bundle in plan.placement.bundles}
    for share in plan.prediction.shares:
        sums[share.task] += share.share
        if not -TOLERANCE <= share.share <= 1 + TOLERANCE:
            yield f"share of task {share.task!r} in slot {share.slot} is {share.share:g}"
        if (share.slot, share.task) not in groups:
            yield f"share of task {share.task!r} in slot {share.slot}, where it has no thread"
    for task in plan.allocation.tasks:
        if not abs(sums[task.task] - 1) <= TOLERANCE:
            yield f"shares of task {task.task!r} sum to {sums[task.task]:g}"


def _wrong_prediction(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> Iterator[str]:
    """The placement is predicted again; which of several equal limits is named may differ."""
    found = plan.prediction
    load = load_of(topology, models, plan.placement, plan.vms, plan.interference == "cpu")
    limit = ROUTINGS[plan.routing](load).limit
    supported = plan.rate_tps if limit is None else limit.rate_tps
    if limit is not None and load.tasks[limit.task] in unknown_tasks(topology, models):
        supported = UNLIMITED_TPS
    if not _close(found.rate_tps, supported):
        yield f"predicted are {_rows(found.rate_tps)} rows/s, the placement supports {_rows(supported)}"
    said = {(use.vm, use.slot): use for use in found.slots}
    states = _states(plan)
    for use in slot_uses(load, load.in_order(found.shares), found.at_rate_tps):
        use = replace(use, memory=use.memory + states.get(Slot(use.vm, use.slot), 0.0))
        there = said.pop((use.vm, use.slot), None)
        if there is None or not (_close(there.cpu, use.cpu) and _close(there.memory, use.memory)):
            yield f"slot {use.vm}/{use.slot} would use {use.cpu:.4f} of its CPU and {use.memory:.4f} of its memory"
    yield from (f"slot {vm}/{slot} has no thread and is predicted" for vm, slot in said)


def _states(plan: Plan) -> dict[Slot, float]:
    """The part of each slot's memory that states of keyed tasks take."""
    found = plan.prediction
    return in_slots(found.states, found.state_most_bytes, found.shares, plan.vms)


def _worse(plan: Plan, old: Plan, overdraft: float) -> Iterator[str]:
    """Comparable are plans of one topology, from the same models, predicted by the same rules."""
    if (old.topology_digest, old.models_digest) != (plan.topology_digest, plan.models_digest):
        return
    if (old.routing, old.interference) != (plan.routing, plan.interference):
        return
    needed = min(plan.rate_tps / overdraft, old.prediction.rate_tps)
    if plan.prediction.rate_tps < needed * (1 - TOLERANCE):
        yield (
            f"supports {_rows(plan.prediction.rate_tps)} rows/s of {significant(plan.rate_tps, 6)}, "
            f"the plan it replaces {_rows(old.prediction.rate_tps)}"
        )


def _rows(rate_tps: float) -> str:
    """In words; of tasks that nothing is known of there is no number."""
    return significant(rate_tps, 6) if rate_tps < UNLIMITED_TPS else "unknown"


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
