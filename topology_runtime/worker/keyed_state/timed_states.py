"""The states of a task with event time: each with the timers of its key, as one state of a keyed task. So timers are
saved, restored and moved with their key. Pure but for the user's code.

A state that the user's code gives up (None) is GONE: it leaves at once, and the next snapshot says so.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.timed import (
    EARLIEST_US,
    Change,
    Time,
    Timed,
    Timer,
    all_microseconds,
    time_of_rows,
    times_at,
)
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.event_time.window_columns import Array, RowGroups, times_in
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.batches import rows_of
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.keyed_state.kept_states import TOLD_BY_BYTES, StatesOfKind
from headgate.topology_runtime.worker.keyed_state.keyed_rows import Came, KeyedBatch, KeyedStates
from headgate.topology_runtime.worker.keyed_state.savable_states import GONE, LOOK_ONE_IN, LOOKED_FIRST
from headgate.topology_runtime.worker.keyed_state.state_snapshots import timers_read, timers_written
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.rows.row_values import key_bytes

Timers = tuple[Timer, ...] | dict[Timer, None]  # the second where they are many: changed in its place
FEW = 8  # timers of a key that are no more than this are a tuple, which takes less room
NO_ROWS: Sequence[Any] = ()
NO_PLACES: Mapping[int, str | int] = MappingProxyType({})
DEAD_LEAST = 1024  # cancelled timers that an index may have at any rate
PUT_OFF_MOST = 8  # cancelled timers of a key that may wait


# Row, state, its time and the watermark, both in µs → has the state taken the row, which sets no timer and gives none?
Adds = Callable[[Any, Any, int, int | None], bool]


def adds_rows(logic: Timed) -> bool:
    """Has its class an `adds` that does what its `process` does?"""
    found = [cls for cls in type(logic).__mro__ if vars(cls).keys() & {"process", "adds"}]
    return "adds" in vars(found[0]) and "process" not in vars(logic)


def adds_groups(logic: Timed) -> bool:
    """Has its class an `adds_group` that does for rows as columns what its `process` does?"""
    found = [cls for cls in type(logic).__mro__ if vars(cls).keys() & {"process", "adds", "adds_group"}]
    return adds_rows(logic) and "adds_group" in vars(found[0])


class Held:
    """A state, and the timers of its key. noted: are they in the index of the thread?"""

    __slots__ = ("clocks", "events", "noted", "state")

    def __init__(self, state: Any, events: Timers = (), clocks: Timers = (), noted: bool = True) -> None:
        self.state, self.events, self.clocks, self.noted = state, events, clocks, noted


class Fired(NamedTuple):
    """In place of a row: a timer that is due. failed: its call raised for good, so that it only goes."""

    at_us: int
    name: str
    clock: bool
    failed: bool = False

    @property
    def timer(self) -> Timer:
        return self.at_us, self.name


class PutOff:
    """Timers of a key that are later than one in the heap which was cancelled, and wait there until that is due; with
    the number of each."""

    __slots__ = ("behind", "timers")

    def __init__(self, behind: Timer) -> None:
        self.behind = behind
        self.timers: dict[Timer, int] = {}


class TimerIndex:
    """When which key has a timer: of one kind, and one thread. Entries are looked up again before they count, so one
    that was cancelled stays until it is due, or until most of them are such (`crowded`). Of a key whose timer is put
    off again and again it is the only one meanwhile."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, str, int, Hashable]] = []
        self._put_off: dict[Hashable, PutOff] = {}
        self.added = 0  # no two keys are compared
        self._dead = 0  # that were cancelled

    def add(self, timer: Timer, key: Hashable) -> None:
        self.added += 1
        heappush(self._heap, (*timer, self.added, key))

    def set(self, timer: Timer, key: Hashable, before: Timers, now: Timers) -> None:
        """As `add`, of a key that had these timers before a call, which may fail, and has those by now."""
        there = self._put_off.get(key) if type(key) in TOLD_BY_BYTES else None
        if there is None or timer < there.behind:
            self.add(timer, key)
            return
        self.added += 1
        there.timers.setdefault(timer, self.added)
        if len(there.timers) > len(now) + PUT_OFF_MOST:
            there.timers = {one: n for one, n in there.timers.items() if one in before or one in now}

    def cancelled(self, timer: Timer, key: Hashable) -> None:
        """One of a key that has few."""
        if type(key) not in TOLD_BY_BYTES:
            self._dead += 1
        elif (there := self._put_off.get(key)) is None:
            self._put_off[key] = PutOff(timer)
        elif timer not in there.timers:
            self._dead += 1

    def left(self, timers: int) -> None:
        """So many were cancelled."""
        self._dead += timers

    def forget(self, key: Hashable) -> None:
        """It has no timers any more."""
        if type(key) in TOLD_BY_BYTES and self._put_off.pop(key, None) is not None:
            self._dead += 1

    @property
    def crowded(self) -> bool:
        return self._dead > DEAD_LEAST and 2 * self._dead > len(self._heap)

    def clear_up(self, is_there: Callable[[Timer, Hashable], bool]) -> None:
        """Only what is there stays, each once."""
        for key, there in self._put_off.items():
            self._push(there, key)
        found = {(one[:2], named(one[3])): one for one in self._heap if is_there(one[:2], one[3])}
        self._heap, self._put_off, self._dead = list(found.values()), {}, 0
        heapify(self._heap)

    def _push(self, put_off: PutOff, key: Hashable) -> None:
        for timer, number in put_off.timers.items():
            heappush(self._heap, (*timer, number, key))

    @property
    def next_us(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def is_due(self, until_us: int) -> bool:
        """Is there a timer up to this time, or a reason to clear up?"""
        return bool(self._heap) and (self._heap[0][0] <= until_us or self.crowded)

    def due(self, until_us: int) -> tuple[Timer, Hashable] | None:
        """The next timer up to this time, which is let go."""
        if not self._heap or self._heap[0][0] > until_us:
            return None
        at_us, name, _, key = heappop(self._heap)
        timer = at_us, name
        if self._put_off and type(key) in TOLD_BY_BYTES:
            there = self._put_off.get(key)
            if there is not None and there.behind == timer:
                del self._put_off[key]
                self._push(there, key)
        return timer, key


def named(key: Hashable) -> Hashable:
    """Two equal keys of several types are not equal here."""
    return key if type(key) in TOLD_BY_BYTES else (key_bytes(key),)


class TimedLogic(Keyed):
    """A `Timed` as a `Keyed` whose states are `Held`. watermark_us: of its thread. late: rows from before it."""

    def __init__(
        self,
        logic: Timed,
        key_of: Callable[[Any], Callable[[Any], Any]],
        clock_ns: Callable[[], int],
        feeders: Mapping[int, str],
        key_places: Mapping[int, str | int] = NO_PLACES,
    ) -> None:
        """feeders: in-edge → the task at its other end. key_places: of an in-edge whose rows have their key at a name
        or position."""
        self.time_of = self._time_of = time_of_rows(logic, key_of)
        self._times_at = times_at(logic.at, logic.unit, key_of)
        self.key_places = key_places if adds_groups(logic) else {}
        self.logic, self._clock_ns, self._feeders = logic, clock_ns, feeders
        self.adds: Adds | None = logic.adds if adds_rows(logic) else None  # type: ignore[attr-defined]
        self.source = ""
        self.watermark_us: int | None = None
        self.late = 0
        self._in_place: list[
            tuple[dict[Timer, None], Timer, bool]
        ] = []  # what the last call set (or took away)
        self.forget()

    def forget(self) -> None:
        """No state is here, so no timer is. What is known of time stays."""
        self.events, self.clocks = TimerIndex(), TimerIndex()
        self.gone: list[Hashable] = []  # keys that were forgotten since this was looked at

    def times_in(self, columns: Columns) -> Array | None:
        """The event times of these rows; None: each row is to be looked at."""
        at = self.logic.at
        if self.time_of is not self._time_of or not isinstance(at, str | int):
            return None
        column = columns.array_at(at)
        return None if column is None else times_in(column, self.logic.unit)

    def times_of(self, rows: Iterable[Any]) -> list[int] | None:
        """As `times_in`, of rows as they come."""
        if type(rows) is Columns:
            return None if (found := self.times_in(rows)) is None else found.tolist()
        found = self._times_at(rows) if self.time_of is self._time_of else None
        return None if found is None else all_microseconds(found, self.logic.unit)

    def set_timers(self, key: Hashable, held: Held, changes: Iterable[Change]) -> None:
        """A state that was changed in its place set these."""
        self._in_place.clear()
        if not held.noted:
            self.note(key, held)
        held.events, held.clocks = self._changed(key, held, held.events, held.clocks, changes)

    def from_edge(self, edge: int) -> None:
        """The rows that follow came by it."""
        self.source = self._feeders.get(edge, "")

    def new(self, key: Hashable) -> Held:
        return Held(self.logic.new(key))

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, list[Any]]:
        held: Held = self.new(key) if state is GONE else state
        self._in_place.clear()
        if type(row) is not Fired:
            time = self.time()
            time.at_us, time.there = self.time_of(row), held.events
            new, out = self.logic.process(key, row, held.state, time)
            rows = rows_of(out)
            if time.watermark_us is not None and time.at_us < time.watermark_us:
                self.late += 1
            if new is held.state and new is not None and time.changes is None and held.noted:
                return held, rows
            return self._after(key, held, new, time.changes or (), None), rows
        return self.fired(key, held, row)

    def time(self) -> Time:
        """For calls about rows."""
        return Time(0, self.watermark_us, "", self._clock_ns, self.source)

    def after(self, key: Hashable, held: Held, new: Any, changes: Iterable[Change]) -> Any:
        """What is to be kept of a key whose state was noted."""
        self._in_place.clear()
        return self._after(key, held, new, changes, None)

    def fired(self, key: Hashable, held: Held, fired: Fired) -> tuple[Any, list[Any]]:
        """As `process`, of a timer of a state that is there."""
        self._in_place.clear()
        if fired.failed:
            return self._after(key, held, held.state, (), fired), []
        time = Time(fired.at_us, self.watermark_us, fired.name, self._clock_ns)
        new, out = self.logic.on_timer(key, fired.at_us, held.state, time)
        rows = rows_of(out)
        return self._after(key, held, new, time.changes or (), fired), rows

    def _after(
        self, key: Hashable, held: Held, new: Any, changes: Iterable[Change], fired: Fired | None
    ) -> Any:
        if new is None:
            self.gone.append(key)
            by_clock = fired is not None and fired.clock
            by_event = fired is not None and not fired.clock  # the one that fired is in no index any more
            self.events.left(len(held.events) - by_event)
            self.clocks.left(len(held.clocks) - by_clock)
            return GONE
        events, clocks = held.events, held.clocks
        if not held.noted:
            self.note(key, held)
        if fired is not None and fired.clock:
            clocks = self._without(clocks, fired.timer)
        elif fired is not None:
            events = self._without(events, fired.timer)
        events, clocks = self._changed(key, held, events, clocks, changes)
        if new is not held.state:
            return Held(new, events, clocks)
        held.events, held.clocks = events, clocks
        return held

    def _changed(
        self, key: Hashable, held: Held, events: Timers, clocks: Timers, changes: Iterable[Change]
    ) -> tuple[Timers, Timers]:
        """What these are after these changes of a call."""
        for clock, is_set, timer in changes:
            timers = clocks if clock else events
            if (timer in timers) is is_set:
                continue
            index, before = (self.clocks, held.clocks) if clock else (self.events, held.events)
            few = type(before) is tuple  # if not, it is changed in its place
            if is_set:
                timers = self._with(timers, timer)
                index.set(timer, key, before, timers) if few else index.add(timer, key)
            else:
                timers = self._without(timers, timer)
                index.cancelled(timer, key) if few else index.left(1)
            clocks, events = (timers, events) if clock else (clocks, timers)
        return events, clocks

    def _with(self, timers: Timers, timer: Timer) -> Timers:
        if type(timers) is tuple:
            if len(timers) < FEW:
                return (*timers, timer)
            timers = dict.fromkeys(timers)
        assert type(timers) is dict
        timers[timer] = None
        self._in_place.append((timers, timer, True))
        return timers

    def _without(self, timers: Timers, timer: Timer) -> Timers:
        if type(timers) is tuple:
            return tuple([one for one in timers if one != timer])
        assert type(timers) is dict
        if timer in timers:
            del timers[timer]
            self._in_place.append((timers, timer, False))
        return timers if len(timers) > FEW else tuple(timers)

    def undo(self) -> None:
        """The call that was the last failed after all: the timers of its key are as before."""
        for timers, timer, was_set in reversed(self._in_place):
            if was_set:
                del timers[timer]
            else:
                timers[timer] = None
        self._in_place.clear()

    def looked_at(self, state: Any) -> Any:
        """What is new of a state: of many timers those that the last call set."""
        if type(state) is not Held or (type(state.events) is tuple and type(state.clocks) is tuple):
            return state
        return Held(state.state, tuple(timer for _, timer, was_set in self._in_place if was_set))

    def note(self, key: Hashable, held: Held) -> None:
        """Its timers are in the index from now on."""
        for timer in held.events:
            self.events.add(timer, key)
        for timer in held.clocks:
            self.clocks.add(timer, key)
        held.noted = True

    def finish(self, key: Hashable, state: Held) -> Iterable[Any]:
        return self.logic.finish(key, state.state)

    def snapshot(self, state: Any) -> Any:
        if state is GONE:
            return None
        return [self.logic.snapshot(state.state), _saved(state.events), _saved(state.clocks)]

    def restore(self, saved: Any) -> Any:
        if saved is None:
            return GONE
        state, events, clocks = saved
        return Held(self.logic.restore(state), _timers(events), _timers(clocks), noted=False)


