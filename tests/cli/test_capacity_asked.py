"""The highest rate that fits, which `--rate-scale auto` asks for."""

from __future__ import annotations

import json

import pytest

from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.scaling import nearly_highest_plan
from headgate.dashboards import headgate_command as cli
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

FLOW = Topology("flow", (Task("source", static=Static()), Task("work", run="x:y")), (Edge("source", "work"),))
MODEL = Model("work", ModelSlot(), (Point(1, 100.0, 1.0, 0.1),))


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_the_highest_rate_fits_and_little_more_does_not(slots):
    request = PlanRequest(FLOW, {"work": MODEL}, 1.0, (Vm("vm1", slots),))
    found = nearly_highest_plan(request).rate_tps
    assert 0.99 * 100.0 * slots <= found <= 100.0 * slots
    make_plan(PlanRequest(FLOW, {"work": MODEL}, found, (Vm("vm1", slots),)))


def test_the_command_plans_for_it(tmp_path, capsys):
    points = [{"threads": 1, "rate_tps": 100.0, "cpu": 1.0, "memory": 0.1}]
    model = {"schema": "headgate/model/v1", "task": "work", "points": points}
    (tmp_path / "work.json").write_text(json.dumps(model))
    flow = {
        "schema": "headgate/topology/v1", "name": "flow",
        "tasks": [{"name": "source", "kind": "source", "static": {}}, {"name": "work"}],
        "edges": [{"from": "source", "to": "work"}],
    }  # fmt: skip
    (tmp_path / "flow.json").write_text(json.dumps(flow))
    words = [
        "plan",
        str(tmp_path / "flow.json"),
        "--vms",
        "1,1",
        "--max-rate",
        "--rate-step",
        "fine",
        "-o",
        "json",
    ]
    (tmp_path / "models").mkdir()
    (tmp_path / "work.json").rename(tmp_path / "models" / "work.json")
    assert cli.main([*words, "--models", str(tmp_path / "models")]) == 0
    assert 198.0 <= json.loads(capsys.readouterr().out)["rate_tps"] <= 200.0
    assert cli.main([*words, "--models", str(tmp_path / "nowhere")]) == 3
    assert "error[HG-INVALID]" in capsys.readouterr().err
