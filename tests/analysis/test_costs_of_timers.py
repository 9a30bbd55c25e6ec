"""What timers take is shared out among all rows of the run, in what is learned of rows and in the account of models."""

from __future__ import annotations

import pytest
from analysis_made import IDLE, window_of
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.core.learned_models import row_seen
from headgate.controller.core.prediction_accounting import TaskShares
from headgate.controller.knowledge.measured_window import ProgressSeries, SlotWindow, TaskWindow
from headgate.controller.plan.planner import PlanRequest, make_plan

ROWS = replace(IDLE, rate_in_tps=50.0, cpu_cores=0.45)
BURST = replace(ROWS, cpu_cores=0.9, timer_cores=0.45, timer_s_of_row=0.001)


def shares_of(task: TaskWindow) -> float:
    """Of its slot, by the account."""
    topology, models = chain("work"), {"work": model_of("work", (1, 100, 0.9, 0.2))}
    plan = make_plan(PlanRequest(topology, models, 90.0, vms_of(1)))
    (slot,) = {bundle.slot for bundle in plan.placement.bundles if bundle.task == "work"}
    used = SlotWindow(task.cpu_cores, 0.2, task.cpu_cores, 0.0, 0.0, 0.0)
    window = window_of(ProgressSeries(), tasks={"work": task}, slots={slot: used}, emitted_tps=50.0)
    return TaskShares(plan, topology, models, frozenset()).of(window)["work"].cpu


def test_a_burst_of_timers_is_no_cost_of_the_rows_of_that_second() -> None:
    assert shares_of(ROWS) == pytest.approx(0.45)
    assert shares_of(BURST) == pytest.approx(0.45 + 50 * 0.001)


def test_rows_are_learned_from_without_the_timers_of_that_second() -> None:
    used = SlotWindow(0.9, 0.2, 0.9, 0.0, 0.0, 0.0)
    assert row_seen(BURST, used, 50.0).cpu_s == pytest.approx(0.45 + 50 * 0.001)
    assert row_seen(BURST, used, 50.0).others == 0.0


def test_timers_that_took_more_than_was_seen_of_the_cpu_leave_none_for_rows() -> None:
    assert replace(BURST, timer_cores=2.0).row_cores == pytest.approx(50 * 0.001)
