"""Points in time as people and files write them. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime.fromtimestamp(0, UTC)


def utc_iso(wall_ns_: int) -> str:
    """`2026-01-31T12:00:00.000000Z` of nanoseconds since 1970."""
    stamp = datetime.fromtimestamp(wall_ns_ / 1e9, UTC)
    return stamp.isoformat(timespec="microseconds").replace("+00:00", "Z")


def utc_ns(text: str) -> int:
    """Nanoseconds since 1970 of what `utc_iso` wrote, to a microsecond. Raises ValueError."""
    return (datetime.fromisoformat(text) - EPOCH) // timedelta(microseconds=1) * 1000
