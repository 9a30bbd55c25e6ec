"""What there is to say about one model, and about two of the same task. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headgate.controller.knowledge.corrections import correction_of
from headgate.controller.knowledge.models import Model, Point, cpu, half_widths, memory, peak, peak_rate

Row = dict[str, Any]


def summary(model: Model) -> Row:
    """A model in one row: its peak ω̂ at τ̂ threads, what that takes of the slot, and how sure it is."""
    rate_tps, threads = peak(model)
    at_peak = next(point for point in model.points if point.threads == threads)
    half_tps = half_widths(at_peak)[0]
    return {
        "task": model.task,
        "points": len(model.points),
        "peak_tps": rate_tps,
        "peak_threads": threads,
        "cpu": at_peak.cpu,
        "memory": at_peak.memory,
        "spread": half_tps / rate_tps if half_tps else None,
        "slot_cores": model.slot.cores,
        "slot_memory_bytes": model.slot.memory_bytes,
        "machine": model.slot.machine,
        "measured_at": _text(model.more.get("measured_at")),
        "imported_from": _text(model.more.get("imported_from")),
        "corrected": correction.time if (correction := correction_of(model)).time != 1.0 else None,
    }


def point_rows(model: Model) -> list[Row]:
    """The measured points. `gain`: the rate in parts of what one thread would give alone."""
    one_tps = peak_rate(model, 1)
    rows = []
    for point in model.points:
        half_tps, half_cpu, half_memory = half_widths(point)
        rows.append(
            {
                "task": model.task,
                "threads": point.threads,
                "rate_tps": point.rate_tps,
                "rate_spread_tps": half_tps or None,
                "cpu": point.cpu,
                "cpu_spread": half_cpu or None,
                "memory": point.memory,
                "memory_spread": half_memory or None,
                "gain": point.rate_tps / one_tps,
                "peak": point.threads == peak(model)[1],
            }
        )
    return rows


def compared(a: Model, b: Model) -> list[Row]:
    """Both models at every thread count that either was measured at and both reach, rising.

    `rate_difference`: (b − a) / a; `cpu_difference`, `memory_difference`: b − a in fractions of the slot;
    `interpolated`: which of the two ("a", "b") has no point there; `within_spread`: is the difference of
    the rates no more than both spreads together? None where neither has one."""
    most = min(a.points[-1].threads, b.points[-1].threads)
    points_a, points_b = _by_threads(a), _by_threads(b)
    rows = []
    for threads in sorted({*points_a, *points_b}):
        if threads <= most:
            rows.append(_compared_at(threads, (a, points_a.get(threads)), (b, points_b.get(threads))))
    return rows


def _compared_at(threads: int, a: tuple[Model, Point | None], b: tuple[Model, Point | None]) -> Row:
    (model_a, point_a), (model_b, point_b) = a, b
    rate_a, rate_b = peak_rate(model_a, threads), peak_rate(model_b, threads)
    cpu_a, cpu_b = cpu(model_a, threads), cpu(model_b, threads)
    memory_a, memory_b = memory(model_a, threads), memory(model_b, threads)
    room_tps = sum(half_widths(point)[0] for point in (point_a, point_b) if point is not None)
    return {
        "task": model_a.task,
        "threads": threads,
        "rate_a_tps": rate_a,
        "rate_b_tps": rate_b,
        "rate_difference": (rate_b - rate_a) / rate_a,
        "within_spread": abs(rate_b - rate_a) <= room_tps if room_tps else None,
        "cpu_a": cpu_a,
        "cpu_b": cpu_b,
        "cpu_difference": cpu_b - cpu_a,
        "memory_a": memory_a,
        "memory_b": memory_b,
        "memory_difference": memory_b - memory_a,
        "interpolated": [name for name, point in (("a", point_a), ("b", point_b)) if point is None],
    }


def _by_threads(model: Model) -> Mapping[int, Point]:
    return {point.threads: point for point in model.points}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
