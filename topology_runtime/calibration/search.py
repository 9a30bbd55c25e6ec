"""Which thread count to measure next, and the model out of what was measured. Pure.

Paper 0, Alg. 1 (PerfModel), shortened: closed-loop peaks only, thread counts doubling, until the peak
is flat or falling.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

SCHEMA = "headgate/model/v1"
MOST_THREADS = 64
GAIN = 1.05  # less than this more from twice the threads: flat
LEAST_POINTS = 3  # before a peak is called flat
NOISE_OF_A_POINT = 1.5  # points of one task at full CPU: up to 1.4 seen in slots of 0.12 core
NOISE = 1.03  # a gain below this is not told from none, so a plan shall spend no threads on it
DERATE = 0.9  # of a closed-loop peak, reported as the peak stable rate: a quick measurement errs low
FULL = 0.95  # of the slot's CPU: below it a backlogged task that computes was disturbed
WAITS = 0.2  # a task whose calls are blocked for this share of their time waits rather than computes
FRAME_ROWS_MOST = 64  # rows per frame while measuring


class MeasuredRate(msgspec.Struct, frozen=True):
    """One closed-loop measurement. cpu: of the slot; memory_bytes: above the bare worker; blocked:
    share of its calls' time in which the task neither ran nor waited for the CPU."""

    threads: int
    rate_tps: float
    cpu: float
    memory_bytes: int
    blocked: float
    seconds: float
    rows: int
    frame_rows: int = 1
    trials: int = 1
    worker_bytes: int = 0


def next_threads(measured: Sequence[MeasuredRate], most: int = MOST_THREADS) -> int | None:
    """The next thread count; None when the peak is flat or falling, or the slot's CPU is used up, and
    there are points enough to say so (or `most` is reached)."""
    if not measured:
        return 1
    last = measured[-1]
    if len(measured) >= LEAST_POINTS:
        best_before = max(point.rate_tps for point in measured[:-1])
        if last.cpu >= FULL or last.rate_tps < GAIN * best_before:
            return None
    return last.threads * 2 if last.threads * 2 <= most else None


def pooled(measured: Sequence[MeasuredRate]) -> list[MeasuredRate]:
    """Points that use up the slot's CPU measure one thing, its capacity, each with the noise of a few
    seconds: they get their common mean. Points that differ by more than noise does stay as they are."""
    full = [point for point in measured if point.cpu >= FULL]
    rates = [point.rate_tps for point in full]
    if not full or max(rates) > NOISE_OF_A_POINT * min(rates):
        return list(measured)
    mean_tps = sum(point.rows for point in full) / sum(point.seconds for point in full)
    return [msgspec.structs.replace(p, rate_tps=mean_tps) if p.cpu >= FULL else p for p in measured]


def disturbed(point: MeasuredRate, waits: bool) -> bool:
    """Something else took this computing task's CPU: measure again."""
    return not waits and point.cpu < FULL


def waits(measured: Sequence[MeasuredRate]) -> bool:
    """Does the task wait (for a service, a disk) rather than compute? Told by its single-thread point."""
    return measured[0].blocked > WAITS


def within_slot(point: MeasuredRate) -> MeasuredRate:
    """A point measured where nothing limits the CPU, brought down to the slot's share of it."""
    if point.cpu <= 1.0:
        return point
    return msgspec.structs.replace(point, rate_tps=point.rate_tps / point.cpu, cpu=1.0)


def better(first: MeasuredRate, second: MeasuredRate) -> MeasuredRate:
    """Of two measurements of one point; a disturbance only ever slows."""
    chosen = first if first.rate_tps >= second.rate_tps else second
    return msgspec.structs.replace(chosen, trials=first.trials + second.trials)


def frame_rows(per_thread_tps: float, gap_s: float) -> int:
    """Rows in a frame at this rate: what comes together while an edge waits its gap."""
    return max(1, min(FRAME_ROWS_MOST, int(per_thread_tps * gap_s)))


def model_of(
    task: str, measured: Sequence[MeasuredRate], slot: dict[str, Any], about: dict[str, Any]
) -> dict[str, Any]:
    """A `headgate/model/v1` document. `slot`: cores, memory_bytes, machine; `about`: more keys."""
    points = []
    best_tps = 0.0
    for point, raw in zip(pooled(measured), measured, strict=True):
        rate_tps = best_tps if best_tps < point.rate_tps < NOISE * best_tps else point.rate_tps
        best_tps = max(best_tps, rate_tps)
        points.append(
            {
                "threads": point.threads,
                "rate_tps": _digits(DERATE * rate_tps),
                "cpu": _digits(min(1.0, point.cpu)),
                "memory": _digits(max(0.0, point.memory_bytes / slot["memory_bytes"])),
                "closed_loop_tps": _digits(raw.rate_tps),
                "trials": point.trials,
                "seconds": _digits(point.seconds),
                "frame_rows": point.frame_rows,
            }
        )
    return {
        "schema": SCHEMA,
        "task": task,
        "slot": slot,
        "points": points,
        "method": "closed loop",
        "derate": DERATE,
        "waiting": waits(measured),
        "base_memory": min(point["memory"] for point in points),
        "worker_bytes": measured[0].worker_bytes,
        **about,
    }


def _digits(number: float) -> float:
    """Four significant digits: more would be noise."""
    return float(f"{number:.4g}")
