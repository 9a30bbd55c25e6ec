"""What-if: what a rate needs and costs, how far the same slots reach, and what one more would buy. Pure.

Slots are *fixed* (the request's VMs, paid for whole), *acquired* for each plan from sizes, or *had*: VMs that are
there or may be, of which a plan uses some slots and leaves the others free.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.models.plans import UNLIMITED_TPS, Plan, usd_per_hour
from headgate.controller.plan.acquire import Acquire
from headgate.controller.plan.latency_limit import latency_in
from headgate.controller.plan.plan_reasons import limit_reason, supported
from headgate.controller.plan.plan_steps import allocation_within, with_rising_needs
from headgate.controller.plan.planner import best_plan, first_plan, make_plan
from headgate.controller.plan.planning_request import PlanRequest, check, room_of
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import HeadgateError, Infeasible, InvalidInput
from headgate.topology_runtime.platform.planning_time import now_s
from headgate.topology_runtime.wording import significant

# ── The highest rate that plans on the VMs there are (paper 0, section 8.5). Pure ───────────────────────
#
# The slots that an allocation needs at least rise with the rate, so bisection finds the rate above which
# none fits. Whether threads then fit one by one does not fall steadily with the rate: from there it is
# tried step by step.

LEAST_TPS, MOST_TPS = 1e-6, 1e12  # one tuple in eleven days; more than any cluster could see
MOST_STEPS = 10_000  # that are tried
NEXT_TO_NOTHING = 1e-6  # of a rate: a plan for less carries nothing


def highest_plan(request: PlanRequest, step_tps: float) -> Plan:
    """The plan for the highest multiple of `step_tps` that fits; the request's own rate is not looked at.

    Raises Infeasible when not even one step fits, InvalidInput for a senseless request or step, and when
    no rate needs more slots than there are."""
    if not LEAST_TPS <= step_tps <= MOST_TPS:
        raise InvalidInput(f"rate step: expected {LEAST_TPS:g} to {MOST_TPS:g} rows/s, got {step_tps}")
    request = replace(request, rate_tps=step_tps)
    check(request)
    most = most_steps(request, step_tps)
    if most > MOST_STEPS:
        raise InvalidInput(
            f"rate step: {significant(step_tps, 6)} rows/s is too fine",
            cause=f"there are {most:,} steps to the most that the slots may carry; {MOST_STEPS:,} are tried",
            hint=f"a step of {most * step_tps / 1000:.1g} gives three digits",
        )
    found = first_plan(request, (steps * step_tps for steps in range(most, 0, -1)))
    return found if found is not None else make_plan(request)  # says why not even one step fits


def nearly_highest_plan(request: PlanRequest) -> Plan:
    """The plan for the highest rate that fits, within half a percent. Raises as `highest_plan`."""
    request = replace(request, rate_tps=1.0)
    while request.rate_tps < HIGHEST_TPS:
        try:
            make_plan(request)
        except Infeasible as error:
            found = best_plan(request)
            if (
                found.rate_tps < NEXT_TO_NOTHING * request.rate_tps
            ):  # threads that go round slots that do not suffice
                raise error
            return found
        request = replace(request, rate_tps=2 * request.rate_tps)
    raise _no_highest_rate(request)


def _no_highest_rate(request: PlanRequest) -> InvalidInput:
    return InvalidInput(
        "no highest rate",
        cause=f"no task of topology {request.topology.name!r} needs more slots at a higher rate",
    )


def most_steps(request: PlanRequest, step_tps: float) -> int:
    """No higher multiple of `step_tps` fits: the least that is needed is more than the usable slots.

    Raises InvalidInput when no rate needs more slots than there are."""
    least, usable = with_rising_needs(request), len(room_of(request).slots())
    steps = range(1, int(MOST_TPS / step_tps) + 1)
    most = bisect_left(
        steps, True, key=lambda n: allocation_within(replace(least, rate_tps=n * step_tps), usable) is None
    )
    if most == len(steps):
        raise _no_highest_rate(request)
    return most


BASELINE = "lsa+rsm"  # what savings are against (paper 0, section 8.4)
HOURS_PER_MONTH = 730.0
FINENESS = 200  # highest rates are searched in steps of about a 200th of the rate
MOST_MORE = 5  # so many slots more are tried until one of them buys something
USUAL_RATES, USUAL_SLOTS = 10, 40  # rates nobody chose: so many, up to about so many slots
HIGHEST_TPS = 1e9  # beyond any machine: then no model limits anything

OF_A_CELL = (
    "slots", "vms", "usd_per_hour", "weighted_tps", "shuffle_tps", "rows_tps", "between_slots_tps", "between_vms_tps",
    "between_vms_bytes_per_s", "moves", "gap", "gap_words", "limited_by", "limited_by_slot", "reason", "planned_s",
)  # fmt: skip
OF_A_RATE = (
    "slots", "vms", "usd_per_hour", "usd_per_month", "predicted_tps", "predicted_low_tps", "predicted_high_tps",
    "headroom_tps", "limited_by", "limited_by_slot", "limit", "same_slots_up_to_tps", "same_slots", "more_slots",
    "baseline", "latency", "reason",
)  # fmt: skip
OF_A_BASELINE = (
    "slots", "slots_used", "vms", "usd_per_hour", "predicted_tps", "short_tps", "saved_slots", "saved_usd_per_hour",
    "saved_part",
)  # fmt: skip

Row = dict[str, Any]
Planner = Callable[[PlanRequest], Plan]
Highest = Callable[[PlanRequest, float], Plan]  # of a step in rows/s


class Supply(msgspec.Struct, frozen=True):
    """What to plan (all of `request` but its rate), what plans it and finds the highest rate, and where
    slots come from: `sizes` bought by `acquire`; without `acquire` the request's own VMs, fixed or had. moves: what
    it takes to bring a plan into force; None: nothing is."""

    request: PlanRequest
    planner: Planner = make_plan
    highest: Highest = highest_plan
    sizes: tuple[Vm, ...] = ()
    acquire: Acquire | None = None
    moves: Callable[[Plan], int] | None = None

    def plan(self, rate_tps: float, pair: str | None = None) -> Plan:
        """The plan for this rate, by another pair of allocator and mapper if given. Raises Infeasible."""
        return self.planner(replace(self.paired(pair), rate_tps=rate_tps))

    def paired(self, pair: str | None) -> PlanRequest:
        """The request with another pair, written allocator+mapper."""
        if pair is None:
            return self.request
        allocator, mapper = pair.split("+")
        return replace(self.request, allocator=allocator, mapper=mapper)

    def ground(self, plan: Plan) -> Ground:
        """The slots that are the plan's: of VMs that are had those with threads, else all of its VMs."""
        barred = self.request.excluded
        if self.acquire is None and not self.request.fixed:
            used = {bundle.slot for bundle in plan.placement.bundles}
            barred |= {slot for vm in plan.vms for slot in vm.all_slots()} - used
        return Ground(plan.vms, barred)

    def more(self, ground: Ground, slots: int) -> Ground:
        """`ground` with `slots` slots more: acquired anew; else free ones of VMs that are had, then single
        slots at the last VM's price per slot."""
        if self.acquire is not None:
            vms = self.acquire(sum(vm.slots for vm in ground.vms) + slots, self.sizes)
            return Ground(vms, ground.barred)
        for vm, free in self._free(ground):
            taken = free[:slots]
            slots -= len(taken)
            vms = ground.vms if vm in ground.vms else (*ground.vms, vm)
            barred = ground.barred.union(free) if taken else ground.barred
            ground = Ground(vms if taken else ground.vms, barred.difference(taken))
        last, names = ground.vms[-1], {vm.vm for vm in ground.vms}
        fresh = (name for n in range(1, len(names) + slots + 1) if (name := f"more{n}") not in names)
        price = last.usd_per_hour / last.slots
        single = (replace(last, vm=next(fresh), slots=1, usd_per_hour=price) for _ in range(slots))
        return Ground((*ground.vms, *single), ground.barred)

    def _free(self, ground: Ground) -> list[tuple[Vm, list[Slot]]]:
        """VMs that are had and their slots that are not in `ground`; those of its own VMs first."""
        if self.request.fixed:
            return []
        others = (vm for vm in (*self.request.vms, *self.request.may_add) if vm not in ground.vms)
        return [
            (vm, [slot for slot in vm.all_slots() if slot not in self.request.excluded
                  and (vm not in ground.vms or slot in ground.barred)])
            for vm in (*ground.vms, *others)
        ]  # fmt: skip


