"""Models measured in one size of slot are scaled where that is known, and refused where it is not."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from headgate.controller.cli import run
from headgate.controller.knowledge.models import Model, ModelSlot, Point, Spread
from headgate.controller.plan.slot_fit import fitted
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

FLOW = Topology("flow", (Task("source", static=Static()), Task("work", run="x:y")), (Edge("source", "work"),))
GIB = 1 << 30
POINT = Point(1, 100.0, 0.9, 0.1, Spread(memory=0.02))


def model(cores: float, memory_bytes: int, task: str = "work") -> Model:
    return Model(task, ModelSlot(cores, memory_bytes, "here"), (POINT,), {"base_memory": 0.05, "other": 1})


def test_memory_is_scaled_by_its_bytes() -> None:
    (found,) = fitted([model(0.2, 2 * GIB)], FLOW, 0.2, GIB // 2)
    assert found.points == (Point(1, 100.0, 0.9, 0.4, Spread(memory=0.08)),)
    assert found.more == {"base_memory": 0.2, "other": 1} and found.slot == ModelSlot(0.2, GIB // 2, "here")


def test_the_same_slots_change_nothing() -> None:
    before = model(0.2, GIB)
    assert fitted([before], FLOW, 0.2, GIB) == (before,)


def test_who_does_not_say_in_what_slot_is_measured_in_these() -> None:
    (found,) = fitted([Model("work", ModelSlot(), (POINT,))], FLOW, 0.2, GIB)
    assert found.points == (POINT,) and found.slot == ModelSlot(0.2, GIB)


def test_models_of_other_cores_are_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidInput) as refused:
        fitted([model(0.5, GIB)], FLOW, 0.2, GIB)
    assert refused.value.faults == ("work: measured in a slot of 0.5 cores",)
    assert "--slot-cores 0.5" in refused.value.hint and "model profile --slot-cores 0.2" in refused.value.hint


def test_a_model_that_is_not_used_refuses_nothing() -> None:
    found = fitted([model(0.5, GIB, "other"), model(0.2, GIB)], FLOW, 0.2, GIB)
    assert [one.task for one in found] == ["other", "work"]


def test_a_controller_is_not_started_with_them(tmp_path: Path) -> None:
    slot = {"cores": 0.5, "memory_bytes": GIB, "machine": "here"}
    point = {"threads": 1, "rate_tps": 100.0, "cpu": 0.9, "memory": 0.1}
    document = {"schema": "headgate/model/v1", "task": "work", "slot": slot, "points": [point]}
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "work.json").write_text(json.dumps(document))
    (tmp_path / "flow.json").write_bytes(msgspec.json.encode(FLOW))
    words = ["--topology", str(tmp_path / "flow.json"), "--models", str(tmp_path / "models"), "--rate", "5"]
    words += ["--initial-vms", "vm1=4", "--slot-cores", "0.2", "--state-dir", str(tmp_path / "state")]
    result = CliRunner().invoke(run, words)
    assert isinstance(result.exception, InvalidInput), result.exception
    assert "do not fit slots of 0.2 cores" in result.exception.what
    assert not (tmp_path / "state").exists(), "nothing is left behind"
