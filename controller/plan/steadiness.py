"""Does a change of the rate move threads? What runs stays where it carries the rate, and what changes, changes where it
is (ours). Pure.

 1. A rate within `NEAR` of the one that the plan in force was counted for moves nothing, where that plan is predicted
    to carry it.
 2. Of a new plan's counts those placements are looked at too that keep what runs (`kept_threads`), at a higher rate
    also what runs with a few threads more: the one with the fewest moves is taken that is as good: sound, in no more
    slots, at no higher cost, carrying as much.
"""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from headgate.controller.models.plan_data import models_digest, with_id
from headgate.controller.models.plans import Allocation, Placement, Plan, usd_per_hour
from headgate.controller.models.task_models import unknown_tasks
from headgate.controller.plan.kept_threads import grown, kept_placements
from headgate.controller.plan.latency_limit import is_in_time
from headgate.controller.plan.plan_moves import moves, started
from headgate.controller.plan.plan_steps import planned, predicted
from headgate.controller.plan.planner import COUNTED, ENOUGH
from headgate.controller.plan.planning_request import PlanRequest, room_of
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.slot_fit import overfull_slots
from headgate.controller.plan.predict.state_memory import in_slots
from headgate.controller.plan.predict.vm_links import overfull
from headgate.controller.plan.schedulers import MAPPERS
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot

MOST_TRIED = 20_000  # bundles that are looked at, to put threads beside what runs: about 2 s
NEAR = 0.05  # relative: a rate that differs by so little is the same


def is_near(rate_tps: float, counted_tps: float) -> bool:
    """Is that about the rate that threads were counted for?"""
    return abs(rate_tps - counted_tps) <= NEAR * counted_tps * (1 + TOLERANCE)


def as_it_is(request: PlanRequest, present: Plan) -> Plan | None:
    """The plan in force, for the rate of the request; None where it does not carry that, or would not be sound."""
    if unknown_tasks(request.topology, request.models):
        return None
    if _in_place(request, present.placement) < sum(map(len, request.pinned.values())):
        return None
    plan = _for_rate(request, present)
    if plan.prediction.rate_tps < _enough(request, present):
        return None
    sure = request.sure
    if sure is not None and (plan.prediction.sure is None or plan.prediction.sure.chance < sure.probability):
        return None
    if request.p95_ms is not None and not is_in_time(plan, request, request.p95_ms):
        return None
    as_made = present.models_digest == plan.models_digest
    faults = faults_of(plan, request.topology, request.models, by_mapper=as_made)
    if not faults:
        held = in_slots(request.states, request.state_most_bytes, plan.prediction.shares, plan.vms)
        faults = overfull_slots(plan.placement, request.topology, request.models, plan.vms, held)
    return None if faults else plan


def _enough(request: PlanRequest, present: Plan) -> float:
    """The rate that it has to carry."""
    counted = (request.allocator, request.mapper) == COUNTED or request.sure is not None
    counted = counted or present.allocation.margin > 1
    part = 1 - TOLERANCE if counted else ENOUGH
    return request.rate_tps * (request.margin or present.allocation.margin) * part


def _for_rate(request: PlanRequest, present: Plan) -> Plan:
    """The same threads in the same slots of VMs as fast as they are now; what is said of them is worked out anew."""
    speeds = {vm.vm: vm.speed for vm in (*request.vms, *request.may_add)}
    vms = tuple(replace(vm, speed=speeds.get(vm.vm, vm.speed)) for vm in present.vms)
    prediction = predicted(request, present.placement, vms)
    margin = present.allocation.margin * (prediction.sure.margin if prediction.sure is not None else 1.0)
    rates = request.topology.rates(request.rate_tps * margin)
    tasks = tuple(replace(task, rate_tps=rates[task.task]) for task in present.allocation.tasks)
    allocation = replace(present.allocation, tasks=tasks, rate_tps=request.rate_tps * margin)
    return with_id(
        replace(
            present,
            rate_tps=request.rate_tps,
            vms=vms,
            allocation=allocation,
            prediction=prediction,
            models_digest=models_digest(request.topology, request.models),
            base_epoch=request.base_epoch,
        )
    )


