"""`headgate/explain/v1`: what was decided, and why the plan is as it is. Pure."""

from __future__ import annotations

from typing import Any

import msgspec

from headgate.controller.knowledge.run_view import RunView
from headgate.topology_runtime.faults.words import counted

NOT_MEASURED = "it was not measured yet: a slot of its own until its first rows were"
TOLD = ("epoch", "id", "reason", "text", "rate_tps", "limited_by", "limited_by_slot", "predicted_tps")


def explain(view: RunView, last: int) -> dict[str, Any]:
    """The last decisions that led to something, the newest of all, and why the plan is as it is."""
    return {
        "schema": "headgate/explain/v1",
        "decisions": list(view.actions)[-last:],
        "last_decision": view.decision,
        "plan": _why(view),
        "held": view.held or None,
        "hot_keys": [key.sentence for key in view.hot_keys],
    }


def _why(view: RunView) -> dict[str, Any] | None:
    plan, facts = view.plan, view.plan_facts
    if plan is None or facts is None:
        return None
    unmeasured = {model.task for model in view.models if model.unmeasured}
    return {
        **{name: facts[name] for name in TOLD},
        "slots": msgspec.to_builtins(plan.slots),
        "tasks": [
            {
                "task": a.task,
                "rate_tps": round(a.rate_tps, 3),
                "threads": a.threads,
                "cpu_slots": round(a.cpu_slots, 4),
                "memory_slots": round(a.memory_slots, 4),
                "why": NOT_MEASURED
                if a.task in unmeasured
                else why_so_many(a.static, a.full_bundles, a.bundle_threads, a.rest_threads),
            }
            for a in plan.allocation.tasks
        ],
    }


def why_so_many(static: bool, bundles: int, size: int, rest: int) -> str:
    """How the allocator came to a task's number of threads, in words."""
    if static:
        return "its size is fixed by the topology"
    parts = []
    if bundles:
        parts.append(
            f"{counted(bundles, 'full bundle')} of {size} threads, a slot each, at the model's best rate"
        )
    if rest:
        parts.append(f"{counted(rest, 'thread')} for the rest of the rate, sharing a slot")
    return " and ".join(parts) or "one thread at a time, at the model's rate of one thread"
