"""User code of the event time scenario: imported by workers, and by the test for what must come out."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from headgate import Context, Exhausted, RowId, Sink, Source, Time, Timed

PARTITIONS, KEYS, LATENESS_S, TEN_US = 2, 7, 6, 10_000_000
Row = tuple[int, int, int]  # key, number, event time in s


def row_at(partition: int, position: int) -> Row:
    """Rows are up to `LATENESS_S` older than the newest one before them."""
    return position % KEYS, partition * 100_000 + position, 1000 + position - position * 5 % (LATENESS_S + 1)


class Happenings(Source):
    def __init__(self, rows: int) -> None:
        self.rows, self.partition = rows, 0

    def open(self, context: Context) -> None:
        self.partition = context.partition

    def read(self, position: int, limit: int) -> Sequence[Row]:
        if position >= self.rows:
            raise Exhausted
        return [row_at(self.partition, p) for p in range(position, min(self.rows, position + limit))]


def passed(row: Row) -> Row:
    return row


class PerTenSeconds(Timed):
    """(key, end in s, rows) of each ten seconds; what is late is a dead letter, and there is none."""

    at = 2

    def new(self, key: int) -> dict[str, int]:
        return {}

    def process(
        self, key: int, row: Row, state: dict[str, int], time: Time
    ) -> tuple[dict[str, int], Iterable[Any]]:
        if time.late:
            raise ValueError(f"{row} is late at {time.watermark}")
        end_us = (time.at_us // TEN_US + 1) * TEN_US
        time.set(end_us)
        return {**state, str(end_us): state.get(str(end_us), 0) + 1}, []

    def on_timer(
        self, key: int, at: int, state: dict[str, int], time: Time
    ) -> tuple[dict[str, int] | None, Iterable[Any]]:
        left = {end: count for end, count in state.items() if end != str(at)}
        return left or None, [(key, at // 1_000_000, state[str(at)])]


class NamedLines(Sink):
    """Each row behind its name, as a line of a file."""

    one_thread = True

    def __init__(self, path: str) -> None:
        self.file = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        lines = [json.dumps([str(name), *row]) + "\n" for name, row in zip(ids, rows, strict=True)]
        os.write(self.file, "".join(lines).encode())


def batch(rows: int) -> Counter[tuple[int, int, int]]:
    """What one pass over all rows gives."""
    counts: Counter[tuple[int, int]] = Counter()
    for partition in range(PARTITIONS):
        for position in range(rows):
            key, _, at_s = row_at(partition, position)
            counts[key, at_s // 10 * 10 + 10] += 1
    return Counter((*place, count) for place, count in counts.items())
