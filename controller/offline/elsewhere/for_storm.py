"""A plan for Apache Storm: workers, executors per component, and the command that rebalances to them. Pure.

A headgate slot is a worker, one of its threads an executor.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from headgate.controller.knowledge.plans import Plan
from headgate.controller.offline.elsewhere.leaving import (
    MIB,
    Leaving,
    contents,
    processes_lost,
    shares,
    slot_of,
)


def for_storm(plan: Plan, shuffle_tps: float) -> Leaving:
    """Text and data for a topology whose components have the tasks' names. shuffle_tps: what the plan carries without
    weights."""
    tasks, vm = shares(plan), slot_of(plan)
    workers = len(contents(plan))
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
    told = {
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
    return Leaving("storm", components, told, blocks, tuple(_lost(plan, shuffle_tps)))


def _lost(plan: Plan, shuffle_tps: float) -> Iterable[str]:
    yield from processes_lost(plan, "worker", shuffle_tps)
    most = max(shares(plan), key=lambda task: task.threads)
    yield (
        "Executors beyond a component's tasks: `storm rebalance` gives a component at most as many executors as it was "
        f"submitted with tasks (setNumTasks); here up to {most.threads} ({most.task})."
    )
    yield "Ackers: headgate counts none apart; Storm starts one for each worker, which takes a share of it."
