"""User code of the tests of large rows: imported in workers only."""

from __future__ import annotations

from typing import Any

LARGE = 90 * 1024
TOO_LARGE = 20 * 1024 * 1024
BAD = 7  # the id of the row that grows too large


def swell(row: dict[str, int]) -> dict[str, Any]:
    return {"id": row["id"], "data": b"x" * (TOO_LARGE if row["id"] == BAD else LARGE)}


def shrink(row: dict[str, Any]) -> dict[str, int]:
    assert len(row["data"]) == LARGE
    return {"id": row["id"]}
