"""How near each task is to what the models say that it can carry, and where rows pile up. Pure.

Not by measured CPU: a slot that is planned to be well used is no trouble, and a task with idle threads in it neither.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headgate.controller.analyze.residuals import PredictedSlots
from headgate.controller.knowledge.diagnoses import Stability, TaskLoad
from headgate.controller.knowledge.models import Model, peak_rate
from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.windows import Window
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology

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


def nearness(
    window: Window, plan: Plan, topology: Topology, models: Mapping[str, Model], slots: PredictedSlots
) -> dict[str, TaskLoad]:
    """Task → its load at the rate that it takes in now. `slots`: what is predicted of them at the present rate."""
    threads: Counter[str] = Counter()
    parts: dict[Slot, dict[str, float | None]] = {}
    for bundle in plan.placement.bundles:
        threads[bundle.task] += bundle.threads
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    for bundle in plan.placement.bundles:
        slot, task = bundle.slot, bundle.task
        model = models.get(topology.by_name[task].model_name)
        if model is not None and model.unmeasured:
            continue
        share = shares.get((slot, task), bundle.threads / threads[task])
        parts.setdefault(slot, {})[task] = _part(window, task, share, model, bundle.threads)
    return loads(ThreadsInSlot(str(slot), of, slots.get(slot, (None, None))[0]) for slot, of in parts.items())


def _part(window: Window, task: str, share: float, model: Model | None, threads: int) -> float | None:
    now = window.tasks.get(task)
    peak_tps = peak_rate(model, threads) if model is not None else 0.0
    return now.rate_in_tps * share / peak_tps if now is not None and peak_tps > 0 else None


def growing(window: Window, stability: Stability) -> frozenset[str]:
    """Tasks before which rows pile up."""
    return frozenset(
        name
        for name, task in window.tasks.items()
        if grows(stability.verdict, task.queue_growth_tps, task.rate_in_tps)
    )
