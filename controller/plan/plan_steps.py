"""The steps of a plan, each a value made of those before: request → allocation → placement → prediction, plan. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from msgspec.structs import replace

from headgate.controller.models.plan_data import models_digest, with_id
from headgate.controller.models.plans import Allocation, Placement, Plan, Prediction, SlotCount
from headgate.controller.models.task_models import Model, at_worst, has_spread, peak, unknown_tasks
from headgate.controller.plan.allocators.allocation_rules import of_slots, slots_for, unknown_shared
from headgate.controller.plan.allocators.mixed_speeds import as_alike, as_held, counted_for, for_own_slots
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.optimal.fewest_slots import OwnSlots, mixes_for
from headgate.controller.plan.plan_moves import alternatives, rank
from headgate.controller.plan.planning_request import PlanRequest, flows_measured, room_of
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.prediction import predict, with_certainty
from headgate.controller.plan.predict.slot_fit import (
    beside_worker,
    memory_of_tasks,
    overfull_slots,
    refuse_overfull,
    within_memory,
)
from headgate.controller.plan.predict.state_memory import (
    allocated_with,
    beside_states,
    by_threads,
    fewer_points,
    in_slots,
    parts_of,
    with_states,
)
from headgate.controller.plan.predict.vm_links import overfull, refuse_narrow
from headgate.controller.plan.predict.vm_speeds import models_at, topology_at
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import counted, significant

NEARBY = 16  # as many slots are added one by one, before larger strides
MANY_THREADS = 1000  # a rate with more is not looked for by every way to count: mapping takes long

# ── allocation: how many threads each task gets, and the slots that they need ───────────────────────────


def placed(request: PlanRequest, room: Room) -> Iterator[tuple[Allocation, Placement]]:
    """Where VMs are of several speeds, threads are counted for the fastest ones and put there alone first, then for
    slower ones as well; else there is one way.

    Raises Infeasible, for people, when the slots do not suffice or the threads do not fit one by one."""
    usable, found, why = len(room.slots()), False, None
    pinned = {slot.vm for places in room.pinned.values() for slot in places}
    slowest = min((vm.speed for vm in room.vms if vm.vm in pinned), default=math.inf)
    for speed, slots in slot_speeds(room):
        if speed > slowest and ALLOCATORS[request.allocator].reserves == "mixes":
            continue  # a mix is put where a thread is pinned, whatever else it holds
        try:
            allocation = allocated(request, speed)
            if allocation.slots > slots:
                raise too_much(request, usable, needed(allocation))
            placement = placement_in(request, allocation, room.of_speed(speed))
        except Infeasible as error:
            why = error
            continue
        found = True
        yield allocation, placement
    if found or why is None:
        return
    for allocation, placement in _counted_otherwise(request, room):
        found = True
        yield allocation, placement
    if not found:
        raise why


def _counted_otherwise(request: PlanRequest, room: Room) -> Iterator[tuple[Allocation, Placement]]:
    for allocation, there in _other_counts(request, room):
        with suppress(Infeasible):
            yield allocation, placement_in(request, allocation, there)


def _other_counts(request: PlanRequest, room: Room) -> Iterator[tuple[Allocation, Room]]:
    """(an allocation that the slots suffice for, where to put it): of VMs of several speeds, for mappers that go by
    what each thread needs. MBA gives every bundle a whole slot, of the slowest there are, which are too many where some
    are faster."""
    if ALLOCATORS[request.allocator].reserves != "bundles" or MAPPERS[request.mapper].wants == "bundles":
        return
    names = model_names(request.topology)
    for speed, slots in slot_speeds(room)[1:]:
        within = room.of_speed(speed)
        try:
            usual = allocated(request, speed)
        except Infeasible:
            continue
        alike = replace(within, vms=tuple(replace(vm, speed=min(vm.speed, speed)) for vm in within.vms))
        for allocation, there in (
            (as_held(usual, request.models, names, within), within),
            (as_alike(usual, request.topology, request.models, within), alike),
        ):
            if allocation is not None and allocation.slots <= slots:
                yield allocation, there


def allocation_within(request: PlanRequest, usable: int) -> Allocation | None:
    """An allocation of it; None when ρ is more than `usable`, however it is counted."""
    try:
        allocation = allocated(request)
    except Infeasible:  # a task of one thread cannot carry its rate
        return None
    if allocation.slots <= usable:
        return allocation
    if sum(task.threads for task in allocation.tasks) > MANY_THREADS:
        return None
    return next((other for other, _ in _other_counts(request, room_of(request))), None)


def slot_speeds(room: Room) -> list[tuple[float, int]]:
    """(speed, how many slots are as fast), falling: what threads may be counted for."""
    speeds = sorted(vm.speed for vm in room.vms for slot in vm.all_slots() if slot not in room.excluded)
    found = [(speed, len(speeds) - bisect_left(speeds, speed)) for speed in sorted(set(speeds), reverse=True)]
    return found or [(1.0, 0)]


def allocated(request: PlanRequest, speed: float | None = None) -> Allocation:
    """Its allocation, for slots of VMs of that speed (None: the fastest that suffice, else of the slowest); raises
    Infeasible when no number of slots carries the rate."""
    if speed is not None:
        return _allocated(request, speed)
    *fast, (slowest, _) = slot_speeds(room_of(request))
    for one, slots in fast:
        try:
            allocation = _allocated(request, one)
        except Infeasible:  # said by the last
            continue
        if allocation.slots <= slots:
            return allocation
    return _allocated(request, slowest)


def _allocated(request: PlanRequest, speed: float) -> Allocation:
    try:
        allocator, sure = ALLOCATORS[request.allocator], request.sure
        brims = allocator.brims and sure is None  # a plan that is to be sure has the margin that this takes
        margin, why = margin_of(request, brims)
        rate_tps = request.rate_tps * margin * (sure.margin if sure is not None else 1.0)
        room = memory_of_tasks(request.topology, request.models, (*request.vms, *request.may_add))
        models = within_memory(request.topology, request.models, room)
        found = _beside_states(request, models, rate_tps, room, speed)
        if request.unknown < 1:
            names = unknown_tasks(request.topology, request.models)
            found = unknown_shared(found, names, request.unknown)
        return replace(_of_speed(request, models, found, speed), margin=margin, margin_why=why)
    except OverflowError as error:
        raise Infeasible(
            f"no slots carry {significant(request.rate_tps, 6)} rows/s",
            cause="a task would see more rows/s than can be counted",
            hint="plan for a lower rate",
        ) from error


def _of_speed(
    request: PlanRequest, models: Mapping[str, Model], found: Allocation, speed: float
) -> Allocation:
    """The allocation, counted for slots of this speed, said so and looked at in the slots that there are."""
    if speed == 1.0 and all(vm.speed == 1.0 for vm in (*request.vms, *request.may_add)):
        return found
    found, room = replace(found, slot_speed=speed), room_of(request).of_speed(speed)
    if not room.vms:
        return found
    if ALLOCATORS[request.allocator].reserves == "mixes":
        return found
    if MAPPERS[request.mapper].wants == ALLOCATORS[request.allocator].reserves == "bundles":
        found = for_own_slots(found, request.topology, models, room)
    cpus = [cpu for cpu in room.cpus(found) if cpu >= 1]  # others are there for what is pinned
    return replace(found, slots=slots_for(found.tasks, cpus))


def _beside_states(
    request: PlanRequest, models: Mapping[str, Model], rate_tps: float, room: float, speed: float
) -> Allocation:
    """The allocator's for slots of VMs of that speed, of no more threads in a slot than it has memory for with the
    states that they hold."""
    allocator = ALLOCATORS[request.allocator]
    if allocator.reserves == "mixes":  # what shares a slot is chosen by what it holds
        return of_slots(_with_mixes(request, models, rate_tps, room, speed), room)
    topology, models, fit = _at(request, models, rate_tps, room, speed)
    if not request.states:
        return allocator.allocate(topology, models, rate_tps)
    models = fewer_points(models, fit)
    parts, most = parts_of(request.states, request.state_most_bytes, (*request.vms, *request.may_add))
    return allocated_with(allocator.allocate(topology, models, rate_tps), topology, models, parts, most)


def _at(
    request: PlanRequest, models: Mapping[str, Model], rate_tps: float, room: float, speed: float
) -> tuple[Topology, dict[str, Model], dict[str, Model]]:
    """(topology, models, models with what states take): in slots of VMs of that speed."""
    vms = (*request.vms, *request.may_add)
    topology, fastest = topology_at(request.topology, speed), max((vm.speed for vm in vms), default=speed)
    models = counted_for(topology, models, rate_tps, speed, fastest)
    if not request.states:
        return topology, models, models
    parts, most = parts_of(request.states, request.state_most_bytes, vms)
    return topology, models, beside_states(topology, models, rate_tps, parts, room, most)


def _with_mixes(
    request: PlanRequest, models: Mapping[str, Model], rate_tps: float, room: float, speed: float
) -> Allocation:
    """Of slots of VMs of that speed, or of the very slots that there are, where some are faster."""

    def slots_of(speed: float) -> OwnSlots:
        return OwnSlots(speed, *_for_mixes(request, models, rate_tps, room, speed))

    room_there = room_of(request)
    here = replace(room_there, vms=tuple(vm for vm in room_there.vms if vm.speed >= speed))
    if any(vm.speed != speed for vm in here.vms):
        return mixes_for(request.topology, models, rate_tps, here, slots_of)
    own = slots_of(speed)
    return ALLOCATORS[request.allocator].allocate(own.topology, own.models, rate_tps)


def _for_mixes(
    request: PlanRequest, models: Mapping[str, Model], rate_tps: float, room: float, speed: float
) -> tuple[Topology, dict[str, Model]]:
    """In slots of VMs of that speed, memory as fractions of what a bare worker leaves of one."""
    topology, _, fit = _at(request, models, rate_tps, room, speed)
    return beside_worker(topology, fit, room)


def with_rising_needs(request: PlanRequest) -> PlanRequest:
    """The request with models by which ρ is no more than by its own, and never less at a higher rate: where
    that is more than the slots there are, no higher rate fits either, so bisection finds where it begins."""
    rising = ALLOCATORS[request.allocator].rising
    if rising is None:
        return request
    return replace(request, models={name: rising(model) for name, model in request.models.items()})


LOWER = "allow more VMs, or a lower rate: `headgate plan … --max-rate` finds what these carry"


def too_much(request: PlanRequest, usable: int, cause: str, why: Infeasible | None = None) -> Infeasible:
    return Infeasible(
        f"no plan for {significant(request.rate_tps, 6)} rows/s fits into {counted(usable, 'slot')}",
        cause=cause,
        hint=why.hint if why is not None and why.hint else LOWER,
        faults=why.faults if why is not None else (),
    )


def needed(allocation: Allocation) -> str:
    slots = allocation.slots
    return f"{allocation.allocator} needs {counted(slots, 'slot') if slots < 1e12 else f'{slots:.3g} slots'}"


# ── How much more than the rate is planned for where nobody says so: what the models' spread may take away.
# Pure
#
# Mixes fill slots to the brim, so what a model promises too much is missing at once. The rule: the rate times
# the largest ratio, of all tasks' models, between the peak of a slot and that peak with every point at the
# low end of its spread. No spread, no margin.

MOST = 1.5  # a model that may be off by more should be measured again
DIGITS = 4
NO_SPREAD = "the models have no spread"


def margin_of(request: PlanRequest, brims: bool) -> tuple[float, str]:
    """(times the rate, why): what was asked for, or by the models' spread where slots are filled to the brim."""
    if request.margin is not None:
        return request.margin, request.margin_why
    return by_spread(request.topology, request.models) if brims else (1.0, "")


