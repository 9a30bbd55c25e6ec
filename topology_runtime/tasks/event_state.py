"""Rows that pass once, and states of a key that have names and an end. Import them from ``headgate.windows``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.api.timed import Time, Timed
from headgate.topology_runtime.api.user_metrics import UserMetrics
from headgate.topology_runtime.event_time.stream_joins import safe_mark
from headgate.topology_runtime.event_time.window_assigners import micros
from headgate.topology_runtime.event_time.window_panes import TOO_LATE
from headgate.topology_runtime.tasks.event_windows import lateness_of, too_late

TTL = "ttl"  # the name of the timer, and the place in the dict
Items: TypeAlias = list[Any]
Map: TypeAlias = dict[str, Any]


class DropRepeats(Timed[Any, list[int], Any, Any]):
    """Gives on the first row of a key, and none of its rows less than `within_s` of event time from that one. Let the
    key be what makes a row the same: `.by("event_id")`. It remembers a time for each key, and for so long only. Rows
    more than `late` seconds behind the watermark are dropped: what came before them may be forgotten.

    >>> DropRepeats(at="ts", within_s=600).unit
    's'
    """

    made_to_check = needs_timestamps = True

    def __init__(self, at: Any, within_s: float, unit: str = "s", late: Any = 0) -> None:
        self.at, self.unit = at, unit
        self._within = micros("within_s", within_s)
        self._lateness, self._emit = lateness_of(late)
        self._count_in(UserMetrics())

    def _count_in(self, metrics: UserMetrics) -> None:
        self._repeats, self._too_late = metrics.counter("repeats"), metrics.counter("too_late_rows")

    def open(self, context: Context) -> None:
        self._count_in(context.metrics)

    def new(self, key: Any) -> list[int]:
        return []

    def process(self, key: Any, row: Any, state: list[int], time: Time) -> tuple[list[int] | None, list[Any]]:
        at = time.at_us
        if at < safe_mark(time, self._lateness):
            self._too_late.add()
            late = {"key": key, "timing": TOO_LATE, "at_us": at, "row": row}
            return state or None, [too_late(late, self.unit)] if self._emit else []
        if state and abs(at - state[0]) < self._within:
            self._repeats.add()
            return state, []
        if state and at < state[0]:
            return state, [row]
        if state:
            time.cancel(self._forgotten(state[0]))
        time.set(self._forgotten(at))
        return [at], [row]

    def _forgotten(self, at: int) -> int:
        return at + self._within + self._lateness

    def on_timer(self, key: Any, at: int, state: list[int], time: Time) -> tuple[None, Iterable[Any]]:
        return None, ()


class NamedStates:
    """Several states of a key in one dict, the state of a `Timed` or `Keyed`: values, lists and maps by name. It works
    on a copy, and so do the lists and maps that it gives: when a call raises, nothing has changed. `state`: the dict to
    return; None if nothing is in it.

    >>> states = NamedStates({"seen": 2})
    >>> states.put("seen", states.value("seen", 0) + 1)
    >>> states.list("last").append("a")
    >>> states.map("by_page")["/"] = 7
    >>> states.state
    {'seen': 3, 'last': ['a'], 'by_page': {'/': 7}}
    """

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._all = dict(state or {})
        self._copied: set[str] = set()

    @property
    def state(self) -> dict[str, Any] | None:
        return {name: value for name, value in self._all.items() if value not in ([], {})} or None

    def value(self, name: str, default: Any = None) -> Any:
        return self._all.get(name, default)

    def put(self, name: str, value: Any) -> None:
        self._all[name] = value

    def clear(self, name: str) -> None:
        self._all.pop(name, None)

    def list(self, name: str) -> Items:
        found: Items = self._own(name, [])
        return found

    def map(self, name: str) -> Map:
        found: Map = self._own(name, {})
        return found

    def _own(self, name: str, empty: Any) -> Any:
        if name not in self._copied:
            self._all[name] = type(empty)(self._all.get(name, empty))
            self._copied.add(name)
        return self._all[name]

    # ── time to live ────────────────────────────────────────────────────────────────────────────

    def keep_for(self, seconds: float, time: Time, *, clock: bool = False) -> None:
        """In `process`: forget the key when no row has done this for so long, by event time or by the clock. Needs
        `expired` in `on_timer`. One timer for a key, however often it is put off.

        >>> time = Time(5_000_000)
        >>> states = NamedStates()
        >>> states.keep_for(60, time)
        >>> states.state
        {'ttl': [65000000, 65000000, False]}
        """
        until = (time.clock_us if clock else time.at_us) + micros("seconds", seconds)
        before = self._all.get(TTL)
        if before is None:
            (time.set_clock if clock else time.set)(until, TTL)
            self._all[TTL] = [until, until, clock]
        else:
            self._all[TTL] = [max(until, before[0]), before[1], clock]

    def expired(self, time: Time) -> bool:
        """In `on_timer`: is it over? Then return None for the state. False for other timers, and when put off."""
        kept = self._all.get(TTL)
        if time.name != TTL or kept is None:
            return False
        until, _, clock = kept
        if until <= time.at_us:
            return True
        (time.set_clock if clock else time.set)(until, TTL)
        self._all[TTL] = [until, until, clock]
        return False
