"""What was measured of traffic, window by window, smoothed. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from headgate.controller.knowledge.traffic import MeasuredTraffic
from headgate.controller.knowledge.windows import Window

SMOOTH_S = 30.0  # what was measured so long ago counts a third of what is measured now
LEAST_ROWS = 100.0  # emitted in a window; fewer say little

Key = TypeVar("Key")


def traffic_now(window: Window) -> MeasuredTraffic | None:
    """Of one window; None where samples are missing, too few rows came, or none were counted on any edge."""
    rate_tps, edges = window.emitted_tps, window.edges.items()
    if not window.is_complete or rate_tps * window.seconds < LEAST_ROWS:
        return None
    if not any(edge.rate_tps > 0 for _, edge in edges):
        return None
    return MeasuredTraffic(
        window.seconds,
        {ends: edge.rate_tps / rate_tps for ends, edge in edges},
        {
            ends: edge.bytes_per_s / edge.between_slots_tps
            for ends, edge in edges
            if edge.between_slots_tps > 0
        },
        {name: task.work_cores / rate_tps for name, task in window.tasks.items()},
    )


def smoothed(before: MeasuredTraffic | None, window: Window, step_s: float) -> MeasuredTraffic | None:
    """With one window more, `step_s` after the last one. The size of rows that stay within slots now is as it was."""
    now = traffic_now(window)
    if now is None or before is None:
        return now or before
    part = step_s / (SMOOTH_S + step_s) if before.seconds >= SMOOTH_S else step_s / (before.seconds + step_s)
    return MeasuredTraffic(
        before.seconds + step_s,
        _mixed(before.rows, now.rows, part),
        _mixed(before.row_bytes, now.row_bytes, part),
        _mixed(before.work, now.work, part),
    )


def _mixed(before: Mapping[Key, float], now: Mapping[Key, float], part: float) -> dict[Key, float]:
    return {
        key: (1 - part) * before[key] + part * now[key]
        if key in before and key in now
        else {**before, **now}[key]
        for key in {**before, **now}
    }
