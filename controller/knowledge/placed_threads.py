"""Who is where, by a rollout: worked out once for each. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from headgate.controller.knowledge.plans import Plan
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import ThreadSpec


@dataclass(frozen=True, slots=True)
class PlacedThreads:
    """threads: (slot, task) → threads that stay. Others by slot; shares: of a task's rows."""

    threads: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_slot: dict[Slot, dict[str, int]] = field(default_factory=dict)
    by_task: Counter[str] = field(default_factory=Counter)
    leaving: Counter[Slot] = field(default_factory=Counter)
    full: frozenset[Slot] = frozenset()
    shares: dict[Slot, dict[str, float]] = field(default_factory=dict)


NOWHERE = PlacedThreads()


def placed(threads: Iterable[ThreadSpec], plan: Plan) -> PlacedThreads:
    """The threads of a rollout, and what its plan says of their slots."""
    found = PlacedThreads(full=frozenset(bundle.slot for bundle in plan.placement.bundles if bundle.full))
    for thread in threads:
        if thread.leaving:
            found.leaving[thread.slot] += 1
            continue
        tasks = found.by_slot.setdefault(thread.slot, {})
        tasks[thread.task] = tasks.get(thread.task, 0) + 1
        found.threads[str(thread.slot), thread.task] += 1
        found.by_task[thread.task] += 1
    for part in plan.prediction.shares:
        found.shares.setdefault(part.slot, {})[part.task] = part.share
    return found
