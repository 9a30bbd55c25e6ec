"""Memory that a placement holds in each slot, what tasks import counted once. Pure.

The contract's prediction scales a task's whole memory with its rate. A process keeps what it once imported,
and two tasks in a slot share it: measured (measurement: Samples), adding whole models explains 82 % of the
variance, a base once and an increment per group 99 %.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from controller.knowledge.models import Model, memory
from controller.knowledge.plans import Placement
from topology_runtime.cluster import Slot

BASE = "base_memory"  # of a model's file: fraction of the slot held before the first row


def resident_memory(placement: Placement, models: Mapping[str, Model]) -> dict[Slot, float]:
    """Slot → bytes above the bare worker: the largest base of its tasks, and what each group adds to its own.

    Groups without a model (tasks of fixed size) count nothing here."""
    bases: defaultdict[Slot, float] = defaultdict(float)
    added: defaultdict[Slot, float] = defaultdict(float)
    for bundle in placement.bundles:
        model = models.get(bundle.task)
        if model is None:
            continue
        size = model.slot.memory_bytes
        base = float(model.more.get(BASE, 0.0)) * size
        bases[bundle.slot] = max(bases[bundle.slot], base)
        added[bundle.slot] += max(0.0, memory(model, bundle.threads) * size - base)
    return {slot: bases[slot] + added[slot] for slot in bases}
