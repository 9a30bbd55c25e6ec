"""A plan for an input rate: allocate, map, predict. Pure: the same request gives the same plan.

VMs are filled in the order of the request, those with pinned threads first; a plan names only VMs that
carry threads, so whatever it leaves out may be given back. Plans on fixed or acquired VMs name them all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from headgate.controller.models.plan_data import with_id
from headgate.controller.models.plans import Allocation, Placement, Plan
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.acquire import Acquire, exact
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.plan_steps import (
    NEARBY,
    allocated,
    allocation_within,
    mapped,
    needed,
    placed,
    planned,
    steady_plan,
    with_rising_needs,
)
from headgate.controller.plan.planning_request import PlanRequest, check, flows_measured, room_of
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.prediction import surely
from headgate.controller.plan.predict.slot_fit import memory_of_tasks, refuse_overfull
from headgate.controller.plan.predict.state_memory import by_threads, in_slots
from headgate.controller.plan.predict.vm_links import refuse_narrow
from headgate.controller.plan.schedulers import ALLOCATORS, MAPPERS
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.platform.planning_time import begun
from headgate.topology_runtime.wording import counted, significant

__all__ = [
    "COUNTED",
    "PlanRequest",
    "best_plan",
    "carrying_plan",
    "first_plan",
    "make_plan",
    "plan_acquiring",
    "takes_time",
]

Found = TypeVar("Found")

MOST_SLOTS = 100_000  # that are acquired for one plan
MANY_TASKS = 60  # whose plan may take a controller long, whatever makes it

FEW = 2  # of VMs of several speeds, before larger strides
STEP = 0.995  # `best_plan` tries rates this far apart: closer than any model is exact
STEPS = 4140  # … down to a thousand millionth of the rate asked for


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
    return (
        allocator.slow
        or mapper.slow
        or len(request.topology.tasks) > MANY_TASKS
        or request.p95_ms is not None
    )


def _make_plan(request: PlanRequest) -> Plan:
    with begun():
        return _planned(request)


def _planned(request: PlanRequest) -> Plan:
    check(request)
    room = room_of(request)
    plans: list[Plan] = []
    for allocation, placement in placed(request, room):
        plan = planned(request, allocation, placement)
        within = room.of_speed(allocation.slot_speed)
        plans.append(steady_plan(request, allocation, plan, within))
        if plan.prediction.rate_tps >= request.rate_tps * (1 - TOLERANCE):
            break
    return max(plans, key=lambda plan: min(plan.prediction.rate_tps, request.rate_tps))


def best_plan(request: PlanRequest) -> Plan:
    """The plan for the highest rate up to `request.rate_tps` that fits, in steps of half a percent; where many do not,
    the highest that is found by doubling and halving them.

    If not even a thousand millionth fits (tasks of fixed size alone need more than there is), threads go
    round all slots that are left, over capacity. Raises Infeasible only when there is no usable slot, one would
    hold more memory than it has, or a task of one thread cannot carry that little, and InvalidInput as `make_plan`."""
    check(request)
    least = with_rising_needs(request)
    usable = len(room_of(request).slots())
    rates = [request.rate_tps * STEP**step for step in range(STEPS + 1)]
    if first_plan(request, rates[-1:]) is not None:
        first = bisect_left(
            rates, True, key=lambda rate: allocation_within(replace(least, rate_tps=rate), usable) is not None
        )
        several = (
            len({vm.speed for vm in room_of(request).vms}) > 1
        )  # a rate whose slots suffice fits less often
        found = _first_found(
            lambda n: first_plan(request, rates[n : n + 1]), first, STEPS, FEW if several else NEARBY
        )
        if found is not None:
            return found[1]
    lowest = replace(request, rate_tps=rates[-1], mapper="dsm")
    allocation, room = allocated(lowest), room_of(request)
    placement = MAPPERS["dsm"].place(allocation, room)
    held = in_slots(request.states, request.state_most_bytes, by_threads(placement), room.vms)
    what = "the slots that are left have not the memory that the tasks hold"
    refuse_overfull(what, placement, request.topology, request.models, room.vms, held)
    return planned(lowest, allocation, placement)


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
        raise InvalidInput("no VM size to acquire")
    slowest = min(size.speed for size in sizes)
    alike = tuple(replace(size, speed=slowest) for size in sizes)  # which are faster is not known yet
    allocation = allocated(replace(request, may_add=alike), slowest)
    if allocation.slots > MOST_SLOTS:
        what = (
            f"no plan for {significant(request.rate_tps, 6)} rows/s has at most {counted(MOST_SLOTS, 'slot')}"
        )
        raise Infeasible(what, cause=needed(allocation))
    refused = "no VM holds the threads"

    def attempt(slots: int) -> Placement | None:
        nonlocal refused
        acquired = replace(request, vms=acquire(slots, sizes))
        try:
            return mapped(acquired, allocation, room_of(acquired))
        except Infeasible as error:
            refused = error.what
            return None

    try:
        found = _first_found(attempt, *_counts(request, allocation, sizes))
    except Infeasible as error:
        found, refused = None, error.what
    if found is None:
        raise Infeasible(
            f"no plan for {significant(request.rate_tps, 6)} rows/s fits, whatever VMs are acquired",
            cause=refused,
            hint="choose another mapper, larger VMs, or a lower rate",
        )
    slots, placement = found
    acquired = replace(request, vms=acquire(slots, sizes))
    plan = planned(acquired, allocation, placement, extra=slots - allocation.slots)
    return steady_plan(acquired, allocation, plan, room_of(acquired))


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
        memory = memory_of_tasks(request.topology, request.models, sizes)
        count, speed = slots + partial, allocation.slot_speed
        plenty = Room(tuple(Vm(f"vm{n}", 1, speed=speed) for n in range(1, count + 1)), memory=memory)
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
    attempt: Callable[[int], Found | None], fewest: int, most: int, nearby: int = NEARBY
) -> tuple[int, Found] | None:
    """The first number from `fewest` on for which `attempt` gives something, and what it gives; see
    `plan_acquiring` for what is first once `nearby` numbers gave nothing."""
    failed, number = fewest - 1, fewest
    while (found := attempt(number)) is None:
        if number >= most:
            return None
        stride = 1 if number - fewest < nearby else number - fewest
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
    for rate_tps in rates:
        tried = replace(request, rate_tps=rate_tps)
        try:
            plan = planned(tried, *next(placed(tried, room)))
            return refuse_narrow(plan, tried.topology)
        except Infeasible:  # too few slots, threads do not fit one by one, or links do not hold it
            continue
    return None


# ── A plan that is predicted to carry the rate it is for. Pure ───
#
# An allocator may count too few slots, and a mapper may use them badly: LSA takes the rate of one thread
# times their number, and RSM puts threads where they come too close (paper 0, section 8.5: what such plans
# carry in fact is less than they are for). Whoever runs one finds out, and asks for more. So does this:
# threads and slots are counted for a rate that rises by tenths, until what comes of it is predicted to carry
# the rate in question.

RISE, TRIES = 1.1, 36  # up to thirty times
COUNTED = ("mba", "sam")  # SAM gives the bundles that MBA counts slots for just these
ENOUGH = 0.98  # of the rate: models are no more exact


def carrying_plan(request: PlanRequest) -> tuple[Plan, str]:
    """(the plan, ""), or the one that carries most and why it is less. Raises Infeasible as `make_plan`."""
    best = make_plan(request)
    enough_tps = ENOUGH * request.rate_tps
    counted = (request.allocator, request.mapper) == COUNTED or request.sure is not None
    if counted or best.prediction.rate_tps >= enough_tps:
        return best, ""
    for step in range(1, TRIES + 1):
        try:
            found = make_plan(replace(request, rate_tps=request.rate_tps * RISE**step))
        except Infeasible:
            break
        if found.prediction.rate_tps > best.prediction.rate_tps:
            best = found
        if best.prediction.rate_tps >= enough_tps:
            return _for_rate(best, request), ""
    carried = best.prediction.rate_tps
    why = f"{request.allocator}+{request.mapper} carries {carried:,.1f} of {request.rate_tps:,.1f} rows/s at most"
    return _for_rate(best, request), f"{why}, whatever it is asked for"


def _for_rate(plan: Plan, request: PlanRequest) -> Plan:
    """The plan, said to be for the rate in question."""
    rates = request.topology.rates(request.rate_tps * plan.allocation.margin)
    tasks = tuple(replace(task, rate_tps=rates[task.task]) for task in plan.allocation.tasks)
    allocation = replace(plan.allocation, tasks=tasks)
    prediction = replace(plan.prediction, flows=flows_measured(request))
    return with_id(replace(plan, rate_tps=request.rate_tps, allocation=allocation, prediction=prediction))
