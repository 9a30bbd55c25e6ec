"""Of a snapshot: plan, proposal, rates, verdict, tuples. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.controller.knowledge.plans import usd_per_hour
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.views.figures import figure, share
from headgate.controller.views.sentences import diff_of
from headgate.topology_runtime import snapshot as s
from headgate.topology_runtime.utc import utc_iso

TEXT_MOST = 160


def plan_now(view: RunView) -> s.PlanNow | None:
    rollout, facts = view.rollout, view.plan_facts
    if rollout is None or facts is None:
        return None
    plan = rollout.plan
    return s.PlanNow(
        **_short(facts),
        since=utc_iso(rollout.wall_ns),
        slots=msgspec.convert(plan.slots, s.SlotsOfPlan, from_attributes=True),
        usd_per_hour=usd_per_hour(plan.vms),
        predicted_low_tps=figure(plan.prediction.rate_low_tps, 4),
        predicted_high_tps=figure(plan.prediction.rate_high_tps, 4),
    )


def proposal_now(view: RunView) -> s.ProposalNow | None:
    if view.proposal is None:
        return None
    plan = view.proposal.plan
    after = {(str(b.slot), b.task): b.threads for b in plan.placement.bundles}
    return s.ProposalNow(
        **_short(view.proposal.facts),
        predicted_tps=round(plan.prediction.rate_tps, 3),
        diff=diff_of(view.placed.threads, after),
    )


def _short(facts: dict[str, Any]) -> dict[str, Any]:
    return {name: round(v, 3) if isinstance(v, float) else v for name, v in facts.items()}


def enacting_now(view: RunView) -> s.Enacting | None:
    now = view.under_way
    if now is None:
        return None
    return s.Enacting(epoch=now.epoch, phase=now.phase, waits_for=now.waits_for or None)


def rates_now(view: RunView) -> s.RatesNow:
    return s.RatesNow(
        offered_tps=figure(view.offered_tps),
        emitted_tps=figure(view.emitted_tps),
        acked_tps=figure(view.acked_tps),
        planned_tps=figure(view.planned_tps),
        predicted_tps=figure(view.predicted_tps),
        headroom_tps=figure(view.headroom_tps),
        **_lag_now(view),
    )


def _lag_now(view: RunView) -> dict[str, Any]:
    """Of sources whose rows are taken as they come; nothing of others."""
    if view.lag is None:
        return {}
    return {
        "source_kind": view.source_kind,
        "lag_rows": view.lag.rows,
        "lag_s": figure(view.lag.seconds),
        "cap_tps": figure(view.cap_tps),
    }


def latency_now(view: RunView) -> s.LatencyNow:
    latency = view.window.latency if view.window else None
    if latency is None or not latency.rows:
        return s.LatencyNow()
    return s.LatencyNow(p50=figure(latency.p50_ms), p95=figure(latency.p95_ms), p99=figure(latency.p99_ms))


def stable_now(view: RunView) -> s.StableNow:
    """The verdict with its evidence; where there is none, only why."""
    found = view.result.stability if view.result else None
    if found is None or found.verdict == "unknown":
        return s.StableNow(verdict="unknown", text=(found.text[:TEXT_MOST] or None) if found else None)
    return s.StableNow(
        verdict=found.verdict,
        slope=figure(found.slope, 2),
        slope_low=figure(found.slope_low, 2),
        slope_high=figure(found.slope_high, 2),
        queue_growth=figure(found.queue_growth, 2),
        out_in=share(found.out_in),
        confidence=share(found.confidence),
    )


def bottleneck_now(plan: s.PlanNow | None) -> s.Bottleneck | None:
    """What the prediction of the plan says saturates first; None when it names nothing."""
    if plan is None or plan.limited_by is None or plan.limited_by_slot is None:
        return None
    return s.Bottleneck(task=plan.limited_by, slot=plan.limited_by_slot, at_tps=plan.predicted_tps)


def tuples_now(view: RunView) -> s.TuplesNow:
    return msgspec.convert(view.tuples, s.TuplesNow, from_attributes=True)
