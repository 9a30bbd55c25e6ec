"""Rows that a task keeps, in buckets, with the shares that hold their roots open. Pure.

A kept row is not finished: its share is a term of the ack at once and is cancelled only when the bucket
is let go (protocol: Tasks that keep rows). Three hazards decide the shape of this file:

 1. A bucket must never mix rows of one source position from different *generations* (replays, restarted
    or moved sources): a join would pair an old half with a new one and the other new half would wait for
    ever. The newest generation of a position wins; older rows of it go, late ones are refused [A2].
 2. A refused row is not done either: its root's older attempt must not complete, or the ledger would
    forget the newer attempt's rows that wait here. So its share goes into the ack and is never cancelled.
 3. A late copy of a root that is done would wait for ever. Its source says with every frame below which
    sequence all is done (`floor`); a source that was started again or is no longer desired has no ledger for
    older roots.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

import msgspec

from topology_runtime.messages import RootKey, RootPart

ALL = 1 << 63  # above every sequence

Position = tuple[int, int, int]  # source number, partition, position of the row
Generation = tuple[int, int, int]  # source thread (never reused), incarnation of its worker, attempt


@dataclass(slots=True)
class BufferedRow:
    """One kept row: what it is, whence it came, and the share that keeps its roots open: the one it is
    named after and those that go along."""

    row: Any
    edge: int
    root: RootPart
    offset: int
    variant: int
    share: int
    along: tuple[RootPart, ...] = ()
    roots: tuple[RootPart, ...] = field(init=False)  # all of them; the first names the others by their places
    position: Position = field(init=False)

    def __post_init__(self) -> None:
        root = self.root
        self.roots = (root, *self.along)
        self.position = root.source, root.partition, root.position + self.offset


def alone(roots: Sequence[RootPart], number: int) -> tuple[RootPart, tuple[RootPart, ...]]:
    """Root `number` of a frame and those that go along with it, out of their frame."""
    root = roots[number]
    if not root.along:
        return root, ()
    along = tuple(roots[other] for other in root.along)
    return msgspec.structs.replace(root, along=list(range(1, len(along) + 1))), along


def generation(key: RootKey) -> Generation:
    return key.thread, key.incarnation, key.attempt


@dataclass(slots=True)
class Bucket:
    """Rows under one key in order of arrival (by serial number), and which of them each position has."""

    key: Hashable
    since_ns: int
    by_serial: dict[int, BufferedRow] = field(default_factory=dict)
    by_position: dict[Position, list[int]] = field(default_factory=dict)
    serial: int = 0

    @property
    def size(self) -> int:
        return len(self.by_serial)

    def kept(self) -> Iterator[BufferedRow]:
        yield from self.by_serial.values()

    def rows(self) -> Sequence[Any]:
        """The rows as they are now; its length costs nothing, however many there are."""
        return _HeldRows(self)

    def at(self, position: Position) -> list[BufferedRow]:
        """The rows of a position: all of one generation, so of one root."""
        return [self.by_serial[serial] for serial in self.by_position.get(position, ())]

    def add(self, kept: BufferedRow, position: Position) -> bool:
        """Put a row at the end; True when it is the first of its position."""
        serials = self.by_position.setdefault(position, [])
        serials.append(self.serial)
        self.by_serial[self.serial] = kept
        self.serial += 1
        return len(serials) == 1

    def remove(self, position: Position) -> list[BufferedRow]:
        """Forget all rows of a position."""
        return [self.by_serial.pop(serial) for serial in self.by_position.pop(position, ())]


class _HeldRows(Sequence[Any]):
    """The rows of a bucket to look at: `ready` is asked after every row and mostly wants their number."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket
        self._list: list[Any] = []

    def __len__(self) -> int:
        return self._bucket.size

    def __iter__(self) -> Iterator[Any]:
        return (kept.row for kept in self._bucket.by_serial.values())

    def __getitem__(self, place: Any) -> Any:
        if place == -1 and len(self):  # a window looks at its newest row
            return next(reversed(self._bucket.by_serial.values())).row
        if len(self._list) != len(self):
            self._list = list(self)
        return self._list[place]


