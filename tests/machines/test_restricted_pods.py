"""The manifests pass the Pod Security profile `restricted` and more that a careful operator asks for."""

from __future__ import annotations

import copy
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from kubernetes_read import FOLDER, manifests, named, pod
from pod_security import faults

WORKLOADS = (("Deployment", "headgate-controller"), ("StatefulSet", "headgate-agent"))
Spec = dict[str, Any]


def containers(spec: Spec) -> list[Spec]:
    return [*spec["initContainers"], *spec["containers"]]


@pytest.fixture(params=WORKLOADS, ids=[name for _, name in WORKLOADS])
def spec(request: pytest.FixtureRequest) -> Spec:
    return copy.deepcopy(pod(*request.param))


def test_restricted_lets_them_in_and_the_namespace_lets_in_nothing_else(spec: Spec) -> None:
    assert faults(spec) == []
    labels = named("Namespace", "headgate")["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    placed = {one["metadata"].get("namespace") for one in manifests() if one["kind"] != "Namespace"}
    assert placed == {"headgate"}


def first(spec: Spec) -> Spec:
    context: Spec = spec["containers"][0]["securityContext"]
    return context


SPOILS: dict[str, Callable[[Spec], Any]] = {
    "the host's network": lambda spec: spec.update(hostNetwork=True),
    "a folder of the host": lambda spec: spec["volumes"].append({"name": "h", "hostPath": {"path": "/"}}),
    "a kernel setting": lambda spec: spec["securityContext"].update(sysctls=[{"name": "kernel.msgmax"}]),
    "root": lambda spec: first(spec).update(runAsUser=0),
    "maybe root": lambda spec: spec["securityContext"].pop("runAsNonRoot"),
    "no seccomp": lambda spec: spec["securityContext"].pop("seccompProfile"),
    "unconfined": lambda spec: first(spec).update(seccompProfile={"type": "Unconfined"}),
    "a capability": lambda spec: first(spec)["capabilities"].update(add=["SYS_ADMIN"]),
    "capabilities kept": lambda spec: first(spec).pop("capabilities"),
    "more privileges": lambda spec: first(spec).pop("allowPrivilegeEscalation"),
    "all privileges": lambda spec: first(spec).update(privileged=True),
    "all of /proc": lambda spec: first(spec).update(procMount="Unmasked"),
    "a port of the host": lambda spec: spec["containers"][0]["ports"].append({"hostPort": 80}),
    "a probe elsewhere": lambda spec: spec["containers"][0]["livenessProbe"]["httpGet"].update(
        host="10.0.0.1"
    ),
    "an init container": lambda spec: spec["initContainers"][0].pop("securityContext"),
}


@pytest.mark.parametrize("what", SPOILS)
def test_the_rules_see_what_is_not_restricted(spec: Spec, what: str) -> None:
    SPOILS[what](spec)
    assert len(faults(spec)) >= 1


def test_beside_user_code_there_is_no_token_and_nothing_that_can_be_written_but_volumes(spec: Spec) -> None:
    assert spec["automountServiceAccountToken"] is False and spec["enableServiceLinks"] is False
    assert all(one["securityContext"]["readOnlyRootFilesystem"] for one in containers(spec))


def test_the_image_is_one_and_pinned(spec: Spec) -> None:
    assert {re.sub("[0-9a-f]{64}$", "", one["image"]) for one in containers(spec)} == {
        "registry.example/headgate@sha256:"
    }
    [base] = re.findall(r"^ARG BASE=(\S+)$", (FOLDER / "Containerfile").read_text("utf-8"), re.M)
    assert re.fullmatch(r"python:3\.12\.\d+-slim-\w+", base)


def test_each_container_is_bounded_and_looked_at(spec: Spec) -> None:
    assert all(one["resources"]["limits"].keys() >= {"cpu", "memory"} for one in containers(spec))
    [main] = spec["containers"]
    ports = {one["name"]: one["containerPort"] for one in main["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        how = main[probe].get("httpGet") or main[probe]["tcpSocket"]
        assert how["port"] in ports
    assert f"--metrics-port={ports['metrics']}" in main["args"]


def test_the_network_policies_let_through_what_is_needed_and_name_both_sides() -> None:
    controller, agent = (named("NetworkPolicy", name)["spec"] for _, name in WORKLOADS)
    for one in (controller, agent):
        assert one["policyTypes"] == ["Ingress", "Egress"]
        assert all(rule.get("from") for rule in one["ingress"]) and all(
            rule.get("to") for rule in one["egress"]
        )
    [by_agents, by_clients] = controller["ingress"]
    served = {port["name"]: port["port"] for port in named("Service", "headgate-controller")["spec"]["ports"]}
    assert by_agents["ports"] == [{"port": served["agents"]}] and controller["egress"] == []
    assert {port["port"] for port in by_clients["ports"]} == {served["commands"], served["stream"], 7315}
    selected = {one["podSelector"]["matchLabels"]["app"] for one in (controller, agent)}
    assert selected == {name for _, name in WORKLOADS}
    assert [rule.get("ports") for rule in agent["egress"]][:2] == [[{"port": served["agents"]}], None]


@pytest.mark.full
@pytest.mark.skipif(
    shutil.which("checkov") is None, reason="pip install checkov, in an environment of its own"
)
def test_checkov_finds_nothing() -> None:
    words = [
        "checkov",
        "--framework",
        "kubernetes",
        "--skip-download",
        "-o",
        "json",
        "-f",
        str(FOLDER / "headgate.yaml"),
    ]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, check=False)
    found = json.loads(done.stdout)
    assert found["summary"]["passed"] > 100
    assert [one["check_id"] for one in found["results"]["failed_checks"]] == []
