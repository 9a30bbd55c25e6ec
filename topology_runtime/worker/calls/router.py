"""Which thread gets which rows of one edge. Pure.

shuffle, local   stride scheduling over the plan's weights, by rows (local: this worker's threads first);
                 each sender begins at another place, or all would choose the same receiver in step
fields           a stable hash of the key into 1,024 ranges, ranges to threads by the plan
all, global      every thread; the first thread
direct           thread number `To.index` modulo the receiver's threads
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from heapq import heapify, heapreplace
from operator import itemgetter
from typing import Any
from zlib import crc32

import msgspec

from headgate.topology_runtime.api.logic import To
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.messages import Route
from headgate.topology_runtime.wire.report_messages import KEY_TEXT_MOST, KeyCount, KeysSeen
from headgate.topology_runtime.worker.calls.attempts import shown
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.rows.row_values import key_bytes, one_key

# ── Which keys most rows of an edge have, in the thread that splits them by key. Pure ───
#
# All rows of small frames are counted, and of the larger ones every eighth frame, chosen so that no rhythm of
# the rows is met. What is counted is a summary of Misra and Gries (1982): when there are too many keys, all
# counts lose as much as the largest that goes, so a count is short by at most a (KEPT + 1)-th of the rows,
# and a key that has more is there.

WHOLE_MOST = 32  # rows in a frame that is always counted
ONE_IN = 8  # of the larger ones
GOLDEN_32 = 0x9E3779B1  # its multiples, modulo 2³², lie evenly spread
KEPT = 100  # keys, when there are more than …
KEYS_MOST = 1000
TOLD_MOST, TOLD_LEAST = 4, 0.1  # so many keys, if they have that share of the rows
ENDS_A_RUN = (
    KeyboardInterrupt,
)  # where somebody may press Ctrl-C; in a worker nothing that a row's call raises does


class KeyWatch:
    """Of one edge."""

    def __init__(self) -> None:
        self._rows = self._looked_at = self._frames = 0
        self._counts: Counter[Hashable] = Counter()

    def wants(self, rows: int) -> bool:
        """Are the keys of this frame to be counted?"""
        self._rows += rows
        if rows <= WHOLE_MOST:
            return True
        self._frames += 1
        return ((self._frames * GOLDEN_32) & 0xFFFFFFFF) * ONE_IN >> 32 == 0

    def add(self, keys: Sequence[Hashable]) -> None:
        """The keys of a frame. One that cannot be hashed has its frame passed over."""
        try:
            found = Counter(keys)
        except TypeError:
            return
        self._looked_at += len(keys)
        self._counts.update(found)
        if len(self._counts) > KEYS_MOST:
            ordered = self._counts.most_common(KEPT + 1)
            least = ordered.pop()[1]
            self._counts = Counter({key: count - least for key, count in ordered if count > least})

    def told(
        self, edge: int, thread: int, range_of: Callable[[Hashable], int], hidden: bool
    ) -> KeysSeen | None:
        """What was seen since this was asked last; None: no row."""
        rows, looked_at, counts = self._rows, self._looked_at, self._counts
        self._rows, self._looked_at, self._counts = 0, 0, Counter()
        if not looked_at:
            return None
        top = tuple(
            KeyCount("" if hidden else shown(key, KEY_TEXT_MOST), range_of(key), count)
            for key, count in counts.most_common(TOLD_MOST)
            if count >= TOLD_LEAST * looked_at
        )
        return KeysSeen(edge, thread, rows, looked_at, top)


SPREAD = 0x9E3779B1  # 2³² divided by the golden ratio, made odd
APART = math.e - 2  # any irrational number whose multiples keep clear of those of GOLDEN
GOLDEN = 0.6180339887498949  # its multiples, modulo 1, lie evenly spread however many are taken
KNOWN_MOST, KNOWN_LONGEST = 32_768, 64  # keys whose ranges are kept, and their characters
_encode = msgspec.msgpack.Encoder().encode  # a key that is a text, a number or bytes: as key_bytes does
RANGE_SHIFT = 32 - (KEY_RANGES - 1).bit_length()  # the upper bits of 32 name the range

Places = Sequence[int] | range
Part = tuple[int, Places]  # (thread, places of its rows)


def range_of(key: Hashable) -> int:
    """The key range of a key: the same in every process and every run.

    The product spreads what a CRC leaves together: of the numbers 0 … 29 its low bits fill one half only."""
    return range_in(key_bytes(key))


def range_in(data: bytes) -> int:
    """The key range of a key with these bytes."""
    return ((crc32(data) * SPREAD) & 0xFFFFFFFF) >> RANGE_SHIFT


class KeyRanges:
    """The ranges of keys, looked up once for each key while there is room. Only of keys that equal nothing of another
    type: 1, 1.0 and True are one to a dict, and three to the routes."""

    def __init__(self) -> None:
        self._known: dict[type, _Known] = {kind: _Known() for kind in (str, int, bytes)}

    @property
    def kinds(self) -> Iterable[type]:
        return self._known

    @property
    def size(self) -> int:
        """Keys that are known."""
        return sum(map(len, self._known.values()))

    def of(self, keys: Sequence[Hashable]) -> list[int]:
        """The range of each, of keys that mostly came a while ago: none is kept for the next time. All can be
        written."""
        kind = self.kind(keys)
        if kind is None:
            return list(map(range_of, keys))
        return list(map(range_in, map(_encode, keys)))

    def one(self, key: Hashable) -> int:
        """As `of`."""
        known = self._known.get(type(key))
        return range_of(key) if known is None else known[key][1]

    def placed(self, keys: Sequence[Hashable]) -> tuple[Sequence[Hashable], list[int]]:
        """The same keys, one object for each that was seen before: a dict finds that without a look at its text, and
        one for every NaN. And their ranges."""
        kind = self.kind(keys)
        if kind is None:
            return list(map(one_key, keys)), list(map(range_of, keys))
        found = list(map(self._known[kind].__getitem__, keys))
        return list(map(_KEY, found)), list(map(_RANGE, found))

    def kind(self, keys: Sequence[Hashable]) -> type | None:
        """The type of all these keys, if equal ones are the same key."""
        kinds: set[type] = set(map(type, keys))
        kind = kinds.pop() if len(kinds) == 1 else None
        return kind if kind in self._known else None


_KEY: Callable[[tuple[Hashable, int]], Hashable] = itemgetter(0)
_RANGE: Callable[[tuple[Hashable, int]], int] = itemgetter(1)


class _Known(dict[Any, tuple[Hashable, int]]):
    def __missing__(self, key: Any) -> tuple[Hashable, int]:
        found = key, range_of(key)
        if type(key) is int or len(key) <= KNOWN_LONGEST:
            if len(self) >= KNOWN_MOST:
                self.clear()
            self[key] = found
        return found


def _itself(key: Hashable) -> Hashable:
    return key


def owners(route: Route) -> list[int]:
    """Thread of each of the 1,024 key ranges ([] when the plan gives none)."""
    return unrolled(route.ranges)


def unrolled(runs: Iterable[tuple[int, int]]) -> list[int]:
    """A run-length coded table, (thread, how many) by (thread, how many)."""
    table: list[int] = []
    for thread, count in runs:
        table += [thread] * count
    return table


@cache
def in_turn(receivers: int) -> tuple[int, ...]:
    """The places of receivers in the order in which rows go to them. Neighbours, which mostly are in one slot, come far
    apart: else rows would come to slot after slot, each overloaded for a while.

    >>> in_turn(6)
    (0, 3, 2, 5, 1, 4)
    """
    return tuple(sorted(range(receivers), key=lambda place: place * APART % 1.0))


def first_turns(sender: int, weights: Sequence[float]) -> list[tuple[float, int]]:
    """A heap: when each receiver is due next, in rows, and its place. Stride scheduling (Waldspurger and Weihl 1995),
    which begins for sender s and receiver r of n somewhere in r's first stride: at s × golden ratio − turn of r / n."""
    due = [
        ((sender * GOLDEN - turn / len(weights)) % 1.0 / weights[place], place)
        for turn, place in enumerate(in_turn(len(weights)))
        if weights[place] > 0
    ]
    heapify(due)
    return due


