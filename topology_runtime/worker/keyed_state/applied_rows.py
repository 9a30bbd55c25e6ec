"""Which rows have changed a keyed state, and what came of them: a row that comes again changes it no more, and
what came of it goes out again (it may be what was lost). Pure.

Identities go wherever the state goes: into snapshots, and along with a range. So neither a restart nor a move
makes a row count twice. What is forgotten for lack of room is counted from above.

What came of a row is kept until all of its roots are done, as later roots of their sources tell: it may be large. That
the row was applied is known for longer, for a source that is started again begins from what the controller last heard;
what came of a row that is done went all its way, and need not go again.

Rows are remembered by the frame, in generations of which the oldest is forgotten as a whole. Whether a row is known
is mostly told by its position: rows that come in the order of their sources are above all that is known. Only where
they do not, positions are looked up one by one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, compress, islice, takewhile
from typing import Any, NamedTuple

import msgspec

from headgate.topology_runtime.api.logic import To
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.messages import RootPart
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.row_runs import Batch

REMEMBERED = 20_000  # rows of a thread: its part of the windows, twice
PARTS = 4  # that is so many generations
LOOK_AGAIN_FRAMES = 16  # that came since it was looked which are done, at least

Identity = tuple[int, int, int, int]  # source number, partition, position, variant
Place = tuple[int, int, int]  # source number, partition, variant: where positions are counted
Packed = tuple[list[Identity], list[int], int, bytes, list[tuple[int, int, int]]]
PackedGroup = tuple[int, int, int, int, int, list[int], list[int]]
PackedFrame = tuple[
    list[PackedGroup], list[int], list[int]
]  # groups, ranges, rows that came of each ([]: one)
PackedFrames = tuple[list[PackedFrame], int, bytes, list[tuple[int, int]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed).decode
_decode_frames = msgspec.msgpack.Decoder(PackedFrames).decode


class Located(NamedTuple):
    """Rows of a frame that come from one place: their positions there, and which rows of the frame those are."""

    place: Place
    positions: Sequence[int]
    rows: Sequence[int]
    first: int  # the lowest position
    last: int


def grouped(batch: Batch) -> list[Located]:
    """Where these rows come from."""
    number, offset, end, variant = batch.runs[0]
    end += offset
    for run in batch.runs[1:]:
        if run[0] != number or run[1] != end or run[3] != variant:
            return _grouped(batch)
        end += run[2]
    root, count = batch.roots[number], end - offset
    first = root.position + offset
    place = root.source, root.partition, variant
    return [Located(place, range(first, first + count), range(count), first, first + count - 1)]


def _grouped(batch: Batch) -> list[Located]:
    found: dict[Place, tuple[list[int], list[int]]] = {}
    at = 0
    for number, offset, count, variant in batch.runs:
        root = batch.roots[number]
        first = root.position + offset
        place = root.source, root.partition, variant
        positions, rows = found.get(place) or found.setdefault(place, ([], []))
        positions.extend(range(first, first + count))
        rows.extend(range(at, at + count))
        at += count
    return [_group(place, *its) for place, its in found.items()]


def _group(place: Place, positions: list[int], rows: list[int]) -> Located:
    return Located(place, positions, rows, min(positions), max(positions))


def twice_in(groups: Iterable[Located]) -> bool:
    """Is a row among these twice, in two attempts of its root?"""
    lists = (group.positions for group in groups if type(group.positions) is list)
    return any(len(set(positions)) < len(positions) for positions in lists)


def by_turns(groups: Iterable[Located]) -> list[set[int]]:
    """These rows, so that none is twice in a turn: those that came before as often."""
    turns: list[set[int]] = []
    for group in groups:
        came = Counter[int]()
        for position, row in zip(group.positions, group.rows, strict=True):
            if came[position] == len(turns):
                turns.append(set())
            turns[came[position]].add(row)
            came[position] += 1
    return turns


@dataclass(slots=True)
class _Frame:
    """Rows that were applied together: the first one's serial number, where they come from, and their key ranges; what
    came of them, and how much of each ([]: one row of each)."""

    first: int
    groups: list[Located]
    ranges: Sequence[int]
    came: list[Any]
    counts: list[int]
    _ends: list[int] = field(default_factory=list)
    roots: Sequence[RootPart] = ()  # of which they are rows; none: not known

    def let_go(self) -> None:
        """What came of them."""
        self.came, self.counts, self._ends, self.roots = [], [0] * len(self.ranges), [], ()

    def out(self, row: int) -> list[Any]:
        """What came of this row."""
        if not self.counts:
            return [self.came[row]]
        if not self._ends:
            self._ends = list(accumulate(self.counts))
        return self.came[self._ends[row] - self.counts[row] : self._ends[row]]

    def some(self, fit: Sequence[bool]) -> _Frame:
        """The rows for which this is true, for saving."""
        every = list(accumulate(fit, initial=0))  # row → its number by now
        groups = []
        for place, positions, rows, _, _ in self.groups:
            there = {at: every[row] for at, row in zip(positions, rows, strict=True) if fit[row]}
            if there:
                groups.append(_group(place, list(there), list(there.values())))
        outs = [self.out(row) for row in compress(range(len(fit)), fit)]
        ranges = list(compress(self.ranges, fit))
        return _Frame(self.first, groups, ranges, list(chain.from_iterable(outs)), list(map(len, outs)))

    def singles(self) -> Iterable[tuple[Identity, int]]:
        """Each row's identity, and which it is."""
        for (source, partition, variant), positions, rows, _, _ in self.groups:
            for position, row in zip(positions, rows, strict=True):
                yield (source, partition, position, variant), row


