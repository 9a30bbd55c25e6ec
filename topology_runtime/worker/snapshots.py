"""Durable snapshots of keyed state: one file per thread, written whole, fsynced and renamed."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from topology_runtime.worker import rows as wire

FOLDER = "snapshots"


class Files:
    """The snapshots of thread `thread` of `task`, under its VM's directory."""

    def __init__(self, directory: str, task: str, thread: int) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self._task = task
        self._path = os.path.join(self._folder, f"{task}~{thread}")

    def load(self) -> list[Any] | None:
        """The last whole snapshot, None when there is none."""
        return _read(self._path)

    def save(self, snapshot: list[Any]) -> None:
        """The snapshot is on disk when this returns."""
        os.makedirs(self._folder, exist_ok=True)
        with open(self._path + ".new", "wb") as file:
            file.write(wire.write(snapshot, wire.NESTED))
            file.flush()
            os.fsync(file.fileno())
        os.replace(self._path + ".new", self._path)

    def remove(self) -> None:
        if os.path.exists(self._path):
            os.unlink(self._path)

    def of_threads_gone(self, living: set[int]) -> list[list[Any]]:
        """Snapshots on this VM of threads of the task that are no more."""
        found: list[list[Any]] = []
        for name in sorted(os.listdir(self._folder)) if os.path.isdir(self._folder) else ():
            task, _, thread = name.rpartition("~")
            if task == self._task and thread.isdigit() and int(thread) not in living:
                snapshot = _read(os.path.join(self._folder, name))
                found += [snapshot] if snapshot is not None else []
        return found


def _read(path: str) -> list[Any] | None:
    try:
        with open(path, "rb") as file:
            return wire.read(file.read(), wire.NESTED)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise OSError(f"the snapshot {path} cannot be read: {error}") from error
