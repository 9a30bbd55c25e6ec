"""What the trace keeps of the rates of a second: one row per source. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headgate.controller.knowledge.run_view import RunView

COUNTS = ("offered", "emitted", "acked")


class RateRows:
    """Rows of one life of a controller: counts are of the time since the row before."""

    def __init__(self) -> None:
        self._before: dict[str, tuple[int, int, int]] = {}

    def of(self, view: RunView) -> Iterator[dict[str, Any]]:
        """Rates of the last turn's window, counts since the last turn; lags of sources whose rows are taken as they
        come. The counts of a life's first row are unknown, but where the run begins with it."""
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
                **self._counts(task.name, view),
            }

    def _counts(self, source: str, view: RunView) -> dict[str, int | None]:
        now = view.by_source.get(source, (0, 0, 0))
        before = self._before.get(source, (0, 0, 0) if view.boot == 1 else None)
        self._before[source] = now
        if before is None:
            return dict.fromkeys(COUNTS)
        return {name: max(0, b - a) for name, a, b in zip(COUNTS, before, now, strict=True)}
