"""Events of a source that cannot be read twice, on the VM's disk until they are acked (protocol: Sources).

A folder per source thread: segments `<first position>.spool` of msgpack rows, each behind its length and the
time at which it came, and `acked`, the position below which all is done (written at most every 200 ms; it only
moves forward). Segments wholly below it are removed. What `write` took survives a killed process; losing the VM's
disk is the stated exception. A row that was half written (a killed process, a full disk) ends its segment and is
not accepted; rows missing between two segments are refused loudly.

Positions are the thread's own: those of a thread that is no more may be another's by now, so what it left in its
folder is accepted again by whoever reads the partition on that VM (`Left`). A lock on the folder, which ends with
its process, says that a thread still has it.

A full disk: what was read of the source and not written waits in memory, and nothing more is read until it is
written (`waiting`). A reserve of some pages is given up for it, so that what was read before one knew fits.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import os
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.platform.disk import append_whole, open_plain, sync_directory
from headgate.topology_runtime.wire.messages import SpoolLeft
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows import row_values as wire

FOLDER = "spools"
SEGMENT_ROWS = 4096
ACKED_EVERY_NS = 200_000_000
RESERVE_BYTES = 256 * 1024  # given back to the disk when it is full
HELD_BYTES_MOST = 64 << 20  # rows buffered in memory until they are acked; beyond it nothing more is read
_LENGTH, _TIME = 4, 8
_NO_ROW = b"\xc1"  # begins what could not be read as a row, and why: no msgpack begins so
_WHY_MOST = 10_000  # bytes


class Owner(NamedTuple):
    """Whose spool: a thread of a run."""

    task: str
    partition: int
    run: str
    thread: int


def folder_of(directory: str, owner: Owner) -> str:
    """Names of runs hold no `~`, so the folder's name reads back."""
    return os.path.join(directory, FOLDER, "~".join(map(str, owner)))


DIGITS_MOST = 18  # of any number here: a task can make folders and files beside ours


def owner_of(name: str) -> Owner | None:
    """Of a folder of this name; None when it is no spool's."""
    task, *numbers = name.rsplit("~", 3)
    if not task or len(numbers) != 3 or not (numbers[0].isdigit() and numbers[2].isdigit()):
        return None
    if max(len(numbers[0]), len(numbers[2])) > DIGITS_MOST:
        return None
    return Owner(task, int(numbers[0]), numbers[1], int(numbers[2]))


