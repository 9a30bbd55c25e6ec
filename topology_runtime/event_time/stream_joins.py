"""Joins of two inputs by event time, and rows that come only once: what is kept of a key, and for how long. Pure.

Rows wait in lists sorted by time. A row goes once the watermark, less the allowed lateness, says that nothing can come
any more which it would be joined with.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any, Literal

from headgate.topology_runtime.api.timed import Time
from headgate.topology_runtime.event_time.window_panes import BEFORE_TIME

How = Literal["inner", "left", "right", "outer"]
LEFT, RIGHT = 0, 1
AT = itemgetter(0)
Entry = list[Any]  # [time, row, was it joined?]
Pair = tuple[int, Any, Any]  # the later time, left row, right row


def safe_mark(time: Time, lateness: int) -> int:
    """Rows from before it are too late."""
    return BEFORE_TIME if time.watermark_us is None else time.watermark_us - lateness


@dataclass(slots=True)
class JoinSides:
    """Rows of a key that wait: left, right, each sorted by time. timer: the one that is set."""

    sides: tuple[list[Entry], list[Entry]] = field(default_factory=lambda: ([], []))
    timer: int | None = None

    def saved(self) -> list[Any]:
        return [[list(map(list, side)) for side in self.sides], self.timer]

    @staticmethod
    def restored(saved: Any) -> JoinSides:
        left, right = saved[0]
        return JoinSides(([list(one) for one in left], [list(one) for one in right]), saved[1])

    def __bool__(self) -> bool:
        return bool(self.sides[LEFT] or self.sides[RIGHT])

    def wait_until(self, at: int | None, time: Time) -> None:
        """One timer, at the first time at which something goes."""
        if at != self.timer:
            if self.timer is not None:
                time.cancel(self.timer)
            if at is not None:
                time.set(at)
            self.timer = at


class IntervalLogic:
    """left ⋈ right where right's time − left's time is from `lower` to `upper` µs, both included."""

    def __init__(self, lower: int, upper: int, how: How, lateness: int) -> None:
        self._reach = ((lower, upper), (-upper, -lower))  # of what a left, a right row is joined with
        self._keeps = (
            how in ("left", "outer"),
            how in ("right", "outer"),
        )  # rows that nothing was joined with
        self._lateness = lateness

    def take(self, side: int, row: Any, state: JoinSides, time: Time) -> list[Pair]:
        """Pairs with a row that is not too late."""
        at, (low, high) = time.at_us, self._reach[side]
        others = state.sides[1 - side]
        first, last = bisect_left(others, at + low, key=AT), bisect_right(others, at + high, key=AT)
        found = others[first:last]
        for one in found:
            one[2] = True
        pairs = [_pair(side, at, row, one[0], one[1]) for one in found]
        if at + high >= safe_mark(time, self._lateness):
            insort(state.sides[side], [at, row, bool(found)], key=AT)
            self._look_again(state, time)
        elif not found and self._keeps[side]:
            pairs.append(_pair(side, at, row, at, None))
        return pairs

    def _look_again(self, state: JoinSides, time: Time) -> None:
        """The first row to go: the watermark has to be past the last time that it could be joined with."""
        ends = [rows[0][0] + self._reach[side][1] for side, rows in enumerate(state.sides) if rows]
        state.wait_until(min(ends) + self._lateness + 1 if ends else None, time)

    def on_timer(self, state: JoinSides, time: Time) -> list[Pair]:
        """Those that go with nothing, where these are asked for."""
        out: list[Pair] = []
        state.timer = None
        for side, rows in enumerate(state.sides):
            gone = bisect_left(rows, time.at_us - self._lateness - self._reach[side][1], key=AT)
            if self._keeps[side]:
                out += [_pair(side, at, row, at, None) for at, row, joined in rows[:gone] if not joined]
            del rows[:gone]
        self._look_again(state, time)
        return out


def _pair(side: int, at: int, row: Any, other_at: int, other: Any) -> Pair:
    return max(at, other_at), *((row, other) if side == LEFT else (other, row))


class AsOfLogic:
    """Each left row with the last right row at or before its time, at most `longest` µs before it (None: however long).
    Right rows are versions: the last of one time counts, and one stays until a newer one takes its place."""

    def __init__(self, longest: int | None, inner: bool, lateness: int) -> None:
        self._longest, self._inner, self._lateness = longest, inner, lateness

    def take(self, side: int, row: Any, state: JoinSides, time: Time) -> list[Pair]:
        at, out = time.at_us, list[Pair]()
        if side == RIGHT:
            insort(state.sides[RIGHT], [at, row], key=AT)
        elif time.watermark_us is not None and at < time.watermark_us:
            out = self._joined(at, row, state)
        else:
            insort(state.sides[LEFT], [at, row], key=AT)
        self._forget(state, safe_mark(time, self._lateness))
        self._look_again(state, time)
        return out

    def _joined(self, at: int, row: Any, state: JoinSides) -> list[Pair]:
        versions = state.sides[RIGHT]
        last = bisect_right(versions, at, key=AT) - 1
        found = versions[last] if last >= 0 else None
        if found is not None and (self._longest is None or at - found[0] <= self._longest):
            return [(at, row, found[1])]
        return [] if self._inner else [(at, row, None)]

    def _forget(self, state: JoinSides, mark: int) -> None:
        """Versions that no row will be joined with any more."""
        waiting, versions = state.sides
        needed = min(mark, waiting[0][0]) if waiting else mark
        del versions[: max(0, bisect_right(versions, needed, key=AT) - 1)]
        if self._longest is not None and versions and versions[0][0] + self._longest < needed:
            del versions[0]

    def _look_again(self, state: JoinSides, time: Time) -> None:
        waiting, versions = state.sides
        ends = [waiting[0][0] + 1] if waiting else []
        if len(versions) > 1:
            ends.append(versions[1][0] + self._lateness)
        if versions and self._longest is not None:
            ends.append(versions[0][0] + self._longest + self._lateness + 1)
        state.wait_until(min(ends, default=None), time)

    def on_timer(self, state: JoinSides, time: Time) -> list[Pair]:
        state.timer = None
        waiting = state.sides[LEFT]
        ready = bisect_left(waiting, time.at_us, key=AT)
        out = [pair for at, row in waiting[:ready] for pair in self._joined(at, row, state)]
        del waiting[:ready]
        self._forget(state, time.at_us - self._lateness)
        self._look_again(state, time)
        return out
