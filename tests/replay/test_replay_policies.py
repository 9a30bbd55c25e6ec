"""What other policies would have done with a recorded offer."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace as with_parts
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from recorded_runs import models, moments, write

from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.exact_replay import ExactReplay, decisions_of
from headgate.controller.replay.ideal_machines import Delays, IdealAccount
from headgate.controller.replay.replay_policies import (
    Policy,
    PolicyQuestion,
    PolicyTrial,
    highest_tps,
    policies_of,
    trial_of,
)
from headgate.controller.replay.trace_reading import Recording
from headgate.dashboards.analytics.analyze_command import policies_tried, ranked
from headgate.dashboards.analytics.storage.result_tables import PolicyTried
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import HeadgateError, InvalidInput

# 30 rows/s for 6 s, then 90: the first plan is for 34.5 rows/s (one thread of 40), so 90 needs a new one
SECONDS = 20.0
INSTANT = Delays(0.0, 0.0)


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(write(tmp_path_factory.mktemp("trace"), moments(SECONDS)))


def tried(name: str, recording: Recording, **given: Any) -> dict[str, Any]:
    seconds = given.pop("seconds", SECONDS)
    question = PolicyQuestion(recording.run, seconds, given.pop("delays", INSTANT), **given)
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
    none = dict.fromkeys(("p50_ms", "p95_ms", "p99_ms"))
    assert own | none == account.row("mba+sam"), "which had no latency predicted"
    assert own["replans"] == 1 and own["offered"] == pytest.approx(6 * 30 + 14 * 90)


def test_a_policy_is_offered_no_more_than_the_source_had(tmp_path: Path) -> None:
    """500 rows, though the schedule goes on: what the run did not offer no policy is judged by."""
    rows = 500
    short = Recording(write(tmp_path / "short", moments(SECONDS, rows=rows)))
    account = IdealAccount(seconds=SECONDS)
    for moment in ExactReplay(short.run).moments(short.lines()):
        account.see(moment)
    assert account.rows == rows and account.row("recorded")["offered"] == rows
    for name in ("static", "static-max", "mba+sam"):
        assert tried(name, short, rows=account.rows)["offered"] == pytest.approx(rows, abs=1)
    assert tried("static", short)["offered"] > 2 * rows


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


def test_what_rows_take_is_predicted_of_each_policy(recording: Recording) -> None:
    """For the time in which the plan in force carries what comes. A row takes 22.5 ms of CPU, or half of that; of the
    recorded run none was predicted."""
    most, least = (tried(name, recording) for name in ("static-max", "static"))
    assert 22.5 < most["p95_ms"] < 45 and 22.5 < least["p95_ms"] < 45
    twice = {model.task: model for model in models(80.0)}
    assert tried("static-max", recording, models=twice)["p95_ms"] < 0.7 * most["p95_ms"]
    account = IdealAccount(seconds=SECONDS)
    for moment in ExactReplay(recording.run).moments(recording.lines()):
        account.see(moment)
    assert account.row("recorded")["p95_ms"] is None


def test_the_runs_own_policy_gives_the_latency_that_the_run_had_predicted(tmp_path: Path) -> None:
    """The run's figures from the lines of its inputs alone: each prediction, until the next one or the next plan."""
    long_s, steps = 90.0, ((0.0, 30.0), (45.0, 33.0))
    trace = write(tmp_path / "told", moments(long_s, steps, predicts=True))
    recording = Recording(trace)
    account = IdealAccount(seconds=long_s)
    for moment in ExactReplay(recording.run).moments(recording.lines()):
        account.see(moment)
    own = tried("mba+sam", recording, delays=Delays(), seconds=long_s)
    lines = [json.loads(line) for line in (trace / "inputs.jsonl").read_text().splitlines()]
    told = [line for line in lines if line["kind"] == "latency_predicted"]
    assert len(told) == 2 and len({line["event"]["plan"] for line in told}) == 1, "a plan and two rates"
    first_ns, second_ns = (line["now_ns"][1] for line in told)
    end_ns = account.began_ns + int(long_s * 1e9)
    for n, name in enumerate(("p50_ms", "p95_ms", "p99_ms")):
        first_ms, second_ms = (line["event"]["latency"][1][n] for line in told)
        whole = first_ms * (second_ns - first_ns) + second_ms * (end_ns - second_ns)
        assert own[name] == pytest.approx(whole / (end_ns - first_ns), rel=0.002)
        assert own[name] == pytest.approx(account.row("recorded")[name], rel=1e-9)


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


