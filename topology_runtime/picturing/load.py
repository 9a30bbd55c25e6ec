"""How near a task is to its limit: by the time of its own threads, or by the slots that they share. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple


class Load(NamedTuple):
    """share: 1 is the limit. slot: whose CPU that is; None when the threads' own time is higher."""

    share: float
    slot: str | None = None


class Place(NamedTuple):
    """A slot, the tasks that have threads in it, and its CPU as a fraction of it (None: not known)."""

    slot: str
    tasks: Iterable[str]
    cpu: float | None


def loads(busy: Mapping[str, float | None], places: Iterable[Place]) -> dict[str, Load]:
    """Task → the higher of its busy share and the CPU of its fullest slot. Threads that wait for the CPU of a
    slot that others use up are hardly busy, and still can do no more. What is not known is left out."""
    found = {task: Load(share) for task, share in busy.items() if share is not None}
    for slot, tasks, cpu in places:
        for task in tasks:
            if cpu is not None and cpu > found.get(task, Load(-1.0)).share:
                found[task] = Load(cpu, slot)
    return found
