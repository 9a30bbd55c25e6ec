"""`headgate/whatif/v1`: what rates need, as plain data, the same of a command and of a running controller. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headgate.controller.knowledge.plans import Plan, SlotCount, usd_per_hour
from headgate.controller.plan.planner import PlanRequest
from headgate.controller.plan.scaling import HOURS_PER_MONTH, PairAtRate, Reach, ScalingAnalysis, step_for
from headgate.topology_runtime.cluster import Vm

SCHEMA, COMPARISON = "headgate/whatif/v1", "headgate/comparison/v1"

Row = dict[str, Any]


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


def outlook_row(found: ScalingAnalysis, reachable: frozenset[str] | None = None) -> Row:
    """A rate; without a plan everything but the reason is null. fits: on the VMs named `reachable` (None: any)."""
    plan, limit = found.plan, found.limit
    cost = usd_per_hour(plan.vms) if plan else None
    return {
        "rate_tps": found.rate_tps,
        "fits": plan is not None and (reachable is None or {vm.vm for vm in plan.vms} <= reachable),
        "slots": slot_counts(plan.slots) if plan else None,
        "vms": sizes_text(plan.vms) if plan else None,
        "usd_per_hour": cost,
        "usd_per_month": round(cost * HOURS_PER_MONTH, 2) if cost is not None else None,
        "predicted_tps": plan.prediction.rate_tps if plan else None,
        "predicted_low_tps": plan.prediction.rate_low_tps if plan else None,
        "predicted_high_tps": plan.prediction.rate_high_tps if plan else None,
        "headroom_tps": round(plan.prediction.rate_tps - found.rate_tps, 6) + 0.0 if plan else None,
        "limited_by": limit.task if limit else None,
        "limited_by_slot": limit.slot if limit else None,
        "limit": msgspec.to_builtins(limit) if limit else None,
        "same_slots_up_to_tps": found.same_slots.rate_tps if found.same_slots else None,
        "same_slots": reach_row(found.same_slots) if found.same_slots else None,
        "more_slots": reach_row(found.more_slots) if found.more_slots else None,
        "baseline": _baseline_row(found.baseline, plan) if found.baseline and plan else None,
        "reason": found.reason,
    }


def reach_row(reach: Reach) -> Row:
    """So many slots, their cost, and the highest rate that plans on them."""
    row: Row = msgspec.to_builtins(reach)
    return {**row, "vms": sizes_text(reach.vms), "carried_tps": reach.carried_tps}


def comparison_row(cell: PairAtRate) -> Row:
    """A cell as JSON has it; what an infeasible one lacks is null."""
    allocator, mapper = cell.pair.split("+")
    row: Row = {"pair": cell.pair, "allocator": allocator, "mapper": mapper, "rate_tps": cell.rate_tps}
    plan = cell.plan
    return {
        **row,
        "slots": slot_counts(plan.slots) if plan else None,
        "vms": sizes_text(plan.vms) if plan else None,
        "usd_per_hour": usd_per_hour(plan.vms) if plan else None,
        "weighted_tps": cell.weighted_tps,
        "shuffle_tps": cell.shuffle_tps,
        "rows_tps": cell.crossings.rows_tps if cell.crossings else None,
        "between_slots_tps": cell.crossings.between_slots_tps if cell.crossings else None,
        "between_vms_tps": cell.crossings.between_vms_tps if cell.crossings else None,
        "between_vms_bytes_per_s": cell.crossings.between_vms_bytes_per_s if cell.crossings else None,
        "moves": cell.moves,
        "gap": plan.allocation.gap if plan else None,
        "gap_words": plan.allocation.gap_words or None if plan else None,
        "limited_by": plan.prediction.limited_by if plan else None,
        "limited_by_slot": plan.prediction.limited_by_slot if plan else None,
        "reason": cell.reason,
        "planned_s": round(cell.planned_s, 3),
    }


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


def _baseline_row(cell: PairAtRate, plan: Plan) -> Row:
    """What the baseline takes for the same rate and what the plan saves against it."""
    other, cost = cell.plan, usd_per_hour(plan.vms)
    theirs = usd_per_hour(other.vms) if other else None
    return {
        "pair": cell.pair,
        "same_pair": cell.pair == f"{plan.allocator}+{plan.mapper}",
        "slots": other.slots.total if other else None,
        "slots_used": other.slots.used if other else None,
        "vms": sizes_text(other.vms) if other else None,
        "usd_per_hour": theirs,
        "predicted_tps": other.prediction.rate_tps if other else None,
        "short_tps": round(max(0.0, plan.rate_tps - other.prediction.rate_tps), 6) if other else None,
        "saved_slots": other.slots.total - plan.slots.total if other else None,
        "saved_usd_per_hour": round(theirs - cost, 6) if theirs is not None else None,
        "saved_part": 1 - cost / theirs if theirs else None,
        "reason": cell.reason,
    }


def sizes_text(vms: Sequence[Vm]) -> str:
    """Slots of each VM: `4,4,2`."""
    return ",".join(str(vm.slots) for vm in vms)


def slot_counts(slots: SlotCount) -> Row:
    counts: Row = msgspec.to_builtins(slots)
    return counts
