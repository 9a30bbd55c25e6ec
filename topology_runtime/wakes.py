"""What it costs to be woken for a row (decision 20). Pure.

A row that comes alone wakes the receiver, its task's thread and the sender of its worker, one after the other; rows
that come together share that. So a row's CPU is least when a slot is full of rows of its task, which is how a closed
loop measures it, and most when rows are few.
"""

from __future__ import annotations

import math

TOGETHER_S = 0.005  # a row is alone when none came into its slot so shortly before it
HALVINGS = 50


def share_of_wakes(rows_tps: float) -> float:
    """The part of rows that come alone when so many rows/s come into their slot by chance."""
    return math.exp(-TOGETHER_S * rows_tps)


def rate_in_full(cpu_per_tps: float, wake_cpu: float) -> float:
    """Tuples/s of one task that fill a slot when rows come by chance: the least x with cpu_per_tps x + wake_cpu x
    share_of_wakes(x) = 1. Both costs in slots per tuple/s; the first positive, the other not negative."""
    low, high = 0.0, 1.0 / cpu_per_tps
    if wake_cpu * TOGETHER_S > 0 and _full(1.0 / TOGETHER_S, cpu_per_tps, wake_cpu):
        high = min(high, 1.0 / TOGETHER_S)  # beyond it, what wakes cost falls
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _full(middle, cpu_per_tps, wake_cpu):
            high = middle
        else:
            low = middle
    return high


def _full(rate_tps: float, cpu_per_tps: float, wake_cpu: float) -> bool:
    return (cpu_per_tps + wake_cpu * share_of_wakes(rate_tps)) * rate_tps >= 1.0
