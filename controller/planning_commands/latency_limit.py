"""What plans are predicted to take for a row, as people and programs see it; and `--p95`, which plans for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headgate.controller.models.plans import PlanLatency
from headgate.controller.plan.latency_limit import plan_within
from headgate.controller.planning_commands.plan_request import NearestTold
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    from headgate.controller.models.plans import Plan
    from headgate.controller.planning_commands.plan_request import PlanWanted


def within(question: PlanWanted, p95_ms: float) -> tuple[Plan, str]:
    """(plan, why it is for less than asked or ""), where 95 of 100 rows take so long at most. Raises Infeasible with
    the nearest limit that can be met, InvalidInput where models do not say enough."""
    found = plan_within(
        question.request, p95_ms, lambda request: replace(question, request=request).plan_or_best()
    )
    if found.latency is None:
        raise InvalidInput(
            f"the latency of {question.topology.name} is not known before its rows were measured",
            hint="run it for a while, or `headgate model profile --topology …`",
        )
    if found.kept:
        return found.plan, found.less
    raise NearestTold(
        f"no plan for {significant(found.plan.rate_tps, 6)} rows/s keeps a p95 of {significant(p95_ms, 3)} ms",
        cause=found.nearest,
        hint=f"--p95 {significant(found.latency.rows.p95_ms * 1.01, 3)}ms, or quicker tasks",
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
