"""User code of the live data-plane tests: imported in workers only."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from headgate.topology_runtime.api.logic import Context, Keyed, Source, Window, flat_map, keep_if


class Ids(Source):
    """The row of a position is a dict with that position as its id."""

    def read(self, position: int, limit: int) -> list[dict[str, int]]:
        return [{"id": n} for n in range(position, position + limit)]


def left(row: dict[str, int]) -> dict[str, int]:
    return {"id": row["id"], "left": row["id"] * 2}


def right(row: dict[str, int]) -> dict[str, int]:
    return {"id": row["id"], "right": row["id"] * 3}


@flat_map
def twice(row: dict[str, int]) -> list[dict[str, int]]:
    return [row, row]


@keep_if
def even(row: dict[str, int]) -> bool:
    return row["id"] % 2 == 0


def fails_at_seven(row: dict[str, int]) -> dict[str, int]:
    if row["id"] == 7:
        raise ValueError("seven is not to be had")
    return row


def not_plain(row: dict[str, int]) -> Any:
    return 1j if row["id"] == 5 else row


class Pair(Window):
    """Both halves of an id, together."""

    def key(self, row: dict[str, int], source: str) -> Hashable:
        return row["id"]

    def ready(self, key: Hashable, rows: Sequence[dict[str, int]]) -> bool:
        return len(rows) == 2

    def finish(self, key: Hashable, rows: Sequence[dict[str, int]]) -> Iterable[dict[str, int]]:
        merged: dict[str, int] = {}
        for row in rows:
            merged |= row
        assert len(merged) == 3, rows
        return [merged]


class Lines(Window):
    """Appends the ids of a batch to a file of this worker process, a line each."""

    max_age_s = 0.2

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def open(self, context: Context) -> None:
        self.path = os.path.join(self.folder, f"{context.thread}-{os.getpid()}.txt")

    def ready(self, key: Hashable, rows: Sequence[dict[str, int]]) -> bool:
        return len(rows) >= 50

    def finish(self, key: Hashable, rows: Sequence[dict[str, int]]) -> Iterable[Any]:
        with open(self.path, "a", encoding="ascii") as file:
            file.write("".join(f"{row['id']}\n" for row in rows))
        return []


class Tally(Keyed):
    """How many rows of a key there were so far, with each row."""

    def new(self, key: Hashable) -> int:
        return 0

    def process(self, key: Hashable, row: dict[str, int], state: int) -> tuple[int, Iterable[dict[str, int]]]:
        return state + 1, [{"id": row["group"] * 1_000_000 + state + 1}]


def group(row: dict[str, int]) -> dict[str, int]:
    return {"id": row["id"], "group": row["id"] % 7}
