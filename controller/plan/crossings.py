"""How much of what tasks say to each other leaves a slot, and a VM, by a plan's shares of rows. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from headgate.controller.knowledge.plans import Plan
from headgate.controller.knowledge.traffic import TaskFlow
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.topology import Topology


class Crossings(msgspec.Struct, frozen=True):
    """At the planned rate: on all edges, of these between slots, and of these between VMs. Bytes are of the edges whose
    rows' size is known, None where there is none."""

    rows_tps: float
    between_slots_tps: float
    between_vms_tps: float
    between_slots_bytes_per_s: float | None = None
    between_vms_bytes_per_s: float | None = None


def crossings_of(plan: Plan, topology: Topology, flows: Iterable[TaskFlow] = ()) -> Crossings:
    """Rows go to each group of a task's threads in proportion to its share; by a `local` edge they stay in a slot that
    has threads of the task. flows: what was measured at the planned rate; none: what the plan was made by, or what
    selectivities say."""
    shares: dict[str, dict[Slot, float]] = {task.name: {} for task in topology.tasks}
    for share in plan.prediction.shares:
        shares[share.task][share.slot] = share.share
    said = said_on_edges(plan, topology, flows)
    rows, slots, vms, slots_bytes, vms_bytes = [], [], [], [], []
    for edge, (flow_tps, row_bytes) in zip(topology.edges, said, strict=True):
        target = shares[edge.target]
        on_vm: dict[str, float] = {}
        for slot, part in target.items():
            on_vm[slot.vm] = on_vm.get(slot.vm, 0.0) + part
        rows.append(flow_tps)
        for slot, part in shares[edge.source].items():
            if edge.grouping != "local" or slot not in target:
                slots.append(flow_tps * part * (1 - target.get(slot, 0.0)))
                vms.append(flow_tps * part * (1 - on_vm.get(slot.vm, 0.0)))
                if row_bytes is not None:
                    slots_bytes.append(slots[-1] * row_bytes)
                    vms_bytes.append(vms[-1] * row_bytes)
    sized = any(row_bytes is not None for _, row_bytes in said)
    bytes_per_s = (math.fsum(slots_bytes), math.fsum(vms_bytes)) if sized else (None, None)
    return Crossings(math.fsum(rows), math.fsum(slots), math.fsum(vms), *bytes_per_s)


def said_on_edges(
    plan: Plan, topology: Topology, flows: Iterable[TaskFlow] = ()
) -> list[tuple[float, float | None]]:
    """(rows/s, bytes of a row or None) of each edge at the planned rate; flows as above."""
    rates = topology.rates(plan.rate_tps)
    measured = {(flow.source, flow.target): flow for flow in tuple(flows) or plan.prediction.flows}
    found = []
    for edge in topology.edges:
        flow = measured.get((edge.source, edge.target))
        size = flow.row_bytes if flow is not None and edge.row_bytes is None else edge.row_bytes
        rows_tps = flow.rows_tps if flow is not None else rates[edge.source] * edge.selectivity
        found.append((rows_tps, size))
    return found
