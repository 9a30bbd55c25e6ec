"""State per key with event time and timers. Import it from ``headgate``. Pure.

*Event time* is when something happened, as its row says. A task hears of it by its *watermark*: no more rows from
before it are expected, for the rows that came before are done (docs/explanation/protocol.md, Event time). Within the
runtime it is a whole number of microseconds since 1970 (UTC).
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import Any, Generic

from headgate.topology_runtime.api.logic import In as In
from headgate.topology_runtime.api.logic import Key, Out, Row, State
from headgate.topology_runtime.errors import InvalidInput

US = 1_000_000  # in a second
END_US = 1 << 62  # the watermark once all input has ended
IDLE_US = END_US + 1  # in place of the watermark of input that is not waited for
EARLIEST_US, LATEST_US = -(1 << 60), 1 << 60  # event times between them are taken, ± 36,000 years
SECONDS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}  # the units of event times
UNIT_WORDS = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds"}
YEAR_2000_S, YEAR_2100_S = 946_684_800, 4_102_444_800  # a time between them is what most people mean
YEAR_S = 31_556_952
TO_US = {"s": (US, 1), "ms": (1_000, 1), "us": (1, 1), "ns": (1, 1_000)}
_ISO_TEXT, _ISO_LIKE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:"), "2026-11-29T20:15:00Z"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)

Timer = tuple[int, str]  # µs since 1970, name
Change = tuple[bool, bool, Timer]  # by the clock?, is it set (or cancelled)?


class Time:
    """What time it is for a call of a `Timed`, and the timers of its key. It is good during that call only.

    at_us: the event time of the row, or of the timer that fired, in µs since 1970 (UTC); `at`: the same in seconds.
    watermark_us: no rows from before it are expected any more; None: nothing is known yet. late: is the row from before
    the watermark? name: of the timer that fired. clock_us: the VM's clock now, µs since 1970 (UTC); in a test it goes
    on by `testing.wait` alone. source: the task that the row came from; "" for a timer.

    >>> time = Time(7_000_000, 9_000_000)
    >>> time.at, time.watermark, time.late
    (7.0, 9.0, True)
    """

    __slots__ = ("_clock_ns", "at_us", "changes", "name", "source", "there", "watermark_us")

    def __init__(
        self,
        at_us: int,
        watermark_us: int | None = None,
        name: str = "",
        clock_ns: Callable[[], int] = lambda: 0,
        source: str = "",
    ) -> None:
        self.at_us, self.watermark_us, self.name, self._clock_ns = at_us, watermark_us, name, clock_ns
        self.source = source
        self.changes: list[Change] | None = None  # of timers, in their order
        self.there: Container[Timer] = ()  # by event time, before these

    @property
    def at(self) -> float:
        return self.at_us / US

    @property
    def watermark(self) -> float | None:
        return None if self.watermark_us is None else self.watermark_us / US

    @property
    def clock_us(self) -> int:
        return self._clock_ns() // 1000

    @property
    def late(self) -> bool:
        return self.watermark_us is not None and self.at_us < self.watermark_us

    def set(self, at_us: int, name: str = "") -> None:
        """`on_timer` is called for this key once the watermark is at `at_us` (µs since 1970, UTC) or later. The same
        time and name again is the same timer. TypeError: of something else than a whole number and a text."""
        if self.changes is not None or (at_us, name) not in self.there or type(at_us) is not int:
            self._change(False, True, at_us, name)

    def cancel(self, at_us: int, name: str = "") -> None:
        """As if this timer had never been set; none need be there."""
        self._change(False, False, at_us, name)

    def set_clock(self, at_us: int, name: str = "") -> None:
        """As `set`, by the clock of the VM that runs the task."""
        self._change(True, True, at_us, name)

    def cancel_clock(self, at_us: int, name: str = "") -> None:
        """As `cancel`, of a timer by the clock."""
        self._change(True, False, at_us, name)

    def _change(self, clock: bool, is_set: bool, at_us: int, name: str) -> None:
        if type(at_us) is not int or not isinstance(name, str):
            raise TypeError(f"a timer takes a whole number of µs and a name, and got {at_us!r}, {name!r}")
        if not EARLIEST_US <= at_us <= LATEST_US:
            raise ValueError(f"no timer can be set to {at_us!r} µs")
        if self.changes is None:
            self.changes = []
        self.changes.append((clock, is_set, (at_us, name)))


class Timed(ABC, Generic[Key, State, In, Out]):
    """State per key with event time and timers, of a task reached by `.by(key)` edges. States and timers are the
    runtime's: it moves them with their key and saves them. A state None forgets the key, and its timers.

    at: how to get the event time of a row: a field's name, a position or a function of the row, which gives a number in
    `unit` ("s", "ms", "us", "ns") since 1970, a datetime, or its text (ISO 8601; UTC where it has no zone); may be set
    in `__init__`. A row whose time cannot be got is a dead letter.

    What timers give goes on once a snapshot with the change that they made is on disk, so each counts once.

    >>> class Quiet(Timed[str, int, dict[str, float], str]):
    ...     at = "time"
    ...     def new(self, key: str) -> int:
    ...         return 0
    ...     def process(self, key: str, row: dict[str, float], state: int, time: Time) -> tuple[int, Iterable[str]]:
    ...         time.cancel(state)
    ...         time.set(time.at_us + 60_000_000)
    ...         return time.at_us + 60_000_000, []
    ...     def on_timer(self, key: str, at: int, state: int, time: Time) -> tuple[None, Iterable[str]]:
    ...         return None, [f"{key} was quiet for a minute"]
    >>> Quiet().on_timer("a", 60_000_000, 60_000_000, Time(60_000_000, 60_000_000))
    (None, ['a was quiet for a minute'])

    state_version: as of `Keyed`.
    """

    __headgate_kind__ = "keyed"
    state_version = 1
    at: Any = None
    unit: str = "s"

    @abstractmethod
    def new(self, key: Key) -> State:
        """The state of a key not seen before."""

    @abstractmethod
    def process(self, key: Key, row: In, state: State, time: Time) -> tuple[State | None, Iterable[Out]]:
        """(new state, output rows) for one row."""

    def on_timer(self, key: Key, at: int, state: State, time: Time) -> tuple[State | None, Iterable[Out]]:
        """(new state, output rows) for a timer that is due; `at`: as it was set, µs. Timers fire in the order of their
        times, those of one time by their names. One whose call raises three times is gone, and a dead letter."""
        return state, ()

    def finish(self, key: Key, state: State) -> Iterable[Out]:
        """The last rows of a key, once for each: the input has ended, and all its timers have fired."""
        return ()

    def migrate(self, old: Row, version: int) -> Row:
        """As of `Keyed`: the state alone, its timers stay. None forgets the key."""
        raise NotImplementedError

    def snapshot(self, state: State) -> Row:
        """The state as a plain value."""
        return state

    def restore(self, saved: Row) -> State:
        """The state again, from what `snapshot` gave."""
        restored: State = saved
        return restored


def is_timed(run: Any) -> bool:
    """Is it a `Timed`, class or object?"""
    return isinstance(run, Timed) or (isinstance(run, type) and issubclass(run, Timed))


def microseconds(value: Any, unit: str = "s") -> int:
    """An event time (a number in `unit`, a datetime, or the text of one as of ISO 8601) in µs since 1970. TypeError,
    ValueError: it is none.

    >>> microseconds(1.5), microseconds(1500, "ms"), microseconds(datetime(1970, 1, 1, 0, 0, 2))
    (1500000, 1500000, 2000000)
    >>> microseconds("1970-01-01T01:00:03+01:00"), microseconds("1970-01-01 00:00:03")
    (3000000, 3000000)
    """
    kind, (times, parts) = type(value), TO_US[unit]
    found: int
    if kind is int:
        found = value * times if parts == 1 else value // parts
    elif kind is float:
        found = round(value * times / parts)
    elif isinstance(value, datetime):
        found = ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH) // _US
    elif isinstance(value, str):
        if not _ISO_TEXT.match(value):
            raise ValueError(f"{value[:80]!r} is no event time: a text is to be one like {_ISO_LIKE}")
        return microseconds(datetime.fromisoformat(value), unit)
    elif isinstance(value, bool) or not (hasattr(value, "__index__") or hasattr(value, "__float__")):
        raise TypeError(f"an event time is a number, a datetime or its text, and not {kind.__name__}")
    else:  # a number of numpy
        return microseconds(int(value) if hasattr(value, "__index__") else float(value), unit)
    if not EARLIEST_US <= found <= LATEST_US:
        likely = likely_unit(value, unit)
        looks = f'; it looks like {UNIT_WORDS[likely]}: try unit="{likely}"' if likely else ""
        raise ValueError(f'{value!r} is no event time in unit "{unit}"{looks}')
    return found


def likely_unit(value: float, unit: str) -> str:
    """The unit in which this number is a time from 2000 to 2100, where it is none in `unit`; "": there is none.

    >>> likely_unit(1_790_000_000, "ms"), likely_unit(1_790_000_000, "s"), likely_unit(7, "ms")
    ('s', '', '')
    """
    fits = [one for one, size_s in SECONDS.items() if YEAR_2000_S <= value * size_s < YEAR_2100_S]
    return "" if unit in fits else next(iter(fits), "")


def wrong_unit(value: float, unit: str) -> str:
    """In words, that times such as this one are in another unit than `unit`, most likely; "": they are not.

    >>> wrong_unit(1_790_000_000, "ms")
    'its times look like seconds, and the unit is "ms": 1,790,000,000 is taken for the year 1970; try unit="s"'
    """
    likely = likely_unit(value, unit)
    if not likely:
        return ""
    year = f"the year {1970 + math.floor(value * SECONDS[unit] / YEAR_S)}"
    return (
        f'its times look like {UNIT_WORDS[likely]}, and the unit is "{unit}": {value:,.0f} is taken for {year}; '
        f'try unit="{likely}"'
    )


def row_time(
    at: Any, unit: str = "s", key_function: Callable[[Any], Any] = itemgetter
) -> Callable[[Any], int]:
    """Row → event time in µs. at: a function, or what `key_function` makes one of (a field, a position).

    >>> row_time("t", "ms")({"t": 12})
    12000
    """
    if unit not in SECONDS:
        raise ValueError(f"unit {unit!r}: must be one of {', '.join(SECONDS)}")
    get = at if callable(at) else key_function(at)
    times, parts = TO_US[unit]
    least, most = (EARLIEST_US // times, LATEST_US // times) if parts == 1 else (1, 0)  # taken as they are

    def time_of(row: Any) -> int:
        value = get(row)
        if type(value) is int and least <= value <= most:
            return value * times
        if type(value) is float and not math.isfinite(value):
            raise ValueError(f"{value!r} is no event time")
        return microseconds(value, unit)

    return time_of


def times_at(
    at: Any, unit: str = "s", key_function: Callable[[Any], Any] = itemgetter
) -> Callable[[Iterable[Any]], list[Any] | None]:
    """Rows → the event times that they have at a place, as they are, where all are sound and numbers of one kind. None:
    it is to be asked of each row (`row_time`).

    >>> times_at("t", "ms")([{"t": 12}, {"t": 7}]), times_at("t", "ms")([{"t": 12}, {}])
    ([12, 7], None)
    """
    get = at if callable(at) else key_function(at)
    times, parts = TO_US[unit]
    most = LATEST_US // times * parts

    def found_in(rows: Iterable[Any]) -> list[Any] | None:
        if type(get) is not itemgetter:
            return None
        try:
            found = list(map(get, rows))
        except Exception:  # of one row: which, and why, shows where each is asked
            return None
        kinds = set(map(type, found))
        if kinds != {int} and (kinds != {float} or not math.isfinite(sum(found))):
            return None
        return found if -most < min(found) <= max(found) < most else None

    return found_in


def all_microseconds(found: list[Any], unit: str) -> list[int]:
    """`microseconds` of each of these numbers, which are all sound and of one kind.

    >>> all_microseconds([1.5, 2.0], "s"), all_microseconds([1500, 2001], "ns")
    ([1500000, 2000000], [1, 2])
    """
    times, parts = TO_US[unit]
    if type(found[0]) is float:
        return [round(value * times / parts) for value in found]
    return [value * times // parts for value in found] if times != parts else found


def time_of_rows(
    logic: Timed[Any, Any, Any, Any], key_function: Callable[[Any], Callable[[Any], Any]]
) -> Callable[[Any], int]:
    """As `row_time`, of what a task says. InvalidInput: it does not say it, or wrongly."""
    name = type(logic).__name__
    if logic.at is None:
        raise InvalidInput(
            f"{name} does not say how to get the event time of a row",
            hint='set `at`: a field\'s name, a position or a function, as in at = "time"',
        )
    try:
        return row_time(logic.at, logic.unit, key_function)
    except ValueError as error:
        raise InvalidInput(f"{name}: {error}") from error
