"""Names of rows as ranges: what was written, small as long as positions come without holes. Pure."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import groupby

from headgate.topology_runtime.api.logic import RowId

Place = tuple[str, str, int, int]  # run, source, partition, variant
Range = tuple[str, str, int, int, int, int]  # the place; first position, and behind the last


def place_of(name: RowId) -> Place:
    return name.run, name.source, name.partition, name.variant


def ranges_of(names: Iterable[RowId]) -> list[Range]:
    """
    >>> ranges_of([RowId("r", "s", 0, 4, 0), RowId("r", "s", 0, 5, 0), RowId("r", "s", 0, 9, 0)])
    [('r', 's', 0, 0, 4, 6), ('r', 's', 0, 0, 9, 10)]
    """
    found: list[Range] = []
    for place, group in groupby(
        sorted({(place_of(name), name.position) for name in names}), lambda one: one[0]
    ):
        for _, position in group:
            if found and found[-1][:4] == place and found[-1][5] == position:
                found[-1] = (*place, found[-1][4], position + 1)
            else:
                found.append((*place, position, position + 1))
    return found


class WrittenIds:
    """All names of these ranges."""

    def __init__(self) -> None:
        self._by_place: dict[Place, tuple[list[int], list[int]]] = {}

    def add(self, ranges: Iterable[Range]) -> None:
        for *place, first, end in ranges:
            starts, ends = self._by_place.setdefault(tuple(place), ([], []))  # type: ignore[arg-type]
            at = bisect_right(starts, first)
            if at and ends[at - 1] >= first:
                at -= 1
                first = starts[at]
            stop = at
            while stop < len(starts) and starts[stop] <= end:
                end = max(end, ends[stop])
                stop += 1
            starts[at:stop], ends[at:stop] = [first], [end]

    def __contains__(self, name: RowId) -> bool:
        starts, ends = self._by_place.get(place_of(name), ([], []))
        at = bisect_right(starts, name.position)
        return at > 0 and name.position < ends[at - 1]

    @property
    def ranges(self) -> list[Range]:
        return [
            (*place, first, end)
            for place, (starts, ends) in sorted(self._by_place.items())
            for first, end in zip(starts, ends, strict=True)
        ]
