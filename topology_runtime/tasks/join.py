"""Brings the branches of one event together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

from headgate.topology_runtime.logic import Hold


class Join(Hold):
    """Rows with the same `key` field wait for each other until together they have every field of
    `fields`; then they leave as one row, their fields united.

    If a branch lost its part (a dead letter), the rest leaves after `max_age_s` as it is. Give every
    in-edge the grouping `fields` with the same key."""

    def __init__(self, fields: Sequence[str], key: str = "id", max_age_s: float | None = 20.0) -> None:
        self._fields = tuple(fields)
        self._key = key
        self.max_age_s = max_age_s

    def key(self, row: dict[str, Any], source: str) -> Hashable:
        found: Hashable = row[self._key]
        return found

    def ready(self, key: Hashable, rows: Sequence[dict[str, Any]]) -> bool:
        return all(any(field in row for row in rows) for field in self._fields)

    def finish(self, key: Hashable, rows: Sequence[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        united: dict[str, Any] = {}
        for row in rows:
            united.update(row)
        return [united]
