"""Tasks whose code fails outside a row, while a file says so."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

from headgate import Keyed

AWAY = Path(__file__).parent / "away"


def need(what: str) -> None:
    """Raises while the file names it."""
    if AWAY.exists() and what in AWAY.read_text().split():
        raise ConnectionError(f"no database for {what}")


def group(row: int) -> tuple[int, int]:
    return row % 20, row


class Tally(Keyed):
    """Counts the rows of a key, in a list."""

    def open(self, context: Any) -> None:
        need("open")

    def new(self, key: Hashable) -> list[int]:
        return []

    def process(self, key: Hashable, row: Any, state: list[int]) -> tuple[list[int], Iterable[Any]]:
        state.append(row[1])
        return state, [(row[0], len(state))]

    def snapshot(self, state: list[int]) -> Any:
        return tuple(state)

    def restore(self, saved: Any) -> list[int]:
        need("restore")
        return list(saved)


class Spoilt(Tally):
    """Row 300 makes a state that cannot be saved, row 340 raises what ends programs, row 380 closes all files."""

    def process(self, key: Hashable, row: Any, state: list[Any]) -> tuple[list[Any], Iterable[Any]]:
        if row[1] == 300:
            state.append({1j})
            return state, []
        if row[1] == 340:
            raise KeyboardInterrupt
        if row[1] == 380:
            os.closerange(3, 1000)
        return super().process(key, row, state)
