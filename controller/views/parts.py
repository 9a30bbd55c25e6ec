"""Parts of a snapshot that are made of plain evidence. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controller.views.figures import figure, share
from topology_runtime.snapshot import Bottleneck, PlanNow, StableNow

TEXT_MOST = 160


def stable_of(found: Mapping[str, Any]) -> StableNow:
    """Of a stability verdict as plain data; where there is none, only why."""
    if found.get("verdict") not in ("stable", "unstable"):
        return StableNow(verdict="unknown", text=str(found.get("text") or "")[:TEXT_MOST] or None)
    return StableNow(
        verdict=found["verdict"],
        slope=figure(found.get("slope"), 2),
        slope_low=figure(found.get("slope_low"), 2),
        slope_high=figure(found.get("slope_high"), 2),
        queue_growth=figure(found.get("queue_growth"), 2),
        out_in=share(found.get("out_in")),
        confidence=share(found.get("confidence")),
    )


def bottleneck_of(plan: PlanNow | None) -> Bottleneck | None:
    """What the prediction of the plan says saturates first; None when it names nothing."""
    if plan is None or plan.limited_by is None or plan.limited_by_slot is None:
        return None
    return Bottleneck(task=plan.limited_by, slot=plan.limited_by_slot, at_tps=plan.predicted_tps)
