"""What a keyed thread saves: a whole snapshot, and behind it what changed since, one snapshot after the other. Pure.

So a snapshot costs what changed, however much there is. A whole one is begun after a failure, and when what was added
is more than it is. It is written in pieces (docs/decisions/0104): all but states at once, then states, some with each
snapshot of changes, as they are by then. With the changes since its begin it is whole once all states were written.

The bytes: MAGIC, and records of (length, CRC-32, data). A last record that is torn was never durable: what it was to
cover is still kept, so it is passed over. Files from before were one whole snapshot without MAGIC, and are read too.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from mmap import mmap
from typing import Any, Protocol
from zlib import crc32

import msgspec

from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied
from headgate.topology_runtime.worker.rows import row_values as wire

MAGIC = b"hgk3"
READ = (b"hgk1", b"hgk2", MAGIC)  # in changes of the first no ranges come or go, of the second none rise
_HEAD = struct.Struct("<II")
CHANGES_BYTES = 256 << 20
RECORD_MOST = (1 << 32) - 1

Floors = tuple[tuple[int, int, int], ...]


class KeyedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a thread has. lost: ranges claimed although their state was lost. below, applied_again, exact: as
    in Applied. pieces: objects in which more is; starts: where in each, if not behind MAGIC (far_snapshots.py)."""

    copies: tuple[RangeCopy, ...]
    lost: tuple[int, ...] = ()
    below: Floors = ()
    applied_again: int = 0
    exact: bool = False
    pieces: int = 0
    starts: tuple[int, ...] = ()


