"""`headgate plan … --for flink|storm|kubernetes`: what those take says the same as the plan, and what it loses."""

from __future__ import annotations

import csv
import io
import json
import shlex
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from scene import COUNT, FLOW, Scene
from worlds import checked_few, requests

from headgate.controller.models.plans import Plan
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.schedulers import pair_of, pairs
from headgate.controller.planning_commands.plan_exports import (
    for_flink,
    for_kubernetes,
    for_storm,
    stateful_set,
    vertex_id,
)
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Infeasible

SHIPPED = Path(__file__).resolve().parents[2] / "dashboards" / "kubernetes" / "headgate.yaml"
VERSIONS = ("1.28", "1.31", "1.34")


def for_target(scene: Scene, target: str, *words: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """(the plan, the same plan for `target`)."""
    plan = scene.plan("--rate", "310", *words)
    found = json.loads(scene.run("plan", "--rate", "310", *words, "--for", target, "-o", "json"))
    assert (found["schema"], found["target"]) == ("headgate/plan-for/v1", target)
    assert (found["topology"], found["rate_tps"], found["plan_id"]) == ("flow", 310.0, plan["id"])
    return plan, found


def threads_of(plan: dict[str, Any]) -> dict[str, int]:
    found: Counter[str] = Counter()
    for slot in plan["placement"]:
        found.update(slot["threads"])
    return dict(found)


# ── Flink ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("uid", "known"),
    [
        (
            "source",
            "e5a72f353fc1e6bbf3bd96a41384998c",
        ),  # these three Flink 2.2.1 gave to operators of these uids
        ("parse", "a0bcbe636c3291fd3f45c25deb2b0823"),
        ("count", "b71731f1c0df9c3076c4a455334d0ad6"),
        ("The quick brown fox jumps over the lazy dog", "6c1b07bc7bbc4be347939ac4a93c437a"),
        ("", "00000000000000000000000000000000"),
    ],
)
def test_vertex_ids_are_those_of_flink(uid: str, known: str) -> None:
    assert vertex_id(uid) == known


def test_flink_gets_every_thread_as_a_subtask_and_a_task_slot_for_each(scene: Scene) -> None:
    plan, found = for_target(scene, "flink")
    threads = threads_of(plan)
    assert {one["uid"]: one["parallelism"] for one in found["operators"]} == threads
    settings = found["settings"]
    overrides = dict(
        one.split(":") for one in settings["pipeline.jobvertex-parallelism-overrides"].split(",")
    )
    assert overrides == {vertex_id(task): str(count) for task, count in threads.items()}
    assert {key: one["parallelism"]["upperBound"] for key, one in found["resource_requirements"].items()} == {
        vertex_id(task): count for task, count in threads.items()
    }
    managers, each = found["task_managers"], settings["taskmanager.numberOfTaskSlots"]
    assert managers == plan["slots"]["used"] and found["task_slots_needed"] == sum(threads.values())
    assert managers * each >= sum(threads.values()) > managers * (each - 1)
    groups = [one["slot_sharing_group"] for one in found["operators"]]
    assert len(set(groups)) == len(groups)
    by_name = {one["task"]: one for one in plan["allocation"]}
    for one in found["operators"]:
        used = by_name[one["task"]]["cpu_slots"] / one["parallelism"]
        assert one["cpu_cores"] == pytest.approx(used, abs=1e-4)


def test_the_text_for_flink_can_be_pasted(scene: Scene) -> None:
    _, found = for_target(scene, "flink")
    text = scene.run("plan", "--rate", "310", "--for", "flink")
    lines = text.splitlines()
    assert lines[0].startswith("# flow at 310 rows/s")
    for one in found["operators"]:
        assert f'.uid("{one["uid"]}").setParallelism({one["parallelism"]})' in text
    block = [line for line in lines if line.startswith(("taskmanager.", "pipeline."))]
    assert yaml.safe_load("\n".join(block)) == found["settings"]
    [asked] = [line for line in lines if line.startswith("curl ")]
    assert json.loads(shlex.split(asked)[-1]) == found["resource_requirements"]
    for sentence in found["not_expressed"]:
        assert f"# - {sentence}" in lines


def test_an_edge_that_flink_does_not_know_is_told(scene: Scene) -> None:
    data = json.loads(json.dumps(FLOW))
    data["edges"][1]["grouping"] = "direct"
    scene.topology(data)
    _, found = for_target(scene, "flink")
    assert any("parse → count" in sentence for sentence in found["not_expressed"])


# ── Storm ───────────────────────────────────────────────────────────────────────────────────────


def test_storm_gets_the_executors_and_a_worker_for_each_slot(scene: Scene) -> None:
    plan, found = for_target(scene, "storm")
    words = shlex.split(found["rebalance"])
    assert words[:5] == ["storm", "rebalance", "flow", "-n", str(plan["slots"]["used"])]
    pairs = list(zip(words[5::2], words[6::2], strict=True))
    assert all(flag == "-e" for flag, _ in pairs)
    given = dict(pair.split("=") for _, pair in pairs)
    assert given == {task: str(count) for task, count in threads_of(plan).items()}
    assert found["workers"] == plan["slots"]["used"]
    text = scene.run("plan", "--rate", "310", "--for", "storm")
    assert found["rebalance"] in text.splitlines()
    assert f"conf.setNumWorkers({found['workers']})" in text


