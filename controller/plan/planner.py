"""A plan for an input rate: allocate, map, predict. Pure: the same request gives the same plan.

VMs are filled in the order of the request, those with pinned threads first; a plan names only VMs that
carry threads, so whatever it leaves out may be given back. Plans on fixed or acquired VMs name them all.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.knowledge.certainty import Sure
from headgate.controller.knowledge.models import EPSILON, Model, missing_models
from headgate.controller.knowledge.plans import Allocation, Placement, Plan, SlotCount
from headgate.controller.knowledge.traffic import MeasuredTraffic, TaskFlow
from headgate.controller.plan.acquire import Acquire, exact
from headgate.controller.plan.flows import flows_at, flows_of
from headgate.controller.plan.identity import models_digest, with_id
from headgate.controller.plan.links import overfull, refuse_narrow
from headgate.controller.plan.load import load_of
from headgate.controller.plan.margins import MOST_MARGIN, margin_of
from headgate.controller.plan.predict import INTERFERENCES, ROUTINGS, predict
from headgate.controller.plan.room import Room, TopologySpread, Weights
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS, pair_faults
from headgate.controller.plan.steady import alternatives, rank
from headgate.controller.plan.surely import surely, with_certainty
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.faults.words import counted, did_you_mean, significant
from headgate.topology_runtime.patience import begun
from headgate.topology_runtime.topology import Topology

MOST_SLOTS = 100_000  # that are acquired for one plan
MOST_WEIGHT = 1e9  # in a distance: far below what overflows
MANY_TASKS = 60  # whose plan may take a controller long, whatever makes it
NEARBY = 16  # as many slots are added one by one, before larger strides

STEP = 0.995  # `best_plan` tries rates this far apart: closer than any model is exact
STEPS = 4140  # … down to a thousand millionth of the rate asked for


class PlanRequest(msgspec.Struct, frozen=True):
    """What to plan for. `vms`: present, in order of preference; `may_add`: may be acquired, in this
    order, as few as possible; `excluded`: slots that hold nothing; `pinned`: task of fixed size → slots
    of its threads, kept if possible. `fixed`: `vms` are paid for anyhow, so the plan names them all, and
    mappers that spread threads use them all. `sure`: how surely the plan is to carry the rate. `traffic`: what was
    measured between tasks, and of their CPU; left out: what selectivities and models say. `in_force`: what runs, for
    schedulers that choose among equals by moves. `margin`: to plan for so many times the rate (None: see `margins`)."""

    topology: Topology
    models: dict[str, Model]
    rate_tps: float
    vms: tuple[Vm, ...]
    may_add: tuple[Vm, ...] = ()
    excluded: frozenset[Slot] = frozenset()
    pinned: dict[str, tuple[Slot, ...]] = {}
    allocator: str = "mba"
    mapper: str = "sam"
    routing: str = "weighted"
    interference: str = "cpu"
    weights: Weights = Weights()
    spread: TopologySpread = TopologySpread()
    traffic: MeasuredTraffic | None = None
    fixed: bool = False
    base_epoch: int | None = None
    sure: Sure | None = None
    in_force: Placement | None = None
    margin: float | None = None


def make_plan(request: PlanRequest) -> Plan:
    """The plan for `request.rate_tps`. Raises InvalidInput for a senseless request, Infeasible when the
    slots do not suffice, or not for a plan that is as sure as is asked for."""
    if request.sure is not None:
        return surely(request.sure, lambda sure: _make_plan(replace(request, sure=sure)))
    return _make_plan(request)


def takes_time(request: PlanRequest) -> bool:
    """May its plan take longer than a controller stands still for? By what is asked, not by a clock: so that replays
    know it too."""
    allocator, mapper = ALLOCATORS.get(request.allocator), MAPPERS.get(request.mapper)
    if allocator is None or mapper is None:  # it is refused at once
        return False
    return allocator.slow or mapper.slow or len(request.topology.tasks) > MANY_TASKS


def _make_plan(request: PlanRequest) -> Plan:
    with begun():
        return _planned(request)


def _planned(request: PlanRequest) -> Plan:
    check(request)
    room = room_of(request)
    usable = len(room.slots())
    allocation = allocated(request)
    if allocation.slots > usable:
        raise _too_much(request, usable, _needed(allocation))
    try:
        placement = _mapped(request, allocation, room)
    except Infeasible as error:
        raise _too_much(request, usable, error.what) from error
    return refuse_narrow(
        _steadiest(request, allocation, _plan(request, allocation, placement)), request.topology
    )


def best_plan(request: PlanRequest) -> Plan:
    """The plan for the highest rate up to `request.rate_tps` that fits, in steps of half a percent.

    If not even a thousand millionth fits (tasks of fixed size alone need more than there is), threads go
    round all slots that are left, over capacity. Raises Infeasible only when there is no usable slot or
    a task of one thread cannot carry that little, and InvalidInput as `make_plan`."""
    check(request)
    least = with_rising_needs(request)
    usable = len(room_of(request).slots())
    rates = [request.rate_tps * STEP**step for step in range(STEPS + 1)]
    if first_plan(request, rates[-1:]) is not None:
        first = bisect_left(
            rates, True, key=lambda rate: allocation_within(replace(least, rate_tps=rate), usable) is not None
        )
        found = first_plan(request, rates[first:])
        if found is not None:
            return found
    lowest = replace(request, rate_tps=rates[-1], mapper="dsm")
    allocation = allocated(lowest)
    return _plan(lowest, allocation, MAPPERS["dsm"].place(allocation, room_of(request)))


def plan_acquiring(
    request: PlanRequest,
    sizes: Sequence[Vm],
    acquire: Acquire = exact,
) -> Plan:
    """The plan on VMs acquired for it: ρ slots, then one more until the mapper fits (paper 0, section 8.4).

    `sizes`: templates of the VMs there are; VMs, excluded slots and pins of the request are not looked at.
    When `NEARBY` more slots do not help, or ρ is 1,000 and more, the count that does is searched by doubling
    and halving: it fits, and one slot less does not. Raises as `make_plan`."""
    if request.sure is not None:
        return surely(request.sure, lambda sure: _plan_acquiring(replace(request, sure=sure), sizes, acquire))
    return _plan_acquiring(request, sizes, acquire)


def _plan_acquiring(request: PlanRequest, sizes: Sequence[Vm], acquire: Acquire) -> Plan:
    request = replace(request, vms=(), may_add=(), excluded=frozenset(), pinned={}, fixed=True)
    check(request)
    if not sizes:
        raise InvalidInput("there is no VM size to acquire")
    allocation = allocated(request)
    if allocation.slots > MOST_SLOTS:
        what = f"no plan for {significant(request.rate_tps, 6)} tuples/s has at most {counted(MOST_SLOTS, 'slot')}"
        raise Infeasible(what, cause=_needed(allocation))
    refused = "no VM holds the threads"

    def attempt(slots: int) -> Placement | None:
        nonlocal refused
        acquired = replace(request, vms=acquire(slots, sizes))
        try:
            return _mapped(acquired, allocation, room_of(acquired))
        except Infeasible as error:
            refused = error.what
            return None

    try:
        found = _first_found(attempt, *_counts(request, allocation, sizes))
    except Infeasible as error:
        found, refused = None, error.what
    if found is None:
        raise Infeasible(
            f"no plan for {significant(request.rate_tps, 6)} tuples/s fits, whatever VMs are acquired",
            cause=refused,
            hint="choose another mapper, larger VMs, or a lower rate",
        )
    slots, placement = found
    acquired = replace(request, vms=acquire(slots, sizes))
    plan = _plan(acquired, allocation, placement, extra=slots - allocation.slots)
    return refuse_narrow(_steadiest(acquired, allocation, plan), request.topology)


def check(request: PlanRequest) -> None:
    """Raises InvalidInput with every fault of the request."""
    faults = missing_models(request.topology, request.models)
    rate = request.rate_tps
    if request.margin is not None and not 1 <= request.margin <= MOST_MARGIN:
        faults.append(f"margin: expected a number from 1 to {MOST_MARGIN:g}, got {request.margin}")
    if not (math.isfinite(rate) and rate >= 0):
        faults.append(f"rate: expected a finite rate of at least 0 tuples/s, got {rate}")
    choices: list[tuple[str, str, dict[str, Any] | tuple[str, ...]]] = [
        ("routing", request.routing, ROUTINGS),
        ("interference", request.interference, INTERFERENCES),
    ]
    faults += [f"{what}: {why}" for what, why in pair_faults(request.allocator, request.mapper).items()]
    for what, chosen, known in choices:
        if chosen not in known:
            faults.append(f"{what}: no {chosen!r}, there are {', '.join(known)}{did_you_mean(chosen, known)}")
    for part in ("memory", "cpu", "network"):
        weight = getattr(request.weights, part)
        if not 0 <= weight <= MOST_WEIGHT:
            faults.append(f"weights.{part}: expected a number from 0 to {MOST_WEIGHT:g}, got {weight}")
    for part in ("alpha", "beta"):
        if not 0 <= getattr(request.spread, part) <= 1:
            faults.append(
                f"spread.{part}: expected a number from 0 to 1, got {getattr(request.spread, part)}"
            )
    names = Counter(vm.vm for vm in (*request.vms, *request.may_add))
    faults += [f"vms: {name!r} is there {count} times" for name, count in names.items() if count > 1]
    if faults:
        raise InvalidInput(f"topology {request.topology.name!r} cannot be planned", faults=faults)


def allocated(request: PlanRequest) -> Allocation:
    """Its allocation; raises Infeasible when no number of slots carries the rate."""
    try:
        allocator, sure = ALLOCATORS[request.allocator], request.sure
        brims = allocator.brims and sure is None  # a plan that is to be sure has the margin that this takes
        margin, why = margin_of(request.topology, request.models, request.margin, brims)
        rate_tps = request.rate_tps * margin * (sure.margin if sure is not None else 1.0)
        found = allocator.allocate(request.topology, request.models, rate_tps)
        return replace(found, margin=margin, margin_why=why)
    except OverflowError as error:
        raise Infeasible(
            f"no slots carry {significant(request.rate_tps, 6)} tuples/s",
            cause="a task would see more tuples/s than can be counted",
            hint="plan for a lower rate",
        ) from error


def room_of(request: PlanRequest) -> Room:
    """VMs in filling order: those that pinned threads keep anyhow come first."""
    present = {slot for vm in request.vms for slot in vm.all_slots()} - request.excluded
    pinned = {
        task: tuple(slot for slot in slots if slot in present) for task, slots in request.pinned.items()
    }
    kept = {slot.vm for slots in pinned.values() for slot in slots}
    vms = (*request.vms, *request.may_add)
    ordered = sorted(vms, key=lambda vm: vm.vm not in kept)  # stable: else in the request's order
    flows = flows_measured(request) or flows_of(request.topology, request.rate_tps)
    return Room(tuple(ordered), request.excluded, pinned, request.weights, flows, (), request.spread)


def flows_measured(request: PlanRequest) -> tuple[TaskFlow, ...]:
    """What was measured, at the planned rate; nothing where nothing was."""
    return flows_at(request.topology, request.traffic, request.rate_tps)


def _mapped(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
    """By what was measured of the tasks' CPU; where that fits nowhere, by the models alone."""
    if request.traffic is not None:
        try:
            works = request.traffic.works(request.rate_tps)
            return _within(request, allocation, replace(room, works=works))
        except Infeasible:
            return _within(request, allocation, room)
    return _within(request, allocation, room)


