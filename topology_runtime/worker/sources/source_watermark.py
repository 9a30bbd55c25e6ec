"""The watermark of a source thread, counted from rows that are done. Pure but for how the user gets a row's time.

It is the greatest event time of all rows of the prefix of roots that are done, less the lateness. A root is done when
all that came of it is past every snapshot and sink, so a row that was lost holds the watermark back until it has come
again; nothing travels with rows, and nothing is asked of those on their way.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from headgate.topology_runtime.api.timed import (
    IDLE_US,
    SECONDS,
    US,
    microseconds,
    row_time,
    times_at,
    wrong_unit,
)
from headgate.topology_runtime.api.topology import Task, Timestamps
from headgate.topology_runtime.wording import shown
from headgate.topology_runtime.worker.calls.router import ENDS_A_RUN
from headgate.topology_runtime.worker.rows.columns import Columns

S = 1_000_000_000
LOOKED_ROWS, LOOKED_NS = (
    100,
    10 * S,
)  # when none of so many rows has a time, or none for so long, that is said
FIELDS_SHOWN = 10
HELD_NS = 2 * S  # a thread that was held so shortly ago counts as held: it reads on step by step


class SourceWatermark:
    """Of one source thread. key_of: the function of a field, a position or a reference. unknown: rows whose time could
    not be got; they move nothing. wrong: why no row has a time, or that the unit is another, in words; "": all is well.
    A thread without new rows for `idle_ns`, all of whose rows are done, is not waited for. read_us: how far it has
    read, as the watermark is how far that is done. held_by: the thread that it was held for in the last `HELD_NS`,
    −1: none."""

    def __init__(
        self,
        times: Timestamps,
        key_of: Callable[[Any], Callable[[Any], Any]],
        ends: tuple[type[BaseException], ...] = ENDS_A_RUN,
    ) -> None:
        self._place, self._unit, self._ends = times.at, times.unit, ends
        self._time_of = row_time(times.at, times.unit, key_of)
        self._times_in = times_at(times.at, times.unit, key_of)
        self._lateness_us, self._idle_ns = round(times.lateness * US), round(times.idle * S)
        self._roots: deque[tuple[int, int | None]] = deque()  # sequence, its greatest event time
        self._done_us: int | None = None
        self.read_us: int | None = None
        self.held_by, self._held_ns = -1, 0
        self._new_ns: int | None = None
        self._first_ns: int | None = None  # when its first row came
        self._rows = self.unknown = 0
        self._example = ""  # of a row whose time could not be got, and why; only while none could
        self.wrong = ""

    def begin(self, sequence: int, rows: Sequence[Any], now_ns: int) -> None:
        """A new root of these rows, in their order."""
        greatest = self._greatest(rows)
        self._roots.append((sequence, greatest))
        self._new_ns = now_ns
        self._rows += len(rows)
        if greatest is not None:
            self.wrong = wrong_unit(greatest / US / SECONDS[self._unit], self._unit)
            self._example = ""
            read_us = greatest - self._lateness_us
            self.read_us = read_us if self.read_us is None else max(self.read_us, read_us)
        self._look(now_ns)

    def hold(self, thread: int, now_ns: int) -> None:
        """It reads nothing now, for it is too far ahead of that thread. So it is not idle."""
        self.held_by, self._held_ns, self._new_ns = thread, now_ns, now_ns

    def go_on(self, now_ns: int) -> None:
        """It is not held just now."""
        if self.held_by >= 0 and now_ns - self._held_ns >= HELD_NS:
            self.held_by = -1

    def _look(self, now_ns: int) -> None:
        """Has no row of many a time?"""
        if not self._rows or self._rows > self.unknown:
            return
        if self._first_ns is None:
            self._first_ns = now_ns
        if self._rows >= LOOKED_ROWS or now_ns - self._first_ns >= LOOKED_NS:
            self.wrong = f"no row so far has a time: {self._example}"

    def _note(self, row: Any, error: BaseException) -> None:
        """A first row without a time, and what was looked for in it. Of its values none but that is shown."""
        if isinstance(row, dict):
            fields = ", ".join(map(shown, list(row)[:FIELDS_SHOWN]))
            has = f"the fields {fields}" + ", …" * (len(row) > FIELDS_SHOWN)
        else:
            has = (
                f"{len(row)} values"
                if isinstance(row, list | tuple)
                else f"no fields, it is {type(row).__name__}"
            )
        why = type(error).__name__ + (f": {error}" if str(error) else "")
        value = row.get(self._place) if isinstance(row, dict) else None
        of = f" of {shown(value)}" if value is not None else ""
        self._example = f"timestamps({shown(self._place)}){of} gives {why}; a row has {has}"

    def _greatest(self, rows: Sequence[Any]) -> int | None:
        if isinstance(rows, Columns) and (column := rows.values_at(self._place)) is not None:
            found = self._of_column(column)
            if found is not None:
                return found
        elif times := self._times_in(rows):
            return microseconds(max(times), self._unit)
        greatest: int | None = None
        time_of = self._time_of
        for row in rows:
            try:
                at_us = time_of(row)
            except self._ends:
                raise
            except (
                BaseException
            ) as error:  # of user code or of a row that has none: it goes on, and is counted
                self.unknown += 1
                if not self._example and self.unknown <= LOOKED_ROWS:
                    self._note(row, error)
                continue
            if greatest is None or at_us > greatest:
                greatest = at_us
        return greatest

    def _of_column(self, column: Sequence[Any]) -> int | None:
        """Of a column of numbers; None: look at each row."""
        try:
            most = max(column)
            if isinstance(most, str) or (isinstance(most, float) and not math.isfinite(most)):
                return None  # texts of two zones are not in the order of their times
            return microseconds(most, self._unit)
        except (TypeError, ValueError):
            return None

    def done_below(self, floor: int) -> None:
        """All roots below this sequence are done."""
        while self._roots and self._roots[0][0] < floor:
            at_us = self._roots.popleft()[1]
            if at_us is not None and (self._done_us is None or at_us > self._done_us):
                self._done_us = at_us

    def told_us(self, now_ns: int, over: bool = False) -> int | None:
        """The watermark; None: not known yet; IDLE_US: not waited for. over: it reads no more."""
        self._look(now_ns)
        if not self._roots and (over or self._is_idle(now_ns)):
            return IDLE_US
        return None if self._done_us is None else self._done_us - self._lateness_us

    def told_read_us(self, now_ns: int, over: bool = False) -> int | None:
        """The same of how far it has read: what is not done yet holds nobody up."""
        return IDLE_US if over or self._is_idle(now_ns) else self.read_us

    def _is_idle(self, now_ns: int) -> bool:
        if self._new_ns is None:
            self._new_ns = now_ns
        return now_ns - self._new_ns >= self._idle_ns


def watermark_of(
    task: Task,
    key_of: Callable[[Any], Callable[[Any], Any]],
    ends: tuple[type[BaseException], ...] = ENDS_A_RUN,
) -> SourceWatermark | None:
    """None: rows of this source have no event time."""
    return None if task.timestamps is None else SourceWatermark(task.timestamps, key_of, ends)