@dataclass(slots=True)
class _Source:
    """What is known of one source thread: its newest incarnation, below which sequence all of that is
    done, and where rows of its open roots are kept (`sequences`: a heap of the keys of `places`)."""

    incarnation: int = 0
    floor: int = 0
    sequences: list[int] = field(default_factory=list)
    places: dict[int, list[tuple[Bucket, Position]]] = field(default_factory=dict)

    def below(self, floor: int) -> Iterator[tuple[Bucket, Position]]:
        """Places of rows of roots below `floor`; told once."""
        while self.sequences and self.sequences[0] < floor:
            yield from self.places.pop(heappop(self.sequences))

    def put(self, sequence: int, place: tuple[Bucket, Position]) -> None:
        if sequence not in self.places:
            heappush(self.sequences, sequence)
            self.places[sequence] = []
        self.places[sequence].append(place)


class HeldRows:
    """The buckets of one thread."""

    def __init__(self) -> None:
        self.buckets: dict[Hashable, Bucket] = {}  # the oldest first
        self.rows = 0
        self.given_up: list[
            BufferedRow
        ] = []  # rows that went without being finished; their ledgers are to know
        self._sources: dict[int, _Source] = {}
        self._gone: set[int] = set()  # source threads that are no longer desired

    def see(self, roots: Iterable[RootPart]) -> None:
        """Roots of an arriving frame tell which earlier roots are done: rows of those go."""
        for root in roots:
            if root.key.thread in self._gone:
                continue
            source = self._source(root.key.thread)
            if root.key.incarnation > source.incarnation:
                before = list(source.below(ALL))
                source.incarnation, source.floor = root.key.incarnation, root.floor
                self._drop(before)
            elif root.key.incarnation == source.incarnation and root.floor > source.floor:
                source.floor = root.floor
                self._drop(source.below(root.floor))

    def forget(self, threads: Iterable[int]) -> None:
        """These source threads are no longer desired: all of theirs is done, or comes again from another."""
        for thread in threads:
            self._gone.add(thread)
            source = self._sources.pop(thread, None)
            if source is not None:
                self._drop(source.below(ALL))

    def stale(self, key: RootKey) -> bool:
        """Is this root done already, or its ledger no more?"""
        source = self._sources.get(key.thread)
        if source is None:
            return key.thread in self._gone
        return (key.incarnation, key.sequence) < (source.incarnation, source.floor)

    def all_stale(self, roots: Iterable[RootPart]) -> bool:
        """Does nobody wait any more for a row of these roots?"""
        return all(self.stale(root.key) for root in roots)

    def keep(self, key: Hashable, kept: BufferedRow, now_ns: int) -> Bucket | None:
        """Put a row into its bucket; None when its position is there in a newer generation."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(key, now_ns)
        position = kept.position
        present = bucket.at(position)
        if present and generation(present[0].root.key) != generation(kept.root.key):
            if generation(present[0].root.key) > generation(kept.root.key):
                return None
            self._give_up(bucket, position)
        if bucket.add(kept, position):
            for root in kept.roots:
                self._source(root.key.thread).put(root.key.sequence, (bucket, position))
        self.rows += 1
        return bucket

    def release(self, bucket: Bucket) -> list[BufferedRow]:
        """Let a bucket go: its rows are kept no more, and their shares are to be cancelled."""
        if self.buckets.get(bucket.key) is bucket:
            del self.buckets[bucket.key]
            self.rows -= bucket.size
        return list(bucket.kept())

    def older_than(self, born_ns: int) -> list[Bucket]:
        old: list[Bucket] = []
        for bucket in self.buckets.values():
            if bucket.since_ns > born_ns:
                break
            old.append(bucket)
        return old

    def _source(self, thread: int) -> _Source:
        source = self._sources.get(thread)
        if source is None:
            source = self._sources[thread] = _Source()
        return source

    def _drop(self, places: Iterable[tuple[Bucket, Position]]) -> None:
        """Rows of roots that are done (by another attempt), or whose ledger is no more."""
        for bucket, position in places:
            if self.buckets.get(bucket.key) is bucket and all(
                self.all_stale(kept.roots) for kept in bucket.at(position)
            ):
                self._give_up(bucket, position)
                if not bucket.size:
                    del self.buckets[bucket.key]

    def _give_up(self, bucket: Bucket, position: Position) -> None:
        rows = bucket.remove(position)
        self.rows -= len(rows)
        self.given_up += rows
