"""Joins of two inputs by event time. Import them from ``headgate.windows``.

Both inputs reach the task by `.by(key)`, and rows of one key meet. `left` and `right` name the tasks that feed it. Each
pair is {"key", "at", "left", "right"}, `at` the later time of both in `unit`; in place of a row that is missing there
is None.
"""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.event_time.aggregates import WindowAggregate
from headgate.topology_runtime.event_time.stream_joins import (
    LEFT,
    RIGHT,
    AsOfLogic,
    How,
    IntervalLogic,
    JoinSides,
    Pair,
    safe_mark,
)
from headgate.topology_runtime.event_time.window_assigners import GlobalWindows, Span, micros, windows_of
from headgate.topology_runtime.event_time.window_panes import (
    TOO_LATE,
    Firing,
    WindowEngine,
    Windows,
)
from headgate.topology_runtime.tasks.event_windows import lateness_of, shown_span, shown_time, too_late
from headgate.topology_runtime.wording import shown

JoinRows = list[dict[str, Any]]
HOWS = ("inner", "left", "right", "outer")


class _TwoInputs(Timed[Any, JoinSides, Any, dict[str, Any]]):
    """What joins that keep rows by their time share."""

    made_to_check = needs_timestamps = True
    logic: IntervalLogic | AsOfLogic

    def __init__(self, left: str, right: str, at: Any, unit: str, late: Any) -> None:
        self._names = (left, right)
        checked_inputs(left, right)
        self.at, self.unit = at, unit
        self._lateness, self._emit = lateness_of(late)
        self._count_in(UserMetrics())

    def _count_in(self, metrics: UserMetrics) -> None:
        self._late, self._too_late = metrics.counter("late_rows"), metrics.counter("too_late_rows")

    def open(self, context: Context) -> None:
        self._count_in(context.metrics)

    def new(self, key: Any) -> JoinSides:
        return JoinSides()

    def process(self, key: Any, row: Any, state: JoinSides, time: Time) -> tuple[JoinSides | None, JoinRows]:
        side = side_of(time.source, self._names)
        if time.at_us < safe_mark(time, self._lateness) and not self._takes_always(side):
            self._too_late.add()
            late = {"key": key, "timing": TOO_LATE, "at_us": time.at_us, "row": row}
            return state or None, [too_late(late, self.unit)] if self._emit else []
        pairs = self.logic.take(side, row, state, time)
        self._late.add(time.late)
        return state or None, self._rows(key, pairs)

    def _takes_always(self, side: int) -> bool:
        return False

    def on_timer(self, key: Any, at: int, state: JoinSides, time: Time) -> tuple[JoinSides | None, JoinRows]:
        pairs = self.logic.on_timer(state, time)
        return state or None, self._rows(key, pairs)

    def _rows(self, key: Any, pairs: list[Pair]) -> JoinRows:
        return [
            {"key": key, "at": shown_time(at, self.unit), "left": left, "right": right}
            for at, left, right in pairs
        ]

    def snapshot(self, state: JoinSides) -> Any:
        return state.saved()

    def restore(self, saved: Any) -> JoinSides:
        return JoinSides.restored(saved)


class IntervalJoin(_TwoInputs):
    """Pairs of rows whose times are near: right's time less left's is from within_s[0] to within_s[1] seconds, both
    included; a number n stands for [-n, n]. how: "inner", or "left", "right", "outer": rows that were joined with none
    are given alone, once none can come any more. late: rows come so many seconds late and still meet all of theirs.

    >>> IntervalJoin("orders", "payments", at="ts", within_s=[0, 900]).unit
    's'
    """

    def __init__(
        self,
        left: str,
        right: str,
        at: Any,
        within_s: Any,
        how: How = "inner",
        unit: str = "s",
        late: Any = 0,
    ) -> None:
        super().__init__(left, right, at, unit, late)
        bounds = within_s if isinstance(within_s, list | tuple) else [-within_s, within_s]
        if len(bounds) != 2:
            raise InvalidInput(f"within_s: {shown(within_s)} is neither a number nor two")
        lower, upper = (micros("within_s", bound, least=None) for bound in bounds)
        if lower > upper:
            raise InvalidInput(f"within_s: {shown(within_s)} ends before it begins")
        self.logic = IntervalLogic(lower, upper, checked_how(how), self._lateness)


class AsOfJoin(_TwoInputs):
    """Each left row with what was so at its time: the last right row of its key at or before it, however old or at most
    `longest_s`. how: "left" gives left rows without one too, "inner" not. A left row waits until the watermark is past
    it. The last right row of a key is kept for ever, or for `longest_s`.

    >>> AsOfJoin("trades", "quotes", at="ts", longest_s=60).unit
    's'
    """

    def __init__(
        self,
        left: str,
        right: str,
        at: Any,
        longest_s: float | None = None,
        how: str = "left",
        unit: str = "s",
        late: Any = 0,
    ) -> None:
        super().__init__(left, right, at, unit, late)
        if how not in ("left", "inner"):
            raise InvalidInput(f"how: {shown(how)} is neither left nor inner")
        longest = None if longest_s is None else micros("longest_s", longest_s, least=0)
        self.logic = AsOfLogic(longest, how == "inner", self._lateness)

    def _takes_always(self, side: int) -> bool:
        """A right row holds from its time on, however late it comes."""
        return side == RIGHT


