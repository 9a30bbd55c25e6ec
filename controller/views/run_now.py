"""Of a snapshot: plan, proposal, rates, verdict, tuples. Pure."""

from __future__ import annotations

from typing import Any, Literal

from msgspec.structs import asdict

from controller.core.status import lag_now, lost_now
from controller.execute.ending import offered_of
from controller.execute.executor import sight_of, stand_of
from controller.execute.steps import waits_for
from controller.knowledge.arrivals import offered_now
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.membership import Membership
from controller.knowledge.plans import usd_per_hour
from controller.knowledge.windows import SERIES_STEP_S, ProgressSeries
from controller.monitor.hearing import in_flight
from controller.views.figures import figure
from controller.views.layout import Layout
from controller.views.parts import stable_of
from controller.views.view_input import ViewInput
from controller.views.words import diff_of
from topology_runtime import snapshot as s
from topology_runtime.utc import utc_iso

LATELY_S = 2.0


def plan_now(k: Knowledge) -> s.PlanNow | None:
    rollout, plan = k.durable.rollout, k.plan
    if rollout is None or plan is None:
        return None
    prediction = plan.prediction
    return s.PlanNow(
        id=plan.id,
        epoch=rollout.epoch,
        phase=k.durable.phase,
        reason=rollout.reason,
        text=rollout.text,
        since=utc_iso(rollout.wall_ns),
        rate_tps=round(plan.rate_tps, 3),
        predicted_tps=round(prediction.rate_tps, 3),
        allocator=plan.allocator,
        mapper=plan.mapper,
        routing=plan.routing,
        threads=sum(bundle.threads for bundle in plan.placement.bundles),
        slots=s.SlotsOfPlan(
            estimated=plan.slots.estimated,
            extra=plan.slots.extra,
            total=plan.slots.total,
            used=plan.slots.used,
        ),
        usd_per_hour=usd_per_hour(plan.vms),
        limited_by=prediction.limited_by,
        limited_by_slot=prediction.limited_by_slot,
        predicted_low_tps=figure(prediction.rate_low_tps, 4),
        predicted_high_tps=figure(prediction.rate_high_tps, 4),
        degraded=rollout.degraded or None,
    )


def proposal_now(k: Knowledge, layout: Layout) -> s.ProposalNow | None:
    found = k.proposal
    if found is None:
        return None
    plan = found.plan
    after = {(str(b.slot), b.task): b.threads for b in plan.placement.bundles}
    return s.ProposalNow(
        id=plan.id,
        reason=found.reason,
        text=found.text,
        rate_tps=round(plan.rate_tps, 3),
        predicted_tps=round(plan.prediction.rate_tps, 3),
        slots=plan.slots.used,
        base_epoch=found.base_epoch,
        diff=diff_of(layout.threads, after),
    )


def enacting_now(sight: ViewInput) -> s.Enacting | None:
    stand = stand_of(sight.k, sight_of(sight.members), sight.now.mono_ns)
    if stand is None:
        return None
    return s.Enacting(epoch=stand.planned.epoch, phase=stand.phase, waits_for=waits_for(stand) or None)


def rates_now(sight: ViewInput) -> s.RatesNow:
    k, seen = sight.k, sight.seen
    offered = offered_now(k, sight.now.wall_ns)
    supported = k.plan.prediction.rate_tps if k.plan else None
    spare = supported - offered if supported is not None and offered is not None else None
    return s.RatesNow(
        offered_tps=figure(offered),
        emitted_tps=figure(lately(seen.window.progress, "emitted")) if seen else None,
        acked_tps=figure(lately(seen.window.progress, "acked")) if seen else None,
        planned_tps=figure(k.plan.rate_tps) if k.plan else None,
        predicted_tps=figure(supported),
        headroom_tps=figure(spare),
        **_lag_now(sight),
    )


def _lag_now(sight: ViewInput) -> dict[str, Any]:
    """Of sources whose rows are taken as they come; nothing of others."""
    if sight.k.topology is None or not sight.k.topology.arriving:
        return {}
    found = lag_now(sight.k, sight.now)
    rounded = {"lag_s": figure(found["lag_s"]), "cap_tps": figure(found["cap_tps"])}
    return found | rounded


def lately(progress: ProgressSeries, what: Literal["emitted", "acked"]) -> float | None:
    """Rows/s of the last `LATELY_S`, beside what is offered now; None before there is so much to tell of."""
    sums, at_s = getattr(progress, what), progress.at_s
    points = round(LATELY_S / SERIES_STEP_S)
    return (sums[-1] - sums[-1 - points]) / (at_s[-1] - at_s[-1 - points]) if len(at_s) > points else None


def latency_now(sight: ViewInput) -> s.LatencyNow:
    latency = sight.seen.window.latency if sight.seen else None
    if latency is None or not latency.rows:
        return s.LatencyNow()
    return s.LatencyNow(p50=figure(latency.p50_ms), p95=figure(latency.p95_ms), p99=figure(latency.p99_ms))


def stable_now(sight: ViewInput) -> s.StableNow:
    return stable_of(asdict(sight.seen.stability) if sight.seen else {})


def tuples_now(sight: ViewInput) -> s.TuplesNow:
    counts = sight.k.counts
    return s.TuplesNow(
        offered=offered_of(sight.k, sight.now.wall_ns),
        emitted=counts.emitted,
        acked=counts.acked,
        in_flight=in_flight(sight.members.up()),
        lost=lost_now(sight.k, sight.members),
        dead_lettered=counts.letters.count,
        replayed=counts.replayed,
        duplicates=sight.duplicates,
    )


def slots_total(members: Membership) -> int:
    return sum(member.vm.slots for member in members.up())