# ── A first plan that needs machines from the provider waits for them ───────────────────────────────────


def test_a_first_plan_is_not_made_again_while_its_machines_are_awaited() -> None:
    found = moments(5.0, ((0.0, 100.0),), initial=(Vm("vm1", 2),), spare=Vm("spare", 4), max_vms=2)
    first = next(d for moment in found for d in decisions_of(moment.instructions))
    assert first["trigger"] == "start" and first["plan"]["asked"] == ["vm2"]
    knowledge = found[-1].loop.knowledge
    assert knowledge.plan is not None and knowledge.plan.prediction.rate_tps >= 100.0
    assert [vm.vm for vm in knowledge.durable.machines] == ["vm2"]


# ── Policies that were tried with a recorded run, ranked: who carries what was offered with the fewest
# slot-hours

OFFERED = 10_000.0
NAMES = "static,mba+sam,static-max"
LATENCY_MS = {"p50_ms": 20.0, "p95_ms": 30.0, "p99_ms": 40.0}


def row(policy: str, slot_hours: float, short: float, **more: Any) -> dict[str, Any]:
    return {
        "policy": policy, "slot_hours": slot_hours, "vm_hours": 0.1, "usd": None, "violations_s": short / 10,
        "violated_tuples": short, "replans": 1, "moves": 2, "seconds": 100.0, "offered": OFFERED, "measured_s": None,
        "measured_tuples": None, **LATENCY_MS, **{f"measured_{name}": None for name in LATENCY_MS},
    } | more  # fmt: skip


def order(*rows: dict[str, Any]) -> list[tuple[str, int | None]]:
    own = row("recorded", 0.2, 50.0, measured_s=10.0, measured_tuples=70.0)
    return [
        (tried.policy, tried.rank) for tried in ranked("demo/r", {"recorded": own, "policies": list(rows)})
    ]


def test_of_those_that_carry_what_was_offered_the_one_with_the_fewest_slot_hours_is_first() -> None:
    found = order(row("large", 0.4, 0.0), row("tight", 0.15, 100.0), row("exact", 0.2, 0.0))
    assert found == [("recorded", None), ("tight", 1), ("exact", 2), ("large", 3)]


def test_behind_them_are_those_that_fall_short_by_how_much() -> None:
    found = order(row("failing", 0.05, 900.0), row("near", 0.3, 101.0), row("large", 0.5, 0.0))
    assert found == [("recorded", None), ("large", 1), ("near", 2), ("failing", 3)]