def _saved(timers: Timers) -> bytes:
    """Written at once: a snapshot has all timers of a key one of which has changed."""
    try:
        return timers_written(timers)
    except (TypeError, UnicodeEncodeError) as error:
        raise BadRow("a row has set a timer whose name cannot be written", cause=str(error)) from error


def _timers(saved: bytes) -> Timers:
    found = timers_read(saved)
    return tuple(found) if len(found) <= FEW else dict.fromkeys(found)


class TimedStates(KeyedStates):
    """States with timers."""

    _logic: TimedLogic

    def process(self, some: KeyedBatch, code: UserCode) -> tuple[Came, KeyedBatch]:
        self._logic.from_edge(some.edge)
        came = super().process(some, code)
        self._let_go()
        return came

    def key_place(self, edge: int) -> str | int | None:
        return self._logic.key_places.get(edge)

    def _each(self, some: KeyedBatch, code: UserCode) -> tuple[list[Any], list[attempts.Failure]]:
        """Rows that come as columns by the group, where a group does no more than change the state that is there."""
        left = None if code.watch.careful else self._left_by_groups(some)
        if left is None:
            return self._row_by_row(some, code)
        code.watch.over(many := len(some.ranges) - len(left))
        if not left:
            return [[]] * many, []
        found = set(left)
        outs, failures = self._row_by_row(some.where(found.__contains__), code)
        failed = {left[failure.place] for failure in failures}
        rest = iter(outs)
        rows = (row for row in range(len(some.ranges)) if row not in failed)
        every = [next(rest) if row in found else [] for row in rows]
        return every, [replace(failure, place=left[failure.place]) for failure in failures]

    def _left_by_groups(self, some: KeyedBatch) -> list[int] | None:
        """Rows that are to be taken one by one, when the states have taken all others; None: they have taken none."""
        columns, logic, kind = some.batch.rows, self._logic, self._known.kind(some.keys)
        if type(columns) is not Columns or self.careful or kind is None:
            return None
        user: Any = logic.logic
        times = logic.times_in(columns)
        if times is None or (found := user.groups(some.keys, times, columns.array_at)) is None:
            return None
        groups: RowGroups = found[0]
        folds: Sequence[Any] = found[1]
        states, watermark_us, left = self._by_kind[kind], logic.watermark_us, list[int]()
        late = groups.sums(times < watermark_us) if watermark_us is not None else [0] * len(folds)
        time, adds, keys = Time(0, watermark_us), user.adds_group, groups.keys
        helds = [states.all.get(key, GONE) for key in keys]
        for group in groups.as_they_came:
            number = groups.key_numbers[group]
            key, held = keys[number], helds[number]
            state = held if held is not GONE else logic.new(key)
            time.changes = None
            start, rows = groups.starts[group], groups.sizes[group]
            if type(state) is not Held or not adds(state.state, start, rows, folds[group], time):
                left.append(group)
                continue
            if held is GONE:
                states.all[key] = helds[number] = state
            if time.changes is not None or not state.noted:
                logic.set_timers(key, state, time.changes or ())
            logic.late += late[group]
            self._changed_in_place(states, key, key, state)
        return groups.places(left)

    def _changed_in_place(self, states: StatesOfKind, at: Any, key: Hashable, held: Held) -> None:
        """A state that is there still; not every one is looked at."""
        if self._looked < LOOKED_FIRST or not (self._looked + 1) % LOOK_ONE_IN:
            self._look_again(key, held)
        else:
            self._looked += 1
        states.new[at] = None
        self._by_range = None

    def _row_by_row(self, some: KeyedBatch, code: UserCode) -> tuple[list[Any], list[attempts.Failure]]:
        kind = self._known.kind(some.keys)
        several = kind is None and not self._by_kind.keys().isdisjoint(map(type, some.keys))
        if self.careful or code.watch.careful or several:
            return super()._each(some, code)
        times: Sequence[int | None] = self._logic.times_of(some.batch.rows) or [None] * len(some.ranges)
        return code.each_of(partial(self._at_once, some, kind, times), len(some.ranges))

    def _at_once(
        self, some: KeyedBatch, kind: type | None, times: Sequence[int | None], first: int
    ) -> Iterator[Sequence[Any]]:
        """What comes of these rows from the first one on, whose keys are of this kind. As `_one`; at once, where a row
        does no more than change a state that is there, or give it another value."""
        logic, states, adds = self._logic, self._by_kind[kind], self._logic.adds
        find, new_ones, process = states.all.get, states.new, logic.logic.process
        time, watermark_us = logic.time(), logic.watermark_us
        mark_us = EARLIEST_US if watermark_us is None else watermark_us
        rows = zip(some.keys, some.ranges, some.batch.rows, times, strict=True)
        for key, key_range, row, at_us in islice(rows, first, None) if first else rows:
            at = key if kind is not None else (key_range, key)
            held = find(at)
            if type(held) is not Held or not held.noted:
                yield self._one((key, key_range, row))
                continue
            time.changes, came = None, NO_ROWS
            time.at_us = at_us = logic.time_of(row) if at_us is None else at_us
            new = state = held.state
            if adds is None or not adds(row, state, at_us, watermark_us):
                time.there = held.events
                new, out = process(key, row, state, time)
                if out is not NO_ROWS:
                    came = rows_of(out)
            if at_us < mark_us:
                logic.late += 1
            looked = self._looked + 1
            if new is None or looked <= LOOKED_FIRST or not looked % LOOK_ONE_IN:
                after = logic.after(key, held, new, time.changes or ())
                self._keep(states, at, key, after, after is held)
            else:
                self._looked, held.state = looked, new
                if time.changes is not None:
                    logic.set_timers(key, held, time.changes)
            new_ones[at] = None
            yield came

    def _look(self, key: Hashable, state: Any) -> None:
        """As at every state; one that cannot be saved has its timers as before."""
        try:
            super()._look(key, self._logic.looked_at(state))
        except BaseException:
            self._logic.undo()
            raise

    def _look_again(self, key: Hashable, held: Held) -> None:
        """At one that was changed in its place: what it was is not known."""
        try:
            super()._look(key, self._logic.looked_at(held))
        except BaseException as error:
            raise attempts.StartAgain(attempts.failure(0, error).error) from error

    def fire(self, key: Hashable, key_range: int, fired: Fired) -> list[Any]:
        """What comes of a timer that is due."""
        if self._good and not self.careful:
            self._good.clear()  # as in `process`: a snapshot would have what was before
        placed, (states, at) = self._by_range, self._at(key, key_range)
        held = states.all[at]
        if self.careful or type(held) is not Held:
            rows = self._one((key, key_range, fired))
        else:
            state, rows = self._logic.fired(key, held, fired)
            if state is held:
                self._changed_in_place(states, at, key, held)
            else:
                self._look(key, state)
                states.all[at] = state
                states.new[at] = None
        if placed is not None:  # while ranges move it is asked for again and again
            placed[key_range][key] = states.all[at]
            self._by_range = placed
        if self._logic.gone:
            self._let_go()
        return rows

    def has(self, key: Hashable, key_range: int, fired: Fired) -> bool:
        """Is there such a timer?"""
        self.keep_bound()
        self.bring((key,), (key_range,))
        states, at = self._at(key, key_range)
        held = states.all.get(at)
        if type(held) is not Held:
            return False
        return fired.timer in (held.clocks if fired.clock else held.events)

    def open_keys(self, ended: bool) -> int:
        """Keys with timers; where the end of the input gives something, all keys. ended: it has, so it is those whose
        timers by event time have not fired yet."""
        held = [one for one in self.everywhere() if type(one) is Held]
        if ended:
            return sum(bool(one.events) for one in held)
        if type(self._logic.logic).finish is not Timed.finish:
            return len(held)
        return sum(bool(one.events or one.clocks) for one in held)

    def _brought(self, key_range: int, key: Hashable, saved: Any) -> Any:
        """Its timers are in the index still."""
        state = super()._brought(key_range, key, saved)
        if type(state) is Held:
            state.noted = True
        return state

    def note(self, key_range: int) -> None:
        """A range is here anew: its timers are in the index from now on."""
        for key, held in self.of(key_range).items():
            if type(held) is Held and not held.noted:
                self._logic.note(key, held)

    def _let_go(self) -> None:
        if not self._logic.gone:
            return
        for key in self._logic.gone:
            states, at = self._at(key, key_range := self._known.one(key))
            if states.all.get(at) is not GONE:
                continue
            del states.all[at]
            self._logic.events.forget(key)
            self._logic.clocks.forget(key)
            if self._by_range is not None:
                del self._by_range[key_range][key]
                if not self._by_range[key_range]:
                    del self._by_range[key_range]
        self._logic.gone = []
