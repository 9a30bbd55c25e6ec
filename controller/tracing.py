"""What goes into the trace beside samples: the `run.json` of a run, and a row of `rates` per source. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from controller.knowledge.knowledge import Knowledge
from controller.knowledge.model_files import model_data
from controller.knowledge.records import Submitted
from controller.knowledge.turns import Now, Trace
from controller.knowledge.windows import Window
from topology_runtime.clock import utc_iso

SCHEMA = "headgate/trace/v1"


def run_of(k: Knowledge, submitted: Submitted) -> dict[str, Any]:
    """What `run.json` holds: topology, models, the VMs from the start, settings."""
    return {
        "schema": SCHEMA,
        "run": k.settings.run,
        "topology": msgspec.to_builtins(submitted.topology),
        "models": [model_data(model) for model in submitted.models],
        "vms": [msgspec.to_builtins(vm) for vm in k.settings.initial],
        "settings": msgspec.to_builtins(k.settings),
        "schedule": {"steps": submitted.steps, "period_s": submitted.period_s},
        "headgate": k.settings.version,
        "started": utc_iso(submitted.wall_ns),
    }


def rates_of(k: Knowledge, window: Window, now: Now) -> Iterator[Trace]:
    """One row per source."""
    plan, topology = k.plan, k.topology
    if plan is None or topology is None:
        return
    for task in topology.sources:
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
            },
        )