def moving_least(request: PlanRequest, plan: Plan, present: Plan, there: Placement) -> Plan:
    """The plan, or one that is as good and moves fewer of the threads that are `there`: of as many threads, or of as
    many as a higher rate needs, since those that stay are not where a mapper would have them. At a higher rate it may
    take the slots that the plan in force has; of a `steady` mapper, the fewest all the same. The plan of another
    scheduler than the one in force comes as it is."""
    if (plan.allocator, plan.mapper) != (present.allocator, present.mapper):
        return plan
    steady, rises = MAPPERS[plan.mapper].steady, request.rate_tps > present.rate_tps
    if (steady and not rises) or unknown_tasks(request.topology, request.models):
        return plan
    asked = _as_planned(request, plan)
    limit = _larger(plan, present) if rises and not steady else plan
    room, best, least = room_of(asked), plan, moves(plan.placement, there)
    found = [
        (plan.allocation, one) for one in kept_placements(plan.allocation, room, there, limit.slots.used)
    ]
    if rises:
        found += _grown(asked, plan, there, limit.slots.used, least)
    for allocation, placement in found:
        many = moves(placement, there)
        if many >= least:
            continue
        kept = sum(task.threads for task in allocation.tasks) - started(placement, there)
        other = planned(asked, replace(allocation, kept=kept), placement, plan.slots.extra)
        if _as_good(asked, other, plan, limit):
            least, best = many, other
    return best


def _grown(
    request: PlanRequest, plan: Plan, there: Placement, most_slots: int, least: int
) -> list[tuple[Allocation, Placement]]:
    """What is there with a few threads more; nothing where that takes long to find, or tasks whose number of threads is
    fixed lack some, for these start anyway."""
    here = Counter[str]()
    for bundle in there.bundles:
        here[bundle.task] += bundle.threads
    if any(here[task.task] != task.threads for task in plan.allocation.tasks if task.static):
        return []
    given = (*request.vms, *request.may_add)

    def carries(placement: Placement) -> tuple[float, dict[Slot, float]]:
        carrying = {bundle.slot.vm for bundle in placement.bundles}
        vms = given if request.fixed else tuple(vm for vm in given if vm.vm in carrying)
        found = predicted(request, placement, vms)
        fits = all(use.memory <= 1 + TOLERANCE for use in found.slots)
        return found.rate_tps * fits, {Slot(use.vm, use.slot): use.cpu for use in found.slots}

    more = [task.task for task in plan.allocation.tasks if not task.static]
    most = min(least - 1, MOST_TRIED // max(1, len(there.bundles) * len(more)))
    placement = grown(there, room_of(request), more, most_slots, most, carries, _needed(request, plan))
    if placement is None:
        return []
    counts = Counter[str]()
    for bundle in placement.bundles:
        counts[bundle.task] += bundle.threads
    tasks = tuple(replace(task, threads=counts[task.task]) for task in plan.allocation.tasks)
    return [(replace(plan.allocation, tasks=tasks), placement)]


def _as_planned(request: PlanRequest, plan: Plan) -> PlanRequest:
    """The request that the plan answers."""
    certain = plan.prediction.sure
    return replace(
        request,
        rate_tps=plan.rate_tps,
        allocator=plan.allocator,
        mapper=plan.mapper,
        routing=plan.routing,
        sure=replace(request.sure, margin=certain.margin) if request.sure and certain else request.sure,
    )


def _larger(plan: Plan, present: Plan) -> Plan:
    return present if present.slots.used > plan.slots.used else plan


def _as_good(request: PlanRequest, other: Plan, plan: Plan, limit: Plan) -> bool:
    return (
        other.prediction.rate_tps >= _needed(request, plan)
        and other.slots.used <= limit.slots.used
        and usd_per_hour(other.vms) <= max(usd_per_hour(plan.vms), usd_per_hour(limit.vms))
        and len(other.vms) <= max(len(plan.vms), len(limit.vms))
        and _chance(other) >= _chance(plan)
        and _in_place(request, other.placement) >= _in_place(request, plan.placement)
        and not overfull(other, request.topology)
        and not faults_of(other, request.topology, request.models)
    )


def _needed(request: PlanRequest, plan: Plan) -> float:
    """The rate that a plan in the place of this one has to carry."""
    whole = (request.allocator, request.mapper) == COUNTED or MAPPERS[request.mapper].steady
    part = 1.0 if whole else ENOUGH
    return min(part * request.rate_tps, plan.prediction.rate_tps) * (1 - TOLERANCE)


def _in_place(request: PlanRequest, placement: Placement) -> int:
    """How many threads are where the request has them: a source reads there what nobody else can."""
    here = {(bundle.task, bundle.slot): bundle.threads for bundle in placement.bundles}
    asked = Counter((task, slot) for task, slots in request.pinned.items() for slot in slots)
    return sum(min(many, here.get(place, 0)) for place, many in asked.items())


def _chance(plan: Plan) -> float:
    """How surely it carries the rate, as far as that is asked for."""
    sure = plan.prediction.sure
    return min(sure.probability, sure.chance) if sure is not None else 1.0
