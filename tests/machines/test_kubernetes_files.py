"""The manifests: valid by the schemas that Kubernetes publishes, and at one with each other and with the image."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
from kubernetes_read import FOLDER, manifests, named, pod, words

VERSIONS = ("1.28", "1.31", "1.34")
validating = pytest.importorskip("kubernetes_validate", reason="pip install kubernetes-validate")


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", range(len(manifests())))
def test_each_is_valid(number: int, version: str) -> None:
    validating.validate(manifests()[number], version, strict=True)


def test_the_schemas_see_what_is_wrong() -> None:
    deployment = named("Deployment", "headgate-controller")
    for spoil in (
        lambda spec: spec.update(replica=1),
        lambda spec: spec.update(replicas="one"),
        lambda spec: spec.pop("selector"),
        lambda spec: spec["template"]["spec"]["containers"][0].update(arguments=[]),
    ):
        spoilt = copy.deepcopy(deployment)
        spoil(spoilt["spec"])
        with pytest.raises(validating.ValidationError):
            validating.validate(spoilt, VERSIONS[-1], strict=True)


def workloads() -> list[tuple[str, dict[str, Any]]]:
    return [
        ("Deployment", named("Deployment", "headgate-controller")),
        ("StatefulSet", named("StatefulSet", "headgate-agent")),
    ]


def test_what_selects_finds_what_is_there() -> None:
    for service, (_, workload) in zip(("headgate-controller", "headgate-agent"), workloads(), strict=True):
        labels = workload["spec"]["template"]["metadata"]["labels"]
        assert (
            workload["spec"]["selector"]["matchLabels"]
            == named("Service", service)["spec"]["selector"]
            == labels
        )
    stateful = named("StatefulSet", "headgate-agent")
    assert named("Service", stateful["spec"]["serviceName"])["spec"]["clusterIP"] == "None"


def test_every_folder_that_is_mounted_is_a_volume() -> None:
    for _, workload in workloads():
        spec = workload["spec"]["template"]["spec"]
        claimed = [one["metadata"]["name"] for one in workload["spec"].get("volumeClaimTemplates", ())]
        volumes = {one["name"] for one in spec["volumes"]} | set(claimed)
        for container in (*spec["initContainers"], *spec["containers"]):
            assert {one["name"] for one in container["volumeMounts"]} <= volumes
        for one in spec["volumes"]:
            if "persistentVolumeClaim" in one:
                assert named("PersistentVolumeClaim", one["persistentVolumeClaim"]["claimName"])


def test_agents_look_where_the_controller_is() -> None:
    [controller] = pod("Deployment", "headgate-controller")["containers"]
    [agent] = pod("StatefulSet", "headgate-agent")["containers"]
    told = dict(word.removeprefix("--").split("=", 1) for word in words(controller) if word.startswith("--"))
    asked = dict(word.removeprefix("--").split("=", 1) for word in words(agent) if word.startswith("--"))
    service = named("Service", told["advertise"])
    assert asked["controller"] == f"tcp://{told['advertise']}:{told['port']}" and asked["run"] == told["run"]
    ports = {one["port"] for one in service["spec"]["ports"]}
    assert ports == {int(told[name]) for name in ("port", "command-port", "stream-port")}
    assert ports == {one["containerPort"] for one in controller["ports"]} - {int(told["metrics-port"])}


def test_the_secret_keys_reach_one_pod_each_and_nobody_else_in_it() -> None:
    for _, workload in workloads():
        spec = workload["spec"]["template"]["spec"]
        mounts = [mount for container in spec["containers"] for mount in container["volumeMounts"]]
        assert "secret" not in [mount["name"] for mount in mounts]
        assert (
            spec["securityContext"]["runAsUser"] == image_user() and spec["securityContext"]["runAsNonRoot"]
        )
        assert all(one["securityContext"]["capabilities"] == {"drop": ["ALL"]} for one in spec["containers"])


def image_user() -> int:
    text = (FOLDER / "Containerfile").read_text("utf-8")
    [made], [used] = re.findall(r"useradd --uid (\d+)", text), re.findall(r"^USER (\d+)$", text, re.M)
    assert made == used and '\nENTRYPOINT ["headgate"]\n' in text
    return int(used)


def test_a_controller_is_killed_and_an_agent_is_asked() -> None:
    assert pod("Deployment", "headgate-controller")["terminationGracePeriodSeconds"] == 0
    assert named("Deployment", "headgate-controller")["spec"]["strategy"] == {"type": "Recreate"}
    assert pod("StatefulSet", "headgate-agent")["terminationGracePeriodSeconds"] >= 30
