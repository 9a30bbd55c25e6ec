"""Which rows have changed a keyed state, and what came of them: a row that comes again changes it no more, and
what came of it goes out again (it may be what was lost). Pure.

Identities go wherever the state goes: into snapshots, and along with a range. So neither a restart nor a move
makes a row count twice. What is forgotten for lack of room is counted from above.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Any

import msgspec

from topology_runtime.errors import BadRow
from topology_runtime.logic import To
from topology_runtime.worker import rows as wire

REMEMBERED = 20_000  # rows of a thread: its part of the windows, twice; 25 ms of CPU a snapshot at most

Identity = tuple[int, int, int, int]  # source number, partition, position, variant
Packed = tuple[list[Identity], list[int], int, bytes, list[tuple[int, int, int]]]

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Packed).decode


class Applied:
    """Rows that were applied, by key range.

    below: (source, partition) → position below which rows may have been forgotten. again_at_most: rows that
    were applied and may have been before."""

    def __init__(self, most: int = REMEMBERED) -> None:
        self.below: dict[tuple[int, int], int] = {}
        self.again_at_most = 0
        self.most = most
        self._ranges: dict[int, dict[Identity, list[Any]]] = {}
        self._packed: dict[int, bytes] = {}  # of ranges that have not changed since
        self._order: deque[tuple[int, Identity]] = deque()

    def output(self, key_range: int, identity: Identity) -> list[Any] | None:
        """What came of this row, None when it is not known to have been applied."""
        known = self._ranges.get(key_range)
        return known.get(identity) if known is not None else None

    def of(self, key_range: int) -> int:
        """How many rows of a range are remembered."""
        return len(self._ranges.get(key_range, ()))

    @property
    def filled(self) -> set[int]:
        """Ranges of which rows are remembered."""
        return {key_range for key_range, known in self._ranges.items() if known}

    def add(self, key_range: int, identity: Identity, out: list[Any]) -> None:
        """A row has changed the state."""
        if identity[2] < self.below.get(identity[:2], 0):
            self.again_at_most += 1
        self._remember(key_range, identity, out)

    def _remember(self, key_range: int, identity: Identity, out: list[Any]) -> None:
        self._ranges.setdefault(key_range, {})[identity] = out
        self._packed.pop(key_range, None)
        self._order.append((key_range, identity))
        if len(self._order) > self.most:
            self._forget(*self._order.popleft())

    def _forget(self, key_range: int, identity: Identity) -> None:
        if self._ranges.get(key_range, {}).pop(identity, None) is not None:
            self._packed.pop(key_range, None)
            place = identity[:2]
            self.below[place] = max(self.below.get(place, 0), identity[2] + 1)

    def drop(self, key_range: int) -> None:
        """The range has gone, or another copy of it takes the place of this one."""
        self._ranges.pop(key_range, None)
        self._packed.pop(key_range, None)

    # ── going along ─────────────────────────────────────────────────────────────────────────────

    def pack(self, key_range: int) -> bytes:
        """The rows of a range. One whose output cannot travel is forgotten: it never goes out either."""
        found = self._packed.get(key_range)
        if found is None:
            found = self._packed[key_range] = self._pack(key_range)
        return found

    def _pack(self, key_range: int) -> bytes:
        known = self._ranges.get(key_range, {})
        try:
            return _packed(known)
        except BadRow:
            for identity in [identity for identity, out in known.items() if not _travels(out)]:
                self._forget(key_range, identity)
            return _packed(known)

    def unpack(self, key_range: int, data: bytes) -> None:
        """Rows that came along with a range, in place of those known. Raises msgspec.DecodeError."""
        self.drop(key_range)
        identities, counts, shape, rows, indexes = _decode(data)
        out = iter(wire.read(rows, shape))
        for identity, count in zip(identities, counts, strict=True):
            self._remember(key_range, identity, list(islice(out, count)))
        for place, at, index in indexes:
            came = self._ranges[key_range][identities[place]]
            came[at] = To(index, came[at])

    def floors(self) -> tuple[tuple[int, int, int], ...]:
        """`below` as a plain value."""
        return tuple((*place, position) for place, position in self.below.items())

    def take_floors(self, floors: Iterable[tuple[int, int, int]]) -> None:
        for source, partition, position in floors:
            place = source, partition
            self.below[place] = max(self.below.get(place, 0), position)


def _packed(known: dict[Identity, list[Any]]) -> bytes:
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


def _travels(out: list[Any]) -> bool:
    try:
        wire.check([row.row if type(row) is To else row for row in out])
    except BadRow:
        return False
    return True