class Ground(msgspec.Struct, frozen=True):
    """Slots to plan on: those of `vms` that are not `barred`."""

    vms: tuple[Vm, ...]
    barred: frozenset[Slot] = frozenset()

    @property
    def slots(self) -> int:
        return sum(slot not in self.barred for vm in self.vms for slot in vm.all_slots())


class Reach(msgspec.Struct, frozen=True):
    """The highest rate that plans on so many slots, and what its placement would support."""

    slots: int
    vms: tuple[Vm, ...]
    usd_per_hour: float
    rate_tps: float
    predicted_tps: float

    @property
    def carried_tps(self) -> float:
        """What would be carried of the rate planned for."""
        return min(self.rate_tps, self.predicted_tps)


def compared(supply: Supply, pair: str, rate_tps: float | None) -> Row:
    """A cell of a comparison: the pair at this rate (None: at the one that the supply's planner finds by itself), what
    its plan carries under both routings, what leaves slots and VMs, and how many threads start and end if it takes the
    place of what is in force. Of an infeasible one all this is null. planned_s: by somebody's clock."""
    topology, models = supply.request.topology, supply.request.models
    allocator, mapper = pair.split("+")
    row: Row = {"pair": pair, "allocator": allocator, "mapper": mapper, "rate_tps": rate_tps}
    row |= dict.fromkeys(OF_A_CELL)
    began_s = now_s()
    try:
        plan = supply.plan(supply.request.rate_tps if rate_tps is None else rate_tps, pair)
    except Infeasible as error:
        return row | {"reason": why_not(error), "planned_s": round(now_s() - began_s, 3)}
    planned_s = now_s() - began_s
    weighted, shuffle = (supported(plan, topology, models, routing) for routing in ("weighted", "shuffle"))
    left = msgspec.to_builtins(crossings_of(plan, topology))
    return row | {
        "rate_tps": plan.rate_tps,
        "slots": msgspec.to_builtins(plan.slots),
        "vms": sizes_text(plan.vms),
        "usd_per_hour": usd_per_hour(plan.vms),
        "weighted_tps": weighted.told_tps,
        "shuffle_tps": shuffle.told_tps,
        **{name: left[name] for name in row if name in left},
        "moves": supply.moves(plan) if supply.moves is not None else None,
        "gap": plan.allocation.gap,
        "gap_words": plan.allocation.gap_words or None,
        "limited_by": plan.prediction.limited_by,
        "limited_by_slot": plan.prediction.limited_by_slot,
        "planned_s": round(planned_s, 3),
    }


