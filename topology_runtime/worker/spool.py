"""Events of a source that cannot be read twice, on the VM's disk until they are acked (protocol: Sources).

A folder per source partition: segments `<first position>.spool` of length-prefixed msgpack rows, and
`acked`, the position below which all is done (written at most every 200 ms; it only moves forward).
Segments wholly below it are removed. What `write` took survives a killed process; losing the VM's disk
is the stated exception.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

from topology_runtime.messages import SpoolLeft
from topology_runtime.worker import rows as wire

FOLDER = "spools"
SEGMENT_ROWS = 4096
ACKED_EVERY_NS = 200_000_000
_LENGTH = 4


def folder_of(directory: str, task: str, partition: int) -> str:
    """Task names hold no `~`, so the folder's name reads back."""
    return os.path.join(directory, FOLDER, f"{task}~{partition}")


class Spool:
    """One partition's spool; one thread writes it."""

    def __init__(self, folder: str, position: int = 0) -> None:
        """Opens the spool; an empty one begins at `position`."""
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._rows: dict[int, bytes] = {}
        self.acked = _read_acked(folder)
        self.end = max(self.acked, _load(folder, self._rows))
        if not self._rows:
            self.end = self.acked = max(position, self.end)
        self._fd = -1
        self._acked_ns = 0

    def append(self, rows: Sequence[Any]) -> None:
        """Accept rows: they are in the file before this returns."""
        for row in rows:
            data = wire.write([row], wire.NESTED)
            self._write(len(data).to_bytes(_LENGTH, "big") + data)
            self._rows[self.end] = data
            self.end += 1
            if self.end % SEGMENT_ROWS == 0:
                self._close_segment()

    def read(self, position: int, limit: int) -> list[Any]:
        """Rows from `position` on that the spool holds."""
        stop = min(self.end, position + limit)
        return [wire.read(self._rows[p], wire.NESTED)[0] for p in range(position, stop) if p in self._rows]

    def done_below(self, position: int, now_ns: int) -> None:
        """All below `position` is acked: forget it, in time also on disk."""
        for p in range(self.acked, min(position, self.end)):
            self._rows.pop(p, None)
        self.acked = max(self.acked, min(position, self.end))
        if now_ns - self._acked_ns >= ACKED_EVERY_NS:
            self._acked_ns = now_ns
            self._save_acked()
            self._remove_old()

    def close(self) -> None:
        self._save_acked()
        self._close_segment()
        if self.acked == self.end:
            self._remove_old(everything=True)

    def _write(self, data: bytes) -> None:
        if self._fd < 0:
            path = os.path.join(self._folder, f"{self.end:020d}.spool")
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        while data:
            data = data[os.write(self._fd, data) :]

    def _close_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _save_acked(self) -> None:
        path = os.path.join(self._folder, "acked")
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(self.acked))
        os.replace(path + ".new", path)

    def _remove_old(self, everything: bool = False) -> None:
        firsts = _segments(self._folder)
        for first, following in itertools.pairwise(firsts):
            if following <= self.acked:
                os.unlink(os.path.join(self._folder, f"{first:020d}.spool"))
        if everything and firsts:
            os.unlink(os.path.join(self._folder, f"{firsts[-1]:020d}.spool"))


def _segments(folder: str) -> list[int]:
    return sorted(int(name[:-6]) for name in os.listdir(folder) if name.endswith(".spool"))


def _read_acked(folder: str) -> int:
    try:
        with open(os.path.join(folder, "acked"), encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return 0


def _load(folder: str, rows: dict[int, bytes]) -> int:
    """All whole rows on disk by position; returns the position after the last. A torn tail ends a segment."""
    end = 0
    for first in _segments(folder):
        with open(os.path.join(folder, f"{first:020d}.spool"), "rb") as file:
            data = file.read()
        at, position = 0, first
        while at + _LENGTH <= len(data):
            size = int.from_bytes(data[at : at + _LENGTH], "big")
            if at + _LENGTH + size > len(data):
                break
            rows[position] = data[at + _LENGTH : at + _LENGTH + size]
            at += _LENGTH + size
            position += 1
        end = max(end, position)
    return end


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Spools under a VM's directory that hold events not yet acked."""
    folder = os.path.join(directory, FOLDER)
    found: list[SpoolLeft] = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        task, _, partition = name.rpartition("~")
        path = os.path.join(folder, name)
        acked = _read_acked(path)
        end = _load(path, {})
        if task and end > acked:
            found.append(SpoolLeft(task, int(partition), acked, end))
    return tuple(found)
