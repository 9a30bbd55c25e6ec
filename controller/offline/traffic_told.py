"""What a plan's tasks will say to each other across slots and VMs, as data and in sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import asdict

from headgate.topology_runtime.faults.words import counted, significant

if TYPE_CHECKING:
    from headgate.controller.knowledge.plan_traffic import PlanTraffic
    from headgate.controller.knowledge.plans import Plan
    from headgate.topology_runtime.topology import Topology


def traffic_told(plan: Plan, topology: Topology) -> PlanTraffic:
    """At the planned rate; measured: was it planned by measured traffic?"""
    from headgate.controller.knowledge.plan_traffic import EdgeTraffic, PlanTraffic
    from headgate.controller.plan.crossings import crossings_of, said_on_edges
    from headgate.controller.plan.links import links_of

    said = said_on_edges(plan, topology)
    edges = tuple(
        EdgeTraffic(edge.source, edge.target, edge.selectivity, rows, size)
        for edge, (rows, size) in zip(topology.edges, said, strict=True)
    )
    known = any(vm.bandwidth_bytes_per_s is not None for vm in plan.vms)
    return PlanTraffic(
        bool(plan.prediction.flows),
        **asdict(crossings_of(plan, topology)),
        edges=edges,
        links=links_of(plan, topology) if known else (),
    )


def traffic_data(plan: Plan, topology: Topology) -> dict[str, Any]:
    """The same as plain data."""
    from headgate.controller.knowledge.plan_traffic import traffic_block

    return traffic_block(traffic_told(plan, topology))


def traffic_sentences(found: dict[str, Any]) -> list[str]:
    """In a sentence, and by edge what was measured."""
    slots = _amount(found["between_slots_tps"], found["between_slots_bytes_per_s"])
    vms = _amount(found["between_vms_tps"], found["between_vms_bytes_per_s"])
    rows = f"{significant(found['rows_tps'])} rows/s on {counted(len(found['edges']), 'edge')}"
    lines = [f"Of {rows}, {slots} leave a slot and {vms} a VM."]
    if found["measured"]:
        lines += [
            f"Measured, {edge['from']} → {edge['to']}: {edge['selectivity']:.4g} rows for each, "
            + (
                f"{significant(edge['row_bytes'])} bytes"
                if edge["row_bytes"] is not None
                else "of unknown size, all within slots"
            )
            for edge in found["edges"]
        ]
    return lines + [_link(link) for link in found.get("links", ()) if link["bandwidth_mbps"] is not None]


def _link(link: dict[str, Any]) -> str:
    sent, taken = (link[key] * 8e-6 for key in ("out_bytes_per_s", "in_bytes_per_s"))
    has = link["bandwidth_mbps"]
    return (
        f"{link['vm']} sends {significant(sent)} Mbit/s and takes in {significant(taken)}, "
        f"{max(sent, taken) / has:.1%} of the {significant(has)} of its link."
    )


def _amount(rows_tps: float, bytes_per_s: float | None) -> str:
    size = f" ({bytes_per_s:,.0f} bytes/s)" if bytes_per_s is not None else ""
    return f"{significant(rows_tps)} rows/s{size}"
