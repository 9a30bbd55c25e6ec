"""`headgate predict`: the rate a placement carries, at which usage, and placements that cannot be."""

from __future__ import annotations

import copy
import json
import os

import pytest
from scene import FLOW, PLACED


@pytest.fixture
def placed(scene):
    return scene.write("placed.json", {"placement": PLACED})


def predicted(scene, placed, *words):
    return json.loads(scene.run("predict", "--placement", placed, *words, "-o", "json"))


def test_it_is_the_prediction_of_the_contract(scene, placed):
    found = predicted(scene, placed)
    assert found["schema"] == "headgate/prediction/v1"
    assert found["rate_tps"] == pytest.approx(150.0)  # parse: I(1) + I(4) = 50 + 100
    assert found["limited_by"] == "parse" and found["limited_by_slot"] in ("vm1/0", "vm1/1")
    assert found["at_rate_tps"] == found["rate_tps"]
    cpu = {(use["vm"], use["slot"]): use["cpu"] for use in found["slots"]}
    assert cpu == pytest.approx({("vm1", 0): 0.1 + 0.3, ("vm1", 1): 0.8, ("vm2", 0): 0.5 * 300 / 400})
    assert {use["vm"]: use["cpu"] for use in found["vms"]} == pytest.approx({"vm1": 1.2, "vm2": 0.375})


def test_shuffle_gives_each_thread_as_much(scene, placed):
    found = predicted(scene, placed, "--routing", "shuffle")
    assert found["rate_tps"] == pytest.approx(125.0)  # 4 of 5 threads carry 100
    assert found["limited_by_slot"] == "vm1/1"


def test_usage_at_a_rate_and_at_peak(scene, placed):
    half = predicted(scene, placed, "--rate", "75")
    assert half["at_rate_tps"] == 75.0
    assert half["slots"][1]["cpu"] == pytest.approx(0.4)
    peak = predicted(scene, placed, "--rate", "75", "--usage", "peak")
    assert [use["cpu"] for use in peak["slots"]] == pytest.approx([0.4, 0.8, 0.5])
    assert [use["memory"] for use in peak["slots"]] == pytest.approx([0.2, 0.2, 0.1])


def test_a_rate_beyond_is_said_to_be(scene, placed):
    assert predicted(scene, placed, "--rate", "300")["at_rate_tps"] == pytest.approx(150.0)
    text = scene.run("predict", "--placement", placed, "--rate", "300")
    assert "flow: carries 150 tuples/s, limited by parse in slot vm1/" in text
    assert "it cannot carry 300 tuples/s: 50% of them" in text


def test_interference(scene):
    crowd = copy.deepcopy(PLACED)
    crowd[1]["threads"], crowd[2]["threads"] = {"parse": 4, "count": 1}, {"count": 1}
    crowd[0]["threads"] = {"source": 1}
    placed = scene.write("crowd.json", {"placement": crowd[:2]})
    shared = predicted(scene, placed)
    alone = predicted(scene, placed, "--interference", "none")
    assert alone["rate_tps"] == pytest.approx(100.0)
    assert shared["rate_tps"] == pytest.approx(1 / (0.8 / 100 + 2 * 0.5 / 400))


def test_a_plan_is_a_placement_too(scene):
    plan = scene.plan("--rate", "120")
    found = predicted(scene, scene.write("plan.json", plan), "--rate", "120")
    assert {key: found[key] for key in plan["prediction"]} == plan["prediction"]


def test_faults_of_a_placement_end_3_with_their_places(scene):
    bad = copy.deepcopy(PLACED)
    bad[0]["threads"] = {"source": 1, "prase": 1}
    bad[2]["slot"] = 7
    data = {"placement": bad, "vms": [{"vm": "vm1", "slots": 2}, {"vm": "vm2", "slots": 1}]}
    scene.run("predict", "--placement", scene.write("bad.json", data), code=3)
    assert "placement[2].slot: vm2 has 1 slot, so there is no vm2/7" in scene.err
    assert "has no task 'prase'; did you mean 'parse'?" in scene.err


def test_files_that_are_no_placement_end_3(scene):
    scene.run("predict", "--placement", str(scene.folder / "none.json"), code=3)
    os.mkfifo(scene.folder / "pipe.json")
    scene.run("predict", "--placement", str(scene.folder / "pipe.json"), code=3)
    assert "pipe.json is not a regular file" in scene.err
    scene.run("predict", "--placement", scene.write("n.json", 3), code=3)
    scene.run("predict", "--placement", str(scene.folder), code=3)


@pytest.mark.parametrize(
    "words", [["--usage", "peek"], ["--routing", "x"], ["--rate", "0"], ["--rate", "nan"]]
)
def test_choices_and_rates_that_are_none(scene, placed, words):
    scene.run("predict", "--placement", placed, *words, code=3)


def test_without_any_model_a_rate_must_be_given(scene):
    lone = {**FLOW, "tasks": FLOW["tasks"][:1], "edges": []}
    scene.topology(lone)
    placed = scene.write("p.json", {"placement": [{"vm": "vm1", "slot": 0, "threads": {"source": 1}}]})
    scene.run("predict", "--placement", placed, code=2)
    assert "nothing limits the rate" in scene.err
    assert predicted(scene, placed, "--rate", "10")["limited_by"] is None
