"""User code of the simulated topologies: small real sources, maps, joins, batches and keyed tasks.

A row is flat: (source, partition, position, way), and behind them, three by three, what it met on its way:
("tally", key, rows of that key so far) of a keyed task; ("with", partition, position) of the row of another
source that it was joined with, whose name is the word behind `with `.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from headgate.topology_runtime.logic import Context, Hold, Keyed, LiveSource, Source, batched, flat_map

Row = tuple[Any, ...]
Origin = tuple[str, int, int]  # source, partition, position
FAILS_EVERY, FAILS_AT = 17, 5  # positions that `Picky` cannot process
WITH = "with "


class Count(Source):
    """Counts; the rows at any position can be read again."""

    def __init__(self, name: str = "source") -> None:
        self.name, self.partition = name, 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def read(self, position: int, limit: int) -> Sequence[Row]:
        return [(self.name, self.partition, p, "") for p in range(position, position + limit)]


class SimFeed(LiveSource):
    """Events that come once. `events`: their numbers, given by the world, which hands over each once."""

    events: Iterator[int]

    def __init__(self, name: str = "source") -> None:
        self.name, self.partition = name, 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def poll(self, limit: int) -> Sequence[Row]:
        return [(self.name, self.partition, n, "") for n in islice(self.events, limit)]


def work(row: Row) -> Row:
    return row


@batched
def together_work(rows: list[Row]) -> list[Row]:
    return rows


@batched(columns=True)
def column_work(columns: tuple[Any, ...]) -> tuple[Any, ...]:
    return columns


def left(row: Row) -> Row:
    return (*row[:3], "left")


def right(row: Row) -> Row:
    return (*row[:3], "right")


def fails(position: int) -> bool:
    return position % FAILS_EVERY == FAILS_AT


class Picky:
    """Fails on some rows until the cause is mended. `mended`: is it? Given by the world."""

    mended: Callable[[], bool]

    def __call__(self, row: Row) -> Row:
        if fails(row[2]) and not self.mended():
            raise ValueError(f"position {row[2]} cannot be processed")
        return row


@flat_map
def twice(row: Row) -> list[Row]:
    return [(*row[:3], "first"), (*row[:3], "second")]


def identity(row: Row) -> Hashable:
    return f"{row[1]}:{row[2]}"


def together(rows: Sequence[Row]) -> Row:
    """One row that names all of these."""
    first, *others = rows
    along = [value for other in others for value in (WITH + other[0], *other[1:3])]
    return (*first[:3], "together", *along)


class Sink:
    """Where rows end. `rows`: those that came and were not yet looked at by the account."""

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def __call__(self, row: Row) -> Row:
        self.rows.append(row)
        return row


class Pairs(Hold):
    """A row of each branch with the same identity, as one row."""

    def key(self, row: Row, source: str) -> Hashable:
        return row[:3]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({row[3] for row in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert sorted(row[3] for row in rows) == ["left", "right"], f"a pair of {rows}"
        assert {row[:3] for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [(*rows[0][:3], "pair")]


class Meetings(Hold):
    """Rows of two sources with the same partition and position, as one row; one alone after a second."""

    max_age_s = 1.0

    def key(self, row: Row, source: str) -> Hashable:
        return row[1:3]

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len({row[0] for row in rows}) == 2

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert {row[1:3] for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [together(rows)]


class Batches(Hold):
    """Rows four at a time, or after 0.2 s."""

    max_age_s = 0.2

    def __init__(self) -> None:
        self.rows: list[Row] = []

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len(rows) >= 4

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert 0 < len(rows) <= 4
        self.rows += rows
        return ()


class Windows(Hold):
    """Rows of one of forty kinds until there are many, or for longer than any deadline of a row in flight."""

    max_age_s = 40.0

    def key(self, row: Row, source: str) -> Hashable:
        return int(row[2]) % 40

    def ready(self, key: Hashable, rows: Sequence[Row]) -> bool:
        return len(rows) >= 20

    def finish(self, key: Hashable, rows: Sequence[Row]) -> Iterable[Row]:
        assert {row[2] % 40 for row in rows} == {key}, f"rows of others in {key}: {rows}"
        return [together(rows)]


class Tally(Keyed):
    """Counts the rows of a key, says so in each of them and lets them pass. Its state is the list of rows that
    it counted; `counted`: (key, row) of those, for the account."""

    def __init__(self, name: str = "tally") -> None:
        self.name = name
        self.counted: list[tuple[Hashable, Origin]] = []

    def new(self, key: Hashable) -> list[Origin]:
        return []

    def process(self, key: Hashable, row: Row, state: list[Origin]) -> tuple[list[Origin], Iterable[Row]]:
        origin = (row[0], row[1], row[2])
        self.counted.append((key, origin))
        state.append(origin)
        return state, [(*row, self.name, key, len(state))]

    def snapshot(self, state: list[Origin]) -> Row:
        return tuple(state)

    def restore(self, saved: Row) -> list[Origin]:
        return list(saved)


class TallyTogether(Tally):
    """The same for the rows of a frame at once."""

    def process_all(
        self, keys: Sequence[Hashable], rows: Sequence[Row], states: dict[Hashable, list[Origin]]
    ) -> tuple[list[Row], None]:
        found: list[Row] = []
        for key, row in zip(keys, rows, strict=True):
            states[key], out = self.process(key, row, list(states[key]))
            found += out
        return found, None


def group(row: Row) -> Hashable:
    return f"key {row[2] % 7}"


def other_group(row: Row) -> Hashable:
    return f"key {row[2] % 5}"


def skewed(row: Row) -> Hashable:
    """Four of five rows have one key."""
    return f"key {row[2] % 25}" if row[2] % 5 == 0 else "hot"
