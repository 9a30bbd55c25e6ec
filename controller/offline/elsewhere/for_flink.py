"""A plan for Apache Flink: parallelism, slot sharing groups and task managers. Pure.

A headgate slot, a process of at most one core, is a task manager; one of its threads is a subtask in a task slot.
Flink puts no two subtasks of a vertex into one task slot, so a slot of fifty threads needs as many task slots. Each
task gets a slot sharing group of its own: a group of several tasks forces their subtasks together, one by one.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from headgate.controller.knowledge.plans import Plan
from headgate.controller.offline.elsewhere.leaving import (
    MIB,
    Leaving,
    contents,
    processes_lost,
    shares,
    slot_of,
)
from headgate.controller.offline.elsewhere.vertex_id import vertex_id
from headgate.topology_runtime.topology import Topology

OVERRIDES = "pipeline.jobvertex-parallelism-overrides"


def for_flink(plan: Plan, topology: Topology, shuffle_tps: float) -> Leaving:
    """Text and data for a job whose operators have the tasks' names as uids. shuffle_tps: what the plan carries without
    weights."""
    tasks, vm = shares(plan), slot_of(plan)
    managers = len(contents(plan))
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
    told = {
        "task_managers": managers,
        "task_slots_needed": sum(task.threads for task in tasks),
        "operators": list(operators),
        "settings": settings,
        "resource_requirements": wanted,
    }
    return Leaving("flink", operators, told, _blocks(told), tuple(_lost(plan, topology, shuffle_tps)))


def _blocks(told: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    operators, settings, managers = told["operators"], told["settings"], told["task_managers"]
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
    body = json.dumps(told["resource_requirements"], separators=(",", ":"))
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


def _lost(plan: Plan, topology: Topology, shuffle_tps: float) -> Iterable[str]:
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
