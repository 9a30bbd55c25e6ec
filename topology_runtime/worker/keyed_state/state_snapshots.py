"""What a keyed thread saves: a whole snapshot, and behind it what changed since, one snapshot after the other. Pure.

So a snapshot costs what changed, however much there is. Whole ones are written when ranges have come or gone, after a
failure, and when what was added is more than they are.

The bytes: MAGIC, and records of (length, CRC-32, data). A last record that is torn was never durable: what it was to
cover is still kept, so it is passed over. Files from before were one whole snapshot without MAGIC, and are read too.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol
from zlib import crc32

import msgspec

from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied
from headgate.topology_runtime.worker.rows import row_values as wire

MAGIC = b"hgk1"
_HEAD = struct.Struct("<II")
CHANGES_BYTES = 32 << 20
HEAD_BYTES, RECORD_MOST = _HEAD.size, (1 << 32) - 1
ARRAY_OF, ARRAY_32 = (
    [bytes((0x90 | size,)) for size in range(16)],
    b"\xdd",
)  # of msgpack: before so many values

Floors = tuple[tuple[int, int, int], ...]


class KeyedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a thread has. lost: ranges claimed although their state was lost. below, applied_again, exact: as
    in Applied."""

    copies: tuple[RangeCopy, ...]
    lost: tuple[int, ...] = ()
    below: Floors = ()
    applied_again: int = 0
    exact: bool = False


class _WrittenSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A KeyedSnapshot whose copies are where they were read from."""

    copies: list[msgspec.Raw]
    lost: tuple[int, ...] = ()
    below: Floors = ()
    applied_again: int = 0
    exact: bool = False


@dataclass(frozen=True)
class StreamedSnapshot:
    """One whose copies are made one after the other, each when it is its turn, so that they are never in memory
    together. rest: without them; count: how many they are."""

    rest: KeyedSnapshot
    count: int
    copies: Iterator[RangeCopy]


Whole = KeyedSnapshot | StreamedSnapshot


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


class StateChange(msgspec.Struct, frozen=True, array_like=True):
    """What has changed since the snapshot before, where no range came or went. applied: Applied.pack_new. beside: of
    ranges, what they have by now (Contents)."""

    states: States
    applied: bytes
    below: Floors
    applied_again: int
    beside: tuple[tuple[int, bytes], ...] = ()


class NotRead(Exception):
    """What another thread saved is not read yet; the text says what stands in the way, if something does."""


class SnapshotStore(Protocol):
    """Durable snapshots of one thread: on its VM's disk (snapshot_files.py) or elsewhere (far_snapshots.py). All raise
    OSError."""

    @property
    def whole_due(self) -> bool:
        """Is the next one to be whole?"""

    @property
    def under_way(self) -> bool:
        """Is the one that was given last not durable yet, and may still become so? Meanwhile no other is given."""

    def load(self) -> Whole | None:
        """What this thread saved last."""

    def save(self, snapshot: Whole) -> None:
        """Begin to make it durable; which it is once it is not under way, and `look` does not raise. One that is
        streamed is read before this returns."""

    def add(self, change: StateChange) -> None:
        """As `save`."""

    def look(self) -> None:
        """Raises OSError when the one that was given last did not become durable."""

    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of this task, which is no more. Raises NotRead: ask again; OSError: it
        cannot be had."""

    def remove(self) -> None:
        """Nothing is here any more."""

    def close(self) -> None:
        """No more is saved."""


NOTHING = Contents(wire.write([], wire.NESTED), Applied().pack(0))

_encode = msgspec.msgpack.Encoder().encode
_written = msgspec.msgpack.Decoder(_WrittenSnapshot).decode
_copy = msgspec.msgpack.Decoder(RangeCopy).decode
_change = msgspec.msgpack.Decoder(StateChange).decode
_contents = msgspec.msgpack.Decoder(Contents).decode
_timers = msgspec.msgpack.Decoder(list[tuple[int, str]]).decode


def timers_written(timers: Iterable[tuple[int, str]]) -> bytes:
    """Timers of a key, (µs, name), as snapshots have them: at once, since all are saved when one has changed. Raises
    TypeError, UnicodeEncodeError.

    >>> timers_read(timers_written([(7, "late")])), timers_written([])
    ([(7, 'late')], b'')
    """
    found = list(timers)
    return _encode(found) if found else b""


def timers_read(saved: bytes) -> list[tuple[int, str]]:
    """Raises msgspec.DecodeError."""
    return _timers(saved) if saved else []


def contents_of(copy: RangeCopy) -> Contents:
    """Raises msgspec.DecodeError."""
    return _contents(copy.data) if copy.data else NOTHING


def copied(key_range: int, version: int, contents: Contents) -> RangeCopy:
    return RangeCopy(key_range, version, _encode(contents))


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────────


def whole(snapshot: Whole) -> bytes:
    return MAGIC + _record(b"".join(parts(snapshot)))


def parts(snapshot: Whole) -> Iterator[bytes]:
    """What the record of a whole one is made of."""
    if isinstance(snapshot, KeyedSnapshot):
        yield _encode(snapshot)
        return
    fields = msgspec.structs.astuple(snapshot.rest)
    yield ARRAY_OF[len(fields)] + ARRAY_32 + snapshot.count.to_bytes(4, "big")
    yield from map(_encode, snapshot.copies)
    yield from map(_encode, fields[1:])


