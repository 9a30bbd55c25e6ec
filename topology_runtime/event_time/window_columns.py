"""Rows as columns, put together by key and window: what all rows of a group add to one value is found by numpy, and the
value is touched once. Pure.

It is the same as adding row by row, to the last bit, or it is not done: what is not sure of a whole column (a value
that is no finite number, sums that may leave 64 bits, None among numbers) is None here, and the rows are taken one by
one. Numpy is imported when columns come.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import pairwise
from typing import Any

from headgate.topology_runtime.api.timed import EARLIEST_US, LATEST_US, TO_US

Array = Any  # of numpy
ColumnAt = Callable[[str | int | None], Array | None]  # name or position → column; None: it is not there
GROUPS_END = 1 << 62  # numbers of groups stay below it, which has room in 64 bits


class RowGroups:
    """Rows of one key and one window or slice. keys: all that are there; key_numbers, starts, sizes: of each group;
    first: where it begins in `order`, the places of all rows. as_they_came: the groups in the order of their first
    rows."""

    def __init__(
        self, keys: Sequence[Hashable], key_numbers: Array, starts: Array, order: Array, first: Array
    ):
        self.keys, self.order, self.first = keys, order, first
        self._bounds = [*first.tolist(), len(order)]
        self.sizes = [end - begin for begin, end in pairwise(self._bounds)]
        self.key_numbers: list[int] = key_numbers.tolist()
        self.starts: list[int] = starts.tolist()
        self.as_they_came: list[int] = order[first].argsort().tolist()

    def sums(self, column: Array) -> list[int]:
        """Of each group, modulo 2⁶⁴."""
        import numpy as np

        return np.add.reduceat(column[self.order], self.first, dtype=np.int64).tolist()  # type: ignore[no-any-return]

    def least(self, column: Array, greatest: bool) -> list[Any]:
        """Of each group the least value, or the greatest."""
        import numpy as np

        best = np.maximum if greatest else np.minimum
        return best.reduceat(column[self.order], self.first).tolist()  # type: ignore[no-any-return]

    def lists(self, column: Array) -> list[list[Any]]:
        """The values of each group."""
        values = column[self.order].tolist()
        return [values[begin:end] for begin, end in pairwise(self._bounds)]

    def places(self, groups: Sequence[int]) -> list[int]:
        """Of all rows of these groups, in the order in which the rows came."""
        import numpy as np

        if not groups:
            return []
        parts = [self.order[self._bounds[group] : self._bounds[group + 1]] for group in groups]
        return np.sort(np.concatenate(parts)).tolist()  # type: ignore[no-any-return]


def row_groups(keys: Sequence[Hashable], times: Array, every: int, offset: int) -> RowGroups | None:
    """Rows with these keys and times (µs), by the windows of one size that follow each other; None: they are too far
    from each other to be told apart in 64 bits."""
    import numpy as np

    if every >= LATEST_US:
        return None
    known = {key: number for number, key in enumerate(dict.fromkeys(keys))}
    numbers = np.fromiter(map(known.__getitem__, keys), np.int64, len(keys))
    starts = times - (times - offset % every) % every
    low, high = int(starts.min()), int(starts.max())
    groups = numbers
    if low != high:
        many = (high - low) // every + 1
        if many * len(known) >= GROUPS_END:
            return None
        groups = numbers * many + (starts - low) // every
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    first = np.concatenate(([0], np.flatnonzero(ordered[1:] != ordered[:-1]) + 1))
    firsts = order[first]
    return RowGroups(list(known), numbers[firsts], starts[firsts], order, first)


def times_in(column: Array, unit: str) -> Array | None:
    """The event times (µs) in this column, as `row_time` makes them of each value; None: of some it may not."""
    import numpy as np

    times, parts = TO_US[unit]
    if not len(column) or column.ndim != 1:
        return None
    if column.dtype.kind in "iu":
        least, most = EARLIEST_US // times * parts, LATEST_US // times * parts
        if int(column.min()) < least or int(column.max()) > most:
            return None
        column = column.astype(np.int64, copy=False)
        return column * times if parts == 1 else column // parts
    if column.dtype.kind != "f":
        return None
    with np.errstate(over="ignore", invalid="ignore"):
        found = np.rint(column.astype(np.float64, copy=False) * times / parts)
    return found.astype(np.int64) if (np.abs(found) < LATEST_US).all() else None


# ── columns of numbers ──────────────────────────────────────────────────────────────────────────


def whole_numbers(column: Array | None) -> int | None:
    """What the sum of any of these is sure not to reach, of either sign; None: these are no whole numbers."""
    if column is None or column.ndim != 1 or column.dtype.kind not in "iu":
        return None
    return max(-int(column.min()), int(column.max()), 0) * len(column) + 1


def floats(column: Array | None) -> float | None:
    """As `whole_numbers`, of floats that are all finite; at least so much, as far as a float tells."""
    if column is None or column.ndim != 1 or column.dtype.kind != "f":
        return None
    bound = 2.0 * float(abs(column).max()) * len(column)
    return bound if math.isfinite(bound) else None


def compares(column: Array | None) -> bool:
    """Are these numbers, each of which is less than, greater than or the same as another to the last bit?"""
    if column is None or column.ndim != 1 or column.dtype.kind not in "iuf":
        return False
    if column.dtype.kind != "f":
        return True
    import numpy as np

    zeros = np.signbit(column[column == 0])
    return bool(np.isfinite(column).all()) and (zeros.all() or not zeros.any())


def partial_sums(partials: Sequence[float], values: Sequence[float]) -> list[float]:
    """Floats whose exact sum is that of all of these, the least first, none of them needed where a rounded sum of
    the others will do (J. R. Shewchuk, 1997)."""
    left = [*partials, *values]
    found = [math.fsum(left)]
    while found[-1]:
        left.append(-found[-1])
        found.append(math.fsum(left))
    return found[-2::-1] or found
