"""Faults of plans and placements in files: each is listed with its place, all of them at once."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from scene import COUNT, FLOW, PARSE, PLACED

from headgate.controller.files import planning_inputs as plan_files
from headgate.controller.files.planning_inputs import read_json, read_plan
from headgate.controller.models.plan_data import placement_of, plan_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.api.validate import topology_of
from headgate.topology_runtime.errors import InvalidInput

TOPOLOGY: Topology = topology_of(FLOW, "flow")[0]


def placement(**changes: Any) -> dict[str, Any]:
    return {"placement": copy.deepcopy(PLACED), **changes}


def faults_of(data: object) -> list[str]:
    with pytest.raises(InvalidInput) as caught:
        placement_of(data, TOPOLOGY)
    return list(caught.value.faults)


def test_a_bare_placement_names_its_vms_by_the_highest_slot():
    found, vms = placement_of(placement(), TOPOLOGY)
    assert vms == (Vm("vm1", 2), Vm("vm2", 1))
    assert [(str(b.slot), b.task, b.threads) for b in found.bundles] == [
        ("vm1/0", "source", 1),
        ("vm1/0", "parse", 1),
        ("vm1/1", "parse", 4),
        ("vm2/0", "count", 1),
    ]


def test_vms_without_a_list_are_counted_like_people_count():
    slots = [
        {"vm": f"vm{n}", "slot": 0, "threads": {task: 1}}
        for n, task in ((10, "source"), (9, "parse"), (100, "count"))
    ]
    assert [vm.vm for vm in placement_of({"placement": slots}, TOPOLOGY)[1]] == ["vm9", "vm10", "vm100"]


def test_given_vms_are_taken_as_they_are():
    given = [{"vm": "vm2", "slots": 3}, {"vm": "vm1", "slots": 2, "usd_per_hour": 0.5}]
    found, vms = placement_of(placement(vms=given), TOPOLOGY)
    assert vms == (Vm("vm2", 3), Vm("vm1", 2, usd_per_hour=0.5))
    assert str(found.bundles[0].slot) == "vm2/0"


def test_a_placement_that_names_absent_vms_and_slots():
    found = faults_of(placement(vms=[{"vm": "vm1", "slots": 1}, {"vm": "wm2", "slots": 1}]))
    assert found == [
        "placement[1].slot: vm1 has 1 slot, so there is no vm1/1",
        "placement[2].vm: there is no VM 'vm2'; did you mean 'wm2'?",
    ]


def test_a_placement_that_loses_threads():
    data = placement()
    del data["placement"][2]
    data["placement"][0]["threads"] = {"source": 2, "parse": 1}
    assert faults_of(data) == [
        "placement: task 'source' has 1 threads (`static`), 2 are placed",
        "placement: task 'count' has no thread in any slot",
    ]


def test_unknown_tasks_get_the_nearest_name():
    data = placement()
    data["placement"][2]["threads"] = {"count": 1, "parsee": 3}
    assert faults_of(data) == ["placement: the topology 'flow' has no task 'parsee'; did you mean 'parse'?"]


def test_threads_that_were_allocated_must_be_placed():
    allocation = [
        {"task": "source", "threads": 1},
        {"task": "parse", "threads": 7},
        {"task": "count", "threads": 1},
    ]
    assert faults_of(placement(allocation=allocation)) == [
        "placement: task 'parse': 5 threads are placed, 7 allocated"
    ]


def test_one_thread_tasks_cannot_have_two():
    lone = copy.deepcopy(FLOW)
    lone["tasks"][1]["exclusive"] = True
    lone["edges"][1]["grouping"] = "global"
    data = placement()
    data["placement"][2]["threads"] = {"count": 2}
    with pytest.raises(InvalidInput) as caught:
        placement_of(data, topology_of(lone, "flow")[0])
    assert [fault.split(":")[1].strip().split(" runs")[0] for fault in caught.value.faults] == [
        "task 'parse'",
        "task 'count'",
    ]


@pytest.mark.parametrize("count", [0, -1, 1.5, True, "2", None, 10**9])
def test_threads_are_positive_integers(count):
    data = placement()
    data["placement"][2]["threads"] = {"count": count}
    assert faults_of(data)[0].startswith("placement[2].threads: 'count': expected 1 to 1000000 threads")


def test_the_same_slot_twice():
    data = placement()
    data["placement"][1]["slot"] = 0
    assert faults_of(data) == ["placement[1].slot: vm1/0 is there twice"]


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ([], "the file: expected an object, got []"),
        ({}, "placement: expected a list, there is none"),
        ({"placement": {}}, "placement: expected a list, got a mapping"),
        ({"placement": [3]}, "placement[0]: expected an object, got 3"),
        ({"placment": []}, "placment: unknown key; did you mean 'placement'?"),
        ({"placement": [{"vm": "../x", "slot": 0, "threads": {}}]}, "placement[0].vm '../x': names are"),
        ({"placement": [{"vm": "a", "slot": -1, "threads": {}}]}, "placement[0].slot: expected an integer from 0"),
        ({"placement": [{"vm": "a", "slot": 0, "thread": {}}]}, "placement[0].thread: unknown key; did you mean"),
        (placement(vms=[{"vm": "vm1", "slots": 2}] * 2), "vms: VM 'vm1' is there 2 times"),
        (placement(vms=[{"vm": "vm1", "slots": 0}]), "vms[0].slots: expected an integer from 1"),
        (placement(vms=[{"vm": "vm1", "slots": 2, "usd_per_hour": 10**400}]), "vms[0].usd_per_hour: expected a finite"),
    ],
)  # fmt: skip
def test_what_is_no_placement(data, fault):
    assert any(found.startswith(fault) for found in faults_of(data))


def test_unknown_keys_are_let_pass():
    data = placement(note="by hand")
    data["placement"][0]["colour"] = "red"
    assert placement_of(data, TOPOLOGY)


def test_every_fault_of_a_plan_is_listed(scene):
    data = scene.plan("--rate", "100")
    assert plan_of(data).id == data["id"]
    data["schema"] = "headgate/plan/v2"
    data["rate_tps"] = -1
    data["vms"][0]["speed"] = 0
    data["placement"][0]["slot"] = 99
    del data["prediction"]["at_rate_tps"]
    with pytest.raises(InvalidInput) as caught:
        plan_of(data)
    assert [fault.split(":")[0] for fault in caught.value.faults] == [
        "schema",
        "rate_tps",
        "vms[0].speed",
        "placement[0].slot",
        "prediction.at_rate_tps",
    ]


def test_what_is_not_there_is_one_fault():
    with pytest.raises(InvalidInput) as caught:
        plan_of({"schema": "headgate/plan/v1"})
    places = [fault.split(":")[0] for fault in caught.value.faults]
    assert "slots" in places and "prediction" in places and not any("." in place for place in places)


def test_a_plan_that_lost_a_slot_is_refused(scene):
    data = scene.plan("--rate", "100")
    data["placement"] = data["placement"][:-1]
    with pytest.raises(InvalidInput) as caught:
        plan_of(data)
    assert all("threads are placed" in fault for fault in caught.value.faults)


@pytest.mark.parametrize("text", ["{", "", "\xff\xfe", "[" * 100_000])
def test_what_is_no_json(text, tmp_path):
    path = tmp_path / "plan.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(InvalidInput, match="is not JSON"):
        read_plan(path)


def test_files_are_of_limited_size(tmp_path, monkeypatch):
    monkeypatch.setattr(plan_files, "PLAN_MOST_BYTES", 100)
    path = tmp_path / "plan.json"
    path.write_text(json.dumps("x" * 100))
    with pytest.raises(InvalidInput, match="larger than 100 bytes"):
        read_json(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_plan(tmp_path / "none.json")


# ── Topologies and models that are wrong: every fault with its place, exit 3 or 4, never a traceback ────


def test_every_fault_of_every_model_is_listed(scene):
    scene.model("parse", [{**PARSE[0], "rate_tps": 0}, {**PARSE[0], "threads": 0}])
    scene.model("count", [])
    scene.run("plan", "--rate", "100", code=3)
    for place in ("count.json: points", "parse.json: points[0].rate_tps", "parse.json: points[1].threads"):
        assert place in scene.err


def test_a_task_without_a_model_gets_the_nearest_name(scene):
    (scene.folder / "models/parse.json").unlink()
    scene.model("parser", PARSE)
    scene.run("plan", "--rate", "100", code=3)
    assert "task 'parse': no model 'parse'; did you mean 'parser'?" in scene.err
    scene.run("plan", "--placement", scene.write("p.json", {"placement": []}), code=3)


def test_a_folder_of_models_that_is_not_there(scene):
    scene.headgate(
        "plan", str(scene.folder / "flow.json"), "--models", str(scene.folder / "none"), "--rate", "1", code=3
    )
    assert "cannot be read" in scene.err


def test_a_topology_that_is_not_there(scene):
    scene.headgate("plan", "linaer", "--rate", "100", code=3)
    assert "did you mean 'linear'" in scene.err


@pytest.mark.parametrize("how", ["exclusive", "global"])
def test_a_rate_that_the_one_thread_of_a_task_cannot_carry(scene, how):
    data = copy.deepcopy(FLOW)
    if how == "exclusive":
        data["tasks"][2]["exclusive"] = True
    else:
        data["edges"][1]["grouping"] = "global"
    scene.topology(data)
    scene.run("plan", "--rate", "300", code=4)
    assert "its one thread carries 400 rows/s, not 600" in scene.err


def test_a_rate_that_no_cluster_carries(scene):
    scene.run("plan", "--rate", "1e9", "--vms", "4,4", code=4)
    scene.model("count", [{**COUNT[0], "memory": 1.9}])
    scene.run("plan", "--rate", "100", "--vms", "1", code=4)


def test_a_rate_beyond_all_slots_ends_in_words(scene):
    scene.run("plan", "--rate", "1e12", code=4)
    assert "mba needs " in scene.err
    scene.run("plan", "--rate", "1e300", code=3)
    assert "expected 1e-06 to 1e+12 rows/s" in scene.err
