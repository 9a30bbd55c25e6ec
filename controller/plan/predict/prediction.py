"""What a placement will do (paper 0, section 8.5; contract: `prediction`). Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain

from msgspec.structs import replace

from headgate.controller.models.plans import (
    UNLIMITED_TPS,
    Certainty,
    ErrorSpread,
    Placement,
    Plan,
    Prediction,
    Share,
    SlotUse,
    Sure,
    VmUse,
)
from headgate.controller.models.task_models import (
    Model,
    at_best,
    at_worst,
    has_spread,
    peak_rate,
    unknown_tasks,
)
from headgate.controller.plan.predict.placement_load import NOWHERE, PlacementLoad, load_of
from headgate.controller.plan.predict.row_shares import Split, shuffled, weighted
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import LatencyConstraint, Topology
from headgate.topology_runtime.api.validate import HOP_MS
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.wording import significant

# ── Between what a prediction may lie when its models say how far their points may be off. Pure ───
#
# The highest input rate never falls when a peak rate rises or a need of CPU falls. So whatever the true
# points are within their spread, the placement supports at least what it would with all points at their
# worst, and at most what it would with all at their best: a bracket, and wider than what is likely.


def with_intervals(
    found: Prediction,
    models: Mapping[str, Model],
    load_with: Callable[[Mapping[str, Model]], PlacementLoad],
    routed: Callable[[PlacementLoad], Split],
    rate_tps: float | None,
) -> Prediction:
    """The prediction with its highest rate and the use of its slots between two ends.

    `models`: those in use; `load_with`: the load of the placement with other models; `routed`: the
    routing. Slots at input rate `rate_tps` with the prediction's shares (None: every group at its peak);
    a group whose peak may be below its rate needs at most what it needs at that peak."""
    worst = load_with({name: at_worst(model) for name, model in models.items()})
    best = load_with({name: at_best(model) for name, model in models.items()})
    low_tps, high_tps = (_supported(routed(load), found.rate_tps) for load in (worst, best))
    shares = [share.share for share in found.shares]
    low, high = (load.needs(shares, rate_tps, most=1.0) for load in (best, worst))
    slots = [_between(use, *ends) for use, *ends in zip(found.slots, low, high, strict=True)]
    return replace(
        found,
        slots=tuple(slots),
        rate_low_tps=min(low_tps, found.rate_tps),
        rate_high_tps=max(high_tps, found.rate_tps),
    )


def _supported(split: Split, unlimited_tps: float) -> float:
    return unlimited_tps if split.limit is None else split.limit.rate_tps


def _between(use: SlotUse, low: tuple[float, float], high: tuple[float, float]) -> SlotUse:
    return replace(
        use,
        cpu_low=min(use.cpu, low[0]),
        cpu_high=max(use.cpu, high[0]),
        memory_low=min(use.memory, low[1]),
        memory_high=max(use.memory, high[1]),
    )


# ── What a placement is likely to carry when several of its slots are about full. Pure ───
#
# It carries what its slowest slot carries, and each slot carries a little more or less than its models say:
# OFF_BY, what they were off by in trials. Where one slot limits alone, more is as likely as less. Where six
# are full together, as a good plan has them, the slowest of six tells, and that one is likely below what was
# predicted for each (decision 23; the optimizer's curse of J. E. Smith, R. L. Winkler, Management Science 52,
# 2006):
#
# E[least of L(s) (1 + OFF_BY z(s)) over the slots s],  z: independent standard normals

OFF_BY = 0.05  # standard deviation, relative: what CPU of slots was off by within each of 144 trials
BELOW, ABOVE, LIKELY_STEPS = 6.0, 4.0, 80  # of the integral, in OFF_BY round the lowest limit
FAR_OFF_BY = 10.0  # a slot so many OFF_BY above it makes no difference
LIKELY_DIGITS = 3  # limits that are the same to so many are counted together


def likely_rate(load: PlacementLoad, split: Split) -> float | None:
    """Input rate in rows/s that is to be expected of `split`; None when nothing limits it."""
    if split.limit is None:
        return None
    return expected_least(limits_of_slots(load, split.shares, split.limit.rate_tps).values())


def limits_of_slots(load: PlacementLoad, shares: Sequence[float], rate_tps: float) -> dict[int, float]:
    """Slot → the input rate at which it is full, with wakes counted at `rate_tps`."""
    at = load.at(shares, rate_tps)
    lowest: dict[int, float] = {}
    for limit in chain(at.limits_at(shares), at.cpu_limits_at(shares)):
        lowest[limit.slot] = min(limit.rate_tps, lowest.get(limit.slot, math.inf))
    return lowest


def expected_least(limits: Iterable[float], off_by: float = OFF_BY) -> float:
    """Of limits that are each off by a normal error, relative, of that standard deviation; at least one limit.

    E[X] = from + ∫ P(X > x) dx, from where P is 1 to where it is 0."""
    known = list(limits)
    least = min(known)
    if least <= 0:
        return 0.0
    times = Counter(
        round(limit / least, LIKELY_DIGITS) for limit in known if limit < least * (1 + FAR_OFF_BY * off_by)
    )
    step = (BELOW + ABOVE) * off_by / LIKELY_STEPS
    low = 1 - BELOW * off_by
    above = [
        math.prod(_above(low + n * step, at, off_by) ** k for at, k in times.items())
        for n in range(LIKELY_STEPS + 1)
    ]
    return least * (low + step * (math.fsum(above) - (above[0] + above[-1]) / 2))


def _above(x: float, limit: float, off_by: float) -> float:
    """P(limit (1 + off_by z) > x)."""
    return 0.5 * math.erfc((x / limit - 1) / (off_by * math.sqrt(2)))


ROUTINGS = {"weighted": weighted, "shuffle": shuffled}
INTERFERENCES = ("cpu", "none")
USAGES = ("scaled", "peak")


def predict(
    topology: Topology,
    models: Mapping[str, Model],
    placement: Placement,
    vms: Sequence[Vm],
    rate_tps: float | None = None,
    *,
    routing: str = "weighted",
    interference: str = "cpu",
    usage: str = "scaled",
) -> Prediction:
    """The highest input rate the placement supports, what limits it, and its use of slots and VMs at
    `rate_tps` (None: at the supported rate), if it supports that much.

    interference "cpu": groups share their slot's CPU; "none": each as if alone. usage "peak": CPU and
    memory with every group at its own peak. A placement that nothing limits (no task has a model)
    supports `rate_tps`; one without a thread of a modelled task supports nothing; one that only tasks limit that
    nothing is known of yet supports `UNLIMITED_TPS`. Models with spread
    give intervals (see `with_intervals`) and the rate that is likely (see `likely_rate`)."""
    loaded = partial(load_of, topology, placement=placement, vms=vms, shared_cpu=interference == "cpu")
    load = loaded(models=models)
    split = ROUTINGS[routing](load)
    limit = split.limit
    if limit is not None and load.tasks[limit.task] in unknown_tasks(topology, models):
        limit, supported = None, UNLIMITED_TPS
    else:
        supported = limit.rate_tps if limit is not None else rate_tps or 0.0
    at_tps = min(supported if rate_tps is None else rate_tps, supported)
    if rate_tps is None and supported >= UNLIMITED_TPS:
        at_tps = 0.0
    asked_tps = None if usage == "peak" else at_tps
    uses = slot_uses(load, split.shares, asked_tps)
    found = Prediction(
        rate_tps=supported,
        limited_by=load.tasks[limit.task] if limit else None,
        limited_by_slot=str(load.slots[limit.slot]) if limit and limit.slot != NOWHERE else None,
        slots=uses,
        vms=vm_uses(uses, vms),
        at_rate_tps=at_tps,
        shares=tuple(
            Share(load.slots[group.slot], load.tasks[group.task], split.shares[g])
            for g, group in enumerate(load.groups)
        ),
    )
    used = {name: models[name] for name in {t.model_name for t in topology.tasks if t.static is None}}
    if limit is None or not any(has_spread(model) for model in used.values()):
        return found
    found = replace(found, likely_tps=likely_rate(load, split))
    return with_intervals(found, used, lambda moved: loaded(models=moved), ROUTINGS[routing], asked_tps)


def slot_uses(load: PlacementLoad, shares: Sequence[float], rate_tps: float | None) -> tuple[SlotUse, ...]:
    """What `PlacementLoad.needs` gives, with the slots it is of."""
    needs = zip(load.slots, load.needs(shares, rate_tps), strict=True)
    return tuple(SlotUse(slot.vm, slot.number, *need) for slot, need in needs)


def vm_uses(uses: Sequence[SlotUse], vms: Sequence[Vm]) -> tuple[VmUse, ...]:
    """Sums of the slots of each VM, in slots; VMs without threads use nothing."""
    cpu, memory = {vm.vm: 0.0 for vm in vms}, {vm.vm: 0.0 for vm in vms}
    for use in uses:
        cpu[use.vm] = cpu.get(use.vm, 0.0) + use.cpu
        memory[use.vm] = memory.get(use.vm, 0.0) + use.memory
    return tuple(VmUse(vm, cpu[vm], memory[vm]) for vm in cpu)


# ── How surely a placement carries a rate, and plans that do with a given probability. Pure ───
#
# It carries a rate when every slot does. What a row costs in slot s is off by exp(e(s)), and e(s) is normal:
#
# e(s) = together + own(s)     P(all carry R) ≥ ∫ φ(z) Π P(own(s) ≤ ln(L(s) / R) − mean(s) − together · z) dz
#
# L(s): the input rate at which the slot is full. Slots err together where the errors of models are not known;
# where they are learned, each slot has those of its models besides its own (the largest, for what several
# tasks need adds up to no more). Slots of the same model then err alike in truth, and the product takes them
# for independent: that is never more than the probability (D. Slepian, The one-sided barrier problem for
# Gaussian noise, Bell System Technical Journal 41, 1962), so a plan is at least as sure as is said.

FAR, STEPS = 6.0, 96  # of the integral, in standard deviations, and its steps
DIGITS = 4  # slots whose limits are the same to so many are counted together
MARGINS = [1 + percent / 100 for percent in range(101)]  # that are tried
FINE = 1e-6  # of a rate

OfModels = Mapping[str, str]  # task → its model


def chance_of(
    load: PlacementLoad, shares: Sequence[float], rate_tps: float, spread: ErrorSpread, models: OfModels
) -> float:
    """At least so probably the placement carries the rate."""
    if rate_tps <= 0:
        return 1.0
    slots: Counter[tuple[float, float]] = Counter()
    for slot, limit_tps in limits_of_slots(load, shares, rate_tps).items():
        if limit_tps <= 0:
            return 0.0
        mean, own = _errors_of(load, slot, spread, models)
        slots[math.floor((math.log(limit_tps / rate_tps) - mean) * 10**DIGITS) / 10**DIGITS, own] += 1
    if not spread.together or spread.models:
        return math.prod(_below(room / own) ** count for (room, own), count in slots.items())
    return _integral(slots, spread.together)


def _errors_of(load: PlacementLoad, slot: int, spread: ErrorSpread, models: OfModels) -> tuple[float, float]:
    """(mean, standard deviation) of a slot's error, but for what slots have together."""
    names = {models[load.tasks[load.groups[g].task]] for g in load.by_slot[slot] if load.groups[g].peak_tps}
    if not spread.models or not names:
        return 0.0, spread.slot
    known = [spread.models.get(name, (0.0, spread.together)) for name in names]
    return max(mean for mean, _ in known), math.hypot(spread.slot, max(own for _, own in known))


