"""A task that waits: for trying out plans."""

from __future__ import annotations

from time import sleep
from typing import TypeVar

Row = TypeVar("Row")


class Wait:
    """Sleeps `ms` per row, then gives the row on."""

    def __init__(self, ms: float = 20.0) -> None:
        self._s = ms / 1000.0

    def __call__(self, row: Row) -> Row:
        sleep(self._s)
        return row
