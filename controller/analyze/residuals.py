"""Measured against predicted: input rates of tasks, CPU and memory of slots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from headgate.controller.knowledge.diagnoses import Residual, Stability, TaskLoad
from headgate.controller.knowledge.measured_window import MeasuredWindow
from headgate.controller.models.plans import Plan, Prediction
from headgate.controller.models.task_models import Model, peak_rate
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology

PredictedSlots = dict[Slot, tuple[float, float]]  # CPU and memory as fractions

LEAST = 1e-6  # predictions below it (rows/s, fractions of a slot) have no ratio


def residuals(
    window: MeasuredWindow,
    prediction: Prediction,
    slots: PredictedSlots,
    topology: Topology,
    vms: Iterable[Vm],
) -> tuple[Residual, ...]:
    """Rates of tasks at what the sources emitted; CPU and memory of the slots of `vms` that are both
    predicted (`slots`) and measured. Nothing when samples are missing."""
    if not window.is_complete:
        return ()
    return (
        *_rates(window, prediction, topology),
        *_slots(window, slots, vms),
    )


def predicted_slots(
    prediction: Prediction, topology: Topology, rate_tps: float, held: Mapping[Slot, float]
) -> PredictedSlots:
    """Slot → (CPU, memory) as fractions at input rate `rate_tps`.

    CPU above what tasks of fixed size reserve grows with the rate up to the supported one (the prediction's is at
    `at_rate_tps`); memory is what the slot's process holds, else the prediction's."""
    at_tps = prediction.at_rate_tps
    scale = min(rate_tps, prediction.rate_tps) / at_tps if at_tps > LEAST else 0.0
    static = reserved_cpu(prediction, topology)
    out: PredictedSlots = {}
    for use in prediction.slots:
        slot = Slot(use.vm, use.slot)
        fixed = min(use.cpu, static.get(slot, 0.0))
        out[slot] = fixed + (use.cpu - fixed) * scale, held.get(slot, use.memory)
    return out


def reserved_cpu(prediction: Prediction, topology: Topology) -> dict[Slot, float]:
    """Slot → the fraction of its CPU that tasks of fixed size reserve there, whatever the rate."""
    reserved = {task.name: task.static.cpu for task in topology.tasks if task.static is not None}
    found: dict[Slot, float] = {}
    for share in prediction.shares:
        found[share.slot] = found.get(share.slot, 0.0) + share.share * reserved.get(share.task, 0.0)
    return found


def _rates(window: MeasuredWindow, prediction: Prediction, topology: Topology) -> list[Residual]:
    expected = topology.rates(min(window.emitted_tps, prediction.rate_tps))
    sources = {task.name for task in topology.sources}
    return [
        Residual(
            "rate", name, window.tasks[name].rate_in_tps, rate_tps, _ratio(measured.rate_in_tps, rate_tps)
        )
        for name, rate_tps in expected.items()
        if name not in sources and rate_tps > LEAST and (measured := window.tasks.get(name)) is not None
    ]


def _slots(window: MeasuredWindow, predicted: PredictedSlots, vms: Iterable[Vm]) -> list[Residual]:
    out: list[Residual] = []
    for slot in (slot for vm in vms for slot in vm.all_slots()):
        if (measured := window.slots.get(slot)) is not None and slot in predicted:
            cpu, memory = predicted[slot]
            out.append(Residual("cpu", str(slot), measured.cpu, cpu, _ratio(measured.cpu, cpu)))
            out.append(
                Residual("memory", str(slot), measured.memory, memory, _ratio(measured.memory, memory))
            )
    return out


def _ratio(measured: float, predicted: float) -> float:
    """Measured / predicted; 1 when nothing was predicted."""
    return measured / predicted if predicted > LEAST else 1.0


# ── How near each task is to what the models say that it can carry, and where rows pile up. Pure ───
#
# A load is the present rate as a part of the rate at which it would be 1, so it grows as the rate does and the highest
# is of the task that saturates first. What tasks of fixed size reserve does not grow: it is taken off the slot's CPU.
# Not by measured CPU: a slot that is planned to be well used is no trouble, and a task with idle threads in
# it neither.

ALIKE = 0.95  # of the highest
GROWS = 0.02  # of a task's rate that is added to its queue each second: 2 % overload


class ThreadsInSlot(NamedTuple):
    """A slot at the present rate. parts: task → its rate here as a part of the peak that its model gives its
    threads here; cpu: what the models predict of it that grows with the rate, as a fraction of what is not reserved in
    the slot. None: not known."""

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


def load_grows(verdict: str, growth_tps: float, rate_tps: float) -> bool:
    """Do rows pile up before a task? Only where the run does not keep up: queues of a stable one come and go."""
    return verdict == "unstable" and growth_tps > GROWS * rate_tps


def nearness(
    window: MeasuredWindow, plan: Plan, topology: Topology, models: Mapping[str, Model], slots: PredictedSlots
) -> dict[str, TaskLoad]:
    """Task → its load at the rate that it takes in now. `slots`: what is predicted of them at the present rate."""
    threads = plan.placement.by_task()
    parts: dict[Slot, dict[str, float | None]] = {}
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    for bundle in plan.placement.bundles:
        slot, task = bundle.slot, bundle.task
        model = models.get(topology.by_name[task].model_name)
        fixed = topology.by_name[task].static
        if (model is not None and model.unmeasured) or (fixed is not None and not fixed.cpu_each):
            continue
        share = shares.get((slot, task), bundle.threads / threads[task])
        parts.setdefault(slot, {})[task] = _part(window, task, share, model, bundle.threads)
    reserved = reserved_cpu(plan.prediction, topology)
    return loads(
        ThreadsInSlot(str(slot), of, _growing(slots, slot, reserved.get(slot, 0.0)))
        for slot, of in parts.items()
    )


def _growing(slots: PredictedSlots, slot: Slot, reserved: float) -> float | None:
    """Of the slot's CPU, what grows with the rate, as a part of what is not reserved."""
    if slot not in slots:
        return None
    cpu = slots[slot][0]
    return (cpu - reserved) / (1 - reserved) if cpu > reserved and reserved < 1 else 0.0


def _part(window: MeasuredWindow, task: str, share: float, model: Model | None, threads: int) -> float | None:
    now = window.tasks.get(task)
    peak_tps = peak_rate(model, threads) if model is not None else 0.0
    return now.rate_in_tps * share / peak_tps if now is not None and peak_tps > 0 else None


def growing(window: MeasuredWindow, stability: Stability) -> frozenset[str]:
    """Tasks before which rows pile up."""
    return frozenset(
        name
        for name, task in window.tasks.items()
        if load_grows(stability.verdict, task.queue_growth_tps, task.rate_in_tps)
    )