class _WrittenSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A KeyedSnapshot whose copies are where they were read from."""

    copies: list[msgspec.Raw]
    lost: tuple[int, ...] = ()
    below: Floors = ()
    applied_again: int = 0
    exact: bool = False
    pieces: int = 0
    starts: tuple[int, ...] = ()


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """The data of a copy: [key, state] rows, and the rows that made them (Applied.pack). beside: of a task with event
    time, what timers gave (timed_rows.py)."""

    states: bytes
    applied: bytes
    below: Floors = ()
    beside: bytes = b""


class States(msgspec.Struct, frozen=True, array_like=True):
    """New states of keys, each in its range: keys and states as rows (wire.write) of these shapes."""

    ranges: list[int]
    key_shape: int
    keys: bytes
    state_shape: int
    states: bytes


class RangesMoved(msgspec.Struct, frozen=True, array_like=True):
    """Since the snapshot before: ranges that came, those that left, and all that are lost by now. raised: ranges that
    are as they were, but for their version."""

    came: tuple[RangeCopy, ...]
    left: tuple[int, ...]
    lost: tuple[int, ...]
    raised: tuple[tuple[int, int], ...] = ()


class StateChange(msgspec.Struct, frozen=True, array_like=True):
    """What has changed since the snapshot before. applied: Applied.pack_new. beside: of ranges, what they have by now
    (Contents). moved: before states and what is beside."""

    states: States
    applied: bytes
    below: Floors
    applied_again: int
    beside: tuple[tuple[int, bytes], ...] = ()
    moved: RangesMoved | None = None


@dataclass(frozen=True)
class SavedPart:
    """What is saved at once. change: since the one before; goes behind the whole snapshot that there is, and that which
    is being made. begun: a new one is made from here on, instead. states: some of those that it lacks, as they were
    before the last row of which the change knows, so they go before it. ends: it is whole with these. applied: the rows
    before `begun` (Applied.pack_all)."""

    change: StateChange | None = None
    begun: KeyedSnapshot | None = None
    states: States | None = None
    ends: bool = False
    applied: bytes = b""

    @property
    def covers(self) -> bool:
        """Is everything until now durable by it?"""
        return self.change is not None or (self.begun is not None and self.ends)


class NotRead(Exception):
    """What another thread saved is not read yet; the text says what stands in the way, if something does."""


class SnapshotStore(Protocol):
    """Durable snapshots of one thread: on its VM's disk (snapshot_files.py) or elsewhere (far_snapshots.py). All raise
    OSError. late: may what a former life of the thread gave become durable after this one has read? Then what was read
    is the last snapshot only once one of this life is durable."""

    @property
    def late(self) -> bool: ...

    @property
    def stands(self) -> bool:
        """Is there a whole snapshot, behind which changes are durable?"""

    @property
    def whole_due(self) -> bool:
        """Is a new one to be begun?"""

    @property
    def under_way(self) -> bool:
        """Is the part that was given last not durable yet, and may still become so? Meanwhile no other is given."""

    def load(self) -> SavedWhole | None:
        """What this thread saved last. One that is being made is given up."""

    def save(self, part: SavedPart) -> None:
        """Begin to make it durable; which it is once it is not under way, and `look` does not raise."""

    def look(self) -> None:
        """Raises OSError when the one that was given last did not become durable."""

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | SavedWhole | None:
        """The last snapshot of another thread of this task, which is no more. ranges: that this one, which has nothing
        yet, is to have of it; a SavedWhole stands here as well by then. Raises NotRead: ask again; OSError: it cannot
        be had."""

    def remove(self) -> None:
        """Nothing is here any more."""

    def close(self) -> None:
        """No more is saved."""


NO_STATES = wire.write([], wire.NESTED)
NONE_NEW = States([], wire.PLAIN, NO_STATES, wire.PLAIN, NO_STATES)
NO_APPLIED = Applied().pack(0)
NOTHING = Contents(NO_STATES, NO_APPLIED)
NO_ROWS = Applied().pack_new()

_encode = msgspec.msgpack.Encoder().encode
_written = msgspec.msgpack.Decoder(_WrittenSnapshot).decode
_copy = msgspec.msgpack.Decoder(RangeCopy).decode
_change = msgspec.msgpack.Decoder(StateChange).decode
_contents = msgspec.msgpack.Decoder(Contents).decode
_timers = msgspec.msgpack.Decoder(list[tuple[int, str]]).decode


def timers_written(timers: Collection[tuple[int, str]]) -> bytes:
    """Timers of a key, (µs, name), as snapshots have them: at once, since all are saved when one has changed. Raises
    TypeError, UnicodeEncodeError.

    >>> timers_read(timers_written([(7, "late")])), timers_written([])
    ([(7, 'late')], b'')
    """
    if not timers:
        return b""
    return _encode(timers if type(timers) is tuple else list(timers))


def timers_read(saved: bytes) -> list[tuple[int, str]]:
    """Raises msgspec.DecodeError."""
    return _timers(saved) if saved else []


def contents_of(copy: RangeCopy) -> Contents:
    """Raises msgspec.DecodeError."""
    return _contents(copy.data) if copy.data else NOTHING


def copied(key_range: int, version: int, contents: Contents) -> RangeCopy:
    return RangeCopy(key_range, version, _encode(contents))


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────────


def whole(snapshot: KeyedSnapshot) -> bytes:
    return MAGIC + _record(_encode(snapshot))


def behind_begin(data: bytes) -> int:
    """Where what is behind the beginning of a whole snapshot is."""
    return len(MAGIC) + _HEAD.size + len(_begin(data))


def begin_of(data: bytes, starts: tuple[int, ...] = ()) -> bytes:
    """The beginning of a whole snapshot, for one whose other records are in other objects, from there on in each; or
    right behind it."""
    begun = msgspec.structs.replace(_written(_begin(data)), pieces=len(starts), starts=starts)
    return MAGIC + _record(_encode(begun))


def _begin(data: bytes) -> memoryview:
    return next(_records(memoryview(data), len(MAGIC)))


def added(change: StateChange) -> bytes:
    return _record(_encode(change))


def swept(part: SavedPart) -> bytes:
    """What a part has for a whole snapshot that is being made, beside changes and its beginning."""
    if part.states is None and not part.applied:
        return b""
    return added(StateChange(part.states or NONE_NEW, part.applied or NO_ROWS, (), 0))


def behind(there: bytes | None, making: bytes | None, part: SavedPart) -> tuple[bytes | None, bytes | None]:
    """What stands and what is being made, None where there is nothing, with this part behind it."""
    if part.begun is None and making is not None:
        making += swept(part)
    if part.change is not None:
        record = added(part.change)
        there, making = (one + record if one is not None else None for one in (there, making))
    if part.begun is not None:
        making = whole(part.begun) + swept(part)
    return (making, None) if part.ends else (there, making)


def _record(data: bytes) -> bytes:
    if len(data) > RECORD_MOST:
        raise OSError(f"what is saved at once has {RECORD_MOST >> 20:,} MiB at most: use more threads")
    return _HEAD.pack(len(data), crc32(data)) + data


def read(data: bytes) -> KeyedSnapshot:
    """The last snapshot in these bytes, by range. Raises msgspec.DecodeError."""
    return stream(data).whole()


def stream(data: bytes | memoryview | mmap) -> SavedWhole:
    """As `read`; what is in it may raise msgspec.DecodeError, too."""
    view = memoryview(data)
    if view[: len(MAGIC)] not in READ:
        return SavedWhole(_written(view), [])
    return _saved(list(_records(view, len(MAGIC))))


def stream_of(data: bytes, more: Iterable[memoryview]) -> SavedWhole:
    """The same of one in several objects: that with its beginning, and all records behind that."""
    behind = (_records(records, 0) for records in more)
    return _saved([_begin(data), *chain.from_iterable(behind)])


def _saved(records: list[memoryview]) -> SavedWhole:
    if not records:
        raise msgspec.DecodeError("the whole snapshot is torn")
    return SavedWhole(_written(records[0]), records[1:])


class SavedWhole:
    """A whole snapshot, and what changed since."""

    def __init__(self, base: _WrittenSnapshot, records: list[memoryview]) -> None:
        self._base, self._records = base, records
        self.rest = KeyedSnapshot(
            (), base.lost, base.below, base.applied_again, base.exact, base.pieces, base.starts
        )

    @property
    def copies(self) -> Iterator[RangeCopy]:
        return map(_copy, self._base.copies)

    @property
    def changes(self) -> Iterator[StateChange]:
        return map(_change, self._records)

    @property
    def ranges(self) -> set[int]:
        """That it has by now. Raises msgspec.DecodeError."""
        found = {copy.key_range for copy in self.copies}
        for change in self.changes:
            if change.moved is not None:
                found.difference_update(change.moved.left)
                found.update(copy.key_range for copy in change.moved.came)
            _check_known(change, found)
        return found

    def by_range(self, most_bytes: int = CHANGES_BYTES) -> tuple[KeyedSnapshot, Iterator[RangeCopy]]:
        """The same as one whole snapshot, without and with its copies. What changed is gone through for so many ranges
        at once that no more than `most_bytes` of it, about, are in memory. Raises msgspec.DecodeError, and so do the
        copies."""
        if not self._records:
            return self.rest, self.copies
        fold = _Fold(self)
        return fold.rest, self._merged(fold, most_bytes)

    def whole(self) -> KeyedSnapshot:
        """By range. Raises msgspec.DecodeError."""
        rest, copies = self.by_range(1 << 62)
        return msgspec.structs.replace(rest, copies=tuple(copies))

    def _merged(self, fold: _Fold, most_bytes: int) -> Iterator[RangeCopy]:
        numbers, applied = sorted(fold.ranges), fold.applied
        times = sum(map(len, self._records)) // most_bytes + 1
        step = max(1, -(-len(numbers) // times))
        for begin in range(0, len(numbers), step):
            new = self._new_states({at: fold.ranges[at].since for at in numbers[begin : begin + step]})
            for at in numbers[begin : begin + step]:
                copy = fold.ranges[at].copy
                contents, beside = contents_of(copy), fold.ranges[at].beside
                there = contents.states
                if at in new:
                    states = {hashable(key): raw for key, raw in wire.read_pairs(there)} | new.pop(at)
                    there = wire.write_pairs(states.items())
                if copy.data or there != contents.states or beside or applied.of(at):
                    rows = applied.pack(at)
                    copy = copied(at, copy.version, Contents(there, rows, applied.floors(), beside))
                yield copy

    def _new_states(self, since: dict[int, int]) -> dict[int, dict[Hashable, msgspec.Raw]]:
        """What came last of the states of these ranges, as it is written; range → the first change that counts."""
        found: dict[int, dict[Hashable, msgspec.Raw]] = {at: {} for at in since}
        for number, change in enumerate(self.changes, 1):
            states = change.states
            raw = wire.raw_rows(states.states, states.state_shape)
            for at, key, state in zip(states.ranges, _keys_of(states), raw, strict=True):
                if at in since and since[at] <= number:
                    found[at][key] = state
        return {at: states for at, states in found.items() if states}


def _check_known(change: StateChange, ranges: Set[int]) -> None:
    raised = change.moved.raised if change.moved is not None else ()
    if not ranges >= {*change.states.ranges, *(at for at, _ in (*change.beside, *raised))}:
        raise msgspec.DecodeError("a snapshot has changes of ranges that the one before has not")


def is_complete(data: bytes, bare: bool = False) -> bool:
    """Are these whole records, and is each as it was written? bare: without MAGIC."""
    at = 0 if bare else len(MAGIC)
    if not (bare or data.startswith(READ)) or len(data) == at:
        return False
    while at + _HEAD.size <= len(data):
        length, told = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        if crc32(memoryview(data)[at - length : at]) != told:
            return False
    return at == len(data)


def _records(data: memoryview, at: int) -> Iterator[memoryview]:
    while at + _HEAD.size <= len(data):
        length, told = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        found = data[at : at + length]
        at += length
        if len(found) < length or crc32(found) != told:
            if at < len(data):
                raise msgspec.DecodeError("a snapshot between others is damaged")
            return
        yield found


@dataclass
class _Range:
    """copy: as it came, with change number `since`. beside: by now."""

    copy: RangeCopy
    since: int
    beside: bytes


class _Fold:
    """What a whole snapshot and its changes add up to, but states."""

    def __init__(self, saved: SavedWhole) -> None:
        rest = saved.rest
        self.ranges: dict[int, _Range] = {}
        self.applied = Applied(exact=rest.exact)
        self.applied.take_floors(rest.below)
        for copy in saved.copies:
            self._came(copy, 0)
        lost, again = rest.lost, rest.applied_again
        for number, change in enumerate(saved.changes, 1):
            self._take(number, change)
            again = max(again, change.applied_again)
            lost = lost if change.moved is None else change.moved.lost
        self.applied.done_below(())  # nothing of these is needed any more
        self.rest = KeyedSnapshot((), lost, self.applied.floors(), again, rest.exact)

    def _came(self, copy: RangeCopy, number: int) -> None:
        contents = contents_of(copy)
        self.applied.unpack(copy.key_range, contents.applied)
        self.applied.take_floors(contents.below)
        self.ranges[copy.key_range] = _Range(copy, number, contents.beside)

    def _take(self, number: int, change: StateChange) -> None:
        self.applied.unpack_new(change.applied)
        self.applied.take_floors(change.below)
        if change.moved is not None:
            for at in change.moved.left:
                self.ranges.pop(at, None)
                self.applied.drop(at)
            for copy in change.moved.came:
                self._came(copy, number)
        _check_known(change, self.ranges.keys())
        for at, version in change.moved.raised if change.moved is not None else ():
            self.ranges[at].copy = msgspec.structs.replace(self.ranges[at].copy, version=version)
        for at, beside in change.beside:
            self.ranges[at].beside = beside


# ── states ──────────────────────────────────────────────────────────────────────────────────────────


def of_range(states: bytes) -> Iterable[tuple[Hashable, Any]]:
    """(key, state) rows of a copy. Raises msgspec.DecodeError."""
    rows = wire.read(states, wire.NESTED)
    if all(type(row[0]) in wire.TOLD_APART for row in rows):
        return rows  # type: ignore[no-any-return]
    return ((hashable(key), state) for key, state in rows)


def states_of(ranges: list[int], keys: list[Hashable], states: list[Any]) -> States:
    """Raises BadRow."""
    shapes = wire.shape_of(keys), wire.shape_of(states)
    return States(ranges, shapes[0], wire.write(keys, shapes[0]), shapes[1], wire.write(states, shapes[1]))


def joined(pieces: Sequence[States]) -> States:
    """All states of these, in their order."""
    if len(pieces) == 1:
        return pieces[0]
    ranges = [at for piece in pieces for at in piece.ranges]
    keys = wire.together([(piece.key_shape, piece.keys) for piece in pieces], len(ranges))
    return States(
        ranges, *keys, *wire.together([(piece.state_shape, piece.states) for piece in pieces], len(ranges))
    )


def columns_of(new: States) -> tuple[list[Hashable], list[Any]]:
    """Keys and states. Raises msgspec.DecodeError."""
    keys, states = _keys_of(new), wire.read(new.states, new.state_shape)
    if not len(keys) == len(states) == len(new.ranges):
        raise msgspec.DecodeError("keys without states")
    return keys, states


def _keys_of(new: States) -> list[Hashable]:
    keys: list[Hashable] = wire.read(new.keys, new.key_shape)
    return keys if wire.TOLD_APART.issuperset(map(type, keys)) else list(map(hashable, keys))


def hashable(key: Any) -> Hashable:
    return tuple(map(hashable, key)) if isinstance(key, list) else wire.one_key(key)
