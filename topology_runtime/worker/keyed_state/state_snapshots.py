"""What a keyed thread saves: a whole snapshot, and behind it what changed since, one snapshot after the other. Pure.

So a snapshot costs what changed, however much there is. Whole ones are written when ranges have come or gone, after a
failure, and when what was added is more than they are.

The bytes: MAGIC, and records of (length, CRC-32, data). A last record that is torn was never durable: what it was to
cover is still kept, so it is passed over. Files from before were one whole snapshot without MAGIC, and are read too.
"""

from __future__ import annotations

import struct
from collections.abc import Hashable, Iterator
from typing import Any, Protocol
from zlib import crc32

import msgspec

from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied
from headgate.topology_runtime.worker.rows import row_values as wire

MAGIC = b"hgk1"
_HEAD = struct.Struct("<II")

Floors = tuple[tuple[int, int, int], ...]


class KeyedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a thread has. lost: ranges claimed although their state was lost. below, applied_again: as
    in Applied."""

    copies: tuple[RangeCopy, ...]
    lost: tuple[int, ...] = ()
    below: Floors = ()
    applied_again: int = 0


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """The data of a copy: [key, state] rows, and the rows that made them (Applied.pack)."""

    states: bytes
    applied: bytes
    below: Floors = ()


class States(msgspec.Struct, frozen=True, array_like=True):
    """New states of keys, each in its range: keys and states as rows (wire.write) of these shapes."""

    ranges: list[int]
    key_shape: int
    keys: bytes
    state_shape: int
    states: bytes


class StateChange(msgspec.Struct, frozen=True, array_like=True):
    """What has changed since the snapshot before, where no range came or went. applied: Applied.pack_new."""

    states: States
    applied: bytes
    below: Floors
    applied_again: int


class SnapshotStore(Protocol):
    """Durable snapshots of one thread (snapshot_files.py). All raise OSError."""

    @property
    def whole_due(self) -> bool:
        """Is the next one to be whole?"""

    def load(self) -> KeyedSnapshot | None: ...
    def save(self, snapshot: KeyedSnapshot) -> None: ...
    def add(self, change: StateChange) -> None: ...
    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of this task on this VM."""


NOTHING = Contents(wire.write([], wire.NESTED), Applied().pack(0))

_encode = msgspec.msgpack.Encoder().encode
_snapshot = msgspec.msgpack.Decoder(KeyedSnapshot).decode
_change = msgspec.msgpack.Decoder(StateChange).decode
_contents = msgspec.msgpack.Decoder(Contents).decode


def contents_of(copy: RangeCopy) -> Contents:
    """Raises msgspec.DecodeError."""
    return _contents(copy.data) if copy.data else NOTHING


def copied(key_range: int, version: int, contents: Contents) -> RangeCopy:
    return RangeCopy(key_range, version, _encode(contents))


# ── bytes ───────────────────────────────────────────────────────────────────────────────────────────


def whole(snapshot: KeyedSnapshot) -> bytes:
    return MAGIC + _record(_encode(snapshot))


def added(change: StateChange) -> bytes:
    return _record(_encode(change))


def _record(data: bytes) -> bytes:
    return _HEAD.pack(len(data), crc32(data)) + data


def read(data: bytes) -> KeyedSnapshot:
    """The last snapshot in these bytes. Raises msgspec.DecodeError."""
    if not data.startswith(MAGIC):
        return _snapshot(data)
    records = list(_records(data))
    if not records:
        raise msgspec.DecodeError("the whole snapshot is torn")
    return _together(_snapshot(records[0]), list(map(_change, records[1:])))


def _records(data: bytes) -> Iterator[bytes]:
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


def _together(base: KeyedSnapshot, changes: list[StateChange]) -> KeyedSnapshot:
    """A whole snapshot, and what changed since."""
    if not changes:
        return base
    applied, states = Applied(), {}
    known = {copy.key_range: contents_of(copy) for copy in base.copies}
    applied.take_floors(base.below)
    for key_range, contents in known.items():
        applied.unpack(key_range, contents.applied)
        applied.take_floors(contents.below)
    for change in changes:
        for key_range, key, state in states_in(change.states):
            if key_range not in states:
                states[key_range] = dict(of_range(known[key_range].states))
            states[key_range][key] = state
        applied.unpack_new(change.applied)
        applied.take_floors(change.below)
    copies = []
    for copy in base.copies:
        there = known[copy.key_range].states
        if copy.key_range in states:
            there = wire.write([[*one] for one in states[copy.key_range].items()], wire.NESTED)
        if copy.data or copy.key_range in states or applied.of(copy.key_range):
            rows = applied.pack(copy.key_range)
            copy = copied(copy.key_range, copy.version, Contents(there, rows, applied.floors()))
        copies.append(copy)
    return KeyedSnapshot(tuple(copies), base.lost, applied.floors(), changes[-1].applied_again)


# ── states ──────────────────────────────────────────────────────────────────────────────────────────


def of_range(states: bytes) -> Iterator[tuple[Hashable, Any]]:
    """(key, state) rows of a copy. Raises msgspec.DecodeError."""
    for key, state in wire.read(states, wire.NESTED):
        yield _hashable(key), state


def states_of(ranges: list[int], keys: list[Hashable], states: list[Any]) -> States:
    """Raises BadRow."""
    shapes = wire.shape_of(keys), wire.shape_of(states)
    return States(ranges, shapes[0], wire.write(keys, shapes[0]), shapes[1], wire.write(states, shapes[1]))


def states_in(new: States) -> Iterator[tuple[int, Hashable, Any]]:
    """(range, key, state). Raises msgspec.DecodeError."""
    keys, states = wire.read(new.keys, new.key_shape), wire.read(new.states, new.state_shape)
    for key_range, key, state in zip(new.ranges, keys, states, strict=True):
        yield key_range, _hashable(key), state


def _hashable(key: Any) -> Hashable:
    return tuple(map(_hashable, key)) if isinstance(key, list) else wire.one_key(key)