def why_not(error: HeadgateError) -> str:
    """An infeasible plan in one line: what, why, and every fault."""
    causes = [*([error.cause] if error.cause else []), *error.faults]
    return f"{error.what}: {'; '.join(causes)}" if causes else error.what


def scaling_analysis(
    supply: Supply, rate_tps: float, reachable: frozenset[str] | None = None, full: bool = True
) -> Row:
    """What this rate needs and costs, what breaks first (`limit`), what the baseline needs, and if `full` how far the
    same slots reach when planned for more (`same_slots`; null: any rate fits), the fewest slots more that carry more
    (`more_slots`; null: none of a few does), and how long rows take (`latency`; null: not known). Where nothing fits,
    for `reason`, all else is null. fits: on the VMs named `reachable` (None: any)."""
    row: Row = {"rate_tps": rate_tps, "fits": False, **dict.fromkeys(OF_A_RATE)}
    try:
        plan = supply.plan(rate_tps)
    except Infeasible as error:
        return row | {"reason": why_not(error)}
    limit = limit_reason(plan, supply.request.topology, supply.request.models)
    cost, predicted = usd_per_hour(plan.vms), plan.prediction
    row |= {
        "fits": reachable is None or {vm.vm for vm in plan.vms} <= reachable,
        "slots": msgspec.to_builtins(plan.slots),
        "vms": sizes_text(plan.vms),
        "usd_per_hour": cost,
        "usd_per_month": round(cost * HOURS_PER_MONTH, 2),
        "predicted_tps": predicted.told_tps,
        "predicted_low_tps": predicted.rate_low_tps,
        "predicted_high_tps": predicted.rate_high_tps,
        "headroom_tps": None if predicted.told_tps is None else round(predicted.told_tps - rate_tps, 6) + 0.0,
        "limited_by": limit.task,
        "limited_by_slot": limit.slot,
        "limit": msgspec.to_builtins(limit),
        "baseline": _baseline_row(compared(supply, BASELINE, rate_tps), plan),
    }
    if not full:
        return row
    found = latency_in(plan, supply.request)
    return (
        row
        | _next_steps(supply, plan, rate_tps)
        | {"latency": found.rows._asdict() if found is not None else None}
    )