class WindowJoin(Timed[Any, Windows, Any, dict[str, Any]]):
    """All pairs of rows of a key in the same window: {"key", "start", "end", "left", "right"}, once the watermark is at
    its end. A row that comes late, within `late` seconds, gives the pairs that it is in. how: as of `IntervalJoin`;
    other than "inner" only without `late`.

    >>> WindowJoin("impressions", "clicks", at="ts", windows={"tumbling": {"size_s": 60}}).unit
    's'
    """

    made_to_check = needs_timestamps = True

    def __init__(
        self,
        left: str,
        right: str,
        at: Any,
        windows: Any,
        how: How = "inner",
        unit: str = "s",
        late: Any = 0,
    ) -> None:
        checked_inputs(left, right)
        self._names, self.at, self.unit = (left, right), at, unit
        lateness, emit = lateness_of(late)
        if lateness and checked_how(how) != "inner":
            raise InvalidInput(
                f"how: {how!r} and rows that come late: those given alone would be wrong",
                hint="leave `late`, or how='inner'",
            )
        kind = windows_of(windows)
        if isinstance(kind, GlobalWindows):
            raise InvalidInput("a window join needs windows that end", hint="tumbling, sliding or session")
        sides = JoinedRows(checked_how(how))
        self._engine = WindowEngine(kind, sides, Firing(lateness=lateness, give_too_late=emit), self._rows)

    def open(self, context: Context) -> None:
        self._engine.count_in(context.metrics)

    def new(self, key: Any) -> Windows:
        return {}

    def process(self, key: Any, row: Any, state: Windows, time: Time) -> tuple[Windows | None, JoinRows]:
        left, rows = self._engine.take(key, (side_of(time.source, self._names), row), state, time)
        return left, [self._too_late(one) for one in rows]

    def _too_late(self, row: dict[str, Any]) -> dict[str, Any]:
        return too_late(row | {"row": row["row"][1]}, self.unit) if row.get("timing") == TOO_LATE else row

    def on_timer(self, key: Any, at: int, state: Windows, time: Time) -> tuple[Windows | None, JoinRows]:
        return self._engine.on_timer(key, at, state, time)

    def snapshot(self, state: Windows) -> Any:
        return self._engine.save(state)

    def restore(self, saved: Any) -> Windows:
        return self._engine.restore(saved)

    def _rows(
        self, key: Any, span: Span, result: Any, pane: int, timing: str, retract: bool
    ) -> list[dict[str, Any]]:
        start, end = shown_span(span, self.unit)
        return [
            {"key": key, "start": start, "end": end, "left": left, "right": right} for left, right in result
        ]


class JoinedRows(WindowAggregate):
    """[left rows, right rows] of a window, each [row, was it given?]; the result: pairs that were not given yet."""

    changes = True

    def __init__(self, how: How) -> None:
        self._keeps = (how in ("left", "outer"), how in ("right", "outer"))

    def new(self) -> list[Any]:
        return [[], []]

    def add(self, value: list[Any], part: Any) -> list[Any]:
        side, row = part
        value[side].append([row, False])
        return value

    def merge(self, value: list[Any], other: list[Any]) -> list[Any]:
        return [[*value[LEFT], *other[LEFT]], [*value[RIGHT], *other[RIGHT]]]

    def result(self, value: list[Any]) -> list[Any]:
        left, right = value
        pairs = [(a[0], b[0]) for a in left for b in right if not (a[1] and b[1])]
        if self._keeps[LEFT] and not right:
            pairs += [(row, None) for row, _ in left]
        if self._keeps[RIGHT] and not left:
            pairs += [(None, row) for row, _ in right]
        return pairs

    def given(self, value: list[Any]) -> list[Any]:
        return [[[row, True] for row, _ in side] for side in value]

    def save(self, value: list[Any]) -> list[Any]:
        return [[list(one) for one in side] for side in value]

    def restore(self, saved: Any) -> list[Any]:
        return [[list(one) for one in side] for side in saved]


def checked_inputs(left: Any, right: Any) -> None:
    for name in (left, right):
        if not isinstance(name, str) or not name:
            raise InvalidInput(f"left and right name the tasks that feed the join: {shown(name)} is no name")
    if left == right:
        raise InvalidInput(f"left and right are both {left!r}", hint="put a task between for one of them")


def checked_how(how: Any) -> How:
    if how not in HOWS:
        raise InvalidInput(f"how: {shown(how)} is not one of {', '.join(HOWS)}")
    found: How = how
    return found


def side_of(source: str, names: tuple[str, str]) -> int:
    """Which side a row is of, by the task that it came from. ValueError: of neither."""
    if source not in names:
        raise ValueError(f"a row came from {source!r}; this joins {names[LEFT]!r} and {names[RIGHT]!r}")
    return names.index(source)