def head(length: int, crc: int) -> bytes:
    """Of a record; RECORD_MOST bytes at most."""
    return _HEAD.pack(length, crc)


def added(change: StateChange) -> bytes:
    return _record(_encode(change))


def _record(data: bytes) -> bytes:
    return _HEAD.pack(len(data), crc32(data)) + data


def read(data: bytes) -> KeyedSnapshot:
    """The last snapshot in these bytes. Raises msgspec.DecodeError."""
    found = stream(data)
    return msgspec.structs.replace(found.rest, copies=tuple(found.copies))


def stream(data: bytes | memoryview) -> StreamedSnapshot:
    """As `read`; its copies may raise msgspec.DecodeError, too. What changed since the whole snapshot is gone through
    for so many ranges at once that no more than CHANGES_BYTES of it, about, are in memory."""
    view = memoryview(data)
    if view[: len(MAGIC)] != MAGIC:
        return _whole_one(_written(view))
    records = list(_records(view))
    if not records:
        raise msgspec.DecodeError("the whole snapshot is torn")
    base = _written(records[0])
    return _together(base, records[1:]) if len(records) > 1 else _whole_one(base)


def _whole_one(base: _WrittenSnapshot) -> StreamedSnapshot:
    rest = KeyedSnapshot((), base.lost, base.below, base.applied_again, base.exact)
    return StreamedSnapshot(rest, len(base.copies), map(_copy, base.copies))


def is_complete(data: bytes) -> bool:
    """Are these whole records, and is each as it was written?"""
    at = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) == at:
        return False
    while at + _HEAD.size <= len(data):
        length, told = _HEAD.unpack_from(data, at)
        at += _HEAD.size + length
        if crc32(memoryview(data)[at - length : at]) != told:
            return False
    return at == len(data)


def _records(data: memoryview) -> Iterator[memoryview]:
    at = len(MAGIC)
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


def _together(base: _WrittenSnapshot, changes: list[memoryview]) -> StreamedSnapshot:
    """A whole snapshot, and what changed since."""
    applied, ranges = Applied(exact=base.exact), set()
    beside: dict[int, bytes] = {}
    applied.take_floors(base.below)
    for copy in map(_copy, base.copies):
        contents = contents_of(copy)
        applied.unpack(copy.key_range, contents.applied)
        applied.take_floors(contents.below)
        ranges.add(copy.key_range)
    for change in map(_change, changes):
        if not ranges.issuperset(change.states.ranges):
            raise msgspec.DecodeError("a snapshot has changes of ranges that the one before has not")
        applied.unpack_new(change.applied)
        applied.take_floors(change.below)
        beside.update(change.beside)
    again = change.applied_again
    applied.done_below(())  # nothing of these is needed any more
    rest = KeyedSnapshot((), base.lost, applied.floors(), again, base.exact)
    return StreamedSnapshot(rest, len(base.copies), _merged(base, changes, applied, beside))


def _merged(
    base: _WrittenSnapshot, changes: list[memoryview], applied: Applied, beside: dict[int, bytes]
) -> Iterator[RangeCopy]:
    times = sum(map(len, changes)) // CHANGES_BYTES + 1
    step = -(-len(base.copies) // times)
    for begin in range(0, len(base.copies), step):
        some = base.copies[begin : begin + step]
        new = _new_states({_copy(raw).key_range for raw in some}, changes)
        for copy in map(_copy, some):
            contents = contents_of(copy)
            there = contents.states
            if copy.key_range in new:
                states = dict(of_range(there)) | new.pop(copy.key_range)
                there = wire.write([[*one] for one in states.items()], wire.NESTED)
            at_side = beside.get(copy.key_range, contents.beside)
            if copy.data or there != contents.states or at_side or applied.of(copy.key_range):
                rows = applied.pack(copy.key_range)
                all_of_it = Contents(there, rows, applied.floors(), at_side)
                copy = copied(copy.key_range, copy.version, all_of_it)
            yield copy


def _new_states(ranges: set[int], changes: list[memoryview]) -> dict[int, dict[Hashable, Any]]:
    """What came last of the states of these ranges."""
    new: dict[int, dict[Hashable, Any]] = {}
    for change in map(_change, changes):
        for key_range, key, state in states_in(change.states):
            if key_range in ranges:
                new.setdefault(key_range, {})[key] = state
    return new


# ── states ──────────────────────────────────────────────────────────────────────────────────────────


def of_range(states: bytes) -> Iterator[tuple[Hashable, Any]]:
    """(key, state) rows of a copy. Raises msgspec.DecodeError."""
    for key, state in wire.read(states, wire.NESTED):
        yield hashable(key), state


def states_of(ranges: list[int], keys: list[Hashable], states: list[Any]) -> States:
    """Raises BadRow."""
    shapes = wire.shape_of(keys), wire.shape_of(states)
    return States(ranges, shapes[0], wire.write(keys, shapes[0]), shapes[1], wire.write(states, shapes[1]))


def states_in(new: States) -> Iterator[tuple[int, Hashable, Any]]:
    """(range, key, state). Raises msgspec.DecodeError."""
    keys, states = wire.read(new.keys, new.key_shape), wire.read(new.states, new.state_shape)
    for key_range, key, state in zip(new.ranges, keys, states, strict=True):
        yield key_range, hashable(key), state


def hashable(key: Any) -> Hashable:
    return tuple(map(hashable, key)) if isinstance(key, list) else wire.one_key(key)
