"""How much of what tasks say to each other leaves a slot, and a VM, by a plan's shares of rows. Pure."""

from __future__ import annotations

import math

import msgspec

from controller.knowledge.plans import Plan
from topology_runtime.cluster import Slot
from topology_runtime.topology import Topology


class Crossings(msgspec.Struct, frozen=True):
    """In tuples/s at the planned rate: on all edges, of these between slots, and of these between VMs."""

    rows_tps: float
    between_slots_tps: float
    between_vms_tps: float


def crossings_of(plan: Plan, topology: Topology) -> Crossings:
    """Rows go to each group of a task's threads in proportion to its share; by a `local` edge they stay in a slot that
    has threads of the task."""
    rates = topology.rates(plan.rate_tps)
    shares: dict[str, dict[Slot, float]] = {task.name: {} for task in topology.tasks}
    for share in plan.prediction.shares:
        shares[share.task][share.slot] = share.share
    rows, slots, vms = [], [], []
    for edge in topology.edges:
        flow_tps, target = rates[edge.source] * edge.selectivity, shares[edge.target]
        on_vm: dict[str, float] = {}
        for slot, part in target.items():
            on_vm[slot.vm] = on_vm.get(slot.vm, 0.0) + part
        rows.append(flow_tps)
        for slot, part in shares[edge.source].items():
            if edge.grouping != "local" or slot not in target:
                slots.append(flow_tps * part * (1 - target.get(slot, 0.0)))
                vms.append(flow_tps * part * (1 - on_vm.get(slot.vm, 0.0)))
    return Crossings(math.fsum(rows), math.fsum(slots), math.fsum(vms))