def _integral(slots: Mapping[tuple[float, float], int], together: float) -> float:
    """Over what all slots have together, by the trapezoid rule."""
    step, total, weights = 2 * FAR / STEPS, 0.0, 0.0
    for n in range(STEPS + 1):
        z = -FAR + n * step
        weight = math.exp(-z * z / 2)
        weights += weight
        total += weight * math.prod(
            _below((room - together * z) / own) ** count for (room, own), count in slots.items()
        )
    return total / weights


def _below(z: float) -> float:
    """P(a standard normal ≤ z)."""
    return 0.5 * math.erfc(-z / math.sqrt(2))


# ── of plans ────────────────────────────────────────────────────────────────────────────────────


def with_certainty(
    found: Prediction, load: PlacementLoad, rate_tps: float | None, sure: Sure, models: OfModels
) -> Prediction:
    """The prediction, and how surely it carries this rate (None: the highest one, within a millionth, that it carries
    as surely as is asked for)."""
    shares = load.in_order(found.shares)

    def chance(at_tps: float) -> float:
        return chance_of(load, shares, at_tps, sure.spread, models)

    low, high = 0.0, 2 * found.rate_tps  # which is too much for any
    while rate_tps is None and high - low > FINE * found.rate_tps:
        middle = (low + high) / 2
        low, high = (middle, high) if chance(middle) >= sure.probability else (low, middle)
    at_tps = low if rate_tps is None else rate_tps
    certain = Certainty(sure.probability, at_tps, chance(at_tps), sure.margin, sure.spread)
    return replace(found, sure=certain)


