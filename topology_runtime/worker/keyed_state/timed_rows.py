"""Keyed state with timers: when they fire, and what they give until it is done. Pure but for the user's code.

Rules (protocol: Event time):
 1. A timer fires once, in the thread that owns its range: its call changes the state of its key, and what it gives is
    put behind what the range has *pending*, under the next numbers of that range. Both are in the same snapshot.
 2. Nothing of it is sent before that snapshot is on disk. So whoever takes the range up again, here or elsewhere, sends
    the same rows under the same names.
 3. An entry that is pending goes when all that came of its rows is done. Until then the range's watermark, as tasks
    below are told it, stays below the time of its timer.
 4. The watermark goes along with a range: what was true where it was is true where it comes to.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.logic import To
from headgate.topology_runtime.api.timed import IDLE_US, Timer
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.dead_letter_messages import timed_partition
from headgate.topology_runtime.wire.messages import RootKey, RootPart
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.dead_lettering import dead_letter_of_timer
from headgate.topology_runtime.worker.calls.output_buffers import bare
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedWhole
from headgate.topology_runtime.worker.keyed_state.timed_states import (
    Fired,
    Held,
    TimedLogic,
    TimedStates,
    TimerIndex,
)
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import AckSums, Addressed, BufferedRow
from headgate.topology_runtime.worker.rows.row_runs import Batch

ENTRY_ROWS = 256  # what timers gave between two snapshots is pending together, up to so many rows
VERSION_SHIFT = 32  # a range whose state was lost begins its numbers anew, above all that it ever gave
AwayTimer = tuple[bool, Timer, Hashable]  # by the clock?
PackedEntry = tuple[int, int, int, bytes, list[tuple[int, int]]]  # first, time, shape, rows, threads of some
Packed = tuple[int, int | None, list[PackedEntry]]  # next number, watermark, entries

NOT_NAMED = BufferedRow(None, -1, RootPart(RootKey(0, 0, 0, 0), Slot("", 0), 0, 0, 0, 0, 0, 0), 0, 0, 0)

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed).decode


@dataclass(slots=True, eq=False)
class PendingRows:
    """What timers gave: rows number `first` on of a range. at_us: the earliest time of these. packed: as a snapshot has
    it; from then on nothing more is put into it. sequence: of its root, −1: not sent."""

    key_range: int
    first: int
    at_us: int
    rows: list[Any]
    packed: PackedEntry | None = None
    sequence: int = -1

    def takes(self, number: int) -> bool:
        """Is the row of this number its next one?"""
        there = len(self.rows)
        return self.packed is None and there < ENTRY_ROWS and self.first + there == number


@dataclass(slots=True)
class Given:
    """What the timers of a range gave. next: the number of its next row. pending: what is not done."""

    next: int = 0
    pending: list[PendingRows] = field(default_factory=list)


NONE_GIVEN = Given()  # by timers of a range, ever


class FiredCall(NamedTuple):
    """What came of a timer."""

    key: Hashable
    key_range: int
    fired: Fired
    out: list[Any]
    failed: attempts.Failure | None


class TimedRows(KeyedRows):
    """`fire` is told the watermark and the time by the clock."""

    states: TimedStates

    def __init__(
        self,
        code: UserCode,
        random64: Callable[[], int],
        key_of: Callable[[int], Callable[[Any], Hashable]],
        home: tuple[Slot, int],
        exactly_once: bool = False,
    ) -> None:
        """home: where acks of what timers gave go, slot and incarnation."""
        self.logic: TimedLogic = code.logic
        self.logic.forget()
        self.home = home
        super().__init__(code, random64, key_of, exactly_once)
        self.given: dict[int, Given] = {}
        self._fresh: list[PendingRows] = []  # in no snapshot
        self._covered: list[PendingRows] = []  # in one that is not known to be durable
        self.kept: dict[int, int] = {}  # range → the number below which nothing is sent again
        self._kept_then: dict[int, int] = {}  # once the snapshot under way is durable
        self.unsent: deque[PendingRows] = deque()  # durable, and not sent yet
        self.left: list[PendingRows] = []  # another's by now, or there anew
        self.may_finish = False  # have all timers fired, and is what they gave no more on its way?
        self._changed: set[int] = set()  # ranges whose `given` is not in the last snapshot
        self._away: dict[int, list[AwayTimer]] = {}  # of ranges that are here and not owned
        self.pending_rows = 0  # that timers gave and that are not done
        self._fired = 0  # timers, since the last snapshot
        self._came: list[FiredCall] = []  # that are not placed yet
        self._number = code.results.around.number

    def _made_states(self, logic: Any) -> TimedStates:
        return TimedStates(logic, self._known)

    @property
    def holding(self) -> int:
        return super().holding + self.pending_rows

    # ── timers ──────────────────────────────────────────────────────────────────────────────────

    @property
    def dirty_timers(self) -> bool:
        """Has one fired since the last snapshot?"""
        return bool(self._fired)

    def is_due(self, clock_us: int) -> bool:
        """Is there a timer that is, or a reason to clear up?"""
        self._take_back()
        return any([index.is_due(until_us) for _, index, until_us in self._indexes(clock_us)])

    def fire(self, clock_us: int, most: int, is_over: Callable[[], bool] = lambda: False) -> bool:
        """Timers that are due, `most` at once and none after the first that is over; True when there may be more.
        clock_us: the VM's clock, UTC."""
        self._take_back()
        left = most
        for clock, index, until_us in self._indexes(clock_us):
            if index.crowded:
                index.clear_up(partial(self._is_there, clock))
            while left and (found := index.due(until_us)) is not None:
                self._fire(found[1], Fired(*found[0], clock))
                left = 0 if is_over() else left - 1
        self._place()
        return not left

    def _indexes(self, clock_us: int) -> Iterator[tuple[bool, TimerIndex, int]]:
        if (watermark_us := self.logic.watermark_us) is not None:
            yield False, self.logic.events, watermark_us
        if not self.may_finish:  # what `finish` has given no timer is to give again
            yield True, self.logic.clocks, clock_us

    def _is_there(self, clock: bool, timer: tuple[int, str], key: Hashable) -> bool:
        return self.states.has(key, self._known.one(key), Fired(*timer, clock))

    @property
    def unfired_us(self) -> int | None:
        """The time of the earliest timer that the watermark has passed and that has not fired; None: there is none."""
        self._take_back()
        next_us, watermark_us = self.logic.events.next_us, self.logic.watermark_us
        if next_us is None or watermark_us is None:
            return None
        return next_us if next_us <= watermark_us else None

    def _take_back(self, ranges: Set[int] | None = None) -> None:
        """Timers of ranges that were not owned, and are again."""
        if not self._away:
            return
        for key_range in self._away.keys() & (self.ranges.owned if ranges is None else ranges):
            for clock, timer, key in self._away.pop(key_range):
                (self.logic.clocks if clock else self.logic.events).add(timer, key)

    def _fire(self, key: Hashable, fired: Fired) -> None:
        key_range = self._known.one(key)
        if not self.states.has(key, key_range, fired):
            return
        if key_range not in self.ranges.owned:
            self._away.setdefault(key_range, []).append((fired.clock, fired.timer, key))
            return
        if (given := self.given.get(key_range)) is None:
            given = self.given[key_range] = self._none_given(key_range)
        name = NOT_NAMED
        if not self.code.watch.quick:  # its name is the number of the row that it may give
            self._place()
            name = BufferedRow(None, -1, self.root(key_range, given.next), offset=0, variant=0, share=0)
        out, failed = self.code.one(partial(self.states.fire, key, key_range, fired), name)
        if failed is not None:
            self.states.fire(key, key_range, Fired(*fired.timer, fired.clock, failed=True))
        if failed is not None or out:
            self._came.append(FiredCall(key, key_range, fired, out or [], failed))
        self._changed.add(key_range)
        self._fired += 1
        self.dirty = True

    def _none_given(self, key_range: int) -> Given:
        """Of a range here of which no timer has given anything."""
        return Given(self.ranges.versions[key_range] << VERSION_SHIFT)

    def _place(self) -> None:
        """Rows of timers behind what is pending, and dead letters of those that failed; both use up numbers."""
        if not self._came:
            return
        came, self._came = self._came, []
        sink = self.results.around.sink
        sound = sink or self._sound([row for one in came for row in one.out])
        for one in came:
            given = self.given[one.key_range]
            if one.failed is None:
                if not sink:
                    self._put(given, one, sound)
                continue
            root = self.root(one.key_range, given.next)
            letter = dead_letter_of_timer(self.results.around, root, one.key, one.fired.at_us, one.failed)
            self.results.letters.append(letter)
            given.next += 1

    def _sound(self, rows: list[Any]) -> bool:
        """Can all of these travel?"""
        try:
            wire.check(bare(rows) if self.results.outputs.addressed else rows)
        except BadRow:
            return False
        return True

    def _put(self, given: Given, one: FiredCall, sound: bool) -> None:
        """Those of its rows that cannot travel are dead letters."""
        good = one.out
        if not sound:
            root = self.root(one.key_range, given.next)
            good = list(self.results.fit(Batch(good, [(0, 0, len(good), 0)], [root])).rows)
            if len(good) < len(one.out):
                given.next += len(one.out)
            if not good:
                return
        last = given.pending[-1] if given.pending else None
        if last is None or not last.takes(given.next):
            last = PendingRows(one.key_range, given.next, one.fired.at_us, [])
            given.pending.append(last)
            self._fresh.append(last)
        last.rows += good
        last.at_us = min(last.at_us, one.fired.at_us)
        self.pending_rows += len(good)
        given.next += len(good)

    def root(
        self, key_range: int, position: int, key: RootKey | None = None, intended_ns: int = 0, floor: int = 0
    ) -> RootPart:
        slot, incarnation = self.home
        key = key or RootKey(self.thread, incarnation, 0, 0)
        return RootPart(
            key, slot, 0, timed_partition(self._number, key_range), position, intended_ns, floor, 0
        )

    def done(self, entry: PendingRows) -> None:
        """All that came of this is done."""
        given = self.given.get(entry.key_range)
        if given is not None and entry in given.pending:  # found by what it is, not by what is in it
            given.pending.remove(entry)
            self.pending_rows -= len(entry.rows)
            self._changed.add(entry.key_range)
            self.dirty = True

    # ── the end of the input ────────────────────────────────────────────────────────────────────

    def _finish(self, end: BufferedRow, now_ns: int, acks: AckSums) -> None:
        """Not before all timers have fired."""
        if self.may_finish:
            super()._finish(end, now_ns, acks)
            return
        self.side.add(end.root.position, end)
        acks.keep(end)

    def finish(self, now_ns: int) -> list[Addressed]:
        """Words of the end that waited for timers."""
        acks = AckSums()
        if self.may_finish:
            for row in self.side.take(self.side.places & self.ranges.owned):
                acks.let_go(row)
                self._finish(row, now_ns, acks)
        return acks.all()

    # ── the watermark that tasks below are told ─────────────────────────────────────────────────

    def told(self, idle: bool) -> Iterator[tuple[int, int, int]]:
        """(range, version, watermark) of the ranges that are owned here. idle: no input is waited for."""
        watermark_us = self.logic.watermark_us
        if watermark_us is None:
            return
        if (unfired_us := self.unfired_us) is not None:
            watermark_us, idle = unfired_us - 1, False
        for key_range in sorted(self.ranges.owned):
            given = self.given.get(key_range)
            held_us = IDLE_US if idle else watermark_us
            if given is not None and given.pending:
                held_us = min(held_us, min(entry.at_us for entry in given.pending) - 1)
            yield key_range, self.ranges.versions[key_range], held_us

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────

    def cover(self) -> None:
        super().cover()
        self._fired = 0
        self._kept_then |= self._done_below(self._changed)
        self._changed.clear()
        self._covered += self._fresh
        self._fresh = []

    def released(self, now_ns: int) -> list[Addressed]:
        acks = super().released(now_ns)
        self.unsent.extend(self._covered)
        self._covered = []
        self.kept |= self._kept_then
        self._kept_then = {}
        return acks

    def _done_below(self, ranges: Iterable[int]) -> dict[int, int]:
        """Range → the number of the first of its rows that is not done."""
        there = {key_range: self.given[key_range] for key_range in ranges if key_range in self.given}
        return {r: given.pending[0].first if given.pending else given.next for r, given in there.items()}

    def restore(self, saved: SavedWhole) -> None:
        super().restore(saved)
        self.left = []

    def restored(self) -> None:
        self.unsent.extend(self._fresh)  # that is on disk
        self.kept |= self._done_below(self.given)
        self._fresh = []
        self._changed.clear()

    def _took_up(self, states: Iterable[tuple[Hashable, Any]]) -> None:
        for key, held in states:
            if type(held) is Held and not held.noted:
                self.logic.note(key, held)

    def _leave(self, key_range: int) -> None:
        super()._leave(key_range)
        self._forget({key_range})

    def _beside(self) -> Set[int]:
        return self.ranges.versions.keys()  # the watermark

    def _pack_beside(self, key_range: int) -> bytes:
        if key_range not in self.given and not self.states.any_in(key_range):
            return b""
        return self._pack_given(key_range)

    def _pack_given(self, key_range: int) -> bytes:
        given = self.given.get(key_range, NONE_GIVEN)
        return _encode((given.next, self.logic.watermark_us, [_packed(entry) for entry in given.pending]))

    def _pack_new_beside(self) -> tuple[tuple[int, bytes], ...]:
        return tuple((key_range, self._pack_beside(key_range)) for key_range in sorted(self._changed))

    def _take_beside(self, key_range: int, data: bytes) -> None:
        self._forget({key_range})
        if data:
            number, watermark_us, entries = _decode(data)
            self.rise(watermark_us)
            if number:
                pending = [_unpacked(key_range, entry) for entry in entries]
                self.given[key_range] = Given(number, pending)
                self._fresh += pending
                self.pending_rows += sum(len(entry.rows) for entry in pending)
                self._changed.add(key_range)  # sent again once a snapshot here has it
        self.states.note(key_range)

    def rise(self, watermark_us: int | None) -> bool:
        """The watermark is at least there; True when that is news."""
        before = self.logic.watermark_us
        if watermark_us is None or (before is not None and watermark_us <= before):
            return False
        self.logic.watermark_us = watermark_us
        return True

    def _claim(self, key_range: int) -> None:
        """Whoever had the range may have sent more than this copy knows of: it was lost with a VM, or this is another
        run, from a checkpoint. So numbers go on above all that may have been used."""
        super()._claim(key_range)
        if (given := self.given.get(key_range)) is not None:
            given.next = max(given.next, self._none_given(key_range).next)
            self._changed.add(key_range)

    def _forget(self, ranges: Set[int]) -> None:
        left: list[PendingRows] = []
        self._take_back(ranges)  # entries that others may wait behind, and that count no more
        for key_range in ranges:
            given = self.given.pop(key_range, None)
            self._changed.discard(key_range)
            for kept in (self.kept, self._kept_then):
                kept.pop(key_range, None)
            left += given.pending if given is not None else ()
        if left:
            self.unsent = deque(entry for entry in self.unsent if entry.key_range not in ranges)
            self._fresh = [entry for entry in self._fresh if entry.key_range not in ranges]
            self._covered = [entry for entry in self._covered if entry.key_range not in ranges]
            self.left += left
            self.pending_rows -= sum(len(entry.rows) for entry in left)


def _packed(entry: PendingRows) -> PackedEntry:
    if entry.packed is None:
        indexes = [(at, row.index) for at, row in enumerate(entry.rows) if type(row) is To]
        rows = [row.row if type(row) is To else row for row in entry.rows]
        shape = wire.shape_of(rows)
        entry.packed = entry.first, entry.at_us, shape, wire.write(rows, shape), indexes
    return entry.packed


def _unpacked(key_range: int, packed: PackedEntry) -> PendingRows:
    first, at_us, shape, data, indexes = packed
    rows = wire.read(data, shape)
    for at, index in indexes:
        rows[at] = To(index, rows[at])
    return PendingRows(key_range, first, at_us, rows, packed)