def _next_steps(supply: Supply, plan: Plan, rate_tps: float) -> Row:
    """How far the plan's slots reach, and a few more."""
    step_tps = step_for(rate_tps)
    try:
        ground = supply.ground(plan)
        here = reach(supply, ground, rate_tps, step_tps) or _reached(plan, ground)
        more = next_reach(supply, ground, here, step_tps)
    except InvalidInput:  # there is a plan, so the request is sound: no rate is the highest
        return {}
    return {
        "same_slots_up_to_tps": here.rate_tps,
        "same_slots": _reach_row(here),
        "more_slots": _reach_row(more) if more else None,
    }


def reach(supply: Supply, ground: Ground, rate_tps: float, step_tps: float) -> Reach | None:
    """The highest multiple of `step_tps` that plans on these slots (of a larger step, when they carry far more
    than `rate_tps`); None if that is below `rate_tps`. Raises InvalidInput when any rate fits."""
    request = replace(
        supply.request, rate_tps=rate_tps, vms=ground.vms, may_add=(), excluded=ground.barred, fixed=True
    )
    steps = most_steps(request, step_tps)
    if steps > MOST_STEPS:  # the slots carry far more than was asked for
        step_tps = step_for(steps * step_tps)
    try:
        plan = supply.highest(request, step_tps)
    except Infeasible:
        return None
    return _reached(plan, ground) if plan.rate_tps >= rate_tps else None


def next_reach(supply: Supply, ground: Ground, here: Reach, step_tps: float) -> Reach | None:
    """With as few slots more as carry more than `here`."""
    for slots in range(1, MOST_MORE + 1):
        found = reach(supply, supply.more(ground, slots), here.rate_tps, step_tps)
        if found is not None and found.carried_tps > here.carried_tps * (1 + TOLERANCE):
            return found
    return None


def _reached(plan: Plan, ground: Ground) -> Reach:
    supported_tps = plan.prediction.rate_tps
    return Reach(ground.slots, plan.vms, usd_per_hour(plan.vms), plan.rate_tps, supported_tps)


def step_for(rate_tps: float) -> float:
    """1, 2 or 5 times a power of ten, and at most a `FINENESS`th of the rate."""
    return max(LEAST_TPS, _round_down(rate_tps / FINENESS)) if rate_tps > 0 else 1.0


