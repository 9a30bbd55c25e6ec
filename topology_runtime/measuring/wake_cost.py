"""What it costs to be woken for a row (decision 20). Pure.

A row that comes alone wakes the receiver, its task's thread and the sender of its worker, one after the other; rows
that come together share that. Rows of one task come together when many come, and with those of the tasks beside it:
often down one path, one right after the other. Rows of tasks that wait come at times of their own, each when its wait
is over, and keep nobody company. Rows of all tasks come together when their slot is full, since they then wait for it
and find it awake.
"""

from __future__ import annotations

from typing import NamedTuple

TOGETHER_S = 0.005  # rows of one task that come within this time of each other are dealt with together
OF_OTHERS = 0.7  # so much of the rows of other tasks in the slot that do not wait count as its own would
IN_FULL_SLOT = 0.7  # of its share is what a row pays in a slot that is full


class DispatchOverhead(NamedTuple):
    """`cpu`: of the slot for one row/s, what a row alone costs besides; `waits`: the task waits at its peak and
    leaves the slot room, so that even there rows come by themselves."""

    cpu: float = 0.0
    waits: bool = False

    def at_peak(self, peak_tps: float) -> float:
        """What is in the CPU per row/s that the task was measured with, alone at its peak."""
        return self.cpu * share_of_wakes(peak_tps, full=not self.waits)


def like_own(own_tps: float, others_tps: float) -> float:
    """Rows/s of a task, and of others in its slot, which do not wait, as far as they share its wakes."""
    return own_tps + OF_OTHERS * others_tps


def share_of_wakes(rows_tps: float, full: bool = False) -> float:
    """How much of a wake a row pays when so many rows/s (`like_own`) come: 1 when it is alone."""
    share = 1.0 / (1.0 + TOGETHER_S * rows_tps)
    return IN_FULL_SLOT * share if full else share


def cpu_per_tps(cpu: float, peak_tps: float, wake: DispatchOverhead, rows_tps: float, full: bool) -> float:
    """CPU of a slot, full or not, for one row/s of a task that uses `cpu` of it alone at `peak_tps`, when
    `rows_tps` (`like_own`) come."""
    besides = wake.cpu * share_of_wakes(rows_tps, full) - wake.at_peak(peak_tps)
    return max(0.0, cpu / peak_tps + besides)


def cpu_of_slot(alone: float, in_full: float) -> float:
    """CPU of a slot whose rows would use `alone` of it when it is not full and `in_full` when it is: rows that
    overfill it wait, which makes them cheaper, until it is just full."""
    return alone if alone <= 1.0 else max(1.0, in_full)
