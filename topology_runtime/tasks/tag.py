"""Says how much an event matters."""

from __future__ import annotations

from typing import Any

HIGH, MEDIUM = 100.0, 40.0


def tag(row: dict[str, Any]) -> dict[str, Any]:
    """Adds `level`: high, medium or low by score × weight; unknown when one of them is missing."""
    score, weight = row.get("score"), row.get("weight")
    if score is None or weight is None:
        return {**row, "level": "unknown"}
    risk = score * weight
    return {**row, "level": "high" if risk >= HIGH else "medium" if risk >= MEDIUM else "low"}
