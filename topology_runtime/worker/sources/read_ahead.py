"""Rows that a source with offsets gave and that are not done yet, by position (protocol: Sources). Pure.

Whoever keeps the rows outside has them for as long as they are not committed, so nothing of them is on the VM's disk:
a successor reads them again, from the offset that came with the last position known to be done. How much they hold is
known from one row of each so many.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows import row_values as wire

HELD_BYTES_MOST, HELD_ROWS_MOST = 64 << 20, 200_000  # beyond it nothing more is read
ROW_BYTES = 256  # besides its data
NO_OFFSET = 0  # none is known: behind a row it is 1 at least
OFFSET_MOST = (1 << 63) - 2

LOOK_AT = 32  # one row of so many
Held = tuple[int, Any, int, int]  # when it came, the row, the offset to go on from behind it, bytes


class ReadAhead:
    """Of one thread. Begins at `position`, where a source goes on from `offset`; the first `passing` rows from there
    lie below the position."""

    def __init__(self, position: int, offset: int = NO_OFFSET, passing: int = 0) -> None:
        self.acked = self.end = position
        self._passing = passing
        self._rows: dict[int, Held] = {}
        self._held_bytes = self._row_bytes = self._looked = 0
        self.acked_offset = offset if not passing else NO_OFFSET  # to go on from at `acked`
        self.next_offset = offset  # to go on from behind all that it was given

    @property
    def full(self) -> bool:
        """Does it hold as much as it may?"""
        return self._held_bytes >= HELD_BYTES_MOST or len(self._rows) >= HELD_ROWS_MOST

    def append(self, rows: Sequence[tuple[int, Any]], came_ns: Sequence[int]) -> None:
        """Take rows behind their offsets, which came at these times (UTC); an exception may stand in place of one.
        ValueError for offsets that do not rise: nothing is taken then."""
        last = self.next_offset - 1
        for offset, _ in rows:
            if type(offset) is not int or not last < offset <= OFFSET_MOST:
                raise ValueError(f"offset {offset!r} comes after {last}: offsets are whole numbers that rise")
            last = offset
        for (offset, row), at_ns in zip(rows, came_ns, strict=True):
            self.next_offset = offset + 1
            if self._passing:
                self._passing -= 1
                if not self._passing:
                    self.acked_offset = self.next_offset
                continue
            if not self._looked:
                self._row_bytes = ROW_BYTES + _size(row)
            self._looked = (self._looked + 1) % LOOK_AT
            self._rows[self.end] = at_ns, row, offset + 1, self._row_bytes
            self._held_bytes += self._row_bytes
            self.end += 1

    def arrived_ns(self, position: int) -> int:
        """When the row at this position, which it holds, came (UTC)."""
        return self._rows[position][0]

    def offset_at(self, position: int) -> int:
        """To go on from at this position; NO_OFFSET where it is not known."""
        before = self._rows.get(position - 1)
        if before is not None:
            return before[2]
        return self.acked_offset if position == self.acked else NO_OFFSET

    def read(self, position: int, limit: int) -> list[Any]:
        """Rows from `position` on (not below `acked`), exceptions among them."""
        return [self._rows[p][1] for p in range(position, min(self.end, position + limit))]

    def done_below(self, position: int) -> bool:
        """All below `position` is done: forget it. True when that is new."""
        position = min(position, self.end)
        if position <= self.acked:
            return False
        for p in range(self.acked, position):
            _, _, self.acked_offset, size = self._rows.pop(p)
            self._held_bytes -= size
        self.acked = position
        return True


def _size(row: Any) -> int:
    """Bytes of a row, about; of what is no plain value nobody knows."""
    if isinstance(row, str | bytes):
        return len(row)
    try:
        return len(wire.write([row], wire.NESTED))
    except (TypeError, ValueError, OverflowError, BadRow):
        return 0