@dataclass(slots=True)
class _Generation:
    """Frames, and an index of their rows by position that is made when it is needed."""

    frames: list[_Frame] = field(default_factory=list)
    firsts: list[int] = field(default_factory=list)
    rows: int = 0
    _top: dict[Place, int] = field(default_factory=dict)  # all positions there are below
    _serials: dict[Place, dict[int, int]] = field(default_factory=dict)
    _indexed: int = 0

    def add(self, frame: _Frame) -> None:
        self.frames.append(frame)
        self.firsts.append(frame.first)
        self.rows += len(frame.ranges)
        top = self._top
        for place, _, _, _, last in frame.groups:
            top[place] = max(top.get(place, 0), last + 1)

    def is_below(self, below: dict[tuple[int, int], int]) -> bool:
        return all(top <= below.get(place[:2], 0) for place, top in self._top.items())

    def known(self, group: Located) -> list[tuple[int, int]]:
        """(row, serial number) of those of this group that are here."""
        place, positions, rows, first, _ = group
        if first >= self._top.get(place, 0):
            return []
        self._index()
        serials = self._serials[place]
        if serials.keys().isdisjoint(positions):
            return []
        return [
            (row, serials[position])
            for position, row in zip(positions, rows, strict=True)
            if position in serials
        ]

    def _index(self) -> None:
        for frame in islice(self.frames, self._indexed, None):
            for place, positions, rows, _, _ in frame.groups:
                serials = self._serials.setdefault(place, {})
                serials.update(zip(positions, map(frame.first.__add__, rows), strict=True))
        self._indexed = len(self.frames)

    def frame_of(self, serial: int) -> _Frame:
        return self.frames[bisect_right(self.firsts, serial) - 1]


