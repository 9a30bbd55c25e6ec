"""A plan for another system: what is common to all of them. Pure."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

from headgate.controller.models.plans import Plan
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import counted, significant

SCHEMA = "headgate/plan-for/v1"
MIB = 1024 * 1024


class TaskExport(NamedTuple):
    """One task of a plan: its threads in all, and what each takes of a core and of memory."""

    task: str
    rate_tps: float
    threads: int
    cores_each: float
    mib_each: int


class PlanExport(NamedTuple):
    """A plan in the words of `target`. rows: one per task or per kind of machine. blocks: (where it goes, text to
    paste). lost: what of the plan the target cannot say."""

    target: str
    rows: tuple[dict[str, Any], ...]
    data: dict[str, Any]
    blocks: tuple[tuple[str, str], ...]
    lost: tuple[str, ...]

    def document(self, plan: Plan) -> dict[str, Any]:
        """All of it but the text."""
        head = {
            "schema": SCHEMA,
            "target": self.target,
            "topology": plan.topology,
            "rate_tps": plan.rate_tps,
            "plan_id": plan.id,
        }
        return {**head, **self.data, "not_expressed": list(self.lost)}


def shares(plan: Plan) -> tuple[TaskExport, ...]:
    """Every task of the plan, in the order of its allocation."""
    placed = plan.placement.by_task()
    vm = slot_of(plan)
    found = []
    for task in plan.allocation.tasks:
        threads = placed[task.task]
        cores = task.cpu_slots * vm.slot_cores / threads
        mib = task.memory_slots * vm.slot_memory_bytes / MIB / threads
        found.append(
            TaskExport(
                task.task,
                task.rate_tps,
                threads,
                max(round(cores, 4), 0.0001),  # Kubernetes refuses a request of 0
                max(round(mib), 1),
            )
        )
    return tuple(found)


def slot_of(plan: Plan) -> Vm:
    """A VM whose slots are those of the plan; the smallest where they differ."""
    return min(plan.vms, key=lambda vm: (vm.slot_cores, vm.slot_memory_bytes))


def processes_lost(plan: Plan, process: str, shuffle_tps: float) -> list[str]:
    """Sentences about what a system loses that spreads threads over `process`es by rules of its own. shuffle_tps: what
    the plan carries with as many rows for each thread of a task."""
    slots = plan.placement.by_slot()
    kinds = len(Counter(tuple(sorted(threads.items())) for threads in slots.values()))
    data = []
    if kinds > 1:
        mixed = sum(len(threads) > 1 for threads in slots.values())
        data.append(
            f"Which threads share a slot: the plan has {counted(len(slots), 'slot')} of {counted(kinds, 'kind')}, "
            f"{mixed} of them with threads of several tasks; {process}s get threads without regard to that, so one may "
            "get more work than a slot carries, and then the predicted rate does not hold."
        )
    if plan.routing == "weighted":
        data.append(
            "Weighted routing: the plan sends each thread as many rows as its slot carries; there all of a task get "
            f"the same, and were they where the plan has them, they would carry {significant(shuffle_tps)} rows/s."
        )
    if len({vm.rack for vm in plan.vms}) > 1 or len({vm.speed for vm in plan.vms}) > 1:
        data.append("Racks and speeds of machines: all are treated alike.")
    return data


# ── The id that Flink gives the vertex of an operator with a uid: MurmurHash3 (x64, 128 bits, seed 0) of
# the uid. Pure
#
# As in Flink's StreamGraphHasherV2; a chain of operators has the id of its first one.

_ONES = (1 << 64) - 1
_C1, _C2 = 0x87C37B91114253D5, 0x4CF5AD432745937F


def vertex_id(uid: str) -> str:
    """32 hex digits."""
    data = uid.encode()
    whole = len(data) // 16 * 16
    one = two = 0
    for start in range(0, whole, 16):
        one = (_turned(one ^ _first(data[start : start + 8]), 27) + two) * 5 + 0x52DCE729 & _ONES
        two = (_turned(two ^ _second(data[start + 8 : start + 16]), 31) + one) * 5 + 0x38495AB5 & _ONES
    one ^= _first(data[whole : whole + 8]) ^ len(data)
    two ^= _second(data[whole + 8 :]) ^ len(data)
    one = (one + two) & _ONES
    two = (two + one) & _ONES
    one, two = _mixed(one), _mixed(two)
    one = (one + two) & _ONES
    two = (two + one) & _ONES
    return (one.to_bytes(8, "little") + two.to_bytes(8, "little")).hex()


def _first(eight: bytes) -> int:
    return _turned(int.from_bytes(eight, "little") * _C1 & _ONES, 31) * _C2 & _ONES


def _second(eight: bytes) -> int:
    return _turned(int.from_bytes(eight, "little") * _C2 & _ONES, 33) * _C1 & _ONES


def _turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _ONES


def _mixed(value: int) -> int:
    value = (value ^ value >> 33) * 0xFF51AFD7ED558CCD & _ONES
    value = (value ^ value >> 33) * 0xC4CEB9FE1A85EC53 & _ONES
    return value ^ value >> 33


# ── A plan for Apache Flink: parallelism, slot sharing groups and task managers. Pure ───
#
# A headgate slot, a process of at most one core, is a task manager; one of its threads is a subtask in a task
# slot. Flink puts no two subtasks of a vertex into one task slot, so a slot of fifty threads needs as many
# task slots. Each task gets a slot sharing group of its own: a group of several tasks forces their subtasks
# together, one by one.

OVERRIDES = "pipeline.jobvertex-parallelism-overrides"


def for_flink(plan: Plan, topology: Topology, shuffle_tps: float) -> PlanExport:
    """Text and data for a job whose operators have the tasks' names as uids. shuffle_tps: what the plan carries without
    weights."""
    tasks, vm = shares(plan), slot_of(plan)
    managers = plan.placement.slots_used()
    in_managers = -(-sum(task.threads for task in tasks) // managers)
    operators = tuple(
        {
            "task": task.task,
            "rate_tps": task.rate_tps,
            "uid": task.task,
            "vertex_id": vertex_id(task.task),
            "parallelism": task.threads,
            "slot_sharing_group": task.task,
            "cpu_cores": task.cores_each,
            "task_heap_mib": task.mib_each,
        }
        for task in tasks
    )
    overrides = ",".join(f"{one['vertex_id']}:{one['parallelism']}" for one in operators)
    settings: dict[str, str | int | float] = {
        "taskmanager.numberOfTaskSlots": in_managers,
        "taskmanager.cpu.cores": vm.slot_cores,
        "taskmanager.memory.process.size": f"{vm.slot_memory_bytes // MIB}m",
        "taskmanager.load-balance.mode": "SLOTS",
        OVERRIDES: overrides,
    }
    wanted = {
        one["vertex_id"]: {"parallelism": {"lowerBound": 1, "upperBound": one["parallelism"]}}
        for one in operators
    }
    data = {
        "task_managers": managers,
        "task_slots_needed": sum(task.threads for task in tasks),
        "operators": list(operators),
        "settings": settings,
        "resource_requirements": wanted,
    }
    return PlanExport(
        "flink", operators, data, _blocks(data), tuple(_lost_by_flink(plan, topology, shuffle_tps))
    )


def _blocks(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    operators, settings, managers = data["operators"], data["settings"], data["task_managers"]
    code = [
        f'{one["task"]}: .uid("{one["uid"]}").setParallelism({one["parallelism"]})'
        f'.slotSharingGroup("{one["slot_sharing_group"]}")'
        for one in operators
    ]
    groups = [
        f'SlotSharingGroup.newBuilder("{one["slot_sharing_group"]}")'
        f".setCpuCores({one['cpu_cores']:g}).setTaskHeapMemoryMB({one['task_heap_mib']}).build()"
        for one in operators
    ]
    body = json.dumps(data["resource_requirements"], separators=(",", ":"))
    return (
        ("the job: each operator by the name of its task", "\n".join(code)),
        (
            f"config.yaml; start {managers} task managers",
            "\n".join(f"{key}: {value}" for key, value in settings.items()),
        ),
        (
            "a job that runs already (Flink 1.18 and newer, jobmanager.scheduler: adaptive; these must be all its "
            "vertices); JOB: its id",
            "curl -X PUT http://localhost:8081/jobs/JOB/resource-requirements "
            f"-H 'Content-Type: application/json' -d '{body}'",
        ),
        (
            "instead of groups by name, groups that say what a thread takes "
            "(cluster.fine-grained-resource-management.enabled: true)",
            "\n".join(groups),
        ),
    )


def _lost_by_flink(plan: Plan, topology: Topology, shuffle_tps: float) -> Iterable[str]:
    yield from processes_lost(plan, "task manager", shuffle_tps)
    yield (
        f"Flink 2.0 to 2.3 read {OVERRIDES} and do not obey it (FLINK-38770): there setParallelism in the job, or "
        "the request to a running one, does it; 1.17 to 1.20 obey it. Its keys are right for operators with these uids."
    )
    yield (
        "Chains: Flink chains no operators of different groups, so rows between them are written out, as they are "
        "between tasks of headgate."
    )
    if any(task.threads > 8 * slot_of(plan).slot_cores for task in shares(plan)):
        yield (
            "Many threads that wait: where a task has many because its rows wait for a service, Flink's async I/O "
            "(AsyncDataStream, capacity = threads) does that with few subtasks."
        )
    if direct := [edge for edge in topology.edges if edge.grouping == "direct"]:
        names = ", ".join(f"{edge.source} → {edge.target}" for edge in direct)
        yield f"Edges grouped `direct` ({names}): they need a partitioner of your own."


# ── A plan for Apache Storm: workers, executors per component, and the command that rebalances to them.
# Pure
#
# A headgate slot is a worker, one of its threads an executor.


def for_storm(plan: Plan, shuffle_tps: float) -> PlanExport:
    """Text and data for a topology whose components have the tasks' names. shuffle_tps: what the plan carries without
    weights."""
    tasks, vm = shares(plan), slot_of(plan)
    workers = plan.placement.slots_used()
    components = tuple(
        {
            "component": task.task,
            "rate_tps": task.rate_tps,
            "executors": task.threads,
            "cpu_load_percent": round(100 * task.cores_each, 2),
            "memory_load_mb": task.mib_each,
        }
        for task in tasks
    )
    words = ["storm", "rebalance", plan.topology, "-n", str(workers)]
    for one in components:
        words += ["-e", f"{one['component']}={one['executors']}"]
    command = shlex.join(words)
    heap = vm.slot_memory_bytes // MIB
    data = {
        "workers": workers,
        "worker_heap_mb": heap,
        "components": list(components),
        "rebalance": command,
    }
    hints = [f'setBolt or setSpout("{task.task}", …, {task.threads})' for task in tasks]
    loads = [
        f"{one['component']}: .setCPULoad({one['cpu_load_percent']:g}).setMemoryLoad({one['memory_load_mb']})"
        for one in components
    ]
    blocks = (
        ("a topology that runs already", command),
        ("a topology to be submitted", "\n".join([f"conf.setNumWorkers({workers})", *hints])),
        (
            "the same for the resource aware scheduler, which finds the number of workers itself",
            "\n".join([f"conf.setTopologyWorkerMaxHeapSize({heap})", *loads]),
        ),
    )
    return PlanExport("storm", components, data, blocks, tuple(_lost_by_storm(plan, shuffle_tps)))


def _lost_by_storm(plan: Plan, shuffle_tps: float) -> Iterable[str]:
    yield from processes_lost(plan, "worker", shuffle_tps)
    most = max(shares(plan), key=lambda task: task.threads)
    yield (
        "Executors beyond a component's tasks: `storm rebalance` gives a component at most as many executors as it was "
        f"submitted with tasks (setNumTasks); here up to {most.threads} ({most.task})."
    )
    yield "Ackers: headgate counts none apart; Storm starts one for each worker, which takes a share of it."


# ── A plan for Kubernetes: a StatefulSet of headgate's agents per kind of VM, with replicas and requests.
# Pure
#
# They go with the controller, services and secrets of dashboards/kubernetes/headgate.yaml, whose agents they
# replace. A VM of the plan is a pod; its slots are the agent's.
#
# They pass the Pod Security profile *restricted*, as the shipped ones do.

AGENT_CORES, AGENT_MIB = 0.5, 512  # of an agent itself, beside its slots
NAME, NAMESPACE = "headgate-agent", "headgate"
IMAGE = {"image": f"registry.example/headgate@sha256:{0:064}", "imagePullPolicy": "IfNotPresent"}
METRICS_PORT = 7315


def for_kubernetes(plan: Plan) -> PlanExport:
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
    data = {"agents": list(rows), "pods": pods, "manifests": sets}
    title = "a key for each pod (docs/how-to/kubernetes-nomad-slurm.md has the rest)"
    blocks = ((title, "\n".join([*keys, secret])),)
    return PlanExport("kubernetes", rows, data, blocks, tuple(_lost_by_kubernetes(plan)))


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
        "metadata": {"namespace": NAMESPACE, "name": name},
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
    user = {"runAsNonRoot": True, "runAsUser": 10001, "runAsGroup": 10001, "fsGroup": 10001}
    return {
        "terminationGracePeriodSeconds": 40,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            **user,
            "fsGroupChangePolicy": "OnRootMismatch",
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "initContainers": [
            {
                "name": "key",
                **IMAGE,
                "command": ["sh", "-c", "install -m 600 /secret/agent.$(POD_NAME).key /keys/agent.key"],
                "env": _environment(),
                "securityContext": _confined(),
                "resources": {
                    "requests": {"cpu": "50m", "memory": "32Mi"},
                    "limits": {"cpu": "500m", "memory": "64Mi"},
                },
                "volumeMounts": [{"name": "secret", "mountPath": "/secret", "readOnly": True}, keys],
            }
        ],
        "containers": [_agent(vm, {**keys, "readOnly": True})],
        "volumes": [
            {"name": "secret", "secret": {"secretName": "headgate-agents"}},
            {"name": "keys", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {"name": "scratch", "emptyDir": {"sizeLimit": "1Gi"}},
        ],
    }


def _agent(vm: Vm, keys: dict[str, Any]) -> dict[str, Any]:
    """Its probes ask for metrics; it is given five minutes, for to kill an agent is to kill its workers."""

    def asked(**how: int) -> dict[str, Any]:
        return {"httpGet": {"path": "/metrics", "port": "metrics"}, **how}

    return {
        "name": "agent",
        **IMAGE,
        "args": _words(vm),
        "env": _environment(),
        "ports": [{"name": "metrics", "containerPort": METRICS_PORT}],
        "startupProbe": asked(periodSeconds=2, failureThreshold=60),
        "readinessProbe": asked(),
        "livenessProbe": asked(periodSeconds=30, timeoutSeconds=20, failureThreshold=10),
        "resources": {"requests": resources_of(vm), "limits": resources_of(vm)},
        "securityContext": _confined(),
        "volumeMounts": [
            keys,
            {"name": "state", "mountPath": "/var/lib/headgate"},
            {"name": "scratch", "mountPath": "/tmp"},
        ],
    }


def _confined() -> dict[str, Any]:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
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
        "--state-dir=/var/lib/headgate/agent",
        f"--metrics-port={METRICS_PORT}",
        "--set=metrics-host=0.0.0.0",
        "--set=metrics-plain=yes",
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


def _lost_by_kubernetes(plan: Plan) -> list[str]:
    data = [
        "Which threads are in which slot: pods are machines, and headgate's controller puts threads into them when the "
        "topology is submitted; with these slots, models, allocator and mapper it comes to this plan.",
    ]
    if len({vm.rack for vm in plan.vms}) > 1:
        data.append("Racks: name topologySpreadConstraints or a nodeSelector of your nodes.")
    if len({vm.speed for vm in plan.vms}) > 1:
        data.append("Speeds of machines: a pod runs on whichever node has room for it; name a nodeSelector.")
    if any(vm.usd_per_hour for vm in plan.vms):
        data.append("Prices: what a pod costs is what its node costs.")
    return data
