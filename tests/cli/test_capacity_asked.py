"""The highest rate that fits, which `--rate-scale auto` asks for."""

from __future__ import annotations

import json

import pytest

from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.scaling import nearly_highest_plan
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.dashboards.up.up_run import capacity_tps
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.platform.child_processes import ChildRefused

FLOW = Topology("flow", (Task("source", static=Static()), Task("work", run="x:y")), (Edge("source", "work"),))
MODEL = Model("work", ModelSlot(), (Point(1, 100.0, 1.0, 0.1),))


@pytest.mark.parametrize("slots", [2, 3, 8])
def test_the_highest_rate_fits_and_little_more_does_not(slots):
    request = PlanRequest(FLOW, {"work": MODEL}, 1.0, (Vm("vm1", slots),))
    found = nearly_highest_plan(request).rate_tps
    assert 0.99 * 100.0 * slots <= found <= 100.0 * slots
    make_plan(PlanRequest(FLOW, {"work": MODEL}, found, (Vm("vm1", slots),)))


@pytest.fixture
def flow(tmp_path):
    """A topology in a file, and its models in a folder."""
    points = [{"threads": 1, "rate_tps": 100.0, "cpu": 1.0, "memory": 0.1}]
    model = {"schema": "headgate/model/v1", "task": "work", "points": points}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "work.json").write_text(json.dumps(model))
    data = {
        "schema": "headgate/topology/v1", "name": "flow",
        "tasks": [{"name": "source", "kind": "source", "static": {}}, {"name": "work"}],
        "edges": [{"from": "source", "to": "work"}],
    }  # fmt: skip
    (tmp_path / "flow.json").write_text(json.dumps(data))
    return tmp_path / "flow.json", tmp_path / "models"


def test_up_asks_it_for_all_vms_there_may_be(flow):
    found = capacity_tps(UpSettings(topology=str(flow[0]), slots=(1,), max_vms=2), *flow)
    assert 198.0 <= found <= 200.0


def test_up_passes_on_what_the_planner_says(flow, tmp_path):
    with pytest.raises(ChildRefused) as refused:
        capacity_tps(UpSettings(topology=str(flow[0])), flow[0], tmp_path / "nowhere")
    assert "HG-INVALID" in "\n".join(refused.value.lines())


def test_a_planner_that_takes_too_long_is_said_so(flow):
    with pytest.raises(HeadgateError) as late:
        capacity_tps(UpSettings(topology=str(flow[0])), *flow, limit_s=1e-4)
    assert late.value.what == "what these slots carry was not worked out within 0.0001 s"
    assert late.value.hint is not None and "--rate-scale" in late.value.hint
