"""Durable snapshots of keyed state: one file per thread, written whole, fsynced and renamed."""

from __future__ import annotations

import os
from collections.abc import Set

import msgspec

from topology_runtime.worker.keyed_rows import KeyedSnapshot

FOLDER = "snapshots"
WRITING = ".new"

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(KeyedSnapshot).decode


class SnapshotFiles:
    """The snapshots of thread `thread` of `task`, under its VM's directory."""

    def __init__(self, directory: str, task: str, thread: int) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._task = task
        self._path = path_of(directory, task, thread)
        self._directory = directory

    def load(self) -> KeyedSnapshot | None:
        """The last whole snapshot, None when there is none. Raises OSError when it does not read."""
        return read(self._path)

    def save(self, snapshot: KeyedSnapshot) -> None:
        """The snapshot is on disk when this returns. Raises OSError; then the last one stands."""
        os.makedirs(self._folder, exist_ok=True)
        with open(self._path + WRITING, "wb") as file:
            file.write(_encode(snapshot))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + WRITING, self._path)

    def remove(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)

    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of the task on this VM. Raises OSError."""
        return read(path_of(self._directory, self._task, thread))


def path_of(directory: str, task: str, thread: int) -> str:
    return os.path.join(directory, FOLDER, f"{task}~{thread}")


def read(path: str) -> KeyedSnapshot | None:
    try:
        with open(path, "rb") as file:
            return _decode(file.read())
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