def usual_rates(supply: Supply) -> tuple[float, ...]:
    """Rates to ask about when nobody says which: even steps up to where ρ is about `USUAL_SLOTS` or all
    the fixed slots, or to where a task of one thread can do no more. Raises InvalidInput as `make_plan`."""
    request = supply.request
    check(request)
    most = USUAL_SLOTS if supply.acquire is not None else sum(vm.slots for vm in request.vms)
    low, high = 0.0, 1.0

    def within(rate_tps: float) -> bool:
        return allocation_within(replace(request, rate_tps=rate_tps), most) is not None

    while high < HIGHEST_TPS and within(high):
        low, high = high, high * 2
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if within(middle) else (low, middle)
    step = _round_down(low / USUAL_RATES) if low > 0 else 1.0
    return tuple(step * n for n in range(1, USUAL_RATES + 1))


def _round_down(value: float) -> float:
    power = 10.0 ** math.floor(math.log10(value))
    return max(factor for factor in (1, 2, 5) if factor * power <= value * (1 + 1e-9)) * power


# ── `headgate/whatif/v1`: what rates need, as plain data, the same of a command and of a running
# controller. Pure

SCHEMA, COMPARISON = "headgate/whatif/v1", "headgate/comparison/v1"


def whatif_document(request: PlanRequest, rows: Sequence[Row], fixed: bool, answers: Sequence[str]) -> Row:
    """fixed: the VMs are there whether a plan uses them or not. answers: sentences for people."""
    return {
        "schema": SCHEMA,
        "topology": request.topology.name,
        "allocator": request.allocator,
        "mapper": request.mapper,
        "routing": request.routing,
        "interference": request.interference,
        "fixed": fixed,
        "hours_per_month": HOURS_PER_MONTH,
        "rate_step_tps": min(step_for(row["rate_tps"]) for row in rows),
        "rows": list(rows),
        "answers": list(answers),
    }


def _reach_row(reach: Reach) -> Row:
    """So many slots, their cost, and the highest rate that plans on them."""
    row: Row = msgspec.to_builtins(reach)
    predicted = reach.predicted_tps if reach.predicted_tps < UNLIMITED_TPS else None
    return {**row, "vms": sizes_text(reach.vms), "predicted_tps": predicted, "carried_tps": reach.carried_tps}


def comparison_document(
    request: PlanRequest, rows: Sequence[Row], fixed: bool, rate_step_tps: float | None = None
) -> Row:
    """`headgate/comparison/v1`. fixed: as of `whatif_document`."""
    return {
        "schema": COMPARISON,
        "topology": request.topology.name,
        "routing": request.routing,
        "interference": request.interference,
        "fixed": fixed,
        "rate_step_tps": rate_step_tps,
        "rows": list(rows),
    }


def _baseline_row(cell: Row, plan: Plan) -> Row:
    """What the baseline takes for the same rate and what the plan saves against it."""
    row: Row = {"pair": cell["pair"], "same_pair": cell["pair"] == f"{plan.allocator}+{plan.mapper}"}
    row |= {**dict.fromkeys(OF_A_BASELINE), "reason": cell["reason"]}
    if cell["slots"] is None:
        return row
    total, theirs, cost = cell["slots"]["total"], cell["usd_per_hour"], usd_per_hour(plan.vms)
    carried_tps = cell[f"{plan.routing}_tps"]
    return row | {
        "slots": total,
        "slots_used": cell["slots"]["used"],
        "vms": cell["vms"],
        "usd_per_hour": theirs,
        "predicted_tps": carried_tps,
        "short_tps": 0.0 if carried_tps is None else round(max(0.0, plan.rate_tps - carried_tps), 6),
        "saved_slots": total - plan.slots.total,
        "saved_usd_per_hour": round(theirs - cost, 6),
        "saved_part": 1 - cost / theirs if theirs else None,
    }


def sizes_text(vms: Sequence[Vm]) -> str:
    """Slots of each VM: `4,4,2`."""
    return ",".join(str(vm.slots) for vm in vms)
