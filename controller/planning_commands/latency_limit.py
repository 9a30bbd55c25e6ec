"""Plans that keep a latency limit: of those for the rate and more, the first whose rows are predicted to be done in
time."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.controller.plan.predict.latency import PlanLatency, latency_of
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.controller.planning_commands.plan_request import PlanWanted

MARGINS = (1.0, 1.05, 1.1, 1.15, 1.2, 1.3, 1.4, 1.6, 1.8, 2.0, 2.5, 3.0, 4.0, 6.0)  # times the rate


def latency_asked(plan: Plan, question: PlanWanted) -> PlanLatency | None:
    """That of the plan at its rate; None where it is not known."""
    there = question.topology, question.models, plan.placement, plan.vms, plan.prediction
    return latency_of(*there, plan.rate_tps)


def within(question: PlanWanted, p95_ms: float) -> tuple[Plan, str, PlanLatency]:
    """(plan, why it is for less than asked or "", its latency), where 95 of 100 rows take so long at most. Raises
    Infeasible with the nearest limit that can be met, InvalidInput where models do not say enough."""
    nearest: tuple[PlanLatency, Plan] | None = None
    for margin in MARGINS:
        why = f"so that p95 keeps within {significant(p95_ms, 3)} ms"
        request = msgspec.structs.replace(question.request, margin=margin, margin_why=why)
        wanted = replace(question, request=request)
        try:
            plan, less = (wanted if margin > 1 else question).plan_or_best()
        except Infeasible:
            if nearest is None:
                raise
            break
        found = latency_asked(plan, question)
        if found is None:
            raise InvalidInput(
                f"the latency of {question.topology.name} is not known before its rows were measured",
                hint="run it for a while, or `headgate model profile --topology …`",
            )
        if found.rows.p95_ms <= p95_ms:
            return plan, less, found
        if nearest is None or found.rows.p95_ms < nearest[0].rows.p95_ms:
            nearest = found, plan
    assert nearest is not None
    found, plan = nearest
    best, slots = f"{significant(found.rows.p95_ms, 3)} ms", counted(plan.slots.used, "slot")
    raise Infeasible(
        f"no plan for {significant(plan.rate_tps, 6)} rows/s keeps a p95 of {significant(p95_ms, 3)} ms",
        cause=f"the nearest found has {best}, on {slots}: what tasks take for a row sets the floor",
        hint=f"--p95 {significant(found.rows.p95_ms * 1.01, 3)}ms, or quicker tasks",
    )


def latency_sentence(found: PlanLatency, limit_ms: float | None) -> str:
    """`at 100 rows/s: p50 7.1 ms, p95 11.6 ms, p99 11.9 ms from when a row is due until sinks are done with it`."""
    p50, p95, p99 = (f"{significant(value, 3)} ms" for value in found.rows)
    kept = "" if limit_ms is None else f"; p95 is to be within {significant(limit_ms, 3)} ms"
    at = significant(found.rate_tps, 6)
    return f"At {at} rows/s p50 {p50}, p95 {p95}, p99 {p99} from when a row is due until it is done{kept}."


def latency_data(found: PlanLatency | None, limit_ms: float | None) -> dict[str, Any]:
    """For programs; empty where it is not known."""
    if found is None:
        return {}
    sinks = {name: latency._asdict() for name, latency in found.sinks}
    limit = {} if limit_ms is None else {"p95_limit_ms": limit_ms}
    return {"rate_tps": found.rate_tps, **found.rows._asdict(), "sinks": sinks, **limit}
