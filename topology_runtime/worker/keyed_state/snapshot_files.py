"""Durable snapshots of keyed state: one file per thread, written whole, fsynced and renamed; what changed since is
written behind it and fsynced."""

from __future__ import annotations

import os
from collections.abc import Set
from mmap import PROT_READ, mmap
from typing import BinaryIO
from zlib import crc32

import msgspec

from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot, StateChange, Whole

FOLDER = "snapshots"
WRITING = ".new"
STREAMED_FROM = 32 << 20  # bytes of a file: it is not read into memory
ADDED_LEAST = 8 << 20  # bytes of changes behind a whole snapshot, though that is smaller


class SnapshotFiles:
    """The snapshots of thread `thread` of `task`, under its VM's directory."""

    def __init__(self, directory: str, task: str, thread: int) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._task = task
        self._path = path_of(directory, task, thread)
        self._directory = directory
        self._whole = self._added = -1  # bytes in the file; −1: what there is, nothing may be written behind

    @property
    def whole_due(self) -> bool:
        return self._whole < 0 or self._added > max(self._whole, ADDED_LEAST)

    def load(self) -> Whole | None:
        """The last whole snapshot, None when there is none. Raises OSError when it does not read. A large one is
        streamed."""
        try:
            if os.path.getsize(self._path) < STREAMED_FROM:
                return read(self._path)
            with open(self._path, "rb") as file:
                return form.stream(memoryview(mmap(file.fileno(), 0, prot=PROT_READ)))
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise OSError(f"the snapshot {self._path} cannot be read: {error}") from error

    def save(self, snapshot: Whole) -> None:
        """The snapshot is on disk when this returns. Raises OSError; then the last one stands."""
        self._whole = -1
        os.makedirs(self._folder, exist_ok=True)
        with open(self._path + WRITING, "wb") as file:
            whole = _write(file, snapshot)
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + WRITING, self._path)
        self._whole, self._added = whole, 0

    def add(self, change: StateChange) -> None:
        """What changed since is on disk when this returns. Raises OSError; then the next one is to be whole."""
        data, whole, end = form.added(change), self._whole, self._whole + self._added
        self._whole = -1
        with open(self._path, "r+b") as file:
            file.seek(end)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        self._whole, self._added = whole, self._added + len(data)

    under_way = False  # it is on disk, or was not written, when `save` returns

    def look(self) -> None:
        """Nothing is left to be said."""

    def close(self) -> None:
        """Nothing is open."""

    def remove(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)

    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of the task on this VM. Raises OSError."""
        return read(path_of(self._directory, self._task, thread))


def _write(file: BinaryIO, snapshot: Whole) -> int:
    """How many bytes it has."""
    begin, length, crc = len(form.MAGIC) + form.HEAD_BYTES, 0, 0
    file.seek(begin)
    for part in form.parts(snapshot):
        file.write(part)
        length, crc = length + len(part), crc32(part, crc)
        if length > form.RECORD_MOST:
            raise OSError(
                f"a snapshot of a thread has {form.RECORD_MOST >> 20:,} MiB at most: use more threads"
            )
    file.seek(0)
    file.write(form.MAGIC + form.head(length, crc))
    return begin + length


def path_of(directory: str, task: str, thread: int) -> str:
    return os.path.join(directory, FOLDER, f"{task}~{thread}")


def read(path: str) -> KeyedSnapshot | None:
    try:
        with open(path, "rb") as file:
            return form.read(file.read())
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise OSError(f"the snapshot {path} cannot be read: {error}") from error


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