def test_what_is_lost_is_told_with_the_rate_that_is_left(scene: Scene) -> None:
    plan, found = for_target(scene, "storm")
    written = scene.write("plan.json", plan)
    rate = json.loads(scene.run("plan", "--placement", written, "--routing", "shuffle", "-o", "json"))
    told = "\n".join(found["not_expressed"])
    assert rate["rate_tps"] < plan["prediction"]["rate_tps"]
    assert f"they would carry {rate['rate_tps']:.4g} rows/s" in told
    kinds = {tuple(sorted(slot["threads"].items())) for slot in plan["placement"]}
    assert f"{len(plan['placement'])} slots of {len(kinds)} kinds" in told
    _, shuffled = for_target(scene, "storm", "--routing", "shuffle")
    assert not any("Weighted" in sentence for sentence in shuffled["not_expressed"])


def test_a_plan_of_equal_slots_loses_nothing_of_what_shares_one(scene: Scene) -> None:
    scene.topology({**FLOW, "tasks": [{"name": "count"}], "edges": []})
    scene.model("count", COUNT)
    found = json.loads(scene.run("plan", "--rate", "800", "--for", "storm", "-o", "json"))
    assert found["workers"] == 2
    assert not any("share a slot" in sentence for sentence in found["not_expressed"])


# ── Kubernetes ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_gets_valid_manifests_with_the_slots_of_the_plan(scene: Scene, version: str) -> None:
    validating = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")
    plan, found = for_target(scene, "kubernetes", "--vms", "4,4,2")
    text = scene.run("plan", "--rate", "310", "--vms", "4,4,2", "--for", "kubernetes")
    manifests = [one for one in yaml.safe_load_all(text) if one is not None]
    assert manifests == found["manifests"] and "&id" not in text
    for manifest in manifests:
        validating.validate(manifest, version, strict=True)
    slots: list[int] = []
    for manifest in manifests:
        [agent] = manifest["spec"]["template"]["spec"]["containers"]
        [each] = [int(word[8:]) for word in agent["args"] if word.startswith("--slots=")]
        slots += [each] * manifest["spec"]["replicas"]
        assert manifest["spec"]["serviceName"] == "headgate-agent"
        assert agent["resources"]["requests"]["cpu"] == f"{each * 1000 + 500}m"
        assert agent["resources"]["requests"]["memory"] == f"{each * 3584 + 512}Mi"
    assert sorted(slots) == sorted(vm["slots"] for vm in plan["vms"])
    pods = [f"{one['metadata']['name']}-{n}" for one in manifests for n in range(one["spec"]["replicas"])]
    assert found["pods"] == pods and all(f"keys add agent {pod} " in text for pod in pods)
    assert len({str(one["spec"]["selector"]) for one in manifests}) == len(manifests)


def test_the_agents_made_are_those_that_are_shipped() -> None:
    [shipped] = [
        one for one in yaml.safe_load_all(SHIPPED.read_text("utf-8")) if one["kind"] == "StatefulSet"
    ]
    assert stateful_set("headgate-agent", Vm("vm1", 4, 1.0, 1024**3), 3) == shipped


# ── all of them ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("target", "key"), [("flink", "parallelism"), ("storm", "executors"), ("kubernetes", "replicas")]
)
def test_csv_has_a_row_for_each_part(scene: Scene, target: str, key: str) -> None:
    rows = list(csv.DictReader(io.StringIO(scene.run("plan", "--rate", "310", "--for", target, "-o", "csv"))))
    assert rows and all(int(row[key]) >= 1 for row in rows)


def test_another_system_is_a_usage_error(scene: Scene) -> None:
    scene.run("plan", "--rate", "310", "--for", "nomad", code=2)
    assert "kubernetes" in scene.err


# ── Any plan, whatever made it, says the same in the words of every other system ────────────────────────


def planned(request: PlanRequest, pair: str) -> Plan | None:
    allocator, mapper = pair_of(pair)
    try:
        return make_plan(replace(request, allocator=allocator, mapper=mapper))
    except Infeasible:
        return None


@checked_few
@given(requests(), st.sampled_from(pairs()))
def test_every_thread_and_every_slot_leaves(request, pair):
    plan = planned(request, pair)
    if plan is None:
        return
    threads = Counter()
    for bundle in plan.placement.bundles:
        threads[bundle.task] += bundle.threads
    flink = for_flink(plan, request.topology, 1.0)
    assert {one["task"]: one["parallelism"] for one in flink.rows} == threads
    assert len({one["vertex_id"] for one in flink.rows}) == len(threads)
    assert flink.data["task_managers"] == plan.placement.slots_used()
    held = flink.data["task_managers"] * flink.data["settings"]["taskmanager.numberOfTaskSlots"]
    assert held >= sum(threads.values())
    storm = for_storm(plan, 1.0)
    words = shlex.split(storm.data["rebalance"])
    assert words[3:5] == ["-n", str(plan.placement.slots_used())]
    assert {word for word in words if "=" in word} == {f"{task}={count}" for task, count in threads.items()}
    kubernetes = for_kubernetes(plan)
    assert sum(one["replicas"] * one["slots"] for one in kubernetes.rows) == sum(vm.slots for vm in plan.vms)
    assert len(set(kubernetes.data["pods"])) == len(plan.vms)
    assert all(found.lost and found.blocks for found in (flink, storm, kubernetes))
