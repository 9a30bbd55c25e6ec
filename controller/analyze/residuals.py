"""Measured against predicted: input rates of tasks, CPU and memory of slots. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headgate.controller.knowledge.diagnoses import Residual
from headgate.controller.knowledge.plans import Prediction
from headgate.controller.knowledge.windows import Window
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.topology import Topology

PredictedSlots = dict[Slot, tuple[float, float]]  # CPU and memory as fractions

LEAST = 1e-6  # predictions below it (rows/s, fractions of a slot) have no ratio


def residuals(
    window: Window, prediction: Prediction, slots: PredictedSlots, topology: Topology, vms: Iterable[Vm]
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
    reserved = {task.name: task.static.cpu for task in topology.tasks if task.static is not None}
    static: dict[Slot, float] = {}
    for share in prediction.shares:
        static[share.slot] = static.get(share.slot, 0.0) + share.share * reserved.get(share.task, 0.0)
    out: PredictedSlots = {}
    for use in prediction.slots:
        slot = Slot(use.vm, use.slot)
        fixed = min(use.cpu, static.get(slot, 0.0))
        out[slot] = fixed + (use.cpu - fixed) * scale, held.get(slot, use.memory)
    return out


def _rates(window: Window, prediction: Prediction, topology: Topology) -> list[Residual]:
    expected = topology.rates(min(window.emitted_tps, prediction.rate_tps))
    sources = {task.name for task in topology.sources}
    return [
        Residual(
            "rate", name, window.tasks[name].rate_in_tps, rate_tps, _ratio(measured.rate_in_tps, rate_tps)
        )
        for name, rate_tps in expected.items()
        if name not in sources and rate_tps > LEAST and (measured := window.tasks.get(name)) is not None
    ]


def _slots(window: Window, predicted: PredictedSlots, vms: Iterable[Vm]) -> list[Residual]:
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
