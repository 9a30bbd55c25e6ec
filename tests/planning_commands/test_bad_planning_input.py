"""Topologies and models that are wrong: every fault with its place, exit 3 or 4, never a traceback."""

from __future__ import annotations

import copy

import pytest
from scene import COUNT, FLOW, PARSE


def point(**changes):
    return {**PARSE[0], **changes}


@pytest.mark.parametrize(
    ("points", "fault"),
    [
        ([], "parse.json: points: expected a list with at least one point, got []"),
        ([point(), point()], "parse.json: points[1].threads: thread counts must rise, and 1 follows 1"),
        ([point(threads=3), point(threads=2)], "points[1].threads: thread counts must rise, and 2 follows 3"),
        ([point(threads=0)], "points[0].threads: expected an integer from 1"),
        ([point(rate_tps=0)], "points[0].rate_tps: expected a positive finite number, got 0"),
        ([point(rate_tps=float("nan"))], "points[0].rate_tps: expected a positive finite number, got nan"),
        ([point(rate_tps=-3.0)], "points[0].rate_tps: expected a positive finite number, got -3.0"),
        ([point(cpu=92.35)], "points[0].cpu: expected a fraction of the slot"),
        ([point(memory=None)], "points[0].memory: expected a finite number"),
    ],
)
def test_models_that_are_wrong(scene, points, fault):
    scene.model("parse", points)
    scene.run("plan", "--rate", "100", code=3)
    assert fault in scene.err


def test_every_fault_of_every_model_is_listed(scene):
    scene.model("parse", [point(rate_tps=0), point(threads=0)])
    scene.model("count", [])
    scene.run("plan", "--rate", "100", code=3)
    for place in ("count.json: points", "parse.json: points[0].rate_tps", "parse.json: points[1].threads"):
        assert place in scene.err


def test_a_task_without_a_model_gets_the_nearest_name(scene):
    (scene.folder / "models/parse.json").unlink()
    scene.model("parser", PARSE)
    scene.run("plan", "--rate", "100", code=3)
    assert "task 'parse': no model 'parse'; did you mean 'parser'?" in scene.err
    scene.run("predict", "--placement", scene.write("p.json", {"placement": []}), code=3)


def test_a_folder_of_models_that_is_not_there(scene):
    scene.headgate(
        "plan", str(scene.folder / "flow.json"), "--models", str(scene.folder / "none"), "--rate", "1", code=3
    )
    assert "cannot be read" in scene.err


def changed(**edge):
    data = copy.deepcopy(FLOW)
    data["edges"][1].update(edge)
    return data


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (changed(to="parse"), "parse"),
        (
            {**FLOW, "edges": [*FLOW["edges"], {"from": "count", "to": "parse"}]},
            "round in a circle: parse → count",
        ),
        (changed(to="cuont"), "did you mean 'count'"),
        (changed(selectivity=-1), "selectivity"),
        (changed(selectivity=1e12), "selectivity"),
        ({**FLOW, "tasks": []}, "tasks"),
    ],
)
def test_topologies_that_are_wrong(scene, data, said):
    scene.topology(data)
    scene.run("plan", "--rate", "100", code=3)
    assert said in scene.err


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
    assert "its one thread carries 400 tuples/s, not 600" in scene.err


def test_a_rate_that_no_cluster_carries(scene):
    scene.run("plan", "--rate", "1e9", "--vms", "4,4", code=4)
    scene.model("count", [{**COUNT[0], "memory": 1.9}])
    scene.run("plan", "--rate", "100", "--vms", "1", code=4)


def test_a_rate_beyond_all_slots_ends_in_words(scene):
    scene.run("plan", "--rate", "1e12", code=4)
    assert "mba needs " in scene.err
    scene.run("plan", "--rate", "1e300", code=3)
    assert "expected 1e-06 to 1e+12 tuples/s" in scene.err
