"""What tasks send each other at an input rate: as it was measured, or by selectivities. Pure."""

from __future__ import annotations

from msgspec.structs import replace

from headgate.controller.knowledge.traffic import MeasuredTraffic, TaskFlow
from headgate.topology_runtime.topology import Topology


def flows_at(topology: Topology, traffic: MeasuredTraffic | None, rate_tps: float) -> tuple[TaskFlow, ...]:
    """What was measured, at the rate in question; a size of rows that the topology gives goes before."""
    if traffic is None:
        return ()
    edges = {(edge.source, edge.target): edge for edge in topology.edges}
    return tuple(
        flow
        if (given := edges[flow.source, flow.target].row_bytes) is None
        else replace(flow, row_bytes=given)
        for flow in traffic.flows(rate_tps or 1.0)
        if (flow.source, flow.target) in edges
    )


def flows_of(topology: Topology, rate_tps: float) -> tuple[TaskFlow, ...]:
    """What tasks send each other at an input rate, by selectivities; at the rate 0 as at 1."""
    rates = topology.rates(rate_tps or 1.0)
    return tuple(
        TaskFlow(e.source, e.target, rates[e.source] * e.selectivity, e.row_bytes) for e in topology.edges
    )
