"""The history of a run: a row a second, thinned with age, as columns. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any

from headgate.topology_runtime.snapshot import HISTORY_S, History

COLUMNS = History.__struct_fields__
LAST = frozenset({"epoch", "slots_used"})  # of these a longer interval keeps the last value, not the mean
FINE_S = 120.0  # rows younger than this are kept as they are …
COARSE_S = 4.0  # … older ones are means over so long

Row = dict[str, float | None]
Columns = dict[str, list[float | None]]


class HistoryRing:
    """The rows of the last ten minutes."""

    def __init__(self) -> None:
        self._rows: deque[Row] = deque()
        self._fresh: list[Row] = []

    def add(self, row: Row) -> None:
        """A row with a value per column; its `time` is later than that of the one before."""
        time = row["time"]
        assert time is not None
        self._rows.append(row)
        self._fresh.append(row)
        while (self._rows[0]["time"] or 0.0) <= time - HISTORY_S:
            self._rows.popleft()
        if len(self._fresh) > len(self._rows):
            self._fresh = list(self._rows)

    @property
    def last_s(self) -> float:
        """When the newest row is from; 0 without one."""
        return (self._rows[-1]["time"] or 0.0) if self._rows else 0.0

    def take(self) -> Columns:
        """The rows that were not taken yet; nothing without any."""
        fresh, self._fresh = self._fresh, []
        return columns_of(fresh) if fresh else {}

    def columns(self) -> Columns:
        """All that were taken, the older ones thinned."""
        taken = list(self._rows)[: len(self._rows) - len(self._fresh)]
        return columns_of(thinned(taken))


def columns_of(rows: Iterable[Row]) -> Columns:
    kept = list(rows)
    return {name: [row.get(name) for row in kept] for name in COLUMNS}


def thinned(rows: list[Row]) -> Iterator[Row]:
    """Rows by rising time → fewer of the old ones."""
    if not rows:
        return
    fine_from = (rows[-1]["time"] or 0.0) - FINE_S
    coarse = [row for row in rows if (row["time"] or 0.0) < fine_from]
    for _, together in groupby(coarse, key=lambda row: (row["time"] or 0.0) // COARSE_S):
        yield _mean(list(together))
    yield from rows[len(coarse) :]


def _mean(rows: list[Row]) -> Row:
    return {name: _one(name, [row.get(name) for row in rows]) for name in COLUMNS}


def _one(name: str, values: list[Any]) -> float | None:
    known = [value for value in values if value is not None]
    if not known:
        return None
    last: float = known[-1]
    return last if name in LAST else round(sum(known) / len(known), 4)
