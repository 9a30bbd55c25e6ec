"""Rows that a task keeps, in buckets, with the shares that hold their roots open. Pure.

A kept row is not finished: its share is a term of the ack at once and is cancelled only when the bucket
is let go (protocol: Tasks that keep rows). Two hazards decide the shape of this file:

 1. A bucket must never mix rows of one source position from different *generations* (replays, restarted
    or moved sources): a join would pair an old half with a new one and the other new half would wait for
    ever. The newest generation of a position wins; older rows of it go, late ones are refused [A2].
 2. A late copy of a root that is done would wait for ever: its source says with every frame below which
    sequence all is done (`floor`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from topology_runtime.messages import Ack, RootKey, RootPart

Position = tuple[int, int, int]  # source number, partition, position of the row
Generation = tuple[int, int]  # incarnation of the source's worker, attempt


@dataclass(slots=True)
class Kept:
    """One kept row: what it is, whence it came, and the share that keeps its root open."""

    row: Any
    edge: int
    root: RootPart
    offset: int
    variant: int
    share: int

    @property
    def position(self) -> Position:
        return self.root.source, self.root.partition, self.root.position + self.offset

    @property
    def generation(self) -> Generation:
        return self.root.key.incarnation, self.root.key.attempt


@dataclass(slots=True)
class Bucket:
    """Rows under one key, grouped by source position, in order of arrival."""

    key: Hashable
    since_ns: int
    positions: dict[Position, list[Kept]] = field(default_factory=dict)
    size: int = 0

    def kept(self) -> Iterator[Kept]:
        for group in self.positions.values():
            yield from group

    def rows(self) -> list[Any]:
        return [kept.row for kept in self.kept()]


class HeldRows:
    """The buckets of one thread."""

    def __init__(self) -> None:
        self.buckets: dict[Hashable, Bucket] = {}
        self._floors: dict[tuple[int, int], int] = {}  # (source thread, incarnation) → floor

    @property
    def rows(self) -> int:
        return sum(bucket.size for bucket in self.buckets.values())

    def see(self, roots: Iterable[RootPart]) -> None:
        """Roots of an arriving frame tell which earlier roots are done."""
        for root in roots:
            source = root.key.thread, root.key.incarnation
            if root.floor > self._floors.get(source, 0):
                self._floors[source] = root.floor

    def stale(self, key: RootKey) -> bool:
        """Is this root done already?"""
        return key.sequence < self._floors.get((key.thread, key.incarnation), 0)

    def keep(self, key: Hashable, kept: Kept, now_ns: int) -> Bucket | None:
        """Put a row into its bucket; None when its position is there in a newer generation."""
        bucket = self.buckets.get(key)
        if bucket is None:
            bucket = self.buckets[key] = Bucket(key, now_ns)
        group = bucket.positions.get(kept.position)
        if group and group[0].generation > kept.generation:
            return None
        if group and group[0].generation < kept.generation:
            bucket.size -= len(group)
            group = None
        if not group:
            bucket.positions.pop(kept.position, None)
            group = bucket.positions[kept.position] = []
        group.append(kept)
        bucket.size += 1
        return bucket

    def release(self, bucket: Bucket) -> list[Ack]:
        """Let a bucket go: its shares cancel, its rows are kept no more."""
        if self.buckets.get(bucket.key) is bucket:
            del self.buckets[bucket.key]
        return [Ack(kept.root.key, kept.share, -1) for kept in bucket.kept()]

    def sweep(self) -> None:
        """Forget rows whose roots are done (by another attempt)."""
        for bucket in list(self.buckets.values()):
            for position, group in list(bucket.positions.items()):
                if all(self.stale(kept.root.key) for kept in group):
                    del bucket.positions[position]
                    bucket.size -= len(group)
            if not bucket.size:
                del self.buckets[bucket.key]

    def older_than(self, born_ns: int) -> list[Bucket]:
        return [bucket for bucket in self.buckets.values() if bucket.since_ns <= born_ns]
