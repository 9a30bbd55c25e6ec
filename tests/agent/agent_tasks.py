"""User code of the agent's live tests: imported in workers only."""

from __future__ import annotations

import os
import time
from pathlib import Path

from headgate.topology_runtime.logic import Source


class Numbers(Source):
    """The row of a position is the position."""

    def read(self, position: int, limit: int) -> list[int]:
        return list(range(position, position + limit))


class Work:
    """Passes rows on; hangs in a call as soon as the file `hang` is there."""

    def __init__(self, folder: str) -> None:
        self._hang = Path(folder) / "hang"

    def __call__(self, row: int) -> int:
        while self._hang.exists():
            time.sleep(0.01)
        return row


class Store:
    """Appends every row to a file of this process."""

    def __init__(self, folder: str) -> None:
        self._path = Path(folder) / f"rows-{os.getpid()}.txt"

    def __call__(self, row: int) -> int:
        with self._path.open("a") as file:
            file.write(f"{row}\n")
        return row
