"""Sliding windows whose size is a whole number of slides, of one key: each row is added to one slice, as long as the
slide, and a window is merged of its slices when the watermark is at its end. Pure.

So a row costs the same however many windows it is in. Only where a window is given once, at its end, and where merging
gives what adding row by row would (`WindowAggregate.sliced`); window_panes.py has all others, and the same results.

A late row counts in the windows that are still open, and not in those that are over: it has a slice of its own, which
begins with the first window that is open. The timers of a key go from window to window while it has slices for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from headgate.topology_runtime.api.timed import LATEST_US, Time
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.event_time.aggregates import WindowAggregate
from headgate.topology_runtime.event_time.window_assigners import FixedWindows, Span
from headgate.topology_runtime.event_time.window_columns import Array, RowGroups, row_groups
from headgate.topology_runtime.event_time.window_panes import (
    BEFORE_TIME,
    ON_TIME,
    TOO_LATE,
    Firing,
    MakeRows,
)


@dataclass(slots=True)
class WindowSlice:
    """A value of rows that are in all windows which end from `first` to `last`."""

    first: int
    last: int
    value: Any


@dataclass(slots=True)
class SlicedWindows:
    """What is known of a key. slices: by the start of the slice; those of late rows by (first, last). odd: has it
    values that might not merge with every other?"""

    slices: dict[int | tuple[int, int], WindowSlice]
    odd: bool = False


def can_slice(windows: FixedWindows, aggregate: WindowAggregate, firing: Firing) -> bool:
    """Do slices give these results?"""
    if windows.every == windows.size or windows.size % windows.every:
        return False
    return aggregate.sliced and not (firing.lateness or firing.early_rows or firing.early_us)


class SliceEngine:
    """What all keys of a task share."""

    def __init__(
        self, windows: FixedWindows, aggregate: WindowAggregate, firing: Firing, make_rows: MakeRows
    ) -> None:
        self._size, self._every, self._offset = windows.size, windows.every, windows.offset
        self._many = self._size // self._every
        self._aggregate, self._give_too_late, self._make_rows = aggregate, firing.give_too_late, make_rows
        self.count_in(UserMetrics())

    def count_in(self, metrics: UserMetrics) -> None:
        metrics.counter("late_rows")  # none: no window takes rows after its end
        self._too_late = metrics.counter("too_late_rows")
        self._missed = metrics.counter("missed_windows")

    def new(self) -> SlicedWindows:
        return SlicedWindows({})

    def take(
        self, key: Any, row: Any, state: SlicedWindows, time: Time
    ) -> tuple[SlicedWindows | None, list[Any]]:
        part, at = self._aggregate.part(row), time.at_us
        mark = BEFORE_TIME if time.watermark_us is None else time.watermark_us
        start = at - (at - self._offset) % self._every
        first, last = start + self._every, start + self._size
        over = min(self._many, (mark - first) // self._every + 1) if first <= mark else 0
        first += over * self._every
        if over == self._many:
            self._missed.add(over)
            self._too_late.add()
            late = {"key": key, "timing": TOO_LATE, "at_us": at, "row": row}
            return state if state.slices else None, [late] if self._give_too_late else []
        place = (first, last) if over else start
        there = state.slices.get(place)
        before = self._aggregate.new() if there is None else there.value
        odd = state.odd or not self._aggregate.merges(before, part, self._many)
        if odd:
            self._try(state, range(first, last + 1, self._every), part)
        value = self._aggregate.add(before, part)
        if there is not None:
            there.value = value
        else:
            time.set(first if last <= LATEST_US else last)  # which raises when a later one could not be set
            state.slices[place] = WindowSlice(first, last, value)
        state.odd = odd
        self._missed.add(over)
        return state, []

    def adds(self, row: Any, state: SlicedWindows, at_us: int, watermark_us: int | None) -> bool:
        """As `take` of a row that no window misses, into a slice that is there; False: that one is to take it."""
        start = at_us - (at_us - self._offset) % self._every
        if watermark_us is not None and start + self._every <= watermark_us:
            return False
        there = state.slices.get(start)
        if there is None or state.odd:
            return False
        aggregate = self._aggregate
        part, value = aggregate.part(row), there.value
        if not aggregate.merges(value, part, self._many):
            return False
        there.value = aggregate.add(value, part)
        return True

    def groups(self, keys: Sequence[Any], times: Array) -> RowGroups | None:
        """Rows by key and slice."""
        return row_groups(keys, times, self._every, self._offset)

    def adds_group(self, state: SlicedWindows, start: int, rows: int, fold: Any, time: Time) -> bool:
        """As `adds`, of all rows of a group, and the slice may be new."""
        first, last, there = start + self._every, start + self._size, state.slices.get(start)
        if state.odd or last > LATEST_US or (time.watermark_us is not None and first <= time.watermark_us):
            return False
        value = self._aggregate.new() if there is None else there.value
        if not self._aggregate.takes_fold(value, fold, self._many):
            return False
        value = self._aggregate.add_fold(value, fold)
        if there is not None:
            there.value = value
        else:
            time.set(first)
            state.slices[start] = WindowSlice(first, last, value)
        return True

    def _try(self, state: SlicedWindows, ends: Iterable[int], part: Any) -> None:
        """Raises, before anything is changed, what one of these windows would raise with this row."""
        for end in ends:
            value = self._merged(self._slices_of(state, end))
            one = self._aggregate.add(self._aggregate.new(), part)
            self._aggregate.result(self._aggregate.merge(value, one))

    def _slices_of(self, state: SlicedWindows, end: int) -> list[WindowSlice]:
        return [one for one in state.slices.values() if one.first <= end <= one.last]

    def _merged(self, slices: list[WindowSlice]) -> Any:
        """A value of its own."""
        value = self._aggregate.new()
        for one in slices:
            value = self._aggregate.merge(value, one.value)
        return value

    def on_timer(
        self, key: Any, at: int, state: SlicedWindows, time: Time
    ) -> tuple[SlicedWindows | None, list[Any]]:
        """The window that ends now."""
        out: list[Any] = []
        following, goes_on = at + self._every, False
        due: list[WindowSlice] = []
        over: list[int | tuple[int, int]] = []
        for place, one in state.slices.items():
            if one.first <= at <= one.last:
                due.append(one)
            if one.last <= at:
                over.append(place)
            elif one.first <= following:
                goes_on = True
        if due:
            result = self._aggregate.result(self._merged(due))
            out = self._make_rows(key, Span(at - self._size, at), result, 0, ON_TIME, False)
        if goes_on:
            time.set(following)
        for place in over:
            del state.slices[place]
        return state if state.slices else None, out

    def finish(self, key: Any, state: SlicedWindows) -> list[Any]:
        return []

    def save(self, state: SlicedWindows) -> list[Any]:
        save = self._aggregate.save
        return [state.odd, [[one.first, one.last, save(one.value)] for one in state.slices.values()]]

    def restore(self, saved: Any) -> SlicedWindows:
        odd, slices = saved
        restored = (WindowSlice(first, last, self._aggregate.restore(value)) for first, last, value in slices)
        return SlicedWindows({self._place(one): one for one in restored}, odd)

    def _place(self, one: WindowSlice) -> int | tuple[int, int]:
        whole = one.last - one.first == self._size - self._every
        return one.first - self._every if whole else (one.first, one.last)
