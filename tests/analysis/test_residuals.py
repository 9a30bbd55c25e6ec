"""Measured against predicted; latency against its limits."""

from __future__ import annotations

import msgspec
import pytest
from analysis_made import IDLE, VM1, line_topology, window_of
from hypothesis import given
from msgspec.structs import replace
from worlds import checked_few, requests

from headgate.controller.analyze.latency_constraints import violation, violations
from headgate.controller.analyze.residuals import growing, nearness, predicted_slots, residuals
from headgate.controller.knowledge.diagnoses import Stability
from headgate.controller.knowledge.measured_window import (
    EdgeWindow,
    Latency,
    MeasuredWindow,
    ProgressSeries,
    SlotWindow,
)
from headgate.controller.models.plans import Prediction, Share, SlotUse
from headgate.controller.plan.planner import PlanRequest, best_plan
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import LatencyConstraint, Topology
from headgate.topology_runtime.errors import Infeasible

S0, S1 = Slot("vm1", 0), Slot("vm1", 1)
PREDICTION = Prediction(
    rate_tps=120.0,
    limited_by="score",
    limited_by_slot="vm1/1",
    slots=(SlotUse("vm1", 0, 0.3, 0.2), SlotUse("vm1", 1, 0.8, 0.4)),
    vms=(),
    at_rate_tps=100.0,
    shares=(Share(S0, "source", 1.0), Share(S0, "sink", 1.0), Share(S1, "score", 1.0)),
)


def measured(emitted_tps: float, score_tps: float, **more: float) -> MeasuredWindow:
    slots = {
        S0: SlotWindow(0.2, 0.25, 0.04, 2.5e8, 0.0, 0.0),
        S1: SlotWindow(0.48, 0.4, 0.096, 4e8, 0.0, 0.0),
    }
    tasks = {
        "source": msgspec.structs.replace(IDLE, rate_out_tps=emitted_tps),
        "score": msgspec.structs.replace(IDLE, rate_in_tps=score_tps, latency_mean_ms=4.0, busy_share=0.6),
        "sink": msgspec.structs.replace(IDLE, rate_in_tps=2 * score_tps, latency_mean_ms=1.0, busy_share=0.1),
    }
    return window_of(ProgressSeries(), None, more.get("complete", 1.0), tasks, slots, emitted_tps=emitted_tps)


def test_cpu_is_compared_at_the_rate_that_is_emitted_static_shares_apart() -> None:
    predicted = predicted_slots(PREDICTION, line_topology(), 50.0, {})
    assert predicted[S0] == pytest.approx((0.1 + 0.2 * 0.5, 0.2))
    assert predicted[S1] == pytest.approx((0.4, 0.4))
    above = predicted_slots(PREDICTION, line_topology(), 500.0, {})
    assert above[S1][0] == pytest.approx(0.8 * 1.2), "no more than the supported rate gets through"
    nothing = msgspec.structs.replace(PREDICTION, at_rate_tps=0.0)
    assert predicted_slots(nothing, line_topology(), 50.0, {})[S1][0] == 0.0


def slots_at(rate_tps: float) -> dict[Slot, tuple[float, float]]:
    return predicted_slots(PREDICTION, line_topology(), rate_tps, {})


def test_what_a_slots_process_holds_is_its_memory_where_that_is_known() -> None:
    predicted = predicted_slots(PREDICTION, line_topology(), 50.0, {S0: 0.33})
    assert (predicted[S0][1], predicted[S1][1]) == (0.33, 0.4)


def test_residuals() -> None:
    found = {
        (r.what, r.where): r
        for r in residuals(measured(60, 54), PREDICTION, slots_at(60), line_topology(), [VM1])
    }
    assert found["rate", "score"].ratio == pytest.approx(0.9)
    assert found["rate", "sink"].predicted == pytest.approx(120)
    assert found["rate", "sink"].measured == pytest.approx(108)
    assert found["cpu", "vm1/1"].ratio == pytest.approx(1.0)
    assert found["memory", "vm1/0"].ratio == pytest.approx(1.25)
    assert ("rate", "source") not in found
    assert ("cpu", "vm1/2") not in found


def test_no_residuals_from_missing_samples() -> None:
    assert residuals(measured(60, 54, complete=0.9), PREDICTION, slots_at(60), line_topology(), [VM1]) == ()
    idle = residuals(measured(0.0, 0.0), PREDICTION, slots_at(0), line_topology(), [VM1])
    assert all(r.what != "rate" for r in idle)


def late(latency_ms: float | None = None) -> MeasuredWindow:
    edges = {("source", "score"): EdgeWindow(1, 1, 2.0, 3.0), ("score", "sink"): EdgeWindow(1, 1, 0.5, 1.5)}
    whole = {} if latency_ms is None else {("source", "sink"): Latency(100.0, latency_ms, 0, 0, 0)}
    return msgspec.structs.replace(measured(60, 60), edges=edges, latencies=whole)


def test_a_path_is_the_sum_of_its_tasks_and_edges() -> None:
    path = ("source", "score", "sink")
    found = violation(line_topology(), LatencyConstraint(path, 10.7), late())
    assert found is not None
    assert found.measured_ms == pytest.approx(10.75)
    assert found.parts_ms == pytest.approx({"source → score": 4, "score": 4, "score → sink": 1.75, "sink": 1})
    assert found.busiest == 0.6
    assert violation(line_topology(), LatencyConstraint(path, 10.8), late()) is None


def test_from_source_to_sink_it_is_measured_whole() -> None:
    path = ("source", "score", "sink")
    found = violation(line_topology(), LatencyConstraint(path, 50.0), late(80.0))
    assert found is not None
    assert found.measured_ms == 80.0
    part = violation(line_topology(), LatencyConstraint(("score", "sink"), 50.0), late(80.0))
    assert part is None


def test_each_constraint_has_its_own_window_and_missing_samples_are_no_violation() -> None:
    topology = msgspec.structs.replace(
        line_topology(),
        latency_constraints=(
            LatencyConstraint(("score", "sink"), 1.0, 5.0),
            LatencyConstraint(("score", "sink"), 2.0, 30.0),
        ),
    )
    asked: list[float] = []

    def window(seconds: float) -> MeasuredWindow:
        asked.append(seconds)
        return msgspec.structs.replace(late(), complete=1.0 if seconds > 10 else 0.5)

    found = violations(topology, window)
    assert asked == [5.0, 30.0]
    assert [v.limit_ms for v in found] == [2.0]


# ── How near tasks are to their limits, against the planner's own prediction of what saturates first ────


def seen(topology: Topology, rate_tps: float) -> MeasuredWindow:
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
            assert max(load.share for load in loads.values()) <= 1.02
        else:
            assert loads[limit.limited_by].share == pytest.approx(part, rel=0.1), "it grows as the rate does"
            assert max(load.share for load in loads.values()) <= loads[limit.limited_by].share * 1.1


def test_rows_pile_up_where_the_queue_grows_in_a_run_that_does_not_keep_up():
    verdict = Stability("unstable", 0.1, 0, 0, 0.1, 0, 0, 0.9, 1.0, "")
    grown = {
        name: replace(IDLE, rate_in_tps=100.0, queue_growth_tps=tps) for name, tps in (("a", 8.0), ("b", 0.5))
    }
    now = window_of(ProgressSeries(), tasks=grown)
    assert growing(now, verdict) == {"a"}
    assert growing(now, replace(verdict, verdict="stable")) == frozenset()
