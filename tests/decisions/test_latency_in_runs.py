"""Plans that keep a latency limit in a run, and what is said of the latency of the plan in force
(controller/core/predicted_latency.py, controller/plan/latency_limit.py)."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Any

import pytest
from enactment_world import MODELS, TOPOLOGY, World, vm

from headgate.controller.core.plan_choice import PlanQuestion, choose, planned
from headgate.controller.knowledge import loop_events as t
from headgate.controller.models.plans import Plan
from headgate.controller.models.prediction_ledger import LedgerEntry
from headgate.controller.plan.planning_request import PlanRequest
from headgate.controller.plan.predict.latency import latency_of
from headgate.controller.plan.steadiness import as_it_is
from headgate.topology_runtime.errors import InvalidInput

MS = 1_000_000
AT_PEAK_TPS = 300.0  # six threads at their peak of 50 rows/s: rows wait for each other
LIMIT_MS = 60.0  # rows take 20 ms


def request(p95_ms: float | None) -> PlanRequest:
    models = {model.task: model for model in MODELS}
    return PlanRequest(TOPOLOGY, models, AT_PEAK_TPS, (vm("vm1"), vm("vm2")), p95_ms=p95_ms)


def p95_of(plan: Plan) -> float:
    models = {model.task: model for model in MODELS}
    found = latency_of(TOPOLOGY, models, plan.placement, plan.vms, plan.prediction, AT_PEAK_TPS)
    assert found is not None
    return found.rows.p95_ms


def threads(plan: Plan) -> int:
    return sum(bundle.threads for bundle in plan.placement.bundles if bundle.task == "work")


def test_a_limit_takes_the_first_plan_whose_rows_are_in_time() -> None:
    usual, limited = planned(request(None))[0], planned(request(LIMIT_MS))[0]
    assert p95_of(usual) > LIMIT_MS >= p95_of(limited)
    assert threads(limited) == threads(usual) + 1, "no more than it takes"
    assert limited.rate_tps == usual.rate_tps == AT_PEAK_TPS
    assert planned(request(10 * p95_of(usual)))[0] == usual, "where all are in time anyway"


def test_a_limit_that_nothing_keeps_still_has_a_plan() -> None:
    """A row alone takes 20 ms."""
    plan, less = planned(request(5.0))
    assert not less and p95_of(plan) < p95_of(planned(request(None))[0])


def test_what_runs_does_not_stay_where_its_rows_are_late() -> None:
    usual = planned(request(None))[0]
    assert as_it_is(request(None), usual) is not None and as_it_is(request(LIMIT_MS), usual) is None
    limited = planned(request(LIMIT_MS))[0]
    assert as_it_is(request(LIMIT_MS), limited) is not None
    question = PlanQuestion(
        request(LIMIT_MS), (), usual, False, frozenset(), 9, frozenset(), False, may_stay=True
    )
    chosen = choose(question)
    assert chosen.plan is not None and p95_of(chosen.plan) <= LIMIT_MS


@pytest.mark.parametrize("limit_ms", [0.0, -1.0, math.nan, math.inf])
def test_a_limit_that_is_no_time_is_refused(limit_ms: float) -> None:
    with pytest.raises(InvalidInput, match="cannot be planned") as refused:
        planned(request(limit_ms))
    assert any("p95_ms" in fault for fault in refused.value.faults)


# ── in a run ────────────────────────────────────────────────────────────────────────────────────


class Predicting(World):
    """Gives predictions back within a second. entries: of the prediction ledger; lines: of the trace."""

    def __init__(self, **settings: Any) -> None:
        self.orders: list[t.PredictLatency] = []
        self.entries: list[LedgerEntry] = []
        self.lines: list[dict[str, Any]] = []
        self.gives, self.given = True, 0
        super().__init__(**settings)

    def perform(self, instruction: t.Instruction) -> None:
        match instruction:
            case t.PredictLatency():
                self.orders.append(instruction)
            case t.Trace("prediction", {"entry": entry}):
                self.entries.append(entry)
            case t.Trace("latency", line):
                self.lines.append(line)
            case _:
                super().perform(instruction)

    def passes(self, seconds: float) -> Predicting:
        """Time, and what was ordered meanwhile is given back."""
        for _ in range(round(seconds)):
            self.run(1.0)
            while self.gives and self.given < len(self.orders):
                self.given += 1
                self.do(self.orders[self.given - 1].made(0.2))
        return self

    @property
    def predicted(self) -> dict[str, float] | None:
        return self.ask("status").data["latency_ms"]["predicted"]


def running(**settings: Any) -> Predicting:
    world = Predicting(**settings)
    world.start()
    world.until("committed")
    return world.passes(15)


def test_latency_is_predicted_once_for_a_plan_and_a_rate() -> None:
    world = running(rate_tps=100.0)
    plan = world.rollout.plan
    (order,) = world.orders
    assert order.plan == plan.id and order.rate_tps == pytest.approx(100, rel=0.05)
    models = {model.task: model for model in MODELS}
    there = TOPOLOGY, models, plan.placement, plan.vms, plan.prediction
    expected = latency_of(*there, order.rate_tps)
    assert expected is not None and world.predicted is not None
    assert world.predicted["p95_ms"] == pytest.approx(expected.rows.p95_ms, abs=0.001)
    world.passes(60)
    assert len(world.orders) == 1, "nothing is another"
    world.ask("rate_set", rate_tps=190.0)
    world.passes(60)
    last = world.orders[-1]
    assert last.rate_tps == pytest.approx(190, rel=0.1) and last.plan == world.rollout.plan.id
    assert len(world.orders) <= 4


def test_the_prediction_of_a_plan_that_is_gone_is_not_shown() -> None:
    world = running(rate_tps=100.0)
    assert world.predicted is not None
    world.gives = False
    world.ask("rate_set", rate_tps=300.0)
    world.passes(60)
    assert world.predicted is None


def test_the_prediction_ledger_has_what_was_predicted_beside_what_was_measured() -> None:
    world = running(rate_tps=100.0).passes(90)
    last = world.entries[-1]
    assert set(last.predicted_latency_ms) == {"p50", "p95", "p99"} == set(last.latency_ms)
    assert last.predicted_latency_ms["p50"] == pytest.approx(world.predicted["p50_ms"], abs=0.001)


def test_a_prediction_that_fails_is_said() -> None:
    made = t.PredictLatency(1, "plan", 1.0, lambda: 1 // 0).made(0.1)
    assert isinstance(made, t.Troubled) and "ZeroDivisionError" in made.error


def test_rows_that_are_late_for_ten_seconds_raise_an_alarm_until_they_are_in_time() -> None:
    world = running(rate_tps=100.0, p95_ms=150.0)
    assert "p95" not in world.loop.knowledge.alarms
    world.rows_take_ns = 400 * MS
    world.passes(30)
    assert "is to be within 150 ms" in world.loop.knowledge.alarms["p95"]
    world.rows_take_ns = 50 * MS
    world.passes(30)
    assert "p95" not in world.loop.knowledge.alarms


def test_what_was_predicted_is_recorded_with_its_plan_and_when_that_has_settled() -> None:
    world = running(rate_tps=100.0)
    plan, (line,) = world.rollout.plan, world.lines
    assert (line["plan"], line["epoch"]) == (plan.id, world.rollout.epoch)
    assert line["rate_tps"] == world.orders[0].rate_tps
    (sink,) = line["sinks"]
    assert sink["sink"] == "sink" and sink["p95_ms"] == pytest.approx(world.predicted["p95_ms"], abs=0.001)
    in_force_s = world.loop.knowledge.in_force_s(world.now)
    since_s = (world.now.wall_ns - datetime.fromisoformat(line["time"]).timestamp() * 1e9) / 1e9
    assert line["settled_in_s"] == pytest.approx(20.0 - (in_force_s - since_s), abs=0.01)
    world.passes(60)
    world.ask("rate_set", rate_tps=5000.0)
    world.passes(60)
    assert [one["plan"] for one in world.lines] == [order.plan for order in world.orders]
    assert all(one["settled_in_s"] <= 20.0 for one in world.lines)


def test_a_plan_that_does_not_carry_what_is_offered_is_recorded_without_a_latency() -> None:
    world = running(rate_tps=100.0, mode="advise")
    world.ask("rate_set", rate_tps=5000.0)
    world.passes(60)
    last = world.lines[-1]
    assert (last["plan"], last["rate_tps"], last["sinks"]) == (world.rollout.plan.id, None, [])
