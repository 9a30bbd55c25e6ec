"""Durable snapshots of keyed state: one file per thread, written whole, fsynced and renamed."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from topology_runtime.worker import rows as wire

FOLDER = "snapshots"
EVERY_NS = 1_000_000_000


def path_of(directory: str, task: str, thread: int) -> str:
    return os.path.join(directory, FOLDER, f"{task}~{thread}")


def save(path: str, snapshot: list[Any]) -> None:
    """The snapshot is on disk when this returns."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "wb") as file:
        file.write(wire.write(snapshot, wire.NESTED))
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def load(path: str) -> list[Any] | None:
    """The last whole snapshot, None when there is none."""
    try:
        with open(path, "rb") as file:
            return wire.read(file.read(), wire.NESTED)
    except FileNotFoundError:
        return None
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise OSError(f"the snapshot {path} cannot be read: {error}") from error


def of_threads_gone(directory: str, task: str, living: set[int]) -> list[str]:
    """Snapshots on this VM of threads of a task that are no more."""
    folder = os.path.join(directory, FOLDER)
    names = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    return [
        os.path.join(folder, name)
        for name in names
        if name.rpartition("~")[0] == task
        and name.rpartition("~")[2].isdigit()
        and int(name.rpartition("~")[2]) not in living
    ]
