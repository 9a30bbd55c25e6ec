"""What it costs to be woken for a row (decision 20). Pure.

A row that comes alone wakes the receiver, its task's thread and the sender of its worker, one after the other; rows
that come together share that. So a row's CPU is least when a slot is full of rows of its task, which is how a closed
loop measures it, and most when rows are few.
"""

from __future__ import annotations

import math

TOGETHER_S = 0.006  # rows of one slot that come within this time of each other are dealt with together


def share_of_wakes(rows_tps: float) -> float:
    """How much of a wake a row pays when so many rows/s come into its slot: 1 when it is alone."""
    return 1.0 / (1.0 + TOGETHER_S * rows_tps)


def cpu_per_tps(cpu: float, peak_tps: float, wake_cpu: float, rows_tps: float) -> float:
    """CPU of a slot for one tuple/s of a task that uses `cpu` of it alone at `peak_tps`, when `rows_tps` rows/s of
    any task come into the slot."""
    besides = share_of_wakes(rows_tps) - share_of_wakes(peak_tps)
    return max(0.0, cpu / peak_tps + wake_cpu * besides)


def rate_in_full(cpu_per_tps: float, wake_cpu: float) -> float:
    """Tuples/s of one task that fill a slot when rows come one by one: x with cpu_per_tps x + wake_cpu x
    share_of_wakes(x) = 1. Both costs in slots per tuple/s; the first positive, the other not negative."""
    a = cpu_per_tps * TOGETHER_S
    b = cpu_per_tps + wake_cpu - TOGETHER_S
    return 2.0 / (b + math.sqrt(b * b + 4.0 * a))
