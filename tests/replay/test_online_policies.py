"""Policies that look at traffic, tried with what the run measured."""

from __future__ import annotations

from pathlib import Path

import pytest
from recorded_runs import WALL_NS, settings, write

from headgate.controller.core.loop import Loop
from headgate.controller.knowledge.controller_config import TrafficTriggers
from headgate.controller.knowledge.journal_records import Submitted
from headgate.controller.models.plans import MeasuredTraffic
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.replay.ideal_machines import Delays, IdealAccount, IdealWorld
from headgate.controller.replay.replay_policies import PolicyQuestion, PolicyTrial, policies_of, trial_of
from headgate.controller.replay.trace_reading import Recording
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

SECONDS, NAMES = 60.0, ("source", "a", "b", "c", "d", "sink")
ENDS = tuple(zip(NAMES, NAMES[1:], strict=False))
ENDED = Static(1, 0.05, 0.05)
PIPE = Topology(
    "pipe",
    tuple(
        Task(n, kind="source" if n == "source" else "map", static=ENDED if n in ("source", "sink") else None)
        for n in NAMES
    ),
    tuple(Edge(*ends) for ends in ENDS),
)
MODELS = tuple(Model(name, ModelSlot(), (Point(1, 150.0, 0.55, 0.05),)) for name in "abcd")


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """100 rows/s by mba+sam on three VMs of a slot each."""
    given = settings(
        initial=tuple(Vm(f"vm{n}", 1) for n in (1, 2, 3)), triggers=TrafficTriggers(every_s=20.0)
    )
    loop = Loop(given, Submitted(PIPE, MODELS, ((0.0, 100.0),), 0.0, (), WALL_NS))
    moments = list(IdealWorld(loop, IdealAccount(), wall_ns=WALL_NS + 1_000_000_000).moments(SECONDS))
    folder: Path = tmp_path_factory.mktemp("trace")
    return Recording(write(folder, moments))


def measured(large: tuple[str, str]) -> MeasuredTraffic:
    return MeasuredTraffic(60.0, dict.fromkeys(ENDS, 1.0), dict.fromkeys(ENDS, 10.0) | {large: 5000.0}, {})


def replans(recording: Recording, name: str, traffic: MeasuredTraffic | None) -> int:
    (policy,) = policies_of([name], recording.run.settings)
    question = PolicyQuestion(recording.run, SECONDS, Delays(0.0, 0.0), traffic=traffic)

    def watch(trial: PolicyTrial) -> None:
        for _ in trial.moments():
            pass

    row = trial_of(policy, question, watch)
    assert row["violations_s"] == 0
    return int(row["replans"])


def test_a_mapper_alone_stands_for_the_pair_it_goes_with(recording: Recording) -> None:
    names = ("traffic", "static:top-down", "optimal", "lsa+traffic")
    found = [(p.name, p.allocator, p.mapper, p.fixed) for p in policies_of(names, recording.run.settings)]
    assert found == [
        ("traffic", "mba", "traffic", ""),
        ("static:top-down", "mba", "top-down", "static"),
        ("optimal", "optimal", "optimal", ""),
        ("lsa+traffic", "lsa", "traffic", ""),
    ]


def test_the_online_policy_plans_again_by_what_the_run_measured(recording: Recording) -> None:
    """By rows alone a plan parts b from c; where these are large, one move brings them together."""
    assert replans(recording, "traffic", measured(("b", "c"))) == 1
    assert replans(recording, "traffic", measured(("a", "b"))) == 0, "they are together from the beginning"
    assert replans(recording, "traffic", None) == 0


def test_policies_that_are_not_online_stay(recording: Recording) -> None:
    for name in ("mba+sam", "top-down", "static:traffic"):
        assert replans(recording, name, measured(("b", "c"))) == 0
