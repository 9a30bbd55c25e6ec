"""User code of the simulated topologies: small real sources, maps, joins and batches. A row is
(partition, position, way)."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from topology_runtime.logic import Context, Hold, Keyed, Source, flat_map

Row = tuple[int, int, str]
FAILS_EVERY, FAILS_AT = 17, 5  # positions that `work_that_fails` cannot process


class Count(Source):
    """Counts; the rows at any position can be read again."""

    partition = 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def read(self, position: int, limit: int) -> Sequence[Row]:
        return [(self.partition, p, "") for p in range(position, position + limit)]


def work(row: Row) -> Row:
    return row


def left(row: Row) -> Row:
    return (row[0], row[1], "left")


def right(row: Row) -> Row:
    return (row[0], row[1], "right")


def work_that_fails(row: Row) -> Row:
    if row[1] % FAILS_EVERY == FAILS_AT:
        raise ValueError(f"position {row[1]} cannot be processed")
    return row


@flat_map
def twice(row: Row) -> list[Row]:
    return [(row[0], row[1], "first"), (row[0], row[1], "second")]


def identity(row: Row) -> Hashable:
    return f"{row[0]}:{row[1]}"


def sink(row: Row) -> Row:
    return row


class Pairs(Hold):
    """A row of each branch with the same identity, as one row."""

    def key(self, row: Row, source: str) -> Hashable:
        return row[:2]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({way for _, _, way in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert sorted(way for _, _, way in rows) == ["left", "right"], f"a pair of {rows}"
        assert {row[:2] for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [(rows[0][0], rows[0][1], "pair")]


class Batches(Hold):
    """Rows four at a time, or after 0.2 s."""

    max_age_s = 0.2

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len(rows) >= 4

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert 0 < len(rows) <= 4
        return ()


class Tally(Keyed):
    """Counts the rows of a key, and lets them pass."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: Row, state: int) -> tuple[int, Iterable[Row]]:
        return state + 1, [row]


def group(row: Row) -> Hashable:
    return f"key {row[1] % 7}"
