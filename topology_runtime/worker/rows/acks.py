"""The acks' algebra: what a thread owes the ledgers of the roots whose rows it has. Pure.

A ledger's entry is the XOR of all ids that were sent for a root and not yet acked (source_ledger.py). Rows of a root go
on under *shares*, random numbers: one for every part of an output buffer that gets rows of it (output_buffers.py), one
for every row that is kept here. An event (a frame, a pane that fires, a snapshot on disk) brings each root one ack, and
this is what is in it (protocol: Tuples; Tasks that keep rows):

 1. A frame that is taken cancels the id it came with.
 2. What goes out adds the shares that it was given. The id of the frame in which it goes is the XOR of the shares in
    it; so shares, and ids, are never shared between input frames [A1].
 3. A row that is kept adds its share when it is taken up, and cancels it when it is let go: because its pane fires, it
    goes to another thread, a snapshot covers it, or it is a dead letter. Nothing else cancels it [A2]. Rows of a frame
    and a root that are released together, by the same snapshot, have one share together.
 4. A row that is refused, since its position is there in a newer attempt, adds a share that nobody ever cancels: were
    its own attempt done, the ledger would forget the newer one's rows, which wait here.
 5. A row that is given up, since a newer attempt replaces it or nobody waits for it, cancels nothing either. Its
    ledger hears only that one row fewer is kept.
 6. A row counts for every root that it has: the one that it is named after and those that go along. What comes of a
    pane has all roots of the pane's rows, and keeps all of them open.
 7. A dead letter has no term: its row is done. The row of a dead letter that was sent again and died again is refused.
 8. The share of a row that waits in a pane is told a second time, with who keeps it: so a ledger knows whether all that
    is open of a root only waits in panes (`Root.at_rest`), and of which tasks. A pane that fires at the end of the
    input lets its rows go only later: until then they are kept by `FIRED` + the number of its task, or by `STAYS` if
    they are to stay for another run (controller/execute/end_of_input.py).
 9. The terms of an event are added up before anybody hears of them: what is taken up and released in between is not
    told. They leave once what was finished is recorded (thread_core.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, KeysView, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.messages import Ack, Frame, RootKey, RootPart
from headgate.topology_runtime.worker.rows import row_runs as r

FIRED, STAYS = 1 << 32, 1 << 33  # who keeps rows of panes: above all numbers of tasks (rule 8)

Shares = dict[RootKey, int]  # the XOR of all shares given, per root
Addressed = tuple[Slot, Ack]  # an ack and the slot of its ledger
Position = tuple[int, int, int]  # source number, partition, position of the row


def summed(acks: Iterable[Addressed]) -> Iterator[Addressed]:
    """Acks of several events, those of one root and attempt as one: a ledger that hears their sum hears the same, but
    of what was made only the most."""
    sums: dict[tuple[Slot, RootKey, int], list[int]] = {}
    for home, ack in acks:
        known = sums.get(place := (home, ack.key, ack.kept_by))
        if known is None:
            sums[place] = [ack.value, ack.held, ack.made_by, ack.made_bytes, ack.kept]
            continue
        known[0] ^= ack.value
        known[1] += ack.held
        known[4] ^= ack.kept
        if ack.made_bytes > known[3]:
            known[2:4] = ack.made_by, ack.made_bytes
    for (home, key, kept_by), (value, held, made_by, made_bytes, kept) in sums.items():
        yield home, Ack(key, value, held, made_by, made_bytes, kept, kept_by)


@dataclass(slots=True)
class BufferedRow:
    """A row that may be kept: what it is, from where it came, and the share that keeps its roots open: the one it is
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

    @property
    def identity(self) -> tuple[int, int, int, int]:
        """The same in every replay."""
        return (*self.position, self.variant)

    @property
    def batch(self) -> r.Batch:
        """It alone, as a row of its first root."""
        return r.Batch((self.row,), [(0, self.offset, 1, self.variant)], self.roots)


def alone(roots: Sequence[RootPart], number: int) -> tuple[RootPart, tuple[RootPart, ...]]:
    """Root `number` of a frame and those that go along with it, out of their frame."""
    root = roots[number]
    if not root.along:
        return root, ()
    along = tuple(roots[other] for other in root.along)
    return replace(root, along=list(range(1, len(along) + 1))), along


def together(rows: Sequence[BufferedRow]) -> list[RootPart]:
    """All roots of these rows (rule 6): the first one's root, and the others go along with it."""
    first = rows[0].root
    others = {root.key: root for row in rows for root in row.roots if root.key != first.key}
    if others or first.along:
        first = replace(first, along=list(range(1, len(others) + 1)))
    return [first, *others.values()]


def single_rows(
    batch: Frame | r.Batch,
    edge: int,
    random64: Callable[[], int],
    unwanted: Callable[[Iterable[RootPart]], bool] = lambda _: False,
) -> Iterator[BufferedRow]:
    """The rows of a frame, or some of them, one by one, each with a share of its own; but those of roots that are not
    wanted."""
    parts = [alone(batch.roots, number) for number in range(len(batch.roots))]
    wanted = [not unwanted((root, *along)) for root, along in parts]
    for row, (number, offset, variant) in zip(batch.rows, r.single(batch.runs), strict=True):
        if wanted[number]:
            root, along = parts[number]
            yield BufferedRow(row, edge, root, offset, variant, random64(), along)


def united(rows: Iterable[BufferedRow]) -> r.Batch:
    """These rows as one batch. Whatever goes along with a root in one of them goes along with it (rule 6)."""
    values: list[Any] = []
    runs: list[tuple[int, int, int]] = []
    roots: list[RootPart] = []
    places: dict[RootKey, int] = {}
    for row in rows:
        place = places.get(row.root.key)
        if place is None or row.along:
            place = _placed(row, roots, places)
        values.append(row.row)
        runs.append((place, row.offset, row.variant))
    return r.Batch(values, r.joined(runs), roots)


