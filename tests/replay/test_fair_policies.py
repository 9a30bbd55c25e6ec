"""What a policy is asked to plan for, and which slots it pays for; expected values are worked out here from numbers."""

from __future__ import annotations

from dataclasses import replace as with_parts
from typing import Any

import pytest
from msgspec.structs import replace
from recorded_runs import moments, write

from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.replaying.policies import (
    PolicyQuestion,
    PolicyTrial,
    highest_tps,
    policies_of,
    trial_of,
)
from headgate.controller.replaying.trace_reading import Recording
from headgate.controller.replaying.world import Delays
from headgate.topology_runtime.cluster import Vm

SECONDS = 20.0  # 30 t/s for 6 s, then 90


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return Recording(write(tmp_path_factory.mktemp("fair"), moments(SECONDS)))


def tried(name: str, question: PolicyQuestion) -> dict[str, Any]:
    (policy,) = policies_of([name], question.run.settings)

    def watch(trial: PolicyTrial) -> None:
        for _ in trial.moments():
            pass

    return trial_of(policy, question, watch)


def test_a_plan_for_the_peak_is_for_no_more_than_was_offered_in_a_second(recording: Recording) -> None:
    def of(*rates: tuple[float, float]) -> float:
        return highest_tps(PolicyQuestion(recording.run, SECONDS, rates=rates))

    assert of() == pytest.approx(90.0)
    assert of((3.0, 20.0)) == pytest.approx(30.0)  # set by hand before the step, which so never came
    assert of((10.0, 120.0)) == pytest.approx(120.0)
    assert highest_tps(PolicyQuestion(recording.run, 5.0)) == pytest.approx(30.0)  # it ended before
    short = with_parts(
        recording.run, offer=replace(recording.run.offer, steps=((0.0, 30.0), (6.0, 90.0), (6.5, 10.0)))
    )
    assert highest_tps(PolicyQuestion(short, SECONDS)) == pytest.approx(0.5 * 90 + 0.5 * 10)


def test_slots_that_were_asked_for_and_left_empty_are_paid_for(recording: Recording) -> None:
    """LSA: 30 × 1.15 / 10 → 4 threads, 0.9 × 3.45 = 3.1 slots of CPU: 4 slots. RSM puts all into one by its memory, and
    that one carries what is left beside source and sink, 0.8 / 0.9 of 40."""
    work = Model("work", ModelSlot(), (Point(1, 10.0, 0.9, 0.1), Point(4, 40.0, 0.9, 0.1)))
    question = PolicyQuestion(
        recording.run, SECONDS, Delays(0.0, 0.0), models={"work": work}, vms=(Vm("vm1", 8),)
    )
    row = tried("static:lsa+rsm", question)
    assert "error" not in row and "note" not in row
    assert row["slot_hours"] == pytest.approx(4 * SECONDS / 3600)
    assert row["violated_tuples"] == pytest.approx(14 * (90 - 40 * 0.8 / 0.9), rel=0.02)


def test_a_run_with_a_given_plan_can_be_asked_what_re_planning_would_have_done(recording: Recording) -> None:
    question = PolicyQuestion(recording.run, SECONDS, Delays(0.0, 0.0))
    (static,) = policies_of(["static"], recording.run.settings)
    trial = PolicyTrial(static, question)
    for _ in trial.moments():
        pass
    given = replace(recording.run.settings, plan=trial.account.plan)
    run = with_parts(recording.run, settings=given)
    assert given.plan is not None
    assert tried("mba+sam", with_parts(question, run=run))["replans"] == 1
