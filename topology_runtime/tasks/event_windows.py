"""Windows of event time over the rows of a key: counts, sums, sessions and the like. Import it from
``headgate.windows``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.references import resolve
from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.event_time.aggregates import aggregate_of
from headgate.topology_runtime.event_time.window_assigners import (
    FixedWindows,
    GlobalWindows,
    Span,
    checked_names,
    micros,
    windows_of,
)
from headgate.topology_runtime.event_time.window_columns import Array, ColumnAt, RowGroups
from headgate.topology_runtime.event_time.window_panes import (
    END_OF_TIME,
    TOO_LATE,
    Firing,
    WindowEngine,
    Windows,
)
from headgate.topology_runtime.event_time.window_slices import SlicedWindows, SliceEngine, can_slice
from headgate.topology_runtime.wording import shown

EMITS = ("final", "updates", "retractions")
WindowState = Windows | SlicedWindows  # of a key
UNITS = {"s": 1_000_000, "ms": 1_000, "us": 1}


class EventWindow(Timed[Any, WindowState, Any, dict[str, Any]]):
    """One result for each window of each key.

    at, unit: the event time of a row, as of every `Timed`. windows: `tumbling(60)`, `sliding`, `session` or
    `global_window`. aggregate: `count()`, `sum_of("price")` … early: {"seconds": n} and {"rows": n} say how often a
    window is given before its end. late: for so many seconds after its end, rows still change a window, and each gives
    it again; {"within_s": 60, "emit": True} gives rows on that are later still. emit: "final", once and after late
    rows; "updates", early too, each result in place of the one before; "retractions": with the one before, marked.

    Gives {"key", "start", "end", "value", "pane", "timing"}: start and end in `unit` (None: of the global window),
    pane: how often the window was given before, timing: "early", "on time" or "late"; with retractions "retract", True
    for a result that is taken back. The highest pane counts, in whatever order they arrive. Raises InvalidInput for
    params that cannot be.

    >>> from headgate import windows
    >>> counts = windows.EventWindow(at="ts", windows=windows.tumbling(60), aggregate=windows.count())
    >>> counts.unit
    's'
    """

    made_to_check = True

    def __init__(
        self,
        at: Any,
        windows: Any,
        aggregate: Any = "count",
        unit: str = "s",
        early: Any = None,
        late: Any = 0,
        emit: str = "final",
    ) -> None:
        if emit not in EMITS:
            raise InvalidInput(f"emit: {shown(emit)} is not one of {', '.join(EMITS)}")
        self.at, self.unit = at, unit
        self._retractions = emit == "retractions"
        kind = windows_of(windows)
        self.needs_timestamps = not isinstance(kind, GlobalWindows)
        lateness, give_too_late = lateness_of(late)
        rows, clock_us = early_of(early)
        if early and emit == "final":
            raise InvalidInput(
                "early results are not final", hint='emit="updates" or "retractions", or leave `early`'
            )
        if isinstance(kind, GlobalWindows) and lateness:
            raise InvalidInput("the global window has no end, so nothing is late for it", hint="leave `late`")
        firing = Firing(rows, clock_us, lateness, self._retractions, give_too_late)
        made = self._aggregate = aggregate_of(aggregate, resolve)
        self._engine: Any  # takes and gives a WindowState of its own kind
        if isinstance(kind, FixedWindows) and can_slice(kind, made, firing):
            self._engine = SliceEngine(kind, made, firing, self._rows)
        else:
            self._engine = WindowEngine(kind, made, firing, self._rows)

    def open(self, context: Context) -> None:
        self._engine.count_in(context.metrics)

    def new(self, key: Any) -> WindowState:
        found: WindowState = self._engine.new()
        return found

    def process(
        self, key: Any, row: Any, state: WindowState, time: Time
    ) -> tuple[WindowState | None, list[dict[str, Any]]]:
        left, rows = self._engine.take(key, row, state, time)
        return left, [too_late(one, self.unit) for one in rows] if rows else rows

    def adds(self, row: Any, state: WindowState, at_us: int, watermark_us: int | None) -> bool:
        """As `process`, where no more than a value changes: no timer, no row. False: `process` is to take it, and
        nothing has changed."""
        found: bool = self._engine.adds(row, state, at_us, watermark_us)
        return found

    def groups(
        self, keys: Sequence[Any], times: Array, column_at: ColumnAt
    ) -> tuple[RowGroups, Sequence[Any]] | None:
        """Rows that come as columns, by key and window, and what the value of each group has to take of them; None:
        they are to be taken one by one."""
        groups: RowGroups | None = self._engine.groups(keys, times)
        folds = self._aggregate.folds(column_at, groups) if groups is not None else None
        return None if groups is None or folds is None else (groups, folds)

    def adds_group(self, state: WindowState, start: int, rows: int, fold: Any, time: Time) -> bool:
        """As `process`, of all rows of a group at once, which give no row; the time is of its watermark alone. False:
        `process` is to take them, and nothing has changed."""
        found: bool = self._engine.adds_group(state, start, rows, fold, time)
        return found

    def on_timer(
        self, key: Any, at: int, state: WindowState, time: Time
    ) -> tuple[WindowState | None, list[dict[str, Any]]]:
        found: tuple[WindowState | None, list[dict[str, Any]]] = self._engine.on_timer(key, at, state, time)
        return found

    def finish(self, key: Any, state: WindowState) -> Iterable[dict[str, Any]]:
        found: list[dict[str, Any]] = self._engine.finish(key, state)
        return found

    def snapshot(self, state: WindowState) -> Any:
        return self._engine.save(state)

    def restore(self, saved: Any) -> WindowState:
        found: WindowState = self._engine.restore(saved)
        return found

    def _rows(
        self, key: Any, span: Span, result: Any, pane: int, timing: str, retract: bool
    ) -> list[dict[str, Any]]:
        start, end = shown_span(span, self.unit)
        row = {"key": key, "start": start, "end": end, "value": result, "pane": pane, "timing": timing}
        return [row | {"retract": retract} if self._retractions else row]


def shown_span(span: Span, unit: str) -> tuple[Any, Any]:
    if span.end == END_OF_TIME:
        return None, None
    return shown_time(span.start, unit), shown_time(span.end, unit)


def shown_time(at_us: int, unit: str) -> Any:
    """µs in the unit of the rows: seconds as a float; else a whole number, unless it is none."""
    if unit == "s":
        return at_us / UNITS["s"]
    if unit == "ns":
        return at_us * 1_000
    part = UNITS[unit]
    return at_us // part if at_us % part == 0 else at_us / part


def too_late(row: dict[str, Any], unit: str) -> dict[str, Any]:
    """A row that no window took, as it is given on: {"key", "timing": "too late", "at", "row"}."""
    if row["timing"] != TOO_LATE:
        return row
    return {"key": row["key"], "timing": TOO_LATE, "at": shown_time(row["at_us"], unit), "row": row["row"]}


def lateness_of(late: Any) -> tuple[int, bool]:
    """(µs, are rows that are too late given on?) of a number of seconds or {"within_s": …, "emit": …}."""
    if not isinstance(late, dict):
        return micros("late", late, least=0), False
    checked_names("late", late, (), ("within_s", "emit"))
    emit = late.get("emit", False)
    if not isinstance(emit, bool):
        raise InvalidInput(f"late: emit {shown(emit)} is neither true nor false")
    return micros("late: within_s", late.get("within_s", 0), least=0), emit


def early_of(early: Any) -> tuple[int, int]:
    """(rows, µs) of {"rows": …, "seconds": …}."""
    if early is None:
        return 0, 0
    if not isinstance(early, dict) or not early:
        raise InvalidInput(f"early: {shown(early)} is not as in {{'seconds': 10}} or {{'rows': 100}}")
    checked_names("early", early, (), ("rows", "seconds"))
    rows = early.get("rows", 0)
    if "rows" in early and (isinstance(rows, bool) or not isinstance(rows, int) or rows < 1):
        raise InvalidInput(f"early: rows {shown(rows)} is not a whole number from 1 on")
    return rows, micros("early: seconds", early["seconds"]) if "seconds" in early else 0
