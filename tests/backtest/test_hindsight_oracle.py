"""The oracle by a sum over seconds, and what the other scores say, by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import pytest

from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.ideal_machines import Delays
from headgate.lab.rate_policies.backtest_command import BacktestTrial, ranked, series_rows, winners
from headgate.lab.rate_policies.backtest_inputs import RateSeries, of_rates
from headgate.lab.rate_policies.backtest_world import BacktestQuestion, FluidWorld, PolicyScore, two_normal
from headgate.lab.rate_policies.hindsight import fewest_slots, oracle_slot_seconds
from headgate.lab.rate_policies.policy_rules import DECIDERS
from headgate.lab.rate_policies.rule_turns import DeciderQuestion, Turn1s
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.rates.offered_rates import Rates
from headgate.topology_runtime.rates.schedule import Schedule

TOPOLOGY = Topology(
    "tens",
    (
        Task("source", kind="source", static=Static(1, 0.01, 0.1)),
        Task("work"),
        Task("sink", static=Static(1, 0.01, 0.1)),
    ),
    (Edge("source", "work"), Edge("work", "sink")),
)
MODELS = {"work": Model("work", ModelSlot(), (Point(1, 10.0, 0.9, 0.1),))}
VMS = tuple(Vm(f"vm{n}", 4, usd_per_hour=0.4) for n in range(1, 9))
QUESTION = BacktestQuestion(TOPOLOGY, MODELS, VMS, Delays(1.0, 0.0))
STEPS = RateSeries("steps", ((0.0, 30.0), (300.0, 95.0), (600.0, 45.0), (900.0, 120.0)), 1200.0)


def tenths(rate_tps: float) -> int:
    return max(1, math.ceil(rate_tps / 10 - 1e-9))


@pytest.mark.parametrize("rate_tps", [0.0, 5.0, 10.0, 10.5, 30.0, 95.0, 120.0, 301.0])
def test_the_fewest_slots_are_one_for_every_ten_rows(rate_tps: float) -> None:
    """A thread does 10 rows/s and fills its slot, which SAM then leaves to it; source and sink are beside one that
    has less to do, or in a slot of their own."""
    assert fewest_slots(QUESTION, rate_tps) == int(rate_tps // 10) + 1


def test_what_no_plan_carries_has_no_fewest_slots() -> None:
    with pytest.raises(Infeasible):
        fewest_slots(QUESTION, 10 * 32 + 1.0)


def test_the_oracle_is_the_sum_over_all_spans_and_asks_little() -> None:
    chance = random.Random(7)
    for _ in range(50):
        spans = [(chance.choice([0.0, chance.uniform(0, 300)]), chance.uniform(0.5, 9)) for _ in range(200)]
        asked: list[float] = []

        def slots_for(rate_tps: float, asked: list[float] = asked) -> int:
            asked.append(rate_tps)
            return tenths(rate_tps)

        assert oracle_slot_seconds(spans, slots_for) == pytest.approx(
            sum(tenths(rate_tps) * long_s for rate_tps, long_s in spans)
        )
        assert len(asked) == len(set(asked))
    assert oracle_slot_seconds([(25.0, 4.0)] * 100, tenths) == 1200.0


def test_nobody_who_is_never_late_needs_less_than_the_oracle() -> None:
    trials = [BacktestTrial(STEPS, name, QUESTION, 1.15) for name in DECIDERS]
    for trial in trials:
        for _ in trial.rounds:
            trial.go_on()
    rows = {row["policy"]: row for row in series_rows(trials)}
    oracle = 4 * 300 + 10 * 300 + 5 * 300 + 13 * 300
    assert rows["bare"]["of_oracle"] == pytest.approx(13 * 1200 / oracle, rel=1e-3)
    assert all(row["of_oracle"] >= 1.0 for row in rows.values() if row["late_share"] == 0)
    late = [name for name, row in rows.items() if row["late_share"] > 0.01]
    won = winners(list(rows.values()))[STEPS.name]
    assert won not in (*late, "static", "bare")
    assert rows[won]["slot_seconds"] == min(
        row["slot_seconds"] for name, row in rows.items() if name not in (*late, "static", "bare")
    )
    assert [row["wins"] for row in ranked(list(rows.values())) if row["policy"] == won] == [1]


def spans(*of: tuple[float, float, float]) -> PolicyScore:
    """(s, rows/s that come, rows/s that are carried)"""
    found = PolicyScore(may_wait_s=1.2)
    for long_s, rate_tps, carried_tps in of:
        found.span(long_s, rate_tps * long_s, carried_tps, carried_tps)
    return found


def test_waits_across_a_stop_are_to_the_end_of_it() -> None:
    """A hundred seconds of ten rows each; nothing is done in the 98th and 99th, three times as much in the last. So
    the rows of these three wait for 1.67, 1 and 0.33 s, as each middle one does."""
    score = spans(*[(1.0, 10.0, 10.0)] * 97, (1.0, 10.0, 0.0), (1.0, 10.0, 0.0), (1.0, 10.0, 30.0))
    late, p99_s, longest_s = score.waits()
    assert late == pytest.approx(10.0)
    assert (p99_s, longest_s) == (pytest.approx(1.0), pytest.approx(5 / 3))


def test_behind_is_the_middle_time_until_a_plan_carries_what_comes() -> None:
    score = spans(
        (10, 5, 10), (2, 15, 10), (1, 12, 10), (9, 8, 10), (5, 11, 10), (5, 10, 10), (9, 20, 10), (1, 20, 20)
    )
    assert score.behind_s() == pytest.approx(5.0), "3, 5 and 9 s"
    assert spans((10, 5, 10)).behind_s() == 0.0


class Lazy:
    """Plans once, and keeps what it saw."""

    def __init__(self, at_s: float, rate_tps: float) -> None:
        self.at_s, self.rate_tps = at_s, rate_tps
        self.seen: list[Turn1s] = []

    def first_tps(self, rate_tps: float) -> float:
        return 50.0

    def look(self, now: Turn1s) -> float | None:
        self.seen.append(now)
        return self.rate_tps if now.at_s >= self.at_s and len(self.seen) == int(self.at_s) else None


def went(decider: Lazy, question: BacktestQuestion, held: bool, rate_tps: float, long_s: float) -> FluidWorld:
    found = FluidWorld(question, decider, Schedule(0, ((0.0, rate_tps),)), held)
    for _ in found.seconds(long_s):
        pass
    return found


def test_a_rule_of_others_stops_all_and_repeats_what_no_checkpoint_has() -> None:
    """Decided after 37.25 s: 7.25 s of 40 rows since the checkpoint; 290 rows at 80 rows/s are 3.625 s, and 20 s of
    restart. Ours goes on meanwhile."""
    question = replace(QUESTION, restart_s=20.0, checkpoint_s=10.0)
    decider = Lazy(37.0, 80.0)
    score = went(decider, question, False, 40.0, 120.0).score
    (planned_s,) = score.plans_at_s
    assert planned_s == 37.25 and score.repeated == pytest.approx(7.25 * 40)
    time = score.timeline
    ends_s = zip([0.0, *time.at_s], time.at_s, time.carried_tps, strict=False)
    stops = [end_s - start_s for start_s, end_s, tps in ends_s if tps == 0.0]
    assert sum(stops) == pytest.approx(20.0 + 290 / 80, abs=1e-6)
    assert score.behind_s() == pytest.approx(sum(stops))
    ours = went(Lazy(37.0, 80.0), question, True, 40.0, 120.0).score
    assert (ours.repeated, ours.short_rows) == (0.0, 0.0)


def test_errors_of_measuring_are_normal_and_do_not_follow_from_each_other() -> None:
    state, values = 1, []
    for _ in range(20_000):
        state, *both = two_normal(state)
        values += both
    assert sum(values) / len(values) == pytest.approx(0.0, abs=0.02)
    assert sum(one * one for one in values) / len(values) == pytest.approx(1.0, abs=0.03)
    assert sum(abs(one) > 1.96 for one in values) / len(values) == pytest.approx(0.05, abs=0.005)
    assert sum(a * b for a, b in pairwise(values)) / len(values) == pytest.approx(0.0, abs=0.02)


def test_rules_see_what_is_measured_and_not_what_is() -> None:
    """40 of 50 rows/s: busy about 80 %, off by the chance of rows and a little besides; their ratio is less off."""
    decider = Lazy(1e9, 0.0)
    went(decider, QUESTION, False, 40.0, 2000.0)
    busy = [turn.busy for turn in decider.seen]
    ratio = [turn.done_tps / turn.busy for turn in decider.seen]
    mean = sum(busy) / len(busy)
    spread = (sum((one - mean) ** 2 for one in busy) / len(busy)) ** 0.5
    assert len(set(busy)) > 1500 and max(busy) <= 1.0
    assert mean == pytest.approx(0.8, abs=0.02) and 0.08 < spread < 0.16, "1/√40 of it"
    assert sum(ratio) / len(ratio) == pytest.approx(50.0, rel=0.01)
    again = Lazy(1e9, 0.0)
    went(again, QUESTION, False, 40.0, 2000.0)
    assert again.seen == decider.seen, "the same each time"


def test_a_saturated_plan_reads_as_busy_and_its_rows_wait() -> None:
    decider = Lazy(1e9, 0.0)
    went(decider, QUESTION, False, 60.0, 100.0)
    last = decider.seen[-1]
    assert 0.8 < last.busy <= 1.0 and last.done_tps < 55.0
    assert last.offer.backlog == pytest.approx(10.0 * last.at_s, rel=0.02)
    assert (last.offered_tps, last.slots, last.rate_of(10)) == (60.0, 6, pytest.approx(250 / 3))


def test_ours_never_lowers_a_plan_that_rows_wait_for() -> None:
    """A plan all busy, behind by minutes: what other rules have scaled down."""
    series = RateSeries("flood", ((0.0, 300.0), (200.0, 500.0), (400.0, 305.0)), 600.0)
    asked = DeciderQuestion(TOPOLOGY, 1.15, series.peak_tps)
    question = replace(QUESTION, best_that_fits=True)
    found = FluidWorld(question, DECIDERS["foresight"](asked), Schedule(0, series.steps))
    for _ in found.seconds(series.seconds):
        pass
    assert found.score.backlog > 10_000, "320 rows/s are the most"
    assert found.plan is not None and len(found.plan.placement.by_slot()) == 32


def test_a_series_may_begin_later_in_its_file() -> None:
    rates = Rates(((0.0, 10.0), (60.0, 20.0), (120.0, 30.0)), 180.0)
    found = of_rates("day", rates, 60.0, 90.0)
    assert (found.steps, found.seconds) == (((0.0, 20.0), (30.0, 30.0)), 60.0)
    assert of_rates("rest", rates, None, 90.0).seconds == 90.0
    around = of_rates("around", rates, 120.0, 150.0)
    assert around.steps == ((0.0, 30.0), (30.0, 10.0), (90.0, 20.0))
    with pytest.raises(InvalidInput, match="skipped"):
        of_rates("none", rates, None, 180.0)


UP_AND_DOWN = RateSeries(
    "up and down", ((0.0, 40.0), (900.0, 150.0), (2700.0, 250.0), (4500.0, 40.0), (9000.0, 50.0)), 9600.0
)


@pytest.mark.parametrize(
    ("policy", "apart_s", "first_s"),
    [
        ("ds2", 30.0, 10.0),  # two intervals of warm-up, then a whole one
        ("hpa", 15.0, 15.0),
        ("flink", 300.0 + 900.0, 900.0),  # stabilisation, and a whole window
        ("daedalus", 180.0, 60.0),
        ("phoebe", 600.0, 600.0),
        ("conttune", 20.0 + 60.0, 60.0),
    ],
)
def test_a_rule_of_others_plans_no_sooner_than_it_may(policy: str, apart_s: float, first_s: float) -> None:
    trial = BacktestTrial(UP_AND_DOWN, policy, QUESTION, 1.15)
    for _ in trial.rounds:
        trial.go_on()
    times = trial.world.score.plans_at_s
    assert len(times) >= 2 and times[0] >= first_s
    assert min(b - a for a, b in pairwise(times)) >= apart_s


def test_conttune_doubles_what_is_behind_before_it_is_made_smaller() -> None:
    """From 40 to 150 rows/s: twice 50 rows/s, then 18 slots (the most here, what 172.5 rows/s need) where 11 carry 100,
    and once more, as those carry less than 18 times as much as one of 11."""
    rise = RateSeries("rise", ((0.0, 40.0), (180.25, 150.0)), 1000.0)
    trial = BacktestTrial(rise, "conttune", QUESTION, 1.15)
    for _ in trial.rounds:
        trial.go_on()
    found = [planned_tps for _, planned_tps in trial.world.plans]
    assert found[:2] == [100.0, pytest.approx(18 / 11 * 100)] and found[-1] >= 150
    assert trial.world.score.backlog == 0.0


def test_slots_of_a_plan_are_held_from_when_its_vms_are_there() -> None:
    """6 slots on two VMs; 9 need a third, which takes 5 s."""
    score = went(Lazy(37.0, 80.0), replace(QUESTION, delays=Delays(1.0, 5.0)), False, 40.0, 120.0).score
    (planned_s,) = score.plans_at_s
    expected = 6 * (planned_s + 5.0) + 9 * (score.seconds - planned_s - 5.0)
    assert score.slot_seconds == pytest.approx(expected)
