"""Events of a source that cannot be read twice, on the VM's disk until they are acked (protocol: Sources).

A folder per source partition: segments `<first position>.spool` of msgpack rows, each behind its length and the
time at which it came, and `acked`, the position below which all is done (written at most every 200 ms; it only
moves forward). Segments wholly below it are removed. What `write` took survives a killed process; losing the VM's
disk is the stated exception. A row that was half written (a killed process, a full disk) ends its segment and is
not accepted; rows missing between two segments are refused loudly.

A leaving thread and its successor may share a folder for a while, each with positions of its own: who leaves
writes `acked` no more, and nobody removes what is the other's.

A full disk: what was read of the source and not written waits in memory, and nothing more is read until it is
written (`waiting`). A reserve of some pages is given up for it, so that what was read before one knew fits.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from topology_runtime.errors import BadRow
from topology_runtime.messages import SpoolLeft
from topology_runtime.worker import rows as wire

FOLDER = "spools"
SEGMENT_ROWS = 4096
ACKED_EVERY_NS = 200_000_000
RESERVE_BYTES = 256 * 1024  # given back to the disk when it is full
HELD_BYTES_MOST = 64 * 1024 * 1024  # rows kept in memory until they are acked; beyond it nothing more is read
_LENGTH, _TIME = 4, 8


def folder_of(directory: str, task: str, partition: int) -> str:
    """Task names hold no `~`, so the folder's name reads back."""
    return os.path.join(directory, FOLDER, f"{task}~{partition}")


class Spool:
    """One partition's spool; one thread accepts rows into it."""

    def __init__(self, folder: str, position: int = 0, until: int | None = None, alone: bool = True) -> None:
        """Opens the spool. All below `position` is known to be acked, whatever the file `acked` says;
        an empty spool begins there. OSError when rows that were accepted are missing. until: of a thread that
        leaves and was started anew: it reads again up to here, what follows is its successor's. Not `alone`:
        another thread may still need what is below `position`."""
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._first = 0 if alone else position  # of the segments that it may remove
        self.leaving = until is not None  # its thread leaves: the file `acked` is the successor's
        self._fd = -1
        self._saved = self._acked_ns = 0
        self._waiting: list[tuple[int, bytes]] = []
        self._reserved = False
        rows: dict[int, tuple[int, bytes]] = {}
        end, gap = _load(folder, rows, until)
        saved = _read_acked(folder) if until is None else 0
        self.acked = max(saved, position, min(rows, default=end))
        if gap > self.acked:
            raise OSError(f"the spool {folder} has lost rows before position {gap}")
        self.end = max(self.acked, end)
        self._rows = {p: row for p, row in rows.items() if p >= self.acked}
        self._held_bytes = sum(len(data) for _, data in self._rows.values())

    def append(self, rows: Sequence[Any], arrived_ns: int = 0) -> list[tuple[int, BadRow]]:
        """Accept rows that came at `arrived_ns` (UTC): they are in the file before this returns. Those that are
        not plain values are not taken: (place, why) of each. When the disk does not take them they wait, and
        OSError says so."""
        good, bad = wire.good_rows(rows)
        self._waiting += [(arrived_ns, wire.write([rows[place]], wire.NESTED)) for place in good]
        if self._waiting:
            self.accept()
        return bad

    @property
    def waiting(self) -> int:
        """Rows that the disk has not taken yet: accept these before any other is read."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """Does it hold as much as it may?"""
        return self._held_bytes >= HELD_BYTES_MOST

    def arrived_ns(self, position: int) -> int:
        """When the row at this position, which it holds, came (UTC); 0: it did not say."""
        return self._rows[position][0]

    def accept(self) -> None:
        """Write what waits. Raises OSError when the disk does not take it all."""
        try:
            self._write_waiting()
        except OSError:
            self._give_up_reserve()
            self._write_waiting()
        self._reserve()

    def _write_waiting(self) -> None:
        while self._waiting:
            came_ns, data = self._waiting[0]
            head = (_TIME + len(data)).to_bytes(_LENGTH, "big") + came_ns.to_bytes(_TIME, "big")
            self._write(head + data)
            self._rows[self.end] = self._waiting.pop(0)
            self._held_bytes += len(data)
            self.end += 1
            if self.end % SEGMENT_ROWS == 0:
                self._close_segment()

    def _reserve(self) -> None:
        """Keep some room on the disk. Raises OSError when there is none: then nothing more is to be read."""
        if self._reserved:
            return
        fd = os.open(os.path.join(self._folder, "reserve"), os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.posix_fallocate(fd, 0, RESERVE_BYTES)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):  # no such thing there
                raise
        finally:
            os.close(fd)
        self._reserved = True

    def _give_up_reserve(self) -> None:
        self._reserved = False
        Path(self._folder, "reserve").unlink(missing_ok=True)

    def read(self, position: int, limit: int) -> list[Any]:
        """Rows from `position` on (not below `acked`) that the spool holds."""
        stop = min(self.end, position + limit)
        return [wire.read(self._rows[p][1], wire.NESTED)[0] for p in range(position, stop)]

    def done_below(self, position: int, now_ns: int) -> None:
        """All below `position` is acked: forget it, in time also on disk. Raises OSError when the disk does
        not take that: after a kill these rows come once more then."""
        for p in range(self.acked, min(position, self.end)):
            self._held_bytes -= len(self._rows.pop(p)[1])
        self.acked = max(self.acked, min(position, self.end))
        if now_ns - self._acked_ns >= ACKED_EVERY_NS and self.acked != self._saved:
            self._acked_ns = now_ns
            try:
                self._save_acked()
            finally:
                self._remove_old()

    @property
    def writing(self) -> bool:
        """Whether its last segment is open; a row that comes when none is begins a segment."""
        return self._fd >= 0

    def close(self) -> None:
        """Raises OSError."""
        self._close_segment()
        self._give_up_reserve()
        self._save_acked()
        if self.acked == self.end:
            self._remove_old(everything=True)

    def _write(self, data: bytes) -> None:
        """Append to the segment, whole or not at all: a torn tail that cannot be taken back ends it."""
        if self._fd < 0:
            path = os.path.join(self._folder, f"{self.end:020d}.spool")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o644)  # what was in a file of this name was a torn row
        size = os.fstat(self._fd).st_size
        try:
            left = data
            while left:
                left = left[os.write(self._fd, left) :]
        except OSError:
            try:
                os.ftruncate(self._fd, size)
            finally:
                self._close_segment()
            raise

    def _close_segment(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _save_acked(self) -> None:
        if self.leaving:
            return
        path = os.path.join(self._folder, "acked")
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(self.acked))
        os.replace(path + ".new", path)
        self._saved = self.acked

    def _remove_old(self, everything: bool = False) -> None:
        """Its own segments that are wholly below `acked`; what is behind its end is another thread's."""
        firsts = [first for first in _segments(self._folder) if first >= self._first]
        old = [first for first, following in itertools.pairwise(firsts) if following <= self.acked]
        for first in [first for first in firsts if first < self.end] if everything else old:
            os.unlink(os.path.join(self._folder, f"{first:020d}.spool"))


