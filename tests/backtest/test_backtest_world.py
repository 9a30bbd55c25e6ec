"""The backtest's world: held to a count of its own, and to the plans of the whole loop."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.controller_config import ControllerSettings
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.exact_replay import decisions_of
from headgate.controller.replay.ideal_machines import Delays, IdealAccount, IdealWorld
from headgate.lab.rate_policies.backtest_command import BacktestTrial, ranked, series_rows
from headgate.lab.rate_policies.backtest_inputs import RateSeries, made
from headgate.lab.rate_policies.backtest_world import BacktestQuestion, FluidWorld
from headgate.lab.rate_policies.policy_rules import DECIDERS
from headgate.lab.rate_policies.rule_turns import DeciderQuestion
from headgate.lab.rate_policies.season_command import by_second
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.rates.learned_season import SCHEMA, LearnedFrom, LearnedSeason
from headgate.topology_runtime.rates.offered_rates import Rates
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.rates.season_learning import learned_of

TOPOLOGY = Topology(
    "small",
    (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task("work"),
        Task("sink", static=Static(1, 0.1, 0.1)),
    ),
    (Edge("source", "work"), Edge("work", "sink")),
)
MODEL = Model("work", ModelSlot(), (Point(1, 10.0, 0.9, 0.1),))
VMS = tuple(Vm(f"vm{n}", 4, usd_per_hour=0.4) for n in range(1, 7))
QUESTION = BacktestQuestion(TOPOLOGY, {"work": MODEL}, VMS, Delays(1.0, 0.0))
HEADROOM = 1.15
NO_OPTIONS: dict[str, Any] = {"skip": 0.0, "seconds": None}


def world(
    policy: str,
    series: RateSeries,
    question: BacktestQuestion = QUESTION,
    season: LearnedSeason | None = None,
) -> FluidWorld:
    asked = DeciderQuestion(
        TOPOLOGY, HEADROOM, series.peak_tps, season=season, headroom_measured=question.headroom_measured
    )
    found = FluidWorld(question, DECIDERS[policy](asked), Schedule(0, series.steps), policy == "foresight")
    for _ in found.seconds(series.seconds):
        pass
    return found


def test_a_static_plan_scores_as_ten_lines_of_numpy_say() -> None:
    """One plan for 60 rows/s over the sawtooth; no code is shared but the series."""
    series = made("saw-120s")
    steps = ((0.0, 60.0), *series.steps[1:])
    below = RateSeries("saw", steps, series.seconds)
    asked = DeciderQuestion(TOPOLOGY, 1.0, 60.0)
    found = FluidWorld(QUESTION, DECIDERS["bare"](asked), Schedule(0, steps), False)
    for _ in found.seconds(below.seconds):
        pass
    carried = found.score.timeline.carried_tps[0]
    second = np.arange(0, found.score.seconds, 0.01)
    rate = np.interp(np.floor(second), [at for at, _ in steps], [tps for _, tps in steps])
    came, done = np.cumsum(rate * 0.01), np.zeros(len(rate))
    waiting = 0.0
    for n, tps in enumerate(rate):
        waiting = max(0.0, waiting + (tps - carried) * 0.01)
        done[n] = came[n] - waiting
    wait_s = np.interp(came, done + np.arange(len(done)) * 1e-9, second) - second
    late = (rate * 0.01)[(wait_s > 5.0)].sum()
    row = found.score.row("bare", 1.0, 1.0)
    assert row["short_tuples"] == pytest.approx((np.maximum(0, rate - carried) * 0.01).sum(), rel=0.01)
    assert row["short_s"] == pytest.approx((rate > carried).sum() * 0.01, rel=0.02)
    assert row["late_tuples"] == pytest.approx(late, rel=0.03)
    assert row["longest_wait_s"] == pytest.approx(wait_s.max(), rel=0.03)
    assert row["planned_of_offered"] == pytest.approx(60.0 * found.score.seconds / came[-1], rel=0.01)
    slots = len({bundle.slot for bundle in found.plan.placement.bundles})
    assert row["slot_seconds"] == pytest.approx(slots * found.score.seconds, abs=0.1)
    assert row["usd"] == pytest.approx(0.4 * -(-slots // 4) * found.score.seconds / 3600, rel=1e-4)


def whole_loop(series: RateSeries, season: LearnedSeason | None = None) -> list[tuple[float, float]]:
    """(s, rate) of the plans that the controller's own loop makes among machines that do as they promise."""
    settings = ControllerSettings(
        run="run1", version="0.1.0", initial=VMS, headroom=HEADROOM, headroom_measured=False, season=season
    )
    loop = Loop(settings, Submitted(TOPOLOGY, (MODEL,), series.steps, 0.0, (), 0), watched=False)
    account, plans = IdealAccount(), []
    for moment in IdealWorld(loop, account, Delays(1.0, 0.0), wall_ns=10**18).moments(series.seconds):
        for decision in decisions_of(moment.instructions):
            if decision["action"] == "plan" and decision["trigger"] != "start":
                at_s = (moment.now.wall_ns - account.began_ns) / 1e9
                plans.append((at_s, decision["plan"]["rate_tps"]))
    return plans


