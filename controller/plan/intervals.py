"""Between what a prediction may lie when its models say how far their points may be off. Pure.

The highest input rate never falls when a peak rate rises or a need of CPU falls. So whatever the true points
are within their spread, the placement supports at least what it would with all points at their worst, and at
most what it would with all at their best: a bracket, and wider than what is likely.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model, at_best, at_worst
from headgate.controller.knowledge.plans import Prediction, SlotUse
from headgate.controller.plan.load import PlacementLoad
from headgate.controller.plan.shares import Split


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
