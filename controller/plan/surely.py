"""How surely a placement carries a rate, and plans that do with a given probability. Pure.

It carries a rate when every slot does. What a row costs in slot s is off by exp(e(s)), and e(s) is normal:

    e(s) = together + own(s)     P(all carry R) ≥ ∫ φ(z) Π P(own(s) ≤ ln(L(s) / R) − mean(s) − together · z) dz

L(s): the input rate at which the slot is full. Slots err together where the errors of models are not known; where they
are learned, each slot has those of its models besides its own (the largest, for what several tasks need adds up to no
more). Slots of the same model then err alike in truth, and the product takes them for independent: that is never more
than the probability (D. Slepian, The one-sided barrier problem for Gaussian noise, Bell System Technical Journal 41,
1962), so a plan is at least as sure as is said.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from headgate.controller.knowledge.certainty import Certainty, ErrorSpread, Sure
from headgate.controller.knowledge.plans import Plan, Prediction
from headgate.controller.plan.likely import limits_of_slots
from headgate.controller.plan.load import PlacementLoad
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.faults.words import significant

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


def certainty(
    load: PlacementLoad, shares: Sequence[float], rate_tps: float, sure: Sure, models: OfModels
) -> Certainty:
    """Of a placement at this rate."""
    chance = chance_of(load, shares, rate_tps, sure.spread, models)
    return Certainty(sure.probability, rate_tps, chance, sure.margin, sure.spread)


def certain_rate(
    load: PlacementLoad, shares: Sequence[float], most_tps: float, sure: Sure, models: OfModels
) -> Certainty:
    """The highest rate, within a millionth, that the placement carries as surely as is asked for. most_tps: twice that
    is too much for any."""
    low, high = 0.0, 2 * most_tps
    while high - low > FINE * most_tps:
        middle = (low + high) / 2
        if chance_of(load, shares, middle, sure.spread, models) >= sure.probability:
            low = middle
        else:
            high = middle
    return certainty(load, shares, low, sure, models)


def with_certainty(
    found: Prediction, load: PlacementLoad, rate_tps: float | None, sure: Sure, models: OfModels
) -> Prediction:
    """The prediction, and how surely it carries this rate (None: the highest one that it carries so surely)."""
    shares = load.in_order(found.shares)
    if rate_tps is None:
        return replace(found, sure=certain_rate(load, shares, found.rate_tps, sure, models))
    return replace(found, sure=certainty(load, shares, rate_tps, sure, models))


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
        f"no plan for {significant(surest.rate_tps, 6)} tuples/s holds with a probability of {sure.probability:g}",
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
