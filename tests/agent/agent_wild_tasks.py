"""User code that does not come back, or takes its process with it: imported in workers only."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

from headgate.topology_runtime.logic import Source, any_thread, batched

BAD = 137  # the row that nobody survives


class Wild:
    """Passes rows on; with row 137 it does as `how` says."""

    def __init__(self, how: str) -> None:
        self._act = getattr(self, how)

    def __call__(self, row: int) -> int:
        if row == BAD:
            self._act()
        return row

    def loops(self) -> None:
        while True:
            pass

    def sleeps(self) -> None:
        time.sleep(1000)

    def waits_for_bytes(self) -> None:
        here, there = socket.socketpair()
        here.recv(1)
        there.close()

    def holds_the_interpreter(self) -> None:
        ctypes.PyDLL(None).usleep(1000 * 1_000_000)

    def breaks_memory(self) -> None:
        ctypes.string_at(8)

    def exits(self) -> None:
        os._exit(7)

    def takes_its_time(self) -> None:
        """Long, with the interpreter held, but within its limit."""
        ctypes.PyDLL(None).usleep(1_500_000)


@any_thread
class WildAnywhere(Wild):
    """The same, whoever calls it. The file `callers` names the thread of each try."""

    def __init__(self, how: str, folder: str) -> None:
        super().__init__(how)
        self._callers = Path(folder) / "callers"

    def __call__(self, row: int) -> int:
        if row == BAD:
            with self._callers.open("a") as file:
                file.write(f"{threading.current_thread().name}\n")
        return super().__call__(row)


class WildTogether(Wild):
    """The same, with many rows in a call."""

    @batched
    def __call__(self, rows: list[int]) -> list[int]:
        if BAD in rows:
            self._act()
        return rows


class Stuck(Source):
    """Reads up to position 137, and there never comes back unless the file `mended` is there."""

    def __init__(self, folder: str) -> None:
        self._mended = Path(folder) / "mended"

    def read(self, position: int, limit: int) -> list[int]:
        if position <= BAD < position + limit and not self._mended.exists():
            if position < BAD:
                return list(range(position, BAD))
            time.sleep(1000)
        return list(range(position, position + limit))


class ClosesSlowly:
    """Its `close` takes so long, and leaves a file when it is done."""

    def __init__(self, folder: str, seconds: float) -> None:
        self._done, self._seconds = Path(folder) / "closed", seconds

    def __call__(self, row: Any) -> Any:
        return row

    def close(self) -> None:
        time.sleep(self._seconds)
        self._done.touch()