def surely(sure: Sure, make: Callable[[Sure], Plan]) -> Plan:
    """The plan of the least margin that is sure enough. Raises Infeasible: none is; not strict: only when none is made
    at all, else it is the surest that can be had."""
    made: dict[int, Plan | None] = {}

    def enough(n: int) -> bool:
        """Or no plan can be made with that margin."""
        plan = made[n] = _tried(make, replace(sure, margin=MARGINS[n]), first=n == 0)
        return plan is None or _chance(plan) >= sure.probability

    n = 0 if enough(0) else bisect_left(range(len(MARGINS)), True, lo=1, key=enough)
    plan = made.get(n) if n < len(MARGINS) else None
    if plan is not None:
        return plan
    surest = max((plan for plan in made.values() if plan is not None), key=_chance)
    if not sure.strict:
        return surest
    raise Infeasible(
        f"no plan for {significant(surest.rate_tps, 6)} rows/s holds with a probability of {sure.probability:g}",
        cause=f"the surest that fits holds with {_chance(surest):.3f}",
        hint="allow more VMs, or ask for less",
    )


def _tried(make: Callable[[Sure], Plan], sure: Sure, first: bool) -> Plan | None:
    """None where it does not fit; without any margin that is said."""
    try:
        return make(sure)
    except Infeasible:
        if first:
            raise
        return None