def _within(request: PlanRequest, allocation: Allocation, room: Room) -> Placement:
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


def _steadiest(request: PlanRequest, allocation: Allocation, plan: Plan) -> Plan:
    """The plan, or another one in no more slots that is better by its rank beside what is in force."""
    there = request.in_force
    if there is None or not MAPPERS[request.mapper].steady:
        return plan
    room, topology = room_of(request), request.topology
    others = alternatives(topology, request.models, allocation, room, there)
    plans = [plan, *(_plan(request, other, placement, plan.slots.extra) for other, placement in others)]
    wide = [one for one in plans if not overfull(one, topology)]
    return min(wide or [plan], key=lambda one: rank(one, topology, there, room))


def _counts(request: PlanRequest, allocation: Allocation, sizes: Sequence[Vm]) -> tuple[int, int]:
    """(fewest, most) slots to acquire: if not even the most suffice, nothing does.

    What looks at no need fits at once. Single slots tell how many a mapper needs that takes slots in their order.
    The others fit with as many empty slots as threads when a slot holds each thread alone: a VM that is full has at
    least as many threads as slots."""
    slots, mapper = max(1, allocation.slots), MAPPERS[request.mapper]
    if mapper.heedless:
        return slots, slots
    if mapper.in_order:
        partial = sum(task.rest_threads if task.static else 1 for task in allocation.tasks)
        plenty = Room(tuple(Vm(f"vm{number}", 1) for number in range(1, slots + partial + 1)))
        slots = max(slots, mapper.place(allocation, plenty).slots_used())
        return slots, slots
    most, largest = sum(task.threads for task in allocation.tasks), max(size.slots for size in sizes)
    wide = False  # a thread needs a VM of several slots
    for task in allocation.tasks:
        cpu, memory = task.cpu_slots / task.threads, task.memory_slots / task.threads
        if cpu > largest + EPSILON or memory > 1 + EPSILON:
            raise Infeasible(
                f"no VM holds one thread of task {task.task!r}: "
                f"{cpu:.3g} of a slot's CPU and {memory:.3g} of its memory"
            )
        wide = wide or cpu > 1
    return slots, min(max(slots, most * largest if wide else most), 2 * MOST_SLOTS)