def _placed(row: BufferedRow, roots: list[RootPart], places: dict[RootKey, int]) -> int:
    """The number of a row's first root among these."""
    for root in row.roots:
        if places.setdefault(root.key, len(roots)) == len(roots):
            roots.append(replace(root, along=[]))
    place, *others = (places[root.key] for root in row.roots)
    along = roots[place].along
    along += [other for other in others if other not in along]
    return place


class WaitingRows:
    """Rows at the side, by the number of what they wait for."""

    def __init__(self) -> None:
        self._rows: dict[int, list[tuple[int, BufferedRow]]] = {}  # with how many came before
        self._came = self._many = 0

    def __len__(self) -> int:
        return self._many

    @property
    def places(self) -> KeysView[int]:
        """What is waited for."""
        return self._rows.keys()

    def add(self, place: int, row: BufferedRow) -> None:
        self._rows.setdefault(place, []).append((self._came, row))
        self._came += 1
        self._many += 1

    def of(self, place: int) -> list[BufferedRow]:
        return [row for _, row in self._rows.get(place, ())]

    def take(self, places: Iterable[int]) -> list[BufferedRow]:
        """Those that wait for these wait no more; in the order in which they came."""
        found = list(chain.from_iterable(self._rows.pop(place, ()) for place in places))
        found.sort(key=itemgetter(0))
        self._many -= len(found)
        return [row for _, row in found]


def passed_on(
    roots: Sequence[RootPart], given: Shares, made_by: int = 0, made_bytes: int = 0
) -> list[Addressed]:
    """The acks of a frame of which nothing is kept (rules 1 and 2). made_bytes: of what task `made_by` made of each
    root."""
    return [
        (root.home, Ack(root.key, root.id ^ given.get(root.key, 0), 0, made_by, made_bytes)) for root in roots
    ]


def left_open(
    acks: Iterable[Addressed], refused: Collection[RootKey], random64: Callable[[], int]
) -> list[Addressed]:
    """These acks, and a share that nobody cancels in those of dead letters that died again (rule 7)."""
    return [
        (home, replace(ack, value=ack.value ^ random64()) if ack.key in refused else ack)
        for home, ack in acks
    ]


class _Sum(Struct):
    """Of one root."""

    home: Slot
    value: int
    kept: int = 0
    waits: dict[int, int] | None = None  # who keeps rows in panes → their shares (rule 8)

    def acks(self, key: RootKey, made: tuple[int, int]) -> Iterator[Ack]:
        """One for each keeper: the first tells all else."""
        value, kept = self.value, self.kept
        for keeper, shares in (self.waits or {}).items():
            yield Ack(key, value, kept, *made, shares, keeper)
            value = kept = 0


class AckSums:
    """The acks of one event. `taken`: the roots of the frame that it is, if it is one (rule 1). made: which task made
    so many bytes of each root (`passed_on`)."""

    def __init__(self, taken: Iterable[RootPart] = ()) -> None:
        self._sums = {root.key: _Sum(root.home, root.id) for root in taken}
        self.made = 0, 0

    def _add(self, root: RootPart, value: int, kept: int) -> _Sum:
        known = self._sums.get(root.key)
        if known is None:
            known = self._sums[root.key] = _Sum(root.home, value, kept)
        else:
            known.value ^= value
            known.kept += kept
        return known

    def waits(self, row: BufferedRow, keeper: int, kept: int = 0) -> None:
        """A row begins to wait in a pane of this keeper (kept: 1), or does not any more (-1); 0: another keeper had it,
        or has it (rule 8)."""
        share = row.share
        for root in row.roots:
            known = self._add(root, share if kept else 0, kept)
            if known.waits is None:
                known.waits = {keeper: share}
            else:
                known.waits[keeper] = known.waits.get(keeper, 0) ^ share

    def give(self, roots: Iterable[RootPart], given: Shares) -> None:
        """These shares went out (rule 2)."""
        for root in roots:
            if (share := given.get(root.key)) is not None:
                self._add(root, share, 0)

    def keep(self, row: BufferedRow) -> None:
        """It is taken up (rule 3)."""
        for root in row.roots:
            self._add(root, row.share, 1)

    def let_go(self, row: BufferedRow) -> None:
        """It was taken up, and is kept no more (rule 3)."""
        for root in row.roots:
            self._add(root, row.share, -1)

    def keep_together(self, roots: Iterable[RootPart], share: int, rows: int) -> None:
        """So many rows of these roots are taken up under one share, or (a negative number) released (rule 3)."""
        for root in roots:
            self._add(root, share, rows)

    def refuse(self, row: BufferedRow) -> None:
        """Rule 4."""
        for root in row.roots:
            self._add(root, row.share, 0)

    def give_up(self, row: BufferedRow) -> None:
        """Rule 5."""
        for root in row.roots:
            self._add(root, 0, -1)

    @property
    def roots(self) -> KeysView[RootKey]:
        """The roots that these acks are for."""
        return self._sums.keys()

    def all(self) -> list[Addressed]:
        found = [
            (one.home, Ack(key, one.value, one.kept, *self.made))
            for key, one in self._sums.items()
            if one.waits is None
        ]
        if len(found) < len(self._sums):
            waiting = ((key, one) for key, one in self._sums.items() if one.waits is not None)
            found += [(one.home, ack) for key, one in waiting for ack in one.acks(key, self.made)]
        return found