@pytest.mark.parametrize(
    "name", ["steps", "square-120s", "sine-120s", "saw-back-120s", "sine-240s", "ramp-1min"]
)
def test_it_plans_what_the_whole_loop_plans(name: str) -> None:
    """The same changes at the same time, within a turn and what the loop's samples are late."""
    assert_alike(made(name), 900.0 if name in ("steps", "ramp-1min") else 600.0)


@pytest.mark.parametrize("name", ["saw-back-120s", "square-300s"])
def test_it_plans_what_the_whole_loop_plans_with_a_season_that_is_handed_over(name: str) -> None:
    series = made(name)
    found = learned_of([by_second(name, Rates(series.steps, series.seconds), NO_OPTIONS)], None, iter)
    profile = (tuple(rates.tolist()) for rates in (found.middle, found.high))
    learned = LearnedFrom((), series.seconds, found.periods, "", "", found.held_out)
    season = LearnedSeason(SCHEMA, "", found.period_s, *profile, learned)
    assert_alike(series, 600.0, season)


def assert_alike(series: RateSeries, seconds: float, season: LearnedSeason | None = None) -> None:
    series = RateSeries(series.name, tuple(step for step in series.steps if step[0] < seconds), seconds)
    fixed = replace(QUESTION, headroom_measured=False)  # ideal machines have no CPU that could be measured
    here = [(at_s, tps) for at_s, tps in world("foresight", series, fixed, season).plans if at_s > 5]
    there = [(at_s, tps) for at_s, tps in whole_loop(series, season) if at_s > 5]
    assert abs(len(here) - len(there)) <= max(1, len(there) // 5), (here, there)
    matched = sum(
        any(abs(at_s - other_s) <= 4 and tps == pytest.approx(other, rel=0.15) for other_s, other in here)
        for at_s, tps in there
    )
    assert matched >= 0.75 * len(there), (here, there)


@pytest.mark.parametrize(
    ("name", "of_bare"), [("saw-back-120s", 0.9), ("sine-120s", 0.9), ("square-60s", 0.95)]
)
def test_a_season_saves_slots_and_leaves_no_more_rows_short(name: str, of_bare: float) -> None:
    """Over all of it, the time before it was known included."""
    series = made(name)
    ours, bare = (world(policy, series).score for policy in ("foresight", "bare"))
    assert ours.slot_seconds <= of_bare * bare.slot_seconds
    assert ours.short_rows <= 0.01 * ours.offered


def test_a_vm_that_takes_long_makes_every_plan_on_it_late_and_is_reckoned_with() -> None:
    series = made("ramp-1min")
    slow = BacktestQuestion(TOPOLOGY, {"work": MODEL}, VMS, Delays(1.0, 20.0))
    quick, late = world("foresight", series).score, world("foresight", series, slow).score
    assert late.short_rows > quick.short_rows
    assert late.short_rows / late.offered < 0.05, "it looks ahead for as long as a VM takes"


LEVELS = (100, 56, 110, 67, 90, 45, 116, 78, 56, 105, 67, 45, 89, 56)
LEVELLED = RateSeries("levels", tuple((120.0 * n, float(tps)) for n, tps in enumerate(LEVELS)), 1680.0)


def late_and_slots(off: float, measured: bool) -> tuple[float, float]:
    """(part of the rows that waited too long, slots on average) where rows cost so many times what models say."""
    score = world("foresight", LEVELLED, replace(QUESTION, models_off=off, headroom_measured=measured)).score
    return score.waits()[0] / score.offered, score.slot_seconds / score.seconds


def test_measured_headroom_needs_fewer_slots_where_models_hold_and_more_where_rows_are_dear() -> None:
    (late_fixed, fixed), (late, measured) = late_and_slots(1.0, False), late_and_slots(1.0, True)
    assert measured < fixed and late == late_fixed == 0.0
    late, dear = late_and_slots(1.12, True)
    assert dear > measured and late <= 0.01


def test_the_loop_says_what_its_headroom_follows_from() -> None:
    """Its own plans were never measured here: it is as ever, whatever rates were like."""
    settings = ControllerSettings(run="run1", version="0.1.0", initial=VMS, headroom=HEADROOM)
    loop = Loop(
        settings, Submitted(TOPOLOGY, (MODEL,), ((0.0, 30.0), (700.0, 60.0)), 0.0, (), 0), watched=False
    )
    found = []
    for moment in IdealWorld(loop, IdealAccount(), Delays(1.0, 0.0), wall_ns=10**18).moments(720.0):
        found += [one for one in decisions_of(moment.instructions) if one["trigger"] == "rate_changed"]
    (told,) = {tuple(one["evidence"]["demand"][f"headroom{of}"] for of in ("", "_models", "_rates", "_plans"))
               for one in found}  # fmt: skip
    assert told == (HEADROOM, HEADROOM, 1.0, 0)
    assert loop.knowledge.headroom.seconds > 600


def test_static_plans_are_never_short_and_never_change() -> None:
    series = made("day-noise")
    for policy in ("static", "bare"):
        score = world(policy, series).score
        assert (score.short_rows, score.plans_at_s, score.moves) == (0.0, [], 0)


def test_rivals_do_what_their_names_say() -> None:
    series = made("step-up")
    ds2, hpa = world("ds2", series).plans, world("hpa", series).plans
    assert ds2[-1][1] == pytest.approx(90 * HEADROOM, rel=0.02) and 605 < ds2[0][0] <= 622
    assert len([at_s for at_s, _ in hpa if 600 < at_s < 800]) >= 6, (
        "use is at most 1, so it grows step by step"
    )
    down = world("hpa", made("step-down")).plans
    assert down[0][0] >= 600 + 300, "five minutes after the fall"


def test_the_cheapest_that_carries_enough_is_first() -> None:
    series = made("step-up")
    trials = [BacktestTrial(series, name, QUESTION, HEADROOM) for name in DECIDERS]
    for trial in trials:
        for _ in trial.rounds:
            trial.go_on()
    rows = series_rows(trials)
    enough = [row for row in rows if row["short_share"] <= 0.01]
    assert rows[: len(enough)] == enough
    assert [row["slot_seconds"] for row in enough] == sorted(row["slot_seconds"] for row in enough)
    assert {row["policy"]: row["of_bare"] for row in rows}["bare"] == 1.0
    assert [row["rank"] for row in ranked(rows)] == list(range(1, len(DECIDERS) + 1))


def test_what_no_plan_carries_is_refused() -> None:
    small = BacktestQuestion(TOPOLOGY, {"work": MODEL}, VMS[:1], Delays())
    with pytest.raises(Infeasible):
        world("bare", made("step-up"), small)


def test_series_are_cut_at_a_percentile_of_their_time() -> None:
    steps = ((0.0, 10.0), (999.0, 500.0), (1000.0, 20.0), (1500.0, 30.0))
    cut = RateSeries("spike", steps, 2000.0).cut(99.9)
    assert (cut.peak_tps, cut.cut_share) == (30.0, pytest.approx(1 / 2000))
    assert RateSeries("spike", steps, 2000.0).cut(100).peak_tps == 500.0
    assert cut.scaled(300.0).peak_tps == pytest.approx(300.0)
    with pytest.raises(InvalidInput, match="no made series"):
        made("sine-1s")
