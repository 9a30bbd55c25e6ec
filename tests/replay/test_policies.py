"""What other policies would have done with a recorded offer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from recorded_runs import models, moments, write

from headgate.controller.knowledge.models import Point
from headgate.controller.replaying.exact_replay import ExactReplay
from headgate.controller.replaying.ideal_account import IdealAccount
from headgate.controller.replaying.policies import Policy, PolicyQuestion, PolicyTrial, policies_of, trial_of
from headgate.controller.replaying.trace_reading import Recording
from headgate.controller.replaying.world import Delays
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import InvalidInput

# 30 t/s for 6 s, then 90: the first plan is for 34.5 t/s (one thread of 40), so 90 needs a new one
SECONDS = 20.0
INSTANT = Delays(0.0, 0.0)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(write(tmp_path_factory.mktemp("trace"), moments(SECONDS)))


def tried(name: str, recording: Recording, **given: Any) -> dict[str, Any]:
    question = PolicyQuestion(recording.run, SECONDS, given.pop("delays", INSTANT), **given)
    (policy,) = policies_of([name], recording.run.settings)

    def watch(trial: PolicyTrial) -> None:
        for _ in trial.moments():
            pass

    return trial_of(policy, question, watch)


def test_the_runs_own_policy_does_what_the_run_did(recording: Recording) -> None:
    account = IdealAccount(seconds=SECONDS)
    for moment in ExactReplay(recording.run).moments(recording.lines()):
        account.see(moment)
    own = tried("mba+sam", recording, delays=Delays())
    assert own == account.row("mba+sam")
    assert own["replans"] == 1 and own["offered"] == pytest.approx(6 * 30 + 14 * 90)


def test_a_static_plan_is_never_changed_and_fails_all_the_time_above_it(recording: Recording) -> None:
    static = tried("static", recording)
    assert (static["replans"], static["moves"]) == (0, 0)
    assert static["violations_s"] == pytest.approx(14.0, abs=0.3)
    assert static["violated_tuples"] == pytest.approx(
        14 * (90 - 35.6), rel=0.03
    )  # carried, beside source and sink
    assert static["slot_hours"] == pytest.approx(2 * SECONDS / 3600, rel=0.5)


def test_a_plan_for_the_highest_rate_never_fails_and_costs_more_slots(recording: Recording) -> None:
    most, own, least = (tried(name, recording) for name in ("static-max", "mba+sam", "static"))
    assert most["violations_s"] == most["violated_tuples"] == 0.0
    assert most["replans"] == 0 < own["replans"]
    assert most["slot_hours"] > least["slot_hours"]
    assert 0 < own["violations_s"] < 3.0  # until the step is seen and the plan in force


def test_slower_enactments_fail_for_longer(recording: Recording) -> None:
    quick = tried("mba+sam", recording, delays=Delays(0.0, 0.0))["violations_s"]
    assert tried("mba+sam", recording, delays=Delays(4.0, 0.0))["violations_s"] >= quick + 3.0


def test_other_models_plan_otherwise(recording: Recording) -> None:
    twice = {model.task: model for model in models(80.0)}
    key = "violated_tuples"
    assert 0 < tried("static", recording, models=twice)[key] < 0.5 * tried("static", recording)[key]


def test_fewer_vms_carry_less(recording: Recording) -> None:
    small = tried("mba+sam", recording, vms=(Vm("vm1", 2),))
    assert small["violated_tuples"] > tried("mba+sam", recording)["violated_tuples"]
    grown = tried("mba+sam", recording, vms=(Vm("vm1", 2),), max_vms=3, delays=Delays(0.5, 2.0))
    assert grown["violated_tuples"] < small["violated_tuples"]
    assert grown["vm_hours"] > small["vm_hours"]


def test_rates_set_by_hand_are_set_in_the_trial_too(tmp_path: Path) -> None:
    found = moments(12.0, ((0.0, 30.0),), rates=((5.0, 70.0),))
    recording = Recording(write(tmp_path, found))
    account = IdealAccount()
    for moment in ExactReplay(recording.run).moments(recording.lines()):
        account.see(moment)
    assert [rate for _, rate in account.rates] == [70.0]
    trial = PolicyTrial(
        Policy("mba+sam", "mba", "sam"), PolicyQuestion(recording.run, 12.0, rates=tuple(account.rates))
    )
    for _ in trial.moments():
        pass
    assert trial.row()["offered"] == pytest.approx(account.offered, rel=0.05)


def test_prices_are_those_of_the_vms_or_per_slot_or_unknown(recording: Recording) -> None:
    hours = SECONDS / 3600
    assert tried("static", recording)["usd"] is None
    assert tried("static", recording, usd_per_slot_hour=0.1)["usd"] == pytest.approx(
        8 * 0.1 * hours, rel=0.01
    )
    priced = (Vm("vm1", 4, usd_per_hour=0.4),)
    assert tried("static", recording, vms=priced)["usd"] == pytest.approx(0.4 * hours, rel=0.01)


def test_a_static_plan_that_the_vms_do_not_carry_begins_with_less_and_says_so(recording: Recording) -> None:
    """(It once planned for more and more, and failed with a rate that nobody had offered.)"""
    row = tried("static-max", recording, vms=(Vm("vm1", 1),))
    assert "× the highest rate at most" in row["note"] and "error" not in row
    assert row["seconds"] == SECONDS and row["violations_s"] > 10


def test_what_can_never_begin_says_why(recording: Recording) -> None:
    slow = {model.task: model for model in models(0.001)}
    row = tried("mba+sam", recording, models=slow)
    assert "no plan carries" in row["error"] and row["seconds"] == 0


def test_policies_that_there_are_not_are_all_named(recording: Recording) -> None:
    with pytest.raises(InvalidInput) as caught:
        policies_of(["mba+sam", "mba+smm", "staticmax", "static:mba"], recording.run.settings)
    text = "\n".join(caught.value.faults)
    assert "'mba+smm'" in text and "'staticmax'" in text and "'static:mba'" in text and "mba+sam" in text


# ── a pair that foresees too little ─────────────────────────────────────────────────────────────────────


def test_a_pair_that_counts_too_few_threads_plans_for_more_until_it_carries(recording: Recording) -> None:
    """LSA takes threads of a slot for as good as alone; here each one more brings a third of the first."""
    bent = {model.task: replace(model, points=bend(model.points)) for model in models(40.0)}
    enough = {"models": bent, "max_vms": 6}
    lsa, mba = (tried(name, recording, **enough) for name in ("lsa+rsm", "mba+sam"))
    assert lsa["violations_s"] == pytest.approx(mba["violations_s"], abs=1.0) and "note" not in lsa
    static = tried("static-max:lsa+rsm", recording, **enough)
    assert static["violations_s"] == 0.0 and "error" not in static


def bend(points: tuple[Point, ...]) -> tuple[Point, ...]:
    return tuple(replace(p, rate_tps=p.rate_tps * (1 + (p.threads - 1) / 3) / p.threads) for p in points)


def test_vms_that_do_not_suffice_are_told_and_the_policy_is_tried_all_the_same(recording: Recording) -> None:
    bent = {model.task: replace(model, points=bend(model.points)) for model in models(40.0)}
    row = tried("static-max:lsa+dsm", recording, models=bent, vms=(Vm("vm1", 2),), max_vms=1)
    assert "--max-vms" in row["note"] and "error" not in row
    assert row["violations_s"] > 10 and row["violated_tuples"] > 0


# ── a check that shares no code: slots and violations from the plans alone ──────────────────────────────


@pytest.mark.parametrize("name", ["mba+sam", "static", "static-max", "lsa+dsm"])
def test_hours_and_violations_follow_from_the_plans(recording: Recording, name: str) -> None:
    """From when each plan came into force and what it is predicted to carry, in steps of a hundredth of a second."""
    (policy,) = policies_of([name], recording.run.settings)
    trial = PolicyTrial(policy, PolicyQuestion(recording.run, SECONDS, INSTANT))
    plans: list[tuple[float, float]] = []
    for _ in trial.moments():
        plan, began = trial.account.plan, trial.account.began_ns
        if plan is not None and began and (not plans or plans[-1][1] != plan.prediction.rate_tps):
            at_s = max(0.0, (_.now.wall_ns - began) / 1e9)
            plans.append((at_s, plan.prediction.rate_tps))
    late_s = missed = 0.0
    for n in range(int(SECONDS * 100)):
        at_s = n / 100
        offered = 30.0 if at_s < 6 else 90.0
        carried = [tps for from_s, tps in plans if from_s <= at_s][-1]
        late_s += 0.01 * (offered > carried)
        missed += 0.01 * max(0.0, offered - carried)
    row = trial.row()
    assert row["violations_s"] == pytest.approx(late_s, abs=0.3)
    assert row["violated_tuples"] == pytest.approx(missed, abs=20.0)
    assert row["offered"] == pytest.approx(6 * 30 + 14 * 90)
