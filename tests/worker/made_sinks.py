"""Sinks for tests, and a watch that waits for services without passing time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.api.logic import RowId, Sink
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.worker.calls.attempts import CallWatch


class Table(Sink[Any]):
    """Keeps rows by their names. bad: rows that it refuses; away: so many more calls find no service."""

    def __init__(self, bad: Sequence[Any] = (), away: int = 0) -> None:
        self.rows: dict[RowId, Any] = {}
        self.calls: list[int] = []
        self.bad, self.away = bad, away

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        self.calls.append(len(rows))
        if self.away:
            self.away -= 1
            raise ServiceAway("no database", cause="connection refused")
        if wrong := [row for row in rows if row in self.bad]:
            raise ValueError(f"cannot store {wrong[0]}")
        self.rows |= dict(zip(ids, rows, strict=True))


class Together(Table):
    batch_rows = 4
    batch_age_s = 2.0


class Patient(CallWatch):
    """Waits for a service without passing any time."""

    def __init__(self) -> None:
        super().__init__()
        self.waited, self.back = list[str](), 0

    def waits(self, error: ServiceAway) -> bool:
        self.waited.append(error.what)
        return True

    def served(self) -> None:
        self.back += 1
