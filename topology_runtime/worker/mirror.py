"""Copies of the rows that a task takes in, for a profile of it in a spare slot of the same VM.

The task's threads copy while they have a `Copies`. The main thread gives these out, and writes what is in
them to `<directory>/mirror/<number of the profile>-<slot>.rows`: once, then nothing is copied any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.messages import ThreadSpec
from headgate.topology_runtime.profiles import ProfileSpec
from headgate.topology_runtime.worker import rows as wire

FOLDER = "mirror"  # made by the agent; where it is not, nobody waits for rows
ROWS, SIZE_BYTES = 500, 1 << 20  # of a worker, at most
PATIENCE_NS = 2_000_000_000  # then what has come is enough


class Copies:
    """Of one thread: at most so many rows and bytes. full: no more is taken."""

    def __init__(self, rows: int = ROWS, size_bytes: int = SIZE_BYTES) -> None:
        self._rows_left, self._bytes_left = rows, size_bytes
        self._frames: list[tuple[str, int, bytes]] = []
        self.full = False

    def add(self, source: str, rows: Sequence[Any]) -> None:
        """Rows from task `source`, as they are before the task sees them; the task's thread calls it."""
        if self.full:
            return
        rows = rows[: self._rows_left]
        try:
            shape, data = _written(rows)
            while len(data) > self._bytes_left and rows:
                rows = rows[: len(rows) // 2]
                shape, data = _written(rows)
                self.full = True
        except BadRow:
            self.full = True
            return
        if rows:
            self._frames.append((source, shape, data))
        self._rows_left -= len(rows)
        self._bytes_left -= len(data)
        self.full = self.full or self._rows_left <= 0

    def samples(self) -> list[tuple[str, Any]]:
        """(source task, row) of what was copied."""
        return [(source, row) for source, shape, data in self._frames for row in wire.read(data, shape)]


def _written(rows: Sequence[Any]) -> tuple[int, bytes]:
    shape = wire.shape_of(rows)
    return shape, wire.write(rows, shape)


class Copying(Protocol):
    """A task thread, as far as it matters here."""

    desired: ThreadSpec
    copies: Copies | None


class Mirror:
    """The main thread's part."""

    def __init__(self, slot: Slot, directory: str) -> None:
        self._slot, self._directory = slot, directory
        self._number = self._since_ns = 0
        self._copying: list[tuple[Copying, Copies]] = []

    def obey(self, profile: ProfileSpec | None, threads: Iterable[Copying], now_ns: int) -> None:
        """Mirror the rows that this profile wants, if it is on this VM; of no other one any more."""
        here = profile is not None and profile.slot.vm == self._slot.vm
        number = profile.number if here and profile is not None else 0
        if number == self._number:
            return
        self._stop()
        self._number, self._since_ns = number, now_ns
        mine = [t for t in threads if profile is not None and number and t.desired.task == profile.task]
        for thread in mine:
            copies = thread.copies = Copies(-(-ROWS // len(mine)), SIZE_BYTES // len(mine))
            self._copying.append((thread, copies))

    def look(self, now_ns: int) -> None:
        """Write the file once there is enough in it."""
        if not self._copying:
            return
        full = all(copies.full for _, copies in self._copying)
        if not full and now_ns - self._since_ns < PATIENCE_NS:
            return
        samples = [sample for _, copies in self._copying for sample in copies.samples()]
        if samples or full:
            self._stop()
        if samples:
            self._write(samples)

    def _stop(self) -> None:
        for thread, _ in self._copying:
            thread.copies = None
        self._copying.clear()

    def _write(self, samples: Sequence[tuple[str, Any]]) -> None:
        """By rename, so that nobody reads half of it."""
        from headgate.topology_runtime.calibration.sample_rows import write

        file = Path(self._directory, FOLDER, f"{self._number}-{self._slot.number}.rows")
        new = file.with_suffix(".new")
        try:
            write(new, samples)
            os.replace(new, file)
        except FileNotFoundError:
            return  # the profile is over already
        except OSError as error:
            print(f"headgate worker {self._slot}: no rows are mirrored: {error}", file=sys.stderr)


def mirrored(directory: str, number: int) -> list[Path]:
    """The files that workers have written for this profile."""
    return sorted(Path(directory, FOLDER).glob(f"{number}-*.rows"))
