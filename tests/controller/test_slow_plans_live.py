"""A controller that makes a plan for seconds answers all the while: asked every 20 ms, by the clock on the wall."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from keys_made import agent
from test_controller_live import controller

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.model_data import model_data
from headgate.topology_runtime.api import shipped_examples
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m

pytestmark = [pytest.mark.live, pytest.mark.full, pytest.mark.alone]

TASKS, SLOTS = 36, 100  # a plan for them takes two seconds of computing
LIMIT_S = 120.0
GAP_S = 0.75  # of standing still at most; on a machine that others use too a quarter of what the plan takes


def wide_topology() -> Topology:
    chance = random.Random(36)
    models = sorted(read_models(shipped_examples.MODELS))
    work = [Task(f"t{n}", model=chance.choice(models)) for n in range(TASKS)]
    source = Task("source", kind="source", static=Static(1, 0.1, 0.1))
    edges = [Edge("source", task.name, round(chance.uniform(0.3, 1.2), 3)) for task in work]
    edges += [Edge(task.name, "sink", 0.01) for task in work]
    return Topology("wide", (source, *work, Task("sink", static=Static(1, 0.1, 0.1))), tuple(edges))


@pytest.mark.parametrize("timed", [False, pytest.param(True, marks=[pytest.mark.full, pytest.mark.alone])])
def test_it_answers_while_a_plan_is_made(tmp_path: Path, timed: bool) -> None:
    models = read_models(shipped_examples.MODELS)
    with controller(tmp_path, "--set", "allocator=optimal", "--set", "mapper=optimal") as one:
        where = one.where()
        peer: channels.ClientChannel[m.FromAgent, m.FromController] = channels.ClientChannel(
            channels.from_controller, agent(tmp_path, "vm1").contact(where["control"])
        )
        try:
            peer.send(m.Hello("vm1", 1, SLOTS, 1.0, 1 << 30, "none", 1))
            submission = {
                "topology": msgspec.to_builtins(wide_topology()),
                "models": [model_data(model) for model in models.values()],
                "steps": [[0.0, 30.0]],
            }
            assert one.ask("submit", **submission).error is None
            gaps: list[float] = []
            plans: list[dict[str, Any]] = []
            began_s = time.monotonic()
            while not plans and time.monotonic() - began_s < LIMIT_S:
                peer.send(m.Report("vm1", 1, len(gaps) + 1, m.Token()))  # its agent is alive
                asked_s = time.monotonic()
                plans = one.ask("summary").data["plans"]
                gaps.append(time.monotonic() - asked_s)
                time.sleep(0.02)
        finally:
            peer.close()
    assert plans, "no plan was made"
    took_s = plans[0]["decided_s"]
    print(f"a plan of {took_s:.2f} s; {len(gaps)} questions, the slowest answer {max(gaps):.3f} s")
    assert len(gaps) > 3, "one that stands still answers once, after its plan"
    if timed:
        assert max(gaps) < max(GAP_S, took_s / 4), f"it stood still for {max(gaps):.2f} s"
