"""How near a task is to what the models say that it can carry, and whether rows pile up before it. Pure.

Not by measured CPU: a slot that is planned to be well used is no trouble, and a task with idle threads in it neither.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.knowledge.diagnoses import TaskLoad

ALIKE = 0.95  # of the highest
GROWS = 0.02  # of a task's rate that is added to its queue each second: 2 % overload


class ThreadsInSlot(NamedTuple):
    """A slot at the present rate. parts: task → its rate here as a part of the peak that its model gives its
    threads here; cpu: what the models predict, as a fraction of the slot. None: not known."""

    slot: str
    parts: Mapping[str, float | None]
    cpu: float | None


def loads(places: Iterable[ThreadsInSlot]) -> dict[str, TaskLoad]:
    """Task → the highest part of a peak or of a slot's CPU where it has threads. Of slots that are about as full
    the first is named, always the same one. What is not known is left out."""
    found: dict[str, list[TaskLoad]] = {}
    for slot, parts, cpu in places:
        for task, part in parts.items():
            known = [share for share in (part, cpu) if share is not None]
            if known:
                found.setdefault(task, []).append(TaskLoad(max(known), slot))
    return {task: _nearest(there) for task, there in found.items()}


def _nearest(there: list[TaskLoad]) -> TaskLoad:
    most = max(load.share for load in there)
    return TaskLoad(most, next(load.slot for load in there if load.share >= ALIKE * most))


def grows(verdict: str, growth_tps: float, rate_tps: float) -> bool:
    """Do rows pile up before a task? Only where the run does not keep up: queues of a stable one come and go."""
    return verdict == "unstable" and growth_tps > GROWS * rate_tps
