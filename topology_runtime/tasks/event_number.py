"""A number for any row, so that the representative tasks may stand anywhere in a topology."""

from __future__ import annotations

from typing import Any
from zlib import crc32

SPREAD = 2_654_435_761  # Knuth's multiplier: neighbours land far apart
SPAN = 2**32


def number_of(row: Any) -> int:
    """≥ 0: the row itself, its `id` or its first value where that is a whole number, else a checksum."""
    value = row
    if type(row) is dict:
        value = row.get("id", row)
    elif type(row) in (tuple, list) and row:
        value = row[0]
    return abs(value) if type(value) is int else crc32(repr(value).encode("utf-8", "replace"))


def scattered(number: int, among: int) -> int:
    """0 … among − 1, as if at random, the same for the same number."""
    return (number * SPREAD % SPAN) * among // SPAN
