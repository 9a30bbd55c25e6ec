"""Durable snapshots of keyed state: one file per thread, written beside the one before, fsynced and renamed once it is
whole; what changed since is written behind it and fsynced."""

from __future__ import annotations

import os
from collections.abc import Collection, Set
from mmap import PROT_READ, mmap

import msgspec

from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    SavedPart,
    SavedWhole,
)

FOLDER = "snapshots"
WRITING = ".new"
MAPPED_FROM = 32 << 20  # bytes of a file: it is not read into memory
SYNCED_BYTES = 32 << 20  # of a whole one that is being made
ADDED_LEAST = 8 << 20  # bytes of changes behind a whole snapshot, though that is smaller


class SnapshotFiles:
    """The snapshots of thread `thread` of `task`, under its VM's directory."""

    def __init__(self, directory: str, task: str, thread: int) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._task = task
        self._path = path_of(directory, task, thread)
        self._directory = directory
        self._whole = self._added = -1  # bytes in the file; −1: what there is, nothing may be written behind
        self._made = -1  # … of the next one so far; −1: none is being made

    @property
    def stands(self) -> bool:
        return self._whole >= 0

    @property
    def whole_due(self) -> bool:
        too_long = not self.stands or self._added > max(self._whole // 2, ADDED_LEAST)
        return too_long and self._made < 0

    def load(self) -> SavedWhole | None:
        """None when there is none. Raises OSError when it does not read. A large one is not read at once."""
        self._whole = self._made = -1
        return _read(self._path)

    def save(self, part: SavedPart) -> None:
        """All of it is on disk when this returns. Raises OSError; then a new whole one is to be begun, and what was
        durable stands."""
        whole, added, made = self._whole, self._added, self._made
        self._whole = self._made = -1
        if part.begun is None and made >= 0:
            made = self._make(form.swept(part), made)
        if part.change is not None:
            record = form.added(part.change)
            made = self._make(record, made) if made >= 0 else made
            if whole >= 0 and not part.ends:
                self._add(record, whole + added)
                added += len(record)
        if part.begun is not None:
            os.makedirs(self._folder, exist_ok=True)
            made = self._make(form.whole(part.begun) + form.swept(part), 0)
        if part.ends:
            with open(self._path + WRITING, "rb+") as file:
                os.fsync(file.fileno())
            os.replace(self._path + WRITING, self._path)
            whole, added, made = made, 0, -1
        self._whole, self._added, self._made = whole, added, made

    def _make(self, record: bytes, made: int) -> int:
        """Behind the first `made` bytes of the next one; how many it has by now."""
        with open(self._path + WRITING, "ab" if made else "wb") as file:
            end = made + file.write(record)
            if made // SYNCED_BYTES < end // SYNCED_BYTES:  # so that at its end little is left to do
                file.flush()
                os.fsync(file.fileno())
        return end

    def _add(self, record: bytes, end: int) -> None:
        with open(self._path, "r+b") as file:
            file.seek(end)
            file.write(record)
            file.flush()
            os.fsync(file.fileno())

    under_way = False  # it is on disk, or was not written, when `save` returns
    late = False

    def look(self) -> None:
        """Nothing is left to be said."""

    def close(self) -> None:
        """Nothing is open."""

    def remove(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | None:
        """The last snapshot of another thread of the task on this VM. Raises OSError."""
        return read(path_of(self._directory, self._task, thread))


def path_of(directory: str, task: str, thread: int) -> str:
    return os.path.join(directory, FOLDER, f"{task}~{thread}")


def read(path: str) -> KeyedSnapshot | None:
    """By range. Raises OSError."""
    found = _read(path)
    try:
        return found.whole() if found is not None else None
    except msgspec.DecodeError as error:
        raise _unread(path, error) from error


def _read(path: str) -> SavedWhole | None:
    try:
        with open(path, "rb") as file:
            large = os.fstat(file.fileno()).st_size >= MAPPED_FROM
            return form.stream(mmap(file.fileno(), 0, prot=PROT_READ) if large else file.read())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise _unread(path, error) from error


def _unread(path: str, error: Exception) -> OSError:
    return OSError(f"the snapshot {path} cannot be read: {error}")


def clean(directory: str, desired: Set[int]) -> list[str]:
    """Remove the snapshots on this VM of threads that are not `desired`; their names. Raises OSError."""
    folder = os.path.join(directory, FOLDER)
    removed = []
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        thread = name.removesuffix(WRITING).rpartition("~")[2]
        if thread.isdigit() and int(thread) not in desired:
            os.unlink(os.path.join(folder, name))
            removed.append(name)
    return removed
