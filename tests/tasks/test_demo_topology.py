"""The demo's topology: valid, plain, and its tasks fit together; which worker it kills, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.dashboards.runs.up_settings import DEMO_SECONDS, UpSettings
from headgate.dashboards.up.demo_kill import DemoKill, slot_of
from headgate.topology_runtime.api.cluster import SLOT_CORES, SLOT_MEMORY_BYTES, Slot, Vm
from headgate.topology_runtime.api.loading import build
from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.api.validate import faults_of
from headgate.topology_runtime.measuring import model_store as store
from headgate.topology_runtime.tasks import demo

SENML = '1,{"e":[{"n":"source","sv":"s1","u":"string"},{"n":"celsius","v":"4.5","u":"Cel"}],"bt":1}\n'


def topology(input: str | None = None, slot_cores: float = 0.25) -> Topology:
    return demo.topology("127.0.0.1:7000", input, "archive", slot_cores)


@pytest.mark.parametrize("input", [None, "events.csv"])
@pytest.mark.parametrize("slot_cores", [0.05, 0.25, 1.0])
def test_is_valid_and_survives_json(input: str | None, slot_cores: float) -> None:
    made = topology(input, slot_cores)
    assert faults_of(made) == []
    assert msgspec.json.decode(msgspec.json.encode(made), type=Topology) == made
    assert [task.name for task in made.tasks if task.static] == ["readings", "archive"]


def test_every_reading_has_its_mean_and_one_in_fifty_is_scored() -> None:
    assert topology().rates(5000.0) == {
        "readings": 5000.0,
        "parse": 5000.0,
        "mean": 5000.0,
        "sample": 5000.0,
        "score": 100.0,
        "lookup": 100.0,
        "archive": 100.0,
    }


def test_its_models_are_shipped() -> None:
    """So its first run starts at once: nothing is measured before."""
    shipped = {path.stem: msgspec.json.decode(path.read_bytes()) for path in demo.MODELS.glob("*.json")}
    assert set(shipped) == set(store.modelled(topology()))
    assert {model["slot"]["cores"] for model in shipped.values()} == {SLOT_CORES}
    assert {model["slot"]["memory_bytes"] for model in shipped.values()} == {SLOT_MEMORY_BYTES}


def test_the_rise_moves_no_task_that_all_rows_pass() -> None:
    """So a new plan delays one row in fifty at the most. (A kill delays more: rows are sent again by the frame.)"""
    made, models = demo.topology("127.0.0.1:1", None, "archive"), read_models(demo.MODELS)
    vms = (Vm("vm1", 4, SLOT_CORES, SLOT_MEMORY_BYTES),)
    plans = [make_plan(PlanRequest(made, models, 1.15 * rate, vms)) for rate in (4000.0, 6000.0)]
    calm, risen = ({(each.slot, each.task) for each in plan.placement.bundles} for plan in plans)
    first, second = Slot("vm1", 0), Slot("vm1", 1)
    assert calm == {(first, task.name) for task in made.tasks}
    assert risen == {(first, task) for task in ("readings", "parse", "mean", "sample", "archive")} | {
        (second, task) for task in ("score", "lookup")
    }


def test_a_reading_is_the_same_whenever_it_is_read_and_no_two_partitions_have_one() -> None:
    sources = [demo.Readings(), demo.Readings()]
    for partition, source in enumerate(sources):
        source.open(Context("readings", 1, partition, 2, ""))
    assert [*sources[0].read(0, 3), *sources[0].read(3, 2)] == sources[0].read(0, 5)
    assert sorted(number for source in sources for number, _ in source.read(0, 4)) == list(range(8))


@pytest.mark.parametrize("made_readings", [True, False])
def test_readings_flow_from_the_source_to_a_file(tmp_path: Path, made_readings: bool) -> None:
    """Every task but the look-up, on a few real rows."""
    (tmp_path / "events.csv").write_text(SENML * 3)
    input = None if made_readings else str(tmp_path / "events.csv")
    made = demo.topology("127.0.0.1:1", input, str(tmp_path / "out"))
    tasks: dict[str, Any] = {task.name: build(task) for task in made.tasks}
    for name in ("readings", "archive"):
        tasks[name].open(Context(name, 1, 0, 1, str(tmp_path)))
    rows = [tasks["parse"](event) for event in tasks["readings"].read(0, 3)]
    mean = tasks["mean"]
    for row in rows:
        _, (with_mean,) = mean.process(row["subject"], row, mean.new(row["subject"]))
        assert with_mean["mean"] == row["celsius"]
    (sampled,) = [row for each in rows for row in tasks["sample"](each)]
    assert sampled["id"] == 0
    tasks["archive"].finish(None, [tasks["score"](sampled)])
    lines = [line for file in (tmp_path / "out").glob("*.jsonl") for line in file.read_text().splitlines()]
    assert [msgspec.json.decode(line)["id"] for line in lines] == [0]


# ── The worker that it kills ────────────────────────────────────────────────────────────────────────────


def status(seconds: float, stage: str = "committed") -> dict[str, Any]:
    slots = [
        {"slot": 0, "state": "running", "threads": {"parse": 1}},
        {"slot": 1, "state": "running", "threads": {"parse": 1, "score": 2}},
        {"slot": 2, "state": "starting", "threads": {"score": 1}},
        {"slot": 3, "state": "running", "threads": {"score": 2}},
        {"slot": 4, "state": "running", "threads": {}},
    ]
    tasks = [
        {"task": "parse", "threads": 2, "rate_in_tps": 5000.0},
        {"task": "score", "threads": 5, "rate_in_tps": 100.0},
    ]
    vms = [{"vm": "vm1", "slots": slots}]
    return {"seconds": seconds, "stage": stage, "tasks": tasks, "vms": vms}


def test_it_kills_once_in_the_middle_when_no_plan_is_put_in_force() -> None:
    kill = DemoKill(UpSettings())
    assert not kill.due(status(DEMO_SECONDS / 2 - 1)) and kill.due(status(DEMO_SECONDS / 2 + 1))
    assert not kill.due(status(DEMO_SECONDS / 2 + 1, "enacting"))
    assert DemoKill(UpSettings(seconds=20.0)).due(status(11.0))
    kill.killed = "the worker of vm1/3"
    assert not kill.due(status(DEMO_SECONDS / 2 + 1))


def test_the_running_worker_with_the_fewest_rows_is_killed() -> None:
    assert slot_of(status(40.0)) == ("vm1", 3)
    assert slot_of({"vms": []}) is None


def test_nobody_is_killed_where_nobody_runs() -> None:
    kill = DemoKill(UpSettings())
    assert kill.kill(status(40.0), []) == "" and kill.killed == ""