def _first_found(
    attempt: Callable[[int], Placement | None], fewest: int, most: int
) -> tuple[int, Placement] | None:
    """The first number from `fewest` on for which `attempt` gives something, and what it gives; see
    `plan_acquiring` for what is first once `NEARBY` numbers gave nothing."""
    failed, number = fewest - 1, fewest
    while (found := attempt(number)) is None:
        if number >= most:
            return None
        stride = 1 if number - fewest < NEARBY else number - fewest
        failed, number = number, min(most, number + max(stride, fewest // 500))
    while number - failed > 1:
        middle = (failed + number) // 2
        nearer = attempt(middle)
        if nearer is None:
            failed = middle
        else:
            found, number = nearer, middle
    return number, found


def first_plan(request: PlanRequest, rates: Iterable[float]) -> Plan | None:
    """The plan for the first of these rates that fits; the request is sound, its own rate is not looked at."""
    room = room_of(request)
    usable = len(room.slots())
    for rate_tps in rates:
        tried = replace(request, rate_tps=rate_tps)
        allocation = allocation_within(tried, usable)
        if allocation is not None:
            try:
                plan = _plan(tried, allocation, _mapped(tried, allocation, room))
                return refuse_narrow(plan, tried.topology)
            except (
                Infeasible
            ):  # the slots suffice in sum, but threads do not fit one by one, or links do not hold it
                continue
    return None


def model_names(topology: Topology) -> dict[str, str]:
    """Task → its model."""
    return {task.name: task.model_name for task in topology.tasks}


def with_rising_needs(request: PlanRequest) -> PlanRequest:
    """The request with models by which ρ is no more than by its own, and never less at a higher rate: where
    that is more than the slots there are, no higher rate fits either, so bisection finds where it begins."""
    rising = ALLOCATORS[request.allocator].rising
    if rising is None:
        return request
    return replace(request, models={name: rising(model) for name, model in request.models.items()})


def allocation_within(request: PlanRequest, usable: int) -> Allocation | None:
    """Its allocation; None when ρ is more than `usable`."""
    try:
        allocation = allocated(request)
    except Infeasible:  # a task of one thread cannot carry its rate
        return None
    return allocation if allocation.slots <= usable else None


def _plan(
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
    prediction = predict(
        request.topology,
        request.models,
        placement,
        vms,
        request.rate_tps,
        routing=request.routing,
        interference=request.interference,
    )
    if request.sure is not None:
        load = load_of(request.topology, request.models, placement, vms, request.interference == "cpu")
        names = model_names(request.topology)
        prediction = with_certainty(prediction, load, request.rate_tps, request.sure, names)
    prediction = replace(prediction, flows=flows_measured(request))
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
        prediction=prediction,
        interference=request.interference,
        base_epoch=request.base_epoch,
    )
    return with_id(plan)


def _too_much(request: PlanRequest, usable: int, cause: str) -> Infeasible:
    return Infeasible(
        f"no plan for {significant(request.rate_tps, 6)} tuples/s fits into {counted(usable, 'slot')}",
        cause=cause,
        hint="allow more VMs, or plan for a lower rate",
    )


def _needed(allocation: Allocation) -> str:
    slots = allocation.slots
    return f"{allocation.allocator} needs {counted(slots, 'slot') if slots < 1e12 else f'{slots:.3g} slots'}"