class Router:
    """Splits the rows of one edge among the receiving threads; made again for each set of routes. `sender`:
    number of the thread it is for."""

    def __init__(
        self,
        edge: Edge,
        route: Route,
        local: frozenset[int],
        key: Callable[[Any], Hashable] | None,
        cap_of: Callable[[int], int],
        sender: int,
        ends: tuple[type[BaseException], ...] = ENDS_A_RUN,
    ) -> None:
        self.grouping = edge.grouping
        self._key, self._place = key, edge.key
        self._cap_of, self._ends = cap_of, ends
        self._owners = owners(route)
        self._ranges = KeyRanges()
        if edge.grouping == "fields" and len(self._owners) != KEY_RANGES:
            raise InvalidInput(
                f"the route of edge {route.edge} ({edge.source} → {edge.target}) gives "
                f"{len(self._owners)} of {KEY_RANGES} key ranges to threads"
            )
        sole = set(self._owners)
        self._sole = sole.pop() if len(sole) == 1 else None  # the thread that has all ranges
        targets = sorted(route.targets)
        if edge.grouping == "local":
            targets = [t for t in targets if t[0] in local] or targets
        if edge.grouping in ("shuffle", "local"):
            targets = [t for t in targets if t[1] > 0] or targets
        total = sum(weight for _, weight in targets)
        self.threads = [thread for thread, _ in targets]
        share = 1.0 / len(targets) if targets else 0.0
        self._weights = [weight / total if total > 0 else share for _, weight in targets]
        self._due = first_turns(sender, self._weights)
        copies = self.threads if edge.grouping == "all" else []
        self.copy_of = {thread: number for number, thread in enumerate(copies)}  # tells copies of a row apart
        self.keys = KeyWatch() if edge.grouping == "fields" else None
        self.unroutable: list[
            tuple[int, BaseException]
        ] = []  # rows with no usable key or index since last asked

    @property
    def only(self) -> int | None:
        """The thread that gets every row, whatever is in it."""
        whatever = self.grouping not in ("fields", "direct")
        return self.threads[0] if whatever and len(self.threads) == 1 else None

    def split(self, rows: Sequence[Any]) -> Iterator[Part]:
        """Parts of these rows, each at most the receiving thread's cap long."""
        if not self.threads:
            raise LookupError("no thread of the plan receives this edge")
        if self.grouping in ("shuffle", "local"):
            yield from self._shuffled(len(rows))
        elif self.grouping == "fields":
            yield from self._by_key(rows)
        elif self.grouping == "all":
            for thread in self.threads:
                yield from self._cut(thread, range(len(rows)))
        elif self.grouping == "global":
            yield from self._cut(self.threads[0], range(len(rows)))
        else:
            yield from self._direct(rows)

    def _shuffled(self, count: int) -> Iterator[Part]:
        if len(self.threads) == 1:
            yield from self._cut(self.threads[0], range(count))
            return
        at, due = 0, self._due
        while at < count:
            when, place = due[0]
            thread = self.threads[place]
            size = min(count - at, self._cap_of(thread))
            heapreplace(due, (when + size / self._weights[place], place))
            yield thread, range(at, at + size)
            at += size

    def _by_key(self, rows: Sequence[Any]) -> Iterator[Part]:
        assert self._key is not None
        key = self._key
        if isinstance(rows, Columns) and (column := rows.values_at(self._place)) is not None:
            rows, key = column, _itself
        places: Places = range(len(rows))
        keys: list[Hashable] = []
        ranges: list[int] | None = None
        try:
            keys = list(map(key, rows))
            if len(keys) == len(rows):  # else it raised StopIteration
                ranges = self._ranges.of(keys)
        except self._ends:
            raise
        except BaseException:  # the user's key function or a row: that row is a dead letter
            ranges = None
        if ranges is None:
            keys, ranges, places = self._by_key_each(rows, key)
        if self.keys is not None and self.keys.wants(len(rows)) and keys:
            self.keys.add(keys)
        if self._sole is not None:
            yield from self._cut(self._sole, places)
            return
        parts: dict[int, list[int]] = {}
        for place, owner in zip(places, map(self._owners.__getitem__, ranges), strict=True):
            parts.setdefault(owner, []).append(place)
        for thread, its in parts.items():
            yield from self._cut(thread, its)

    def _by_key_each(
        self, rows: Sequence[Any], key: Callable[[Any], Hashable]
    ) -> tuple[list[Hashable], list[int], list[int]]:
        """(keys, their ranges, places) of the rows that have one."""
        keys: list[Hashable] = []
        ranges: list[int] = []
        places: list[int] = []
        for place, row in enumerate(rows):
            try:
                value = key(row)
                ranges.append(range_of(value))
            except self._ends:
                raise
            except BaseException as error:
                self.unroutable.append((place, error))
            else:
                keys.append(value)
                places.append(place)
        return keys, ranges, places

    def _direct(self, rows: Sequence[Any]) -> Iterator[Part]:
        threads = self.threads
        parts: dict[int, list[int]] = {}
        for place, row in enumerate(rows):
            try:
                thread = threads[row.index % len(threads) if isinstance(row, To) else 0]
            except self._ends:
                raise
            except BaseException as error:  # the user's index is not a whole number: a dead letter
                self.unroutable.append((place, error))
            else:
                parts.setdefault(thread, []).append(place)
        for thread, places in parts.items():
            yield from self._cut(thread, places)

    def _cut(self, thread: int, places: Places) -> Iterator[Part]:
        cap = self._cap_of(thread)
        if len(places) <= cap:
            if len(places):
                yield thread, places
            return
        for at in range(0, len(places), cap):
            yield thread, places[at : at + cap]