class Spool:
    """One thread's spool. syncs: `sync` is called, too."""

    syncs = False

    def __init__(self, folder: str, position: int = 0, until: int | None = None) -> None:
        """Opens the spool. All below `position` is known to be acked, whatever the file `acked` says;
        an empty spool begins there. OSError when rows that were accepted are missing, or somebody is taking
        them. until: of a thread that leaves and was started again: it reads again up to here; what follows,
        whose positions are its successor's, stays."""
        os.makedirs(folder, exist_ok=True)
        self._folder = folder
        self._lock = _Lock(folder, fcntl.LOCK_SH)
        self._fd = -1
        self._saved = self._acked_ns = 0
        self._waiting: deque[tuple[int, bytes]] = deque()
        self._reserved = False
        self._unsynced: list[int] = []  # files with what the disk need not have yet
        self._made = False  # a file was made since
        rows: dict[int, tuple[int, bytes]] = {}
        end, gap = _load(folder, rows)
        self._leaves = until is not None and until < end
        if until is not None:
            end = min(end, until)
        self.acked = max(_read_acked(folder), position, min(rows, default=end))
        if gap > self.acked:
            raise OSError(f"the spool {folder} has lost rows before position {gap}")
        self.end = max(self.acked, end)
        self._rows = {p: row for p, row in rows.items() if self.acked <= p < self.end}
        self._held_bytes = sum(len(data) for _, data in self._rows.values())

    def append(self, rows: Sequence[Any], came_ns: Sequence[int] = ()) -> list[tuple[int, BadRow]]:
        """Accept rows that came at these times (UTC; empty: nobody says): they are in the file before this returns.
        Those that are not plain values are not taken: (place, why) of each. A BadRow in place of a row is kept, and
        read, as one. When the disk does not take them they wait, and OSError says so."""
        good, bad = wire.good_rows(rows)
        unread = {place for place, _ in bad if isinstance(rows[place], BadRow)}
        for place in sorted({*good, *unread}):
            data = _no_row(rows[place]) if place in unread else wire.write([rows[place]], wire.NESTED)
            self._waiting.append((came_ns[place] if came_ns else 0, data))
        if self._waiting:
            self.accept()
        return [one for one in bad if one[0] not in unread]

    def take(self, left: Left) -> None:
        """Accept again, at positions of its own, what another thread left. OSError as `append`'s."""
        self._waiting += left.rows
        left.rows = []
        self.accept()

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
            self._rows[self.end] = self._waiting.popleft()
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
        return [_row_of(self._rows[p][1]) for p in range(position, stop)]

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

    def sync(self) -> None:
        """What was accepted outlives the machine's power. Raises OSError."""
        while self._unsynced:
            os.fdatasync(self._unsynced[0])
            fd = self._unsynced.pop(0)
            if fd != self._fd:
                os.close(fd)
        if self._made:
            sync_directory(self._folder)
            self._made = False

    @property
    def synced(self) -> bool:
        return not (self._unsynced or self._made)

    def _let_go(self) -> None:
        self._close_segment()
        while self._unsynced:
            os.close(self._unsynced.pop())

    def close(self) -> None:
        """Raises OSError."""
        self._let_go()
        try:
            self._give_up_reserve()
            self._save_acked()
            if self.acked == self.end and not self._leaves:
                self._remove_old(everything=True)
        finally:
            self._lock.release()

    def drop(self) -> None:
        """As if its process were killed."""
        self._let_go()
        self._lock.release()

    def _write(self, data: bytes) -> None:
        """Append to the segment, whole or not at all: a torn tail that cannot be taken back ends it."""
        if self._fd < 0:
            path = os.path.join(self._folder, f"{self.end:020d}.spool")
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
            self._fd = os.open(path, flags, 0o644)  # what was in a file of this name was a torn row
            self._made = True
        if self.syncs and self._fd not in self._unsynced:
            self._unsynced.append(self._fd)
        try:
            append_whole(self._fd, data)
        except OSError:
            self._close_segment()
            raise

    def _close_segment(self) -> None:
        if self._fd >= 0 and self._fd not in self._unsynced:
            os.close(self._fd)
        self._fd = -1

    def _save_acked(self) -> None:
        path = os.path.join(self._folder, "acked")
        with open(path + ".new", "w", encoding="ascii") as file:
            file.write(str(self.acked))
        os.replace(path + ".new", path)
        self._saved = self.acked

    def _remove_old(self, everything: bool = False) -> None:
        """Segments that are wholly below `acked`."""
        firsts = _segments(self._folder)
        old = [first for first, following in itertools.pairwise(firsts) if following <= self.acked]
        for first in firsts if everything else old:
            os.unlink(os.path.join(self._folder, f"{first:020d}.spool"))


def _no_row(why: BadRow) -> bytes:
    text = f"{why.what} ({why.cause})" if why.cause else why.what
    return _NO_ROW + text.encode(errors="replace")[:_WHY_MOST]


def _row_of(data: bytes) -> Any:
    if data.startswith(_NO_ROW):
        return BadRow(data[len(_NO_ROW) :].decode(errors="replace"))
    return wire.read(data, wire.NESTED)[0]


class Left:
    """What a thread that is no more accepted and did not see done. `rows`: (when it came, the row)."""

    def __init__(self, folder: str) -> None:
        """BlockingIOError: a thread still has it. OSError: it cannot be read."""
        self._folder = folder
        self._lock = _Lock(folder, fcntl.LOCK_EX)
        found: dict[int, tuple[int, bytes]] = {}
        _load(folder, found)
        acked = _read_acked(folder)
        self.rows = [row for position, row in found.items() if position >= acked]

    def drop(self) -> None:
        """As if its process were killed."""
        self._lock.release()

    def forget(self) -> None:
        """All of it has been accepted again: remove the folder, segments first. Raises OSError."""
        for name in sorted(os.listdir(self._folder)):
            os.unlink(os.path.join(self._folder, name))
        os.rmdir(self._folder)
        self._lock.release()


