"""What goes into the trace beside samples: the `run.json` of a run, a row of `rates` per source, and in decisions
what came of the plan before. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

from controller.knowledge.arrivals import Lag
from controller.knowledge.knowledge import Knowledge
from controller.knowledge.model_data import model_data
from controller.knowledge.records import Durable, Rollout, Submitted
from controller.knowledge.turns import Now, Trace
from controller.knowledge.windows import Window
from topology_runtime.trace_tables import SCHEMA
from topology_runtime.utc import utc_iso

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


def rates_of(k: Knowledge, window: Window, lags: tuple[Lag, ...], now: Now) -> Iterator[Trace]:
    """One row per source; `lags` of those whose rows are taken as they come."""
    plan, topology = k.plan, k.topology
    if plan is None or topology is None:
        return
    behind = {lag.source: lag for lag in lags}
    for task in topology.sources:
        lag = behind.get(task.name)
        yield Trace(
            "rates",
            {
                "wall_ns": now.wall_ns,
                "window_s": window.seconds,
                "epoch": k.epoch,
                "source": task.name,
                "offered_tps": window.offered_tps,
                "emitted_tps": window.emitted_tps,
                "acked_tps": window.acked_tps,
                "planned_tps": plan.rate_tps,
                "predicted_tps": plan.prediction.rate_tps,
                "source_kind": "arriving" if task.arriving else "paced",
                "lag_rows": lag.rows if lag else None,
                "lag_s": lag.seconds if lag else None,
            },
        )


def enacted_of(d: Durable) -> dict[str, Any] | None:
    """The newest plan that came into force: `decided` (the time of its decision) and `in_force` (UTC),
    enacted_s between them, pause_ms from the order to switch until the last sender had switched: a moved
    thread was without input for no longer than that. None before the first."""
    rollout = next((rollout for rollout in reversed(d.rollouts) if rollout.in_force_ns), None)
    return None if rollout is None else _enacted(rollout)


@lru_cache(maxsize=4)
def _enacted(rollout: Rollout) -> dict[str, Any]:
    return {
        "epoch": rollout.epoch,
        "decided": utc_iso(rollout.decided_ns),
        "in_force": utc_iso(rollout.in_force_ns),
        "enacted_s": round((rollout.in_force_ns - rollout.decided_ns) / NS, 3),
        "pause_ms": round((rollout.in_force_ns - rollout.switched_ns) / MS, 1),
    }