def test_one_that_could_not_begin_is_last_and_has_no_rank() -> None:
    found = order(row("never", 0.0, 0.0, error="no plan came into force"), row("large", 0.5, 0.0))
    assert found == [("recorded", None), ("large", 1), ("never", None)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """30 rows/s for 6 s, then 90, for which a first plan does not suffice."""
    return write(tmp_path_factory.mktemp("ranked") / "demo" / "run-1", moments(20.0))


def test_what_replay_says_is_ranked(trace: Path) -> None:
    said: list[str] = []
    found = {tried.policy: tried for tried in policies_tried([str(trace)], NAMES, said.append)}
    words = [
        sys.executable,
        "-P",
        "-m",
        "headgate",
        "replay",
        str(trace),
        "--policy",
        NAMES,
        "-o",
        "json",
    ]
    answer = json.loads(subprocess.run(words, capture_output=True, check=True).stdout)
    rows = {line["policy"]: line for line in (answer["recorded"], *answer["policies"])}
    assert set(found) == set(rows) == {"recorded", *NAMES.split(",")} and said == []
    for name, line in rows.items():
        for figure in PolicyTried.__struct_fields__:
            if figure in line and figure != "policy":
                assert getattr(found[name], figure) == line[figure], (name, figure)
    carrying = {n: r["slot_hours"] for n, r in rows.items() if r["violated_tuples"] <= 0.01 * r["offered"]}
    carrying.pop("recorded", None)
    short = {n: r["violated_tuples"] for n, r in rows.items() if n not in {*carrying, "recorded"}}
    by_figures = [*sorted(carrying, key=carrying.__getitem__), *sorted(short, key=short.__getitem__)]
    assert [found[name].rank for name in by_figures] == [1, 2, 3]
    assert {name for name in short if found[name].carries} == set()


def test_what_cannot_be_tried_is_told_run_by_run_and_refused_if_that_is_all(
    trace: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "run.json").write_text((trace / "run.json").read_text("utf-8"), "utf-8")
    said: list[str] = []
    with pytest.raises(HeadgateError, match="no policy can be tried") as error:
        policies_tried([str(tmp_path / "other")], NAMES, said.append)
    assert error.value.exit_code == 3 and "error[HG-INVALID]" in capfd.readouterr().err
    with pytest.raises(HeadgateError) as error:
        policies_tried([str(trace)], "mba+nobody", said.append)
    assert error.value.exit_code == 3 and "mba+nobody" in capfd.readouterr().err
    assert all(line.startswith("no policy was tried with ") for line in said) and len(said) == 2


# ── What a policy is asked to plan for, and which slots it pays for; expected values are worked out here
# from numbers

FAIR_SECONDS = 20.0  # 30 rows/s for 6 s, then 90


@pytest.fixture(scope="module")
def fair_recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(write(tmp_path_factory.mktemp("fair"), moments(FAIR_SECONDS)))


def tried_fairly(name: str, question: PolicyQuestion) -> dict[str, Any]:
    (policy,) = policies_of([name], question.run.settings)

    def watch(trial: PolicyTrial) -> None:
        for _ in trial.moments():
            pass

    return trial_of(policy, question, watch)


def test_a_plan_for_the_peak_is_for_no_more_than_was_offered_in_a_second(fair_recording: Recording) -> None:
    def of(*rates: tuple[float, float]) -> float:
        return highest_tps(PolicyQuestion(fair_recording.run, FAIR_SECONDS, rates=rates))

    assert of() == pytest.approx(90.0)
    assert of((3.0, 20.0)) == pytest.approx(30.0)  # set by hand before the step, which so never came
    assert of((10.0, 120.0)) == pytest.approx(120.0)
    assert highest_tps(PolicyQuestion(fair_recording.run, 5.0)) == pytest.approx(30.0)  # it ended before
    short = with_parts(
        fair_recording.run,
        offer=replace(fair_recording.run.offer, steps=((0.0, 30.0), (6.0, 90.0), (6.5, 10.0))),
    )
    assert highest_tps(PolicyQuestion(short, FAIR_SECONDS)) == pytest.approx(0.5 * 90 + 0.5 * 10)


def test_slots_that_were_asked_for_and_left_empty_are_paid_for(fair_recording: Recording) -> None:
    """LSA: 30 × 1.15 / 10 → 4 threads, 0.9 × 3.45 = 3.1 slots of CPU: 4 slots. RSM puts all into one by its memory, and
    that one carries what is left beside source and sink, 0.8 / 0.9 of 40."""
    work = Model("work", ModelSlot(), (Point(1, 10.0, 0.9, 0.1), Point(4, 40.0, 0.9, 0.1)))
    question = PolicyQuestion(
        fair_recording.run, FAIR_SECONDS, Delays(0.0, 0.0), models={"work": work}, vms=(Vm("vm1", 8),)
    )
    row = tried_fairly("static:lsa+rsm", question)
    assert "error" not in row and "note" not in row
    assert row["slot_hours"] == pytest.approx(4 * FAIR_SECONDS / 3600)
    assert row["violated_tuples"] == pytest.approx(14 * (90 - 40 * 0.8 / 0.9), rel=0.02)


def test_a_run_with_a_given_plan_can_be_asked_what_re_planning_would_have_done(
    fair_recording: Recording,
) -> None:
    question = PolicyQuestion(fair_recording.run, FAIR_SECONDS, Delays(0.0, 0.0))
    (static,) = policies_of(["static"], fair_recording.run.settings)
    trial = PolicyTrial(static, question)
    for _ in trial.moments():
        pass
    given = replace(fair_recording.run.settings, plan=trial.account.plan)
    run = with_parts(fair_recording.run, settings=given)
    assert given.plan is not None
    assert tried_fairly("mba+sam", with_parts(question, run=run))["replans"] == 1