class Applied:
    """Rows that were applied.

    below: (source, partition) → position below which rows may have been forgotten. again_at_most: rows that
    were applied and may have been before. most: rows that are remembered, if there were so many. exact: all rows are
    remembered that may come again, and `below` is where none does: a late copy of one that is done, if anything."""

    def __init__(self, most: int = REMEMBERED, exact: bool = False) -> None:
        self.below: dict[tuple[int, int], int] = {}
        self.again_at_most = 0
        self.most, self.exact = most, exact
        self._generations = deque([_Generation()])
        self._rows = 0
        self._next = self._saved = 0  # serial numbers: of the next row, of the first that is in no snapshot
        self._since: dict[int, int] = {}  # range → rows of it with lower numbers went with it
        self._last_gone = 0  # the highest of these
        self._by_range: dict[int, dict[Identity, Sequence[Any]]] | None = None
        self._floors: dict[int, tuple[int, int]] = {}  # source thread → incarnation, all roots below are done
        self._open: list[_Frame] = []  # frames of which something came that may have to go again
        self._looks_at = LOOK_AGAIN_FRAMES  # of those

    def hear(self, roots: Iterable[RootPart]) -> int:
        """Of a frame that came: they tell which earlier ones of their sources are done. Their highest partition."""
        floors, last = self._floors, -1
        for root in roots:
            if root.partition > last:
                last = root.partition
            heard = root.key.incarnation, root.floor
            if heard > floors.get(root.key.thread, (0, 0)):
                floors[root.key.thread] = heard
        return last

    def _done(self, root: RootPart) -> bool:
        incarnation, floor = self._floors.get(root.key.thread, (0, 0))
        return root.key.incarnation == incarnation and root.key.sequence < floor

    def _let_go(self) -> None:
        """What came of rows that are done. Looked for when there are twice as many frames as were left the last time:
        a frame is looked at twice, on average."""
        left = []
        for frame in self._open:
            if not all(map(self._done, frame.roots)):
                left.append(frame)
            elif frame.came:
                frame.let_go()
                self._by_range = None
        self._open, self._looks_at = left, 2 * len(left) + LOOK_AGAIN_FRAMES

    def outputs(self, groups: Iterable[Located], ranges: Sequence[int]) -> dict[int, Sequence[Any]]:
        """What came of those of these rows, each of its key range, that were applied before: row → output."""
        found: dict[int, Sequence[Any]] = {}
        for place, positions, rows, first, _ in groups if self.exact else ():
            if first < (below := self.below.get(place[:2], 0)):
                found |= {row: () for at, row in zip(positions, rows, strict=True) if at < below}
        for generation in self._generations:
            for group in groups:
                for row, serial in generation.known(group):
                    frame = generation.frame_of(serial)
                    at = serial - frame.first
                    if frame.ranges[at] == ranges[row] and serial >= self._since.get(ranges[row], 0):
                        found[row] = frame.out(at)
        return found

    def add(
        self,
        groups: list[Located],
        ranges: Sequence[int],
        came: list[Any],
        counts: list[int],
        roots: Sequence[RootPart] = (),
    ) -> None:
        """These rows have changed the states of their keys; what came of them, and how much of each ([]: one row).
        roots: theirs; without them what came is kept as long as the rows are known."""
        for place, positions, _, first, _ in groups:
            below = self.below.get(place[:2], 0)
            if first < below:
                self.again_at_most += 0 if self.exact else sum(position < below for position in positions)
        frame = self._remember(groups, ranges, came, counts)
        if came and roots:
            frame.roots = roots
            self._open.append(frame)
            if len(self._open) >= self._looks_at:
                self._let_go()

    def _remember(
        self, groups: list[Located], ranges: Sequence[int], came: list[Any], counts: list[int]
    ) -> _Frame:
        generations = self._generations
        if generations[-1].rows * PARTS >= self.most:
            generations.append(_Generation())
        frame = _Frame(self._next, groups, ranges, came, counts)
        generations[-1].add(frame)
        self._next += len(ranges)
        self._rows += len(ranges)
        self._by_range = None
        while not self.exact and self._rows - generations[0].rows >= self.most:
            self._forget(generations.popleft())
        return frame

    @property
    def rows(self) -> int:
        """That are remembered."""
        return self._rows

    def done_below(self, positions: Iterable[tuple[int, int, int]]) -> None:
        """(source, partition, position): no row below comes again, by what the controller has kept. To count exactly,
        no others are forgotten."""
        if not self.exact:
            return
        self.take_floors(positions)
        newest, left = self._generations.pop(), deque[_Generation]()
        for one in self._generations:
            if not one.is_below(self.below):
                left.append(one)
                continue
            self._rows -= one.rows
            for frame in one.frames:
                frame.roots = ()
        if len(left) < len(self._generations):
            self._by_range = None
            self._let_go()
        left.append(newest)
        self._generations = left

    def _forget(self, generation: _Generation) -> None:
        self._rows -= generation.rows
        for frame in generation.frames:
            frame.roots = ()
            for place, _, _, _, last in frame.groups:
                self.take_floors([(*place[:2], last + 1)])

    @property
    def _frames(self) -> Iterator[_Frame]:
        return (frame for generation in self._generations for frame in generation.frames)

    def drop(self, key_range: int) -> None:
        """The range has gone, or another copy of it takes the place of this one."""
        self._since[key_range] = self._last_gone = self._next
        self._by_range = None

    def _known(self) -> dict[int, dict[Identity, Sequence[Any]]]:
        """All rows, by range."""
        if self._by_range is None:
            self._by_range = {}
            for frame in self._frames:
                for identity, row in frame.singles():
                    if frame.first + row >= self._since.get(key_range := frame.ranges[row], 0):
                        self._by_range.setdefault(key_range, {})[identity] = frame.out(row)
        return self._by_range

    def of(self, key_range: int) -> int:
        """How many rows of a range are remembered."""
        return len(self._known().get(key_range, ()))

    # ── going along ─────────────────────────────────────────────────────────────────────────────

    def pack(self, key_range: int) -> bytes:
        """The rows of a range. One whose output cannot travel is left out, as if it were forgotten."""
        known = self._known().get(key_range, {})
        try:
            return _packed(known)
        except BadRow:
            if self.exact:
                return _packed({identity: out if _travels(out) else () for identity, out in known.items()})
            going = {identity: out for identity, out in known.items() if _travels(out)}
            self.take_floors((*i[:2], i[2] + 1) for i in known.keys() - going.keys())
            return _packed(going)

    def unpack(self, key_range: int, data: bytes) -> None:
        """Rows that came along with a range, in place of those known. Raises msgspec.DecodeError."""
        self.drop(key_range)
        identities, counts, shape, rows, indexes = _decode(data)
        came = wire.read(rows, shape)
        begins = list(accumulate(counts, initial=0))
        for place, at, index in indexes:
            came[begins[place] + at] = To(index, came[begins[place] + at])
        groups: dict[Place, tuple[list[int], list[int]]] = {}
        for row, (source, partition, position, variant) in enumerate(identities):
            positions, its = groups.setdefault((source, partition, variant), ([], []))
            positions.append(position)
            its.append(row)
        if identities:
            self._remember(
                [_group(p, *its) for p, its in groups.items()], [key_range] * len(identities), came, counts
            )

    def pack_new(self) -> bytes:
        """The rows that were applied since the last snapshot. One whose output cannot travel is left out, as if it were
        forgotten."""
        newest = (frame for one in reversed(self._generations) for frame in reversed(one.frames))
        return self._packed(list(takewhile(lambda frame: frame.first >= self._saved, newest))[::-1])

    def pack_all(self) -> bytes:
        """As `pack_new`, of all rows that are known."""
        return self._packed([known for frame in self._frames if (known := self._still_known(frame)).ranges])

    def _packed(self, frames: list[_Frame]) -> bytes:
        try:
            return _packed_frames(frames)
        except BadRow:
            return _packed_frames([self._travelling(frame) for frame in frames])

    def _still_known(self, frame: _Frame) -> _Frame:
        """The rows of a frame that have gone with no range."""
        if frame.first >= self._last_gone:
            return frame
        since = self._since
        fit = [frame.first + row >= since.get(at, 0) for row, at in enumerate(frame.ranges)]
        return frame if all(fit) else frame.some(fit)

    def _travelling(self, frame: _Frame) -> _Frame:
        """The rows of a frame whose output can travel."""
        outs = [frame.out(row) for row in range(len(frame.ranges))]
        fit = [_travels(out) for out in outs]
        if self.exact:  # all of them, some without
            outs = [out if travels else [] for out, travels in zip(outs, fit, strict=True)]
            return replace(frame, came=list(chain.from_iterable(outs)), counts=list(map(len, outs)))
        for place, positions, rows, _, _ in frame.groups:
            self.take_floors(
                (*place[:2], at + 1) for at, row in zip(positions, rows, strict=True) if not fit[row]
            )
        return frame.some(fit)

    def unpack_new(self, data: bytes) -> None:
        """These were applied beside those known. Raises msgspec.DecodeError."""
        frames, shape, rows, indexes = _decode_frames(data)
        all_rows = wire.read(rows, shape)
        for at, index in indexes:
            all_rows[at] = To(index, all_rows[at])
        begin = 0
        for packed, ranges, counts in frames:
            end = begin + (sum(counts) if counts else len(ranges))
            self._remember([_unpacked(*one) for one in packed], ranges, all_rows[begin:end], counts)
            begin = end

    def saved(self) -> None:
        """A snapshot has all rows that were applied so far."""
        self._saved = self._next

    def floors(self) -> tuple[tuple[int, int, int], ...]:
        """`below` as a plain value."""
        return tuple((*place, position) for place, position in self.below.items())

    def take_floors(self, floors: Iterable[tuple[int, int, int]]) -> None:
        for source, partition, position in floors:
            place = source, partition
            self.below[place] = max(self.below.get(place, 0), position)


