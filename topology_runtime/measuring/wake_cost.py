"""What a row costs besides what it takes itself: to be woken for it (decision 20), its frame, and what crossing from
one slot to another takes (decision 114). All in CPU of the slot, for one of them a second. Pure.

A row that comes alone wakes the receiver, its task's thread and the sender of its worker, one after the other; rows
that come together share that. Rows of one task come together when many come, and with those of the tasks beside it:
often down one path, one right after the other. Rows of tasks that wait come at times of their own, each when its wait
is over, and keep nobody company. Rows of all tasks come together when their slot is full, since they then wait for it
and find it awake.

A frame costs what some hundred rows of a quick task do. Each thread that sends to a thread sends a frame in a gap at
most; one that others wait for asks for longer gaps, until its frames fit (`worker/process/busy_threads.py`). So a slot
that is full has the largest frames that there are:

    frames a row = 1 / (1 + gap x rows/s / senders)        gap: the usual one; in a full slot the longest

What goes on within a slot, from thread to thread, is not encoded, sent and decoded: `crossing` is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from headgate.topology_runtime.wire.run_options import FRAME_ROWS, LONGEST_GAP_S, DataPlaneSettings

TOGETHER_S = 0.005  # rows of one task that come within this time of each other are dealt with together
OF_OTHERS = 0.7  # so much of the rows of other tasks in the slot that do not wait count as its own would
IN_FULL_SLOT = 0.7  # of its share is what a row pays in a slot that is full


WAKE, FRAME, CROSSING, ROWS = "wake_cpu", "frame_cpu", "crossing_cpu", "frame_rows"  # keys of a model's file
USUAL_GAP_S = DataPlaneSettings().gap_s


class DispatchOverhead(NamedTuple):
    """`cpu`: of the slot for one row/s, what a row alone costs besides; `waits`: the task waits at its peak and
    leaves the slot room, so that even there rows come by themselves; `frame`: of the slot for one frame/s, 0 where that
    is not known; `crossing`: for one row/s that comes from another slot and goes to another; `rows`: in a frame when
    the peak was measured."""

    cpu: float = 0.0
    waits: bool = False
    frame: float = 0.0
    crossing: float = 0.0
    rows: float = 1.0

    @property
    def lone(self) -> float:
        """What a row alone costs besides its frame."""
        return max(0.0, self.cpu - self.frame)

    def at_peak(self, peak_tps: float) -> float:
        """What is in the CPU per row/s that the task was measured with, alone at its peak."""
        return self.lone * share_of_wakes(peak_tps, full=not self.waits) + self.frame / self.rows


class RowsIn(NamedTuple):
    """How rows come to the threads of a task in one slot: rows/s, from so many pairs of a sending and one of these
    threads. `inside`: the part of the crossings of a row, to these threads and from them, that is none."""

    tps: float
    pairs: int = 1
    inside: float = 0.0


def overhead_of(more: Mapping[str, Any]) -> DispatchOverhead:
    """By the keys of a model's file; nothing where it was not measured."""
    cpu, frame, crossing = (float(more.get(key, 0.0)) for key in (WAKE, FRAME, CROSSING))
    return DispatchOverhead(
        cpu, bool(more.get("waiting", False)), frame, crossing, float(more.get(ROWS, 1.0))
    )


def times_the_cpu(more: Mapping[str, Any], times: float) -> dict[str, Any]:
    """Those keys, where all that takes CPU takes so many times as much."""
    return {
        key: more[key] * times for key in (WAKE, FRAME, CROSSING) if isinstance(more.get(key), int | float)
    }


def frames_a_row(flow: RowsIn, full: bool, gap_s: float = USUAL_GAP_S) -> float:
    """1 when each row comes in a frame of its own.

    >>> frames_a_row(RowsIn(4000.0, pairs=4), full=False)
    0.5
    """
    each_tps = flow.tps / max(1, flow.pairs)
    return max(1.0 / FRAME_ROWS, 1.0 / (1.0 + (LONGEST_GAP_S if full else gap_s) * each_tps))


def like_own(own_tps: float, others_tps: float) -> float:
    """Rows/s of a task, and of others in its slot, which do not wait, as far as they share its wakes."""
    return own_tps + OF_OTHERS * others_tps


def share_of_wakes(rows_tps: float, full: bool = False) -> float:
    """How much of a wake a row pays when so many rows/s (`like_own`) come: 1 when it is alone."""
    share = 1.0 / (1.0 + TOGETHER_S * rows_tps)
    return IN_FULL_SLOT * share if full else share


def cpu_per_tps(  # of what, measured how, in which company
    cpu: float,
    peak_tps: float,
    wake: DispatchOverhead,
    rows_tps: float,
    full: bool,
    flow: RowsIn | None = None,
) -> float:
    """CPU of a slot, full or not, for one row/s of a task that uses `cpu` of it alone at `peak_tps`, when
    `rows_tps` (`like_own`) come. flow: None where frames are as at that peak."""
    besides = wake.lone * share_of_wakes(rows_tps, full) - wake.at_peak(peak_tps)
    if flow is None:
        besides += wake.frame / wake.rows
    else:
        besides += wake.frame * frames_a_row(flow, full) - wake.crossing * flow.inside
    return max(0.0, cpu / peak_tps + besides)


def cpu_of_slot(alone: float, in_full: float) -> float:
    """CPU of a slot whose rows would use `alone` of it when it is not full and `in_full` when it is: rows that
    overfill it wait, which makes them cheaper, until it is just full."""
    return alone if alone <= 1.0 else max(1.0, in_full)
