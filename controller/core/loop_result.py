"""What one turn of the loop saw: windows, verdicts, residuals; and as plain data for `status`. Frozen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import asdict

from controller.analyze.load import TaskLoad
from controller.knowledge.diagnoses import Demand, Residual, Stability, Violation
from controller.knowledge.models import Model
from controller.knowledge.plans import Plan
from controller.knowledge.windows import Window
from controller.plan.resident import held_memory
from topology_runtime.cluster import Slot
from topology_runtime.topology import Topology

DIGITS = 4


@dataclass(frozen=True, slots=True)
class LoopResult:
    """The results of monitor and analyze, once a second."""

    window: Window
    stability: Stability
    demand: Demand
    residuals: tuple[Residual, ...]
    violations: tuple[Violation, ...]
    predicted: dict[Slot, tuple[float, float]]  # CPU and memory at the present rate
    loads: dict[str, TaskLoad]  # task → how near to its limit
    growing: frozenset[str]  # tasks before which rows pile up


@dataclass(frozen=True, slots=True)
class Held:
    """What the processes of a plan hold in memory, worked out once per plan."""

    plan: str
    slots: dict[Slot, float]

    @classmethod
    def of(cls, plan: Plan, topology: Topology, models: Mapping[str, Model]) -> Held:
        return cls(plan.id, held_memory(plan.placement, topology, models, plan.vms))


def data(seen: LoopResult) -> dict[str, Any]:
    """For `status`: verdict, rates, latency of the window, slots, tasks, residuals, violations."""
    window = seen.window
    latency = window.latency
    return {
        "verdict": rounded(asdict(seen.stability)),
        "demand": {
            "rate_tps": round(seen.demand.rate_tps, 3),
            "target_tps": round(seen.demand.target_tps, 3),
            "direction": seen.demand.direction,
            "text": seen.demand.text,
        },
        "window": {"seconds": window.seconds, "complete": round(window.complete, DIGITS)},
        "rates": {
            "offered_tps": round(window.offered_tps, 3),
            "emitted_tps": round(window.emitted_tps, 3),
            "acked_tps": round(window.acked_tps, 3),
            "backlog": round(window.backlog, 1),
        },
        "latency_ms": {
            "mean": round(latency.mean_ms, 3),
            "p50": round(latency.p50_ms, 3),
            "p95": round(latency.p95_ms, 3),
            "p99": round(latency.p99_ms, 3),
        }
        if latency.rows
        else None,
        "slots": {str(slot): _slot(seen, slot) for slot in sorted({*window.slots, *seen.predicted})},
        "tasks": [{**_task(seen, name), **rounded(asdict(task))} for name, task in window.tasks.items()],
        "residuals": [rounded(asdict(residual)) for residual in seen.residuals],
        "violations": [asdict(violation) for violation in seen.violations],
    }


def _task(seen: LoopResult, name: str) -> dict[str, Any]:
    load = seen.loads.get(name)
    return {
        "task": name,
        "load": round(load.share, DIGITS) if load else None,
        "load_slot": load.slot if load else None,
        "grows": name in seen.growing,
    }


def _slot(seen: LoopResult, slot: Slot) -> dict[str, float | None]:
    measured = seen.window.slots.get(slot)
    cpu, memory = seen.predicted.get(slot, (None, None))
    found = {
        "cpu": measured.cpu if measured else None,
        "memory": measured.memory if measured else None,
        "throttled_share": measured.throttled_share if measured else None,
        "predicted_cpu": cpu,
        "predicted_memory": memory,
    }
    return rounded(found)


def rounded(values: dict[str, Any]) -> dict[str, Any]:
    """Plain values with as many digits as anyone reads."""
    return {name: round(v, DIGITS) if isinstance(v, float) else v for name, v in values.items()}
