"""The windows of one key: rows go in, results come out when the watermark, a trigger or a late row says so. Pure.

A window is *open* until the watermark is at its end; then its result is given "on time". For the allowed lateness it is
kept, and each late row gives it again. Then it is gone, and rows for it are too late: counted, and given on marked
when asked for. Before its end it may be given "early", every n seconds by the clock or every n rows.

Sessions that are gone are remembered for one gap more, without their value: a row that touches one is too late. So no
two sessions of a key overlap, but for those that were cut at `longest_s`.

Whatever may raise (the user's functions) is called before anything is changed, since a call that raised is made again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from headgate.topology_runtime.api.timed import LATEST_US, Time
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.event_time.aggregates import WindowAggregate
from headgate.topology_runtime.event_time.window_assigners import (
    FixedWindows,
    GlobalWindows,
    SessionWindows,
    Span,
    WindowKind,
)
from headgate.topology_runtime.event_time.window_columns import Array, RowGroups, row_groups

Timing = Literal["early", "on time", "late"]
EARLY, ON_TIME, LATE, TOO_LATE = "early", "on time", "late", "too late"
CLOSE, CLOCK = "close", "early"  # names of timers; that of the end of a window has none
END_OF_TIME = 1 << 62
BEFORE_TIME = -END_OF_TIME  # the watermark while nothing is known
Given = tuple[int, int, Any, int]  # start, end, result, pane number


@dataclass(slots=True)
class WindowPane:
    """A window of a key. fresh: rows since it was given last. number: of the next time it is given. told: what was
    given and is not taken back (only with retractions). timer: where its end is waited for. due: when it is given early
    by the clock. closed: a session that is gone."""

    start: int
    end: int
    value: Any
    rows: int = 0
    fresh: int = 0
    number: int = 0
    told: list[Given] = field(default_factory=list)
    timer: int | None = None
    due: int | None = None
    on_time: bool = False
    closed: bool = False

    def saved(self, aggregate: WindowAggregate) -> list[Any]:
        value = None if self.closed else aggregate.save(self.value)
        counts = [self.rows, self.fresh, self.number, self.timer, self.due, self.on_time, self.closed]
        return [self.start, self.end, value, counts, [list(one) for one in self.told]]

    @staticmethod
    def restored(saved: list[Any], aggregate: WindowAggregate) -> WindowPane:
        start, end, value, counts, told = saved
        rows, fresh, number, timer, due, on_time, closed = counts
        told = [(one[0], one[1], one[2], one[3]) for one in told]
        value = None if closed else aggregate.restore(value)
        return WindowPane(start, end, value, rows, fresh, number, told, timer, due, on_time, closed)


Windows = dict[int, WindowPane]  # by start
Results = tuple[list[Any], Any]  # rows, and the result in them


@dataclass(frozen=True)
class Firing:
    """When windows are given, and how. early_rows, early_us: 0 is never."""

    early_rows: int = 0
    early_us: int = 0
    lateness: int = 0
    retractions: bool = False
    give_too_late: bool = False


MakeRows = Callable[[Any, Span, Any, int, str, bool], list[Any]]  # key, span, result, pane, timing, retract?


class WindowEngine:
    """What all keys of a task share."""

    def __init__(
        self, windows: WindowKind, aggregate: WindowAggregate, firing: Firing, make_rows: MakeRows
    ) -> None:
        self._windows, self._aggregate, self._firing, self._make_rows = windows, aggregate, firing, make_rows
        self._gap = windows.gap if isinstance(windows, SessionWindows) else 0
        self._one_window: FixedWindows | None = None  # that a row belongs to, and that is given at its end
        if isinstance(windows, FixedWindows) and windows.every == windows.size:
            self._one_window = None if firing.early_rows or firing.early_us else windows
        self.count_in(UserMetrics())

    def count_in(self, metrics: UserMetrics) -> None:
        self._late = metrics.counter("late_rows")
        self._too_late = metrics.counter("too_late_rows")
        self._missed = metrics.counter("missed_windows")
        self._cut = metrics.counter("sessions_cut") if self._gap else None

    def new(self) -> Windows:
        return {}

    # ── a row ───────────────────────────────────────────────────────────────────────────────────

    def adds(self, row: Any, panes: Windows, at_us: int, watermark_us: int | None) -> bool:
        """As `take` of a row for one window that is there, open and not given early; False: that one is to take it."""
        windows = self._one_window
        if windows is None:
            return False
        start = at_us - (at_us - windows.offset) % windows.every
        pane = panes.get(start)
        if pane is None or (watermark_us is not None and pane.end <= watermark_us):
            return False
        pane.value = self._aggregate.add(pane.value, self._aggregate.part(row))
        pane.rows += 1
        pane.fresh += 1
        return True

    def groups(self, keys: Sequence[Any], times: Array) -> RowGroups | None:
        """Rows by key and the window that each is in; None: a row is in several, or may give something."""
        windows = self._one_window
        return None if windows is None else row_groups(keys, times, windows.every, windows.offset)

    def adds_group(self, panes: Windows, start: int, rows: int, fold: Any, time: Time) -> bool:
        """As `adds`, of all rows of a group, and the window may be new."""
        assert self._one_window is not None
        end, pane = start + self._one_window.size, panes.get(start)
        if end <= _mark(time) or end + self._firing.lateness > LATEST_US:
            return False
        if pane is None:
            pane = WindowPane(start, end, self._aggregate.new(), timer=end)
        if not self._aggregate.takes_fold(pane.value, fold, 1):
            return False
        pane.value = self._aggregate.add_fold(pane.value, fold)
        if not pane.rows:
            panes[start] = pane
            self._wait(pane, time)
        pane.rows += rows
        pane.fresh += rows
        return True

    def take(self, key: Any, row: Any, panes: Windows, time: Time) -> tuple[Windows | None, list[Any]]:
        part = self._aggregate.part(row)
        if isinstance(self._windows, SessionWindows):
            out = self._into_session(self._windows, key, part, panes, time)
        else:
            out = self._into_windows(key, part, panes, time)
        if out is None:
            self._too_late.add()
            late = {"key": key, "timing": TOO_LATE, "at_us": time.at_us, "row": row}
            return panes or None, [late] if self._firing.give_too_late else []
        return panes, out

    def _into_windows(self, key: Any, part: Any, panes: Windows, time: Time) -> list[Any] | None:
        """None: all its windows are gone."""
        mark = _mark(time)
        spans = self._spans(time.at_us)
        open_spans = [span for span in spans if span.end + self._firing.lateness > mark]
        touched: list[tuple[WindowPane, Any, Results | None]] = []
        for span in open_spans:
            pane = panes.get(span.start) or WindowPane(*span, self._aggregate.new(), timer=span.end)
            value = self._aggregate.add(pane.value, part)
            touched.append((pane, value, self._rows_now(key, pane, span, value, mark)))
        out: list[Any] = []
        for pane, value, rows in touched:
            if pane.start not in panes:
                panes[pane.start] = pane
                pane.on_time = pane.end <= mark
                self._wait(pane, time)
            out += self._changed(pane, value, rows, time)
        self._missed.add(len(spans) - len(open_spans))
        self._late.add(any(span.end <= mark for span in open_spans))
        return out if open_spans else None

    def _spans(self, at: int) -> list[Span]:
        if isinstance(self._windows, FixedWindows):
            return self._windows.windows(at)
        return [Span(0, END_OF_TIME)]

    def _wait(self, pane: WindowPane, time: Time) -> None:
        """Timers of a window that is new."""
        if isinstance(self._windows, GlobalWindows):
            return
        if not pane.on_time:
            time.set(pane.end)
        if self._firing.lateness:
            time.set(pane.end + self._firing.lateness, CLOSE)

    def _rows_now(self, key: Any, pane: WindowPane, span: Span, value: Any, mark: int) -> Results | None:
        """What one row more makes it give at once; None: nothing. `pane.fresh` is as before the row."""
        if span.end <= mark:
            if pane.rows and not pane.on_time:
                return None  # its timer is about to fire
            return self._rows(key, pane, span, value, LATE)
        if self._firing.early_rows and pane.fresh + 1 >= self._firing.early_rows:
            return self._rows(key, pane, span, value, EARLY)
        return None

    def _changed(self, pane: WindowPane, value: Any, given: Results | None, time: Time) -> list[Any]:
        """A row more is in it."""
        pane.value = value
        pane.rows += 1
        pane.fresh += 1
        if given is not None:
            self._note_given(pane, given[1])
            return given[0]
        if self._firing.early_us and pane.due is None and pane.end > _mark(time):
            pane.due = time.clock_us + self._firing.early_us
            time.set_clock(pane.due, CLOCK)
        return []

    # ── sessions ────────────────────────────────────────────────────────────────────────────────

    def _into_session(
        self, windows: SessionWindows, key: Any, part: Any, panes: Windows, time: Time
    ) -> list[Any] | None:
        """None: it touches a session that is gone, or would be one."""
        mark, own = _mark(time), windows.own(time.at_us)
        touching = sorted(
            (pane for pane in panes.values() if pane.start < own.end and own.start < pane.end),
            key=lambda pane: pane.start,
        )
        span, members = own, list[WindowPane]()
        for pane in touching:
            both = Span(min(span.start, pane.start), max(span.end, pane.end))
            if both.end - both.start <= windows.longest:
                span = both
                members.append(pane)
        over = own.end + self._firing.lateness <= mark
        if any(pane.closed for pane in touching) or span.end + self._firing.lateness <= mark:
            return None
        if over and all(own.start < pane.start for pane in members):
            return None  # it would begin before its session, where one may be that is gone and forgotten
        joined = self._joined(span, members, part)
        given = self._rows_now(key, joined, span, joined.value, mark)
        if touching and not members and self._cut is not None:
            self._cut.add()
        for pane in members:
            del panes[pane.start]
        panes[span.start] = joined
        self._wait_for_session(joined, given is not None, mark, time)
        waited = {pane.timer for pane in panes.values() if not pane.on_time}
        for timer in {pane.timer for pane in members if not pane.on_time} - waited:
            if timer is not None:
                time.cancel(timer)
        return self._changed(joined, joined.value, given, time)

    def _wait_for_session(self, joined: WindowPane, given: bool, mark: int, time: Time) -> None:
        joined.on_time = given and joined.end <= mark
        if joined.on_time:
            time.set(joined.end + self._firing.lateness, CLOSE)
        elif joined.timer is None:
            joined.timer = joined.end
            time.set(joined.end)
        self._late.add(joined.end <= mark)

    def _joined(self, span: Span, members: list[WindowPane], part: Any) -> WindowPane:
        """One session of those, and of a row that is not counted yet. Its timer: the first that is waited for."""
        first = members[0].value if members else self._aggregate.new()
        value = self._aggregate.add(first, part)  # the user's code, before values are changed by merging
        for pane in members[1:]:
            value = self._aggregate.merge(value, pane.value)
        waited = [pane.timer for pane in members if not pane.on_time and pane.timer is not None]
        dues = [pane.due for pane in members if pane.due is not None]
        return WindowPane(
            *span,
            value,
            rows=sum(pane.rows for pane in members),
            fresh=sum(pane.fresh for pane in members),
            number=max((pane.number for pane in members), default=0),
            told=[one for pane in members for one in pane.told],
            timer=min(waited, default=None),
            due=min(dues, default=None),
            on_time=any(pane.on_time for pane in members),
        )

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def on_timer(self, key: Any, at: int, panes: Windows, time: Time) -> tuple[Windows | None, list[Any]]:
        if time.name == CLOCK:
            due = [pane for pane in panes.values() if pane.due is not None and pane.due <= at]
            timing = EARLY
        elif time.name == CLOSE:
            due = []
        else:
            due = [pane for pane in panes.values() if not pane.on_time and pane.timer == pane.end == at]
            timing = ON_TIME
        every = [
            (pane, self._rows(key, pane, Span(pane.start, pane.end), pane.value, timing)) for pane in due
        ]
        out: list[Any] = []
        for pane, (rows, result) in every:
            out += rows
            self._note_given(pane, result)
            if timing == ON_TIME:
                pane.on_time = True
                if self._gap or not self._firing.lateness:
                    self._after_its_end(pane, panes, time)
        if time.name != CLOCK:
            self._go_on(at, panes, time)
        return panes or None, out

    def _after_its_end(self, pane: WindowPane, panes: Windows, time: Time) -> None:
        """It was given on time: what is next. Of windows that are no sessions, that was set when they began."""
        if not self._firing.lateness:
            self._close(pane, panes, time)
        else:
            time.set(pane.end + self._firing.lateness, CLOSE)

    def _close(self, pane: WindowPane, panes: Windows, time: Time) -> None:
        if not self._gap:
            del panes[pane.start]
            return
        pane.closed, pane.value, pane.told = True, None, []
        time.set(pane.end + self._firing.lateness + self._gap, CLOSE)

    def _go_on(self, at: int, panes: Windows, time: Time) -> None:
        """Sessions that have grown wait for their new end; those of which time is over go; so do those whose result
        could not be made: their timer is past."""
        lateness = self._firing.lateness
        for pane in list(panes.values()):
            if pane.closed:
                if pane.end + lateness + self._gap <= at:
                    del panes[pane.start]
            elif not pane.on_time and pane.timer is not None and pane.timer <= at:
                if pane.end > at:
                    pane.timer = pane.end
                    time.set(pane.end)
                elif pane.timer < at:
                    self._close(pane, panes, time)
            elif pane.on_time and pane.end + lateness <= at:
                self._close(pane, panes, time)

    def finish(self, key: Any, panes: Windows) -> list[Any]:
        """The input has ended: the window of all time."""
        if not isinstance(self._windows, GlobalWindows):
            return []
        return [
            row
            for pane in panes.values()
            for row in self._rows(key, pane, Span(pane.start, pane.end), pane.value, ON_TIME)[0]
        ]

    # ── results ─────────────────────────────────────────────────────────────────────────────────

    def _rows(self, key: Any, pane: WindowPane, span: Span, value: Any, timing: str) -> Results:
        """The rows, and the result that is in them."""
        result = self._aggregate.result(value)
        out: list[Any] = []
        for start, end, old, number in pane.told:
            out += self._make_rows(key, Span(start, end), old, number, timing, True)
        return out + self._make_rows(key, span, result, pane.number, timing, False), result

    def _note_given(self, pane: WindowPane, result: Any) -> None:
        if self._firing.retractions:
            pane.told = [(pane.start, pane.end, result, pane.number)]
        pane.value = self._aggregate.given(pane.value)
        pane.number += 1
        pane.fresh = 0
        pane.due = None  # its timer may be another window's too: it fires, and finds what is due by then

    # ── saved ───────────────────────────────────────────────────────────────────────────────────

    def save(self, panes: Windows) -> list[Any]:
        return [pane.saved(self._aggregate) for pane in panes.values()]

    def restore(self, saved: Iterable[Any]) -> Windows:
        panes = (WindowPane.restored(one, self._aggregate) for one in saved)
        return {pane.start: pane for pane in panes}


def _mark(time: Time) -> int:
    return BEFORE_TIME if time.watermark_us is None else time.watermark_us
