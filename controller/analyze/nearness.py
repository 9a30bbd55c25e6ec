"""How near each task is to its limit by the models, and where rows pile up. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from controller.analyze.load import ThreadsInSlot, grows, loads
from controller.analyze.residuals import PredictedSlots
from controller.knowledge.diagnoses import Stability, TaskLoad
from controller.knowledge.models import Model, peak_rate
from controller.knowledge.plans import Plan
from controller.knowledge.windows import Window
from topology_runtime.cluster import Slot
from topology_runtime.topology import Topology


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
