"""What a plan has each VM's link carry, and whether it holds that. Pure.

Rows between VMs times their size, at the planned rate: rows and sizes as measured, a size that the topology gives
before that, and rows of unknown size as the others (`traffic.sized`). Where no size is known nothing can be said of
links. Acks and the words to the controller are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from headgate.controller.models.plan_data import VmLink
from headgate.controller.models.plans import Plan, TaskFlow, sized
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import significant

# ── How much of what tasks say to each other leaves a slot, and a VM, by a plan's shares of rows. Pure ───


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


BITS = 8e-6  # bytes/s → Mbit/s


class NarrowLinks(Infeasible):
    """Links of VMs hold less than the plan would have them carry. rate_tps: what they hold of this placement."""

    def __init__(self, plan: Plan, links: Iterable[VmLink], rate_tps: float) -> None:
        self.plan, self.rate_tps = plan, rate_tps
        super().__init__(
            f"no plan for {significant(plan.rate_tps, 6)} rows/s by {plan.allocator}+{plan.mapper} fits the VMs' "
            "links",
            faults=[too_much(link) for link in links],
            hint=f"this placement fits up to {significant(rate_tps)} rows/s: plan for less, "
            "or let VMs with wider links come",
        )


def links_of(plan: Plan, topology: Topology) -> tuple[VmLink, ...]:
    """Of each VM of the plan; empty where no size of rows is known."""
    said = said_on_edges(plan, topology)
    flows = sized(
        TaskFlow(edge.source, edge.target, rows, size)
        for edge, (rows, size) in zip(topology.edges, said, strict=True)
    )
    if all(flow.row_bytes is None for flow in flows):
        return ()
    shares: dict[str, dict[Slot, float]] = {task.name: {} for task in topology.tasks}
    for share in plan.prediction.shares:
        shares[share.task][share.slot] = share.share
    measured = {(flow.source, flow.target) for flow in plan.prediction.flows}
    threads = {task.task: task.threads for task in plan.allocation.tasks}
    sent, taken = ({vm.vm: 0.0 for vm in plan.vms} for _ in range(2))
    for edge, flow in zip(topology.edges, flows, strict=True):
        copied = (
            edge.grouping == "all" and (edge.source, edge.target) not in measured
        )  # else copies were counted
        copies = threads.get(edge.target, 1) if copied else 1
        bytes_per_s = flow.rows_tps * copies * (flow.row_bytes or 0.0)
        for vm, other, part in _between(edge, shares[edge.source], shares[edge.target]):
            sent[vm] += bytes_per_s * part
            taken[other] += bytes_per_s * part
    return tuple(
        VmLink(
            vm.vm,
            out_bytes_per_s=sent[vm.vm],
            in_bytes_per_s=taken[vm.vm],
            bandwidth_mbps=None if vm.bandwidth_mbps is msgspec.UNSET else float(vm.bandwidth_mbps),
        )
        for vm in plan.vms
    )


def rows_between(plan: Plan, topology: Topology) -> dict[tuple[str, str], dict[tuple[str, str], float]]:
    """(VM, another one) → edge → rows/s that go there at the planned rate."""
    shares: dict[str, dict[Slot, float]] = {task.name: {} for task in topology.tasks}
    for share in plan.prediction.shares:
        shares[share.task][share.slot] = share.share
    found: dict[tuple[str, str], dict[tuple[str, str], float]] = {}
    for edge, (rows_tps, _) in zip(topology.edges, said_on_edges(plan, topology), strict=True):
        for vm, other, part in _between(edge, shares[edge.source], shares[edge.target]):
            of = found.setdefault((vm, other), {})
            of[edge.source, edge.target] = of.get((edge.source, edge.target), 0.0) + rows_tps * part
    return found


def _between(
    edge: Edge, source: dict[Slot, float], target: dict[Slot, float]
) -> Iterable[tuple[str, str, float]]:
    """(VM, another one, part of the edge's rows that go there)."""
    from_vm: dict[str, float] = {}
    to_vm: dict[str, float] = {}
    for slot, part in source.items():
        if edge.grouping != "local" or slot not in target:
            from_vm[slot.vm] = from_vm.get(slot.vm, 0.0) + part
    for slot, part in target.items():
        to_vm[slot.vm] = to_vm.get(slot.vm, 0.0) + part
    for vm, part in from_vm.items():
        for other, taken in to_vm.items():
            if vm != other:
                yield vm, other, part * taken


def overfull(plan: Plan, topology: Topology) -> list[VmLink]:
    """The links that would have to carry more than they hold, the worst first."""
    if all(vm.bandwidth_mbps is msgspec.UNSET for vm in plan.vms):
        return []
    over = [link for link in links_of(plan, topology) if link.part > 1 + TOLERANCE]
    return sorted(over, key=lambda link: -link.part)


def refuse_narrow(plan: Plan, topology: Topology) -> Plan:
    """The plan; raises NarrowLinks."""
    over = overfull(plan, topology)
    if over:
        raise NarrowLinks(plan, over, plan.rate_tps / over[0].part)
    return plan


def too_much(link: VmLink) -> str:
    """In words, for a link that would be too full."""
    ways = {"send": link.out_bytes_per_s, "take in": link.in_bytes_per_s}
    way, most = max(ways.items(), key=lambda one: one[1])
    needed, has = most * BITS, link.bandwidth_mbps or 0.0
    needed_mbps, has_mbps, short_mbps = map(significant, (needed, has, needed - has))
    return (
        f"{link.vm} would {way} {needed_mbps} Mbit/s and its link has {has_mbps}: {short_mbps} Mbit/s too few"
    )