def _segments(folder: str) -> list[int]:
    return sorted(int(name[:-6]) for name in os.listdir(folder) if name.endswith(".spool"))


def _read_acked(folder: str) -> int:
    try:
        with open(os.path.join(folder, "acked"), encoding="ascii") as file:
            return int(file.read())
    except (FileNotFoundError, ValueError):
        return 0


def _load(folder: str, rows: dict[int, tuple[int, bytes]], until: int | None = None) -> tuple[int, int]:
    """All whole rows on disk (below `until`) by position; returns the position after the last, and the last
    position that rows are missing before (0: none). A torn tail ends a segment."""
    end = gap = 0
    for first in _segments(folder):
        if until is not None and first >= until:
            break
        if rows and first > end:
            gap = first
        position = first
        for row in _whole_rows(os.path.join(folder, f"{first:020d}.spool")):
            if position == until:
                break
            rows[position] = row
            position += 1
        end = max(end, position)
    return end, gap


def _whole_rows(path: str) -> Iterator[tuple[int, bytes]]:
    with open(path, "rb") as file:
        data = file.read()
    at = 0
    while at + _LENGTH <= len(data):
        stop = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
        if (
            stop > len(data) or stop < at + _LENGTH + _TIME
        ):  # torn, or zeros where a disk had no time to write
            return
        row = at + _LENGTH + _TIME
        yield int.from_bytes(data[at + _LENGTH : row], "big"), data[row:stop]
        at = stop


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Spools under a VM's directory that hold events not yet acked."""
    folder = os.path.join(directory, FOLDER)
    found: list[SpoolLeft] = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        task, _, partition = name.rpartition("~")
        if not task or not partition.isdigit():
            continue
        path = os.path.join(folder, name)
        acked = _read_acked(path)
        end, _ = _load(path, {})
        if end > acked:
            found.append(SpoolLeft(task, int(partition), acked, end))
    return tuple(found)
