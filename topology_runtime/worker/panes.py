"""Rows that a task keeps, in window panes: which of them belong together, and which have to go. Pure.

What kept rows do to acks is in acks.py. Two hazards decide the shape of this file:

 1. A pane must never mix rows of one source position from different *generations* (replays, restarted or moved
    sources): a join would pair an old half with a new one and the other new half would wait for ever. The newest
    generation of a position wins; older rows of it are given up, late ones are refused [A2].
 2. A late copy of a root that is done would wait for ever. Its source says with every frame below which sequence all
    is done (`floor`); a source that was started again or is no longer desired has no ledger for older roots.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any

from headgate.topology_runtime.messages import RootKey, RootPart
from headgate.topology_runtime.worker.acks import BufferedRow, Position

ALL = 1 << 63  # above every sequence

Generation = tuple[int, int, int]  # source thread (never reused), incarnation of its worker, attempt


def generation(key: RootKey) -> Generation:
    return key.thread, key.incarnation, key.attempt


@dataclass(slots=True)
class Pane:
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
        return _RowsOf(self)

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


class _RowsOf(Sequence[Any]):
    """The rows of a pane to look at: `ready` is asked after every row and mostly wants their number."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self._list: list[Any] = []

    def __len__(self) -> int:
        return self._pane.size

    def __iter__(self) -> Iterator[Any]:
        return (kept.row for kept in self._pane.by_serial.values())

    def __getitem__(self, place: Any) -> Any:
        if place == -1 and len(self):  # a window looks at its newest row
            return next(reversed(self._pane.by_serial.values())).row
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
    places: dict[int, list[tuple[Pane, Position]]] = field(default_factory=dict)

    def below(self, floor: int) -> Iterator[tuple[Pane, Position]]:
        """Places of rows of roots below `floor`; told once."""
        while self.sequences and self.sequences[0] < floor:
            yield from self.places.pop(heappop(self.sequences))

    def put(self, sequence: int, place: tuple[Pane, Position]) -> None:
        if sequence not in self.places:
            heappush(self.sequences, sequence)
            self.places[sequence] = []
        self.places[sequence].append(place)


class Panes:
    """The panes of one thread."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Pane] = {}  # the oldest first
        self.rows = 0
        self.given_up: list[BufferedRow] = []  # went without being finished; their ledgers are to know
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

    def keep(self, key: Hashable, kept: BufferedRow, now_ns: int) -> Pane | None:
        """Put a row into its pane; None when its position is there in a newer generation."""
        pane = self.by_key.get(key)
        if pane is None:
            pane = self.by_key[key] = Pane(key, now_ns)
        position = kept.position
        present = pane.at(position)
        if present and generation(present[0].root.key) != generation(kept.root.key):
            if generation(present[0].root.key) > generation(kept.root.key):
                return None
            self._give_up(pane, position)
        if pane.add(kept, position):
            for root in kept.roots:
                self._source(root.key.thread).put(root.key.sequence, (pane, position))
        self.rows += 1
        return pane

    def release(self, pane: Pane) -> list[BufferedRow]:
        """The rows of a pane, which are kept no more: they are to be let go."""
        if self.by_key.get(pane.key) is pane:
            del self.by_key[pane.key]
            self.rows -= pane.size
        return list(pane.kept())

    def older_than(self, born_ns: int) -> list[Pane]:
        old: list[Pane] = []
        for pane in self.by_key.values():
            if pane.since_ns > born_ns:
                break
            old.append(pane)
        return old

    def _source(self, thread: int) -> _Source:
        source = self._sources.get(thread)
        if source is None:
            source = self._sources[thread] = _Source()
        return source

    def _drop(self, places: Iterable[tuple[Pane, Position]]) -> None:
        """Rows of roots that are done (by another attempt), or whose ledger is no more."""
        for pane, position in places:
            if self.by_key.get(pane.key) is pane and all(
                self.all_stale(kept.roots) for kept in pane.at(position)
            ):
                self._give_up(pane, position)
                if not pane.size:
                    del self.by_key[pane.key]

    def _give_up(self, pane: Pane, position: Position) -> None:
        rows = pane.remove(position)
        self.rows -= len(rows)
        self.given_up += rows
