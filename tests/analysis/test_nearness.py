"""How near tasks are to their limits, against the planner's own prediction of what saturates first."""

from __future__ import annotations

import pytest
from analysis_made import IDLE, window_of
from hypothesis import given
from msgspec.structs import replace
from worlds import checked_few, requests

from headgate.controller.analyze.nearness import growing, nearness
from headgate.controller.analyze.residuals import predicted_slots
from headgate.controller.knowledge.diagnoses import Stability
from headgate.controller.knowledge.windows import ProgressSeries, Window
from headgate.controller.plan.planner import PlanRequest, best_plan
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.topology import Topology


def seen(topology: Topology, rate_tps: float) -> Window:
    """What a window holds in which the sources emit this rate and everything arrives."""
    tasks = {name: replace(IDLE, rate_in_tps=tps) for name, tps in topology.rates(rate_tps).items()}
    return window_of(ProgressSeries(), tasks=tasks, emitted_tps=rate_tps)


@checked_few
@given(requests())
def test_at_the_highest_rate_that_is_predicted_the_first_to_saturate_is_at_its_limit_and_nothing_beyond(
    request: PlanRequest,
):
    try:
        plan = best_plan(replace(request, rate_tps=50.0))
    except Infeasible:
        return
    limit = plan.prediction
    if limit.limited_by is None or plan.rate_tps < 0.1:  # next to nothing fits
        return
    for part in (1.0, 0.5):
        rate_tps = part * limit.rate_tps
        slots = predicted_slots(limit, request.topology, rate_tps, {})
        loads = nearness(seen(request.topology, rate_tps), plan, request.topology, request.models, slots)
        if part == 1.0:
            assert loads[limit.limited_by].share == pytest.approx(1, rel=0.02)
            named = [load.share for name, load in loads.items() if not request.topology.by_name[name].static]
            assert max(named) <= 1.02
        else:
            assert loads[limit.limited_by].share < 0.95


def test_rows_pile_up_where_the_queue_grows_in_a_run_that_does_not_keep_up():
    verdict = Stability("unstable", 0.1, 0, 0, 0.1, 0, 0, 0.9, 1.0, "")
    grown = {
        name: replace(IDLE, rate_in_tps=100.0, queue_growth_tps=tps) for name, tps in (("a", 8.0), ("b", 0.5))
    }
    now = window_of(ProgressSeries(), tasks=grown)
    assert growing(now, verdict) == {"a"}
    assert growing(now, replace(verdict, verdict="stable")) == frozenset()
