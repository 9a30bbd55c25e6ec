"""User code of the live tests of batched tasks: imported in workers only."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from headgate.topology_runtime.logic import Source, batched, flat_map, keep_if


@batched(columns=True)
class Vectors(Source):
    """Of each position a number and eight floats, as columns."""

    def read(self, position: int, limit: int) -> Any:
        ids = np.arange(position, position + limit)
        return {"id": ids, "v": np.repeat(ids[:, None] / 4.0, 8, axis=1), "name": [f"n{n}" for n in ids]}


@batched(columns=True)
def mean(columns: dict[str, Any]) -> Any:
    return {"id": columns["id"], "mean": columns["v"].mean(axis=1), "name": columns["name"]}


@batched(columns=True)
def fourfold(columns: dict[str, Any]) -> Any:
    """The id again, out of the mean."""
    assert columns["mean"].dtype == np.float64 and columns["id"].dtype == np.int64
    return {**columns, "id": (columns["mean"] * 4).astype(np.int64)}


@batched(columns=True)
@keep_if
def even(columns: dict[str, Any]) -> Any:
    return columns["id"] % 2 == 0


@batched
def named(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "named": len(rows)} for row in rows]


@batched
def slow(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A call takes 20 ms, however many rows it has."""
    time.sleep(0.02)
    return rows


@batched
@flat_map
def twice(rows: list[dict[str, Any]]) -> Any:
    return ([row, row] for row in rows)


@batched
def fails_at_seven(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    if any(row["id"] == 7 for row in rows):
        raise ValueError("seven is not to be had")
    return rows


@batched(columns=True)
def fails_at_nine(columns: dict[str, Any]) -> Any:
    if (columns["id"] == 9).any():
        raise ValueError("nine is not to be had")
    return columns


@batched
def forgets_at_five(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Gives a result less when row 5 is there."""
    return [row for row in rows if row["id"] != 5]


@batched(columns=True)
def strange_at_five(columns: dict[str, Any]) -> Any:
    things = np.full(len(columns["id"]), None, dtype=object)
    things[columns["id"] == 5] = np.float64  # a class is no plain value
    return {**columns, "thing": things}
