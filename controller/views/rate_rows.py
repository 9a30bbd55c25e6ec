"""What the trace keeps of the rates of a second: one row per source. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from controller.knowledge.run_view import RunView


def rate_rows(view: RunView) -> Iterator[dict[str, Any]]:
    """Of the last turn's window; lags of sources whose rows are taken as they come."""
    plan, topology, window = view.plan, view.topology, view.window
    if plan is None or topology is None or window is None:
        return
    behind = {lag.source: lag for lag in view.lags}
    for task in topology.sources:
        lag = behind.get(task.name)
        yield {
            "wall_ns": view.wall_ns,
            "window_s": window.seconds,
            "epoch": view.epoch,
            "source": task.name,
            "offered_tps": window.offered_tps,
            "emitted_tps": window.emitted_tps,
            "acked_tps": window.acked_tps,
            "planned_tps": plan.rate_tps,
            "predicted_tps": plan.prediction.rate_tps,
            "source_kind": "arriving" if task.arriving else "paced",
            "lag_rows": lag.rows if lag else None,
            "lag_s": lag.seconds if lag else None,
        }
