"""Flink itself, on PyFlink's mini-cluster: it takes what `plan --for flink` prints, and what it answers is imported.

In an environment of its own (`scripts/setup flink`, or any Python with PyFlink named by HEADGATE_FLINK_PYTHON).
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from scene import Scene

from headgate.controller.files.planning_inputs import read_models

ROOT = Path(__file__).resolve().parents[2]
JOB = Path(__file__).with_name("flink_job.py")
OVERRIDES = "pipeline.jobvertex-parallelism-overrides"
PARSE_S = 0.002  # what a row takes in flink_job.py


def python_of_flink() -> str:
    """A Python that has PyFlink; skips where there is none, or no Java for it."""
    own = ROOT / ".headgate" / "flink" / "bin" / "python"
    named = os.environ.get("HEADGATE_FLINK_PYTHON") or (str(own) if own.exists() else None)
    if named is None and importlib.util.find_spec("pyflink") is not None:
        named = sys.executable
    if named is None:
        pytest.skip("no Python with PyFlink: `scripts/setup flink`, or HEADGATE_FLINK_PYTHON")
    if shutil.which("java") is None:
        pytest.skip("no Java, which Flink needs")
    return named


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@pytest.fixture
def planned(scene: Scene) -> dict[str, Any]:
    """A plan of three subtasks of `parse` and two of `count`, for Flink."""
    flow = {
        "schema": "headgate/topology/v1",
        "name": "flow",
        "tasks": [
            {"name": "source", "kind": "source", "static": {"threads": 1, "cpu": 0.1, "memory": 0.1}},
            {"name": "parse"},
            {"name": "count"},
            {"name": "sink", "static": {"threads": 1, "cpu": 0.1, "memory": 0.1}},
        ],
        "edges": [
            {"from": "source", "to": "parse"},
            {"from": "parse", "to": "count"},
            {"from": "count", "to": "sink"},
        ],
    }
    scene.topology(flow)
    scene.model("parse", [{"threads": 1, "rate_tps": 100.0, "cpu": 1.0, "memory": 0.1}])
    scene.model("count", [{"threads": 1, "rate_tps": 150.0, "cpu": 1.0, "memory": 0.1}])
    found: dict[str, Any] = json.loads(scene.run("plan", "--rate", "300", "--for", "flink", "-o", "json"))
    threads = {one["task"]: one["parallelism"] for one in found["operators"]}
    assert threads == {"source": 1, "parse": 3, "count": 2, "sink": 1}
    return found


def run(python: str, planned: dict[str, Any]) -> dict[str, Any]:
    asked = {
        "port": free_port(),
        "task_managers": planned["task_managers"],
        "settings": planned["settings"],
        "groups": {one["task"]: one["slot_sharing_group"] for one in planned["operators"]},
        "requirements": planned["resource_requirements"],
    }
    ended = subprocess.run(
        [python, str(JOB)], input=json.dumps(asked), text=True, capture_output=True, timeout=400, check=False
    )
    assert ended.returncode == 0, ended.stderr[-3000:]
    told: dict[str, Any] = json.loads(ended.stdout.strip().splitlines()[-1])
    return told


@pytest.mark.live
@pytest.mark.alone
def test_flink_takes_the_plan_and_its_metrics_make_models(scene: Scene, planned: dict[str, Any]) -> None:
    told = run(python_of_flink(), planned)
    wanted = {one["vertex_id"]: one["parallelism"] for one in planned["operators"]}
    began, after = (
        {one["id"]: one["parallelism"] for one in told[when]["vertices"]} for when in ("began", "after")
    )
    assert after == wanted  # by the printed request; the ids are those that Flink made of the uids
    release = tuple(int(part) for part in told["version"].split(".")[:2])
    if release < (2, 0):
        assert began == wanted  # by the setting
    elif release < (2, 4):
        assert set(began.values()) == {1}, (
            f"this Flink obeys {OVERRIDES}: docs/how-to/integrations.md says it does not"
        )
    groups = [one["slotSharingGroupId"] for one in told["after"]["vertices"]]
    assert len(set(groups)) == len(groups)

    imported(scene, told["job"], "life", code=3)
    assert "Sink: sink: it took no rows" in scene.err
    rates = imported(scene, told["job"], "life", "--task", "parse", "--task", "count")
    for vertex in told["job"]["vertices"]:
        if vertex["name"] in rates:
            busy_s = float(vertex["metrics"]["accumulated-busy-time"]) / 1000
            assert rates[vertex["name"]] == pytest.approx(vertex["metrics"]["read-records"] / busy_s)
    assert rates["parse"] <= 1.1 / PARSE_S
    for kind in ("of_all", "each"):
        document = {"job": told["job"], "metrics": told[kind]}
        assert set(imported(scene, document, kind, "--task", "parse", "--task", "count")) == {
            "parse",
            "count",
        }


def imported(scene: Scene, data: Any, to: str, *words: str, code: int = 0) -> dict[str, float]:
    """Task → the rate of one thread."""
    file, folder = scene.write(f"{to}.json", data), scene.folder / f"made-{to}"
    scene.headgate("model", "import", "--from", "flink", file, "--output", str(folder), *words, code=code)
    return (
        {task: model.points[0].rate_tps for task, model in read_models(folder).items()} if code == 0 else {}
    )