def _packed(known: dict[Identity, Sequence[Any]]) -> bytes:
    """[identities, how many rows came of each, shape of the rows, the rows, (place, at, index) of those that
    go to one thread of a direct edge]."""
    rows = [row.row if type(row) is To else row for out in known.values() for row in out]
    indexes = [
        (place, at, row.index)
        for place, out in enumerate(known.values())
        for at, row in enumerate(out)
        if type(row) is To
    ]
    shape = wire.shape_of(rows)
    return _encode(
        (list(known), [len(out) for out in known.values()], shape, wire.write(rows, shape), indexes)
    )


def _packed_frames(frames: Sequence[_Frame]) -> bytes:
    """Raises BadRow."""
    packed = [_packed_frame(frame) for frame in frames]
    rows = list(chain.from_iterable(frame.came for frame in frames))
    indexes: list[tuple[int, int]] = []
    try:
        shape = wire.shape_of(rows)
    except BadRow:  # some of them may say which thread they are for
        indexes = [(at, row.index) for at, row in enumerate(rows) if type(row) is To]
        rows = [row.row if type(row) is To else row for row in rows]
        shape = wire.shape_of(rows)
    return _encode((packed, shape, wire.write(rows, shape), indexes))


def _packed_frame(frame: _Frame) -> PackedFrame:
    groups: list[PackedGroup] = [
        (*group.place, group.first, len(group.positions), [], [])
        if type(group.positions) is range
        else (*group.place, 0, 0, list(group.positions), list(group.rows))
        for group in frame.groups
    ]
    return groups, list(frame.ranges), frame.counts


def _unpacked(
    source: int, partition: int, variant: int, first: int, count: int, positions: list[int], rows: list[int]
) -> Located:
    place = source, partition, variant
    if count:
        return Located(place, range(first, first + count), range(count), first, first + count - 1)
    return _group(place, positions, rows)


def _travels(out: Sequence[Any]) -> bool:
    try:
        wire.check([row.row if type(row) is To else row for row in out])
    except BadRow:
        return False
    return True