def by_spread(topology: Topology, models: Mapping[str, Model]) -> tuple[float, str]:
    """(times the rate, why)."""
    largest, why = 1.0, NO_SPREAD
    for name in dict.fromkeys(task.model_name for task in topology.tasks if task.static is None):
        model = models[name]
        if model.unmeasured or not has_spread(model):
            continue
        high, low = peak(model)[0], peak(at_worst(model))[0]
        ratio = min(MOST, high / low if low > 0 else MOST)
        if why == NO_SPREAD or ratio > largest:
            largest = ratio
            why = f"by its spread a slot of {name} may carry {1 - low / high:.1%} less than its model says"
    return round(largest, DIGITS), why


# ── placement: the slot of each thread ──────────────────────────────────────────────────────────────────


def placement_in(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible, for people, when the threads do not fit one by one."""
    try:
        return mapped(request, allocation, room)
    except Infeasible as error:
        raise too_much(request, len(room.slots()), error.what, error) from error


def mapped(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
    """Raises Infeasible also where slots would hold more than they have: some mappers look at no memory."""
    placement = _mapped(request, allocation, room)
    held = in_slots(request.states, request.state_most_bytes, by_threads(placement), room.vms)
    what = f"{request.mapper} puts more into a slot than it has memory for"
    refuse_overfull(what, placement, request.topology, request.models, room.vms, held)
    return placement


def _mapped(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
    """By what was measured of the tasks' CPU; where that fits nowhere, by the models alone."""
    if request.traffic is not None:
        try:
            works = request.traffic.works(request.rate_tps)
            return _in_few_slots(request, allocation, replace(room, works=works))
        except Infeasible:
            return _in_few_slots(request, allocation, room)
    return _in_few_slots(request, allocation, room)


def _in_few_slots(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
    """A mapper that uses every slot it is given is given no more than it needs, unless all are paid for anyhow."""
    mapper = MAPPERS[request.mapper]
    if not mapper.spreads or request.fixed:
        return mapper.place(allocation, room)
    slots, usable = max(1, allocation.slots), len(room.slots())
    while slots < usable:
        try:
            return mapper.place(allocation, room.first(slots))
        except Infeasible:
            slots += max(1, slots // NEARBY)
    return mapper.place(allocation, room)


# ── prediction and plan ─────────────────────────────────────────────────────────────────────────────────


def planned(
    request: PlanRequest, allocation: Allocation, placement: Placement, extra: int | None = None
) -> Plan:
    """`extra`: slots acquired beyond ρ; None: those used beyond it."""
    carrying = {bundle.slot.vm for bundle in placement.bundles}
    given = (*request.vms, *request.may_add)
    vms = given if request.fixed else tuple(vm for vm in given if vm.vm in carrying)
    place = {vm.vm: number for number, vm in enumerate(vms)}
    bundles = sorted(placement.bundles, key=lambda b: (place[b.slot.vm], b.slot.number))
    placement = Placement(tuple(bundles))
    used = placement.slots_used()
    total = sum(vm.slots for vm in vms)
    if extra is None:
        extra = 0 if MAPPERS[request.mapper].heedless else max(0, used - allocation.slots)
    count = SlotCount(allocation.slots, extra, total, used)
    plan = Plan(
        id="",
        topology=request.topology.name,
        rate_tps=request.rate_tps,
        allocator=request.allocator,
        mapper=request.mapper,
        routing=request.routing,
        topology_digest=request.topology.digest,
        models_digest=models_digest(request.topology, request.models),
        allocation=replace(allocation, mixes=()),
        slots=count,
        vms=vms,
        placement=placement,
        prediction=predicted(request, placement, vms),
        interference=request.interference,
        base_epoch=request.base_epoch,
    )
    return with_id(plan)


def predicted(request: PlanRequest, placement: Placement, vms: Sequence[Vm]) -> Prediction:
    topology, models = request.topology, request.models
    found = predict(
        topology,
        models,
        placement,
        vms,
        request.rate_tps,
        routing=request.routing,
        interference=request.interference,
    )
    if request.sure is not None:
        load = load_of(topology, models, placement, vms, request.interference == "cpu")
        found = with_certainty(found, load, request.rate_tps, request.sure, model_names(topology))
    found = with_states(found, request.states, request.state_most_bytes, vms)
    return replace(found, flows=flows_measured(request))


def _holds_too_much(request: PlanRequest, plan: Plan) -> bool:
    """Would a slot hold more memory than it has, with the states of its share of rows?"""
    held = in_slots(request.states, request.state_most_bytes, plan.prediction.shares, plan.vms)
    return bool(overfull_slots(plan.placement, request.topology, request.models, plan.vms, held))


def model_names(topology: Topology) -> dict[str, str]:
    """Task → its model."""
    return {task.name: task.model_name for task in topology.tasks}


def steady_plan(request: PlanRequest, allocation: Allocation, plan: Plan, room: Room) -> Plan:
    """The plan, or another one in no more slots that is better by its rank beside what is in force.

    Raises NarrowLinks."""
    there = request.in_force
    if there is None or not MAPPERS[request.mapper].steady or len({vm.speed for vm in room.vms}) > 1:
        return refuse_narrow(plan, request.topology)
    topology = request.topology
    at = allocation.slot_speed
    others = alternatives(topology_at(topology, at), models_at(request.models, at), allocation, room, there)
    plans = [plan, *(planned(request, other, placement, plan.slots.extra) for other, placement in others)]
    fit = [one for one in plans if not overfull(one, topology) and not _holds_too_much(request, one)]
    best = min(fit or [plan], key=lambda one: rank(one, topology, there, room))
    return refuse_narrow(best, topology)
