"""What of a picture changes only with the plan: who is where. Made once per plan. Pure."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from controller.knowledge.plans import Plan
from controller.knowledge.records import RolloutStarted
from controller.views.figures import figure
from topology_runtime.cluster import Slot


@dataclass(frozen=True, slots=True)
class Layout:
    """threads: (slot, task) → threads that stay. Others by slot; shares: of a task's rows."""

    threads: Counter[tuple[str, str]] = field(default_factory=Counter)
    by_slot: dict[Slot, dict[str, int]] = field(default_factory=dict)
    by_task: Counter[str] = field(default_factory=Counter)
    leaving: Counter[Slot] = field(default_factory=Counter)
    full: frozenset[Slot] = frozenset()
    shares: dict[Slot, dict[str, float]] = field(default_factory=dict)


def layout_of(planned: RolloutStarted | None, plan: Plan | None) -> Layout:
    """Of an enactment and the plan in force (which an enactment may have had changed by an adopted one)."""
    if planned is None or plan is None:
        return Layout()
    found = Layout(full=frozenset(bundle.slot for bundle in plan.placement.bundles if bundle.full))
    for thread in planned.threads:
        if thread.leaving:
            found.leaving[thread.slot] += 1
            continue
        tasks = found.by_slot.setdefault(thread.slot, {})
        tasks[thread.task] = tasks.get(thread.task, 0) + 1
        found.threads[str(thread.slot), thread.task] += 1
        found.by_task[thread.task] += 1
    for part in plan.prediction.shares:
        share = figure(part.share)
        if share is not None:
            found.shares.setdefault(part.slot, {})[part.task] = share
    return found
