"""A plan for Kubernetes: a StatefulSet of headgate's agents per kind of VM, with replicas and requests. Pure.

They go with the controller, services and secrets of dashboards/kubernetes/headgate.yaml, whose agents they replace.
A VM of the plan is a pod; its slots are the agent's.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from headgate.controller.knowledge.plans import Plan
from headgate.controller.offline.elsewhere.leaving import MIB, Leaving
from headgate.topology_runtime.cluster import Vm

AGENT_CORES, AGENT_MIB = 0.5, 512  # of an agent itself, beside its slots
NAME = "headgate-agent"


def for_kubernetes(plan: Plan) -> Leaving:
    """Text (filled in by whoever writes YAML) and data."""
    kinds = Counter((vm.slots, vm.slot_cores, vm.slot_memory_bytes) for vm in plan.vms)
    examples = {(vm.slots, vm.slot_cores, vm.slot_memory_bytes): vm for vm in plan.vms}
    names = _names(list(kinds))
    sets = [stateful_set(names[kind], examples[kind], count) for kind, count in kinds.items()]
    rows = tuple(
        {
            "stateful_set": names[kind],
            "replicas": count,
            "slots": kind[0],
            "slot_cores": kind[1],
            "slot_memory_bytes": kind[2],
            **resources_of(examples[kind]),
        }
        for kind, count in kinds.items()
    )
    pods = [f"{names[kind]}-{number}" for kind, count in kinds.items() for number in range(count)]
    keys = [f"headgate keys add agent {pod} --keys keys" for pod in pods]
    files = [f"--from-file=keys/agent.{pod}.key" for pod in pods]
    secret = " ".join(["kubectl create secret generic headgate-agents", *files])
    told = {"agents": list(rows), "pods": pods, "manifests": sets}
    blocks = (("a key for each pod (docs/schedulers.md has the rest)", "\n".join([*keys, secret])),)
    return Leaving("kubernetes", rows, told, blocks, tuple(_lost(plan)))


def resources_of(vm: Vm) -> dict[str, str]:
    """What the pod of a VM asks for: its slots, and what the agent itself takes."""
    cores = vm.slots * vm.slot_cores + AGENT_CORES
    mib = -(-vm.slots * vm.slot_memory_bytes // MIB) + AGENT_MIB
    return {"cpu": f"{round(1000 * cores)}m", "memory": f"{mib}Mi"}


def stateful_set(name: str, vm: Vm, replicas: int) -> dict[str, Any]:
    """`replicas` agents with the slots of `vm`."""
    own = {"app": NAME} if name == NAME else {"app": NAME, "kind": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name},
        "spec": {
            "serviceName": NAME,
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": dict(own)}, "spec": _pod(vm)},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "state"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "10Gi"}},
                    },
                }
            ],
        },
    }


def _pod(vm: Vm) -> dict[str, Any]:
    keys = {"name": "keys", "mountPath": "/keys"}
    return {
        "terminationGracePeriodSeconds": 40,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "fsGroup": 10001},
        "initContainers": [
            {
                "name": "key",
                "image": "headgate",
                "command": ["sh", "-c", "install -m 600 /secret/agent.$(POD_NAME).key /keys/agent.key"],
                "env": _environment(),
                "volumeMounts": [{"name": "secret", "mountPath": "/secret", "readOnly": True}, keys],
            }
        ],
        "containers": [
            {
                "name": "agent",
                "image": "headgate",
                "args": _words(vm),
                "env": _environment(),
                "resources": {"requests": resources_of(vm), "limits": resources_of(vm)},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                "volumeMounts": [
                    {**keys, "readOnly": True},
                    {"name": "state", "mountPath": "/var/lib/headgate"},
                ],
            }
        ],
        "volumes": [
            {"name": "secret", "secret": {"secretName": "headgate-agents"}},
            {"name": "keys", "emptyDir": {"medium": "Memory"}},
        ],
    }


def _words(vm: Vm) -> list[str]:
    return [
        "agent",
        "run",
        "--run=headgate",
        "--controller=tcp://headgate-controller:7311",
        "--vm=$(POD_NAME)",
        "--key=/keys/agent.key",
        "--listen=$(POD_IP)",
        f"--slots={vm.slots}",
        f"--slot-cores={vm.slot_cores}",
        f"--slot-memory={_size(vm.slot_memory_bytes)}",
        "--directory=/var/lib/headgate/agent",
    ]


def _size(count: int) -> str:
    """As `--slot-memory` reads it."""
    for unit, letter in ((1024**3, "G"), (MIB, "M")):
        if count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def _environment() -> list[dict[str, Any]]:
    fields = {"POD_NAME": "metadata.name", "POD_IP": "status.podIP"}
    return [{"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}} for name, path in fields.items()]


def _names(kinds: list[tuple[int, float, int]]) -> dict[tuple[int, float, int], str]:
    """The shipped name for the only kind; others by slots, or numbered where that is not enough."""
    if len(kinds) == 1:
        return {kinds[0]: NAME}
    slots = [kind[0] for kind in kinds]
    by = slots if len(set(slots)) == len(slots) else range(1, len(kinds) + 1)
    return {kind: f"{NAME}-{which}" for kind, which in zip(kinds, by, strict=True)}


def _lost(plan: Plan) -> list[str]:
    told = [
        "Which threads are in which slot: pods are machines, and headgate's controller puts threads into them when the "
        "topology is submitted; with these slots, models, allocator and mapper it comes to this plan.",
    ]
    if len({vm.rack for vm in plan.vms}) > 1:
        told.append("Racks: name topologySpreadConstraints or a nodeSelector of your nodes.")
    if len({vm.speed for vm in plan.vms}) > 1:
        told.append("Speeds of machines: a pod runs on whichever node has room for it; name a nodeSelector.")
    if any(vm.usd_per_hour for vm in plan.vms):
        told.append("Prices: what a pod costs is what its node costs.")
    return told