def _chance(plan: Plan) -> float:
    return plan.prediction.sure.chance if plan.prediction.sure is not None else 0.0


# ── What no plan can be quicker than: the latency constraints that the models already rule out. Pure ────


def refuse_below_floor(topology: Topology, models: Mapping[str, Model]) -> None:
    """Raises InvalidInput, with the floor, where a constraint asks for less than its tasks take for one row, each
    alone in a slot, and its hops. Tasks without a model count as nothing."""
    faults = list(_faults(topology, models))
    if faults:
        raise InvalidInput(
            "a latency constraint cannot be met", faults=faults, hint="a higher limit_ms, or quicker tasks"
        )


def floor_ms(constraint: LatencyConstraint, topology: Topology, models: Mapping[str, Model]) -> float:
    """Of one row: its hops, and what each task but the first takes for it by its model."""
    names = [topology.by_name[name].model_name for name in constraint.path[1:]]
    known = [models[name] for name in names if name in models and not models[name].unmeasured]
    return HOP_MS * len(names) + sum(1000 / rate for model in known if (rate := peak_rate(model, 1)) > 0)


def _faults(topology: Topology, models: Mapping[str, Model]) -> Iterator[str]:
    for constraint in topology.latency_constraints:
        floor = floor_ms(constraint, topology, models)
        if constraint.limit_ms < floor:
            yield (
                f"{' → '.join(constraint.path)}: {constraint.limit_ms:g} ms are allowed, and by the models of its "
                f"tasks a row takes {floor:.3g} ms"
            )
