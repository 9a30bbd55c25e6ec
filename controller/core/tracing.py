"""What goes into the trace beside samples: `run.json`, and in decisions what came of the plan before. Pure."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from headgate.controller.knowledge.knowledge import Knowledge
from headgate.controller.knowledge.model_data import model_data
from headgate.controller.knowledge.records import Durable, Rollout, Submitted
from headgate.topology_runtime.trace_tables import SCHEMA
from headgate.topology_runtime.utc import utc_iso

NS, MS = 1e9, 1e6


def run_of(k: Knowledge, submitted: Submitted) -> dict[str, Any]:
    """What `run.json` holds: topology, models, the VMs from the start, settings."""
    return {
        "schema": SCHEMA,
        "run": k.settings.run,
        "topology": msgspec.to_builtins(submitted.topology),
        "models": [model_data(model) for model in submitted.models],
        "vms": [msgspec.to_builtins(vm) for vm in k.settings.initial],
        "settings": msgspec.to_builtins(k.settings),
        "schedule": {"steps": submitted.steps, "period_s": submitted.period_s}
        | ({"uncapped": True} if submitted.uncapped else {}),
        "headgate": k.settings.version,
        "started": utc_iso(submitted.wall_ns),
    }


def enacted_of(d: Durable) -> dict[str, Any] | None:
    """The newest plan that came into force: `decided` (the time of its decision) and `in_force` (UTC),
    its plan and reason, enacted_s between them, pause_ms from the order to switch until the last sender had switched:
    a moved thread was without input for no longer than that. None before the first."""
    rollout = next((rollout for rollout in reversed(d.rollouts) if rollout.in_force_ns), None)
    return None if rollout is None else _enacted(rollout)


@lru_cache(maxsize=4)
def _enacted(rollout: Rollout) -> dict[str, Any]:
    return {
        "epoch": rollout.epoch,
        "plan": rollout.plan,
        "reason": rollout.reason,
        "rate_tps": rollout.rate_tps,
        "slots": rollout.slots,
        "decided": utc_iso(rollout.decided_ns),
        "in_force": utc_iso(rollout.in_force_ns),
        "enacted_s": round((rollout.in_force_ns - rollout.decided_ns) / NS, 3),
        "pause_ms": round((rollout.in_force_ns - rollout.switched_ns) / MS, 1),
    }
