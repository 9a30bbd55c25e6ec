"""The table of `scripts/bench scenarios`: its arithmetic against figures worked out by hand, and what is counted in
virtual time against what the controller says of itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from scenarios import virtual_scenario as virtual
from scenarios.scenario_course import Course, Raised, row, waits_of
from scenarios.scenario_shapes import PUBLIC, SCENARIOS, Scenario, steps

BENCH = Path(__file__).resolve().parents[2] / "scripts/benchmarks/benchmark_runner.py"


def course(**given: object) -> Course:
    """10 rows/s, from 4 s on 30, for 10 s; a plan for 20 with 3 slots, from 6.5 s on one for 40 with 5."""
    came = [10.0] * 4 + [30.0] * 6
    usual = {"carried": [(0.0, 20.0), (6.5, 40.0)], "held": [(0.0, 3.0), (6.0, 5.0)], "waits": []}
    return Course(10.0, came, static_slots=5, **(usual | given))  # type: ignore[arg-type]


def test_the_row_is_what_one_works_out_by_hand() -> None:
    found = row("step", "virtual", course())
    assert found["short_share"] == pytest.approx(2.5 * 10 / 220, abs=1e-5), "10/s above the plan for 2.5 s"
    assert found["of_static"] == pytest.approx((6 * 3 + 4 * 5) / 50, abs=1e-3)
    assert (found["alarms"], found["pause_p95_ms"], found["lost"]) == ("none", None, None)


def test_plans_pauses_late_rows_and_alarms_are_told() -> None:
    alarms = [Raised("short", 3.0, 9.0), Raised("models", 9.4)]
    waits = [(0.1, 200.0), (5.0, 9.0), (5.1, 11.0)]
    pauses_ms = [400.0, *(float(n) for n in range(1, 20))]
    given = course(plans_s=[0.0, 59.0, 61.0, 200.0], waits=waits, alarms=alarms, pauses_ms=pauses_ms, lost=2)
    found = row("step", "live", given)
    assert (found["plans"], found["most_in_a_minute"]) == (4, 2)
    assert found["late_share"] == pytest.approx(11 / 220) and found["longest_wait_s"] == 5.1
    assert (found["pause_p95_ms"], found["pause_max_ms"], found["lost"]) == (19.0, 400.0, 2)
    assert found["alarms"] == "short 3 s, cleared 9 s; models 9 s, not cleared"


def test_rows_wait_in_the_order_in_which_they_came() -> None:
    """20/s for 10 s, 10/s done from the start: the one that came last of all waits as long as all before it."""
    waits = waits_of([20.0] * 10 + [0.0] * 10, [(0.0, 10.0)])
    assert sum(many for _, many in waits) == pytest.approx(200.0)
    assert max(wait_s for wait_s, _ in waits) == pytest.approx(10.0, abs=0.2)
    assert waits_of([10.0] * 5, [(0.0, 0.0)])[0][0] == 5.0, "what is never done waits to the end"


def tried(scenario: Scenario, seconds: int) -> Course:
    *_, last = virtual.tried(scenario, seconds)
    return last


STEP = Scenario("step", "", steps((0, 20.0), (30, 60.0)))


def test_a_step_in_virtual_time_is_counted_off_the_letters() -> None:
    found = tried(STEP, 60)
    assert len(found.plans_s) == 1 and 30 < found.plans_s[0] < 36
    assert [tps for _, tps in found.carried][-1] == pytest.approx(virtual.THREAD_TPS * 23, abs=4)
    line = row("step", "virtual", found)
    assert 0 < line["short_share"] < 0.1 and line["alarms"] == "none"


def test_a_wrong_model_is_seen_in_what_is_carried_though_no_plan_says_so() -> None:
    right, wrong = tried(STEP, 25), tried(Scenario("x", "", STEP.rate, model=3.0), 25)
    assert right.carried[0][1] >= 20 > 10 >= wrong.carried[0][1]


def test_what_rows_really_cost_is_in_the_samples_so_that_a_wrong_model_is_put_right() -> None:
    found = tried(Scenario("x", "", steps((0, 20.0)), model=3.0), 90)
    assert found.carried[-1][1] >= 20 and found.plans_s[-1] < 60


def test_a_vm_that_takes_half_a_minute_is_used() -> None:
    found = tried(Scenario("late", "", STEP.rate, machines="late"), 90)
    assert found.note.startswith("VMs used 4 of 4 times, after at most 3"), found.note


def test_a_public_series_that_is_not_there_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("scenarios.scenario_shapes.PUBLIC", PUBLIC / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        SCENARIOS["day"].rates(False, 10)


def test_one_command_prints_the_table() -> None:
    words = [
        sys.executable,
        "-P",
        str(BENCH),
        "scenarios",
        "--virtual-only",
        "--only",
        "spike",
        "--seconds",
        "20",
    ]
    told = subprocess.run([*words, "-o", "json"], capture_output=True, text=True, check=True, timeout=60)
    (line,) = json.loads(told.stdout)["results"][0]["rows"]
    assert (line["scenario"], line["where"], line["plans"]) == ("spike", "virtual", 0)
    wrong = subprocess.run([*words, "--only", "spik"], capture_output=True, text=True, timeout=60)
    assert wrong.returncode and "no scenario spik" in wrong.stderr