class _Lock:
    """On a folder, until it is released, or nobody has it any more."""

    def __init__(self, folder: str, kind: int) -> None:
        """BlockingIOError: another has it."""
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.release = weakref.finalize(self, os.close, fd)
        try:
            fcntl.flock(fd, kind | fcntl.LOCK_NB)
        except OSError:
            self.release()
            raise


def _segments(folder: str) -> list[int]:
    return sorted(int(name[:-6]) for name in os.listdir(folder) if name.endswith(".spool"))


def _read_acked(folder: str) -> int:
    try:
        with open_plain(os.path.join(folder, "acked")) as file:
            return int(file.read(DIGITS_MOST))
    except (FileNotFoundError, ValueError):
        return 0


def _load(folder: str, rows: dict[int, tuple[int, bytes]]) -> tuple[int, int]:
    """All whole rows on disk by position; returns the position after the last, and the last position that rows
    are missing before (0: none). A torn tail ends a segment."""
    end = gap = 0
    for first in _segments(folder):
        if rows and first > end:
            gap = first
        position = first
        for row in _whole_rows(os.path.join(folder, f"{first:020d}.spool")):
            rows[position] = row
            position += 1
        end = max(end, position)
    return end, gap


def _whole_rows(path: str) -> Iterator[tuple[int, bytes]]:
    with open_plain(path) as file:
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


def owners(directory: str) -> list[Owner]:
    """Whose spools are under a VM's directory."""
    folder = os.path.join(directory, FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else ()
    return [owner for name in names if (owner := owner_of(name)) is not None]


def left_over(directory: str) -> tuple[SpoolLeft, ...]:
    """Spools under a VM's directory that hold events not yet acked."""
    found: list[SpoolLeft] = []
    for owner in owners(directory):
        path = folder_of(directory, owner)
        acked = _read_acked(path)
        end, _ = _load(path, {})
        if end > acked:
            found.append(SpoolLeft(owner.task, owner.partition, acked, end, owner.run, owner.thread))
    return tuple(found)


# ── Events that earlier source threads accepted on this VM and did not see done: whoever reads their
# partition here accepts them again, at positions of its own, since theirs may be another's by now
# (protocol: Sources).

AGAIN_NS = 100_000_000  # until the next is tried, or one that somebody still has


class SpoolsLeft:
    """Of one partition, for the thread that reads it."""

    def __init__(self, directory: str, mine: Owner) -> None:
        self._directory, self._mine = directory, mine
        self._found: list[Owner] = []
        self._taken: Left | None = None  # what the disk has not wholly taken yet, or still has
        self._orders: Orders | None = None
        self._again_ns = 0

    def look(self, orders: Orders) -> None:
        """Which spools of threads that are no more are there? Only a desired state makes any."""
        if orders is self._orders:
            return
        self._orders, mine = orders, self._mine
        desired = {thread.thread for thread in orders.desired.threads}
        self._found = [
            owner
            for owner in owners(self._directory)
            if owner[:2] == mine[:2]
            and (owner.run != mine.run or (owner.thread < mine.thread and owner.thread not in desired))
        ]

    @property
    def more(self) -> bool:
        """Is there one that is not wholly accepted yet?"""
        return bool(self._found or self._taken)

    def take(self, spool: Spool, now_ns: int) -> int:
        """Accept the next of them into `spool`; how many rows. OSError: the disk does not take, or give, them now."""
        if self._taken is not None:
            spool.accept()
            self._taken.forget()
            self._taken = None
        if not self._found or spool.full or now_ns < self._again_ns:
            return 0
        self._again_ns = now_ns + AGAIN_NS
        owner = self._found.pop(0)
        try:
            self._taken = Left(folder_of(self._directory, owner))
        except FileNotFoundError:
            return 0
        except OSError as error:
            self._found.append(owner)
            if isinstance(error, BlockingIOError):  # its thread is ending
                return 0
            raise
        number = len(self._taken.rows)
        spool.take(self._taken)
        return number

    def close(self) -> None:
        """Its thread ends: what is not forgotten yet is for the next one."""
        if self._taken is not None:
            self._taken.drop()
            self._taken = None
