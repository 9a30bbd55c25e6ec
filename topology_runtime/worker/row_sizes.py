"""How large rows are in memory, about, as a source gives them and as a task makes them: so that what is in flight can
be bounded in bytes. Pure.

Some rows of a root or frame are looked at, every time others, and of a row no more than its first values; the mean is
of some sixty rows, all of them of the first roots. A root of large rows is a small one, so of these more is seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from headgate.topology_runtime.worker.columns import Columns

TOLD_FROM_BYTES = 4096  # of what a task made of a root
LOOK_EVERY_FRAMES = 16  # while it makes less
OTHER_BYTES = 64  # of what is no plain value, or nested deeper
LOOKED_AT = 4  # rows of a root
MEAN_OF = 64  # rows
VALUES_MOST = 64  # of a list or dict that are looked at
DEEPEST = 6
SURPRISE = 4  # rows that are so many times as large as those before are looked at as the first ones are
FLAT = frozenset((int, float, str, bytes, bool, type(None)))


class RowSizes:
    """Of one thread. mean_bytes: of a row; 0 before there was one."""

    def __init__(self) -> None:
        self.mean_bytes = 0.0
        self._begin = self._seen = 0

    @property
    def sure(self) -> bool:
        """Is the mean of as many rows as it will ever be?"""
        return self._seen == MEAN_OF

    def saw(self, rows: Sequence[Any]) -> None:
        """These rows were read."""
        if not len(rows):
            return
        if type(rows) is Columns:
            rest = (sum(map(bytes_of, values[:LOOKED_AT])) / LOOKED_AT for values in rows.objects)
            size, looked_at = rows.row_bytes + sum(rest), len(rows)
        else:
            size, looked_at = self._some(rows, max(LOOKED_AT, MEAN_OF - self._seen))
            if size > SURPRISE * self.mean_bytes > 0.0:  # rows are others now
                self._seen = 0
                size, looked_at = self._some(rows, MEAN_OF)
        self._seen = min(MEAN_OF, self._seen + looked_at)
        self.mean_bytes += (size - self.mean_bytes) * min(1.0, looked_at / self._seen)

    def _some(self, rows: Sequence[Any], most: int) -> tuple[float, int]:
        """The mean of so many rows at most, and how many there were."""
        step = max(1, len(rows) // most)
        some = rows[self._begin % step :: step][:most]
        self._begin += 1
        return sum([bytes_of(row) for row in some]) / len(some), len(some)


class MadeSizes:
    """Of what one thread makes of rows."""

    def __init__(self) -> None:
        self._sizes = RowSizes()
        self._unlooked = 0  # so many frames may pass before one is looked at again

    @property
    def mean_bytes(self) -> float:
        """Of what is made of a row, as far as was looked."""
        return self._sizes.mean_bytes

    def made_bytes(self, rows: Sequence[Any], roots: int) -> int:
        """Of what came of a frame of so many roots, the part of each, about; 0 where that is little."""
        if self._unlooked:
            self._unlooked -= 1
            return 0
        self._sizes.saw(rows)
        each = int(self._sizes.mean_bytes * len(rows)) // roots
        if each >= TOLD_FROM_BYTES:
            return each
        self._unlooked = LOOK_EVERY_FRAMES - 1
        return 0


def bytes_of(value: Any, depth: int = 0) -> int:
    """Of a value in memory, about."""
    kind = type(value)
    if kind in FLAT:
        return int(value.__sizeof__())
    if depth == DEEPEST or not (kind is tuple or kind is list or kind is dict):
        return OTHER_BYTES
    inside = value.values() if kind is dict else value
    many = len(value)
    if many > VALUES_MOST:
        inside = islice(inside, VALUES_MOST)
    sizes = [one.__sizeof__() if type(one) in FLAT else bytes_of(one, depth + 1) for one in inside]
    return int(value.__sizeof__()) + sum(sizes) * many // max(1, len(sizes))
