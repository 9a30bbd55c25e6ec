"""What a plan's tasks will say to each other, as its file tells it: the block `traffic`. Pure."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from headgate.controller.knowledge.fields import Fields

_EDGE = ("from", "to", "selectivity", "rows_tps", "row_bytes")


class EdgeTraffic(msgspec.Struct, frozen=True):
    """Rows of one edge at the planned rate; row_bytes: of one of them, None where that is not known."""

    source: str
    target: str
    selectivity: float
    rows_tps: float
    row_bytes: float | None = None


class VmLink(msgspec.Struct, frozen=True):
    """What a VM sends to others and takes from them, and what its link holds each way (None: nobody knows)."""

    vm: str
    out_bytes_per_s: float
    in_bytes_per_s: float
    bandwidth_mbps: float | None = None

    @property
    def part(self) -> float:
        """Of the link, the fuller way; 0 where nobody knows what it holds."""
        if self.bandwidth_mbps is None:
            return 0.0
        return max(self.out_bytes_per_s, self.in_bytes_per_s) * 8 / (self.bandwidth_mbps * 1e6)


class PlanTraffic(msgspec.Struct, frozen=True):
    """On all edges at the planned rate, of these between slots and between VMs; bytes None where no size of rows is
    known. measured: the plan was made by measured traffic. links: of the VMs, where somebody said what one holds."""

    measured: bool
    rows_tps: float
    between_slots_tps: float
    between_vms_tps: float
    between_slots_bytes_per_s: float | None = None
    between_vms_bytes_per_s: float | None = None
    edges: tuple[EdgeTraffic, ...] = ()
    links: tuple[VmLink, ...] = ()


def traffic_block(traffic: PlanTraffic) -> dict[str, Any]:
    """As plain data."""
    edges = []
    for edge in traffic.edges:
        named = asdict(edge)
        edges.append({"from": named.pop("source"), "to": named.pop("target"), **named})
    links = [asdict(link) for link in traffic.links]
    told = {key: value for key, value in asdict(traffic).items() if key != "links"}
    return {**told, "edges": edges, **({"links": links} if links else {})}


def traffic_of(top: Fields) -> PlanTraffic | None:
    """The block of a plan's file, if it has one; faults are added to those of `top`."""
    if not top.has("traffic"):
        return None
    found = top.object("traffic", tuple(PlanTraffic.__struct_fields__))
    edges = tuple(
        EdgeTraffic(
            one.name("from"),
            one.name("to"),
            one.number("selectivity"),
            one.number("rows_tps"),
            _maybe(one, "row_bytes"),
        )
        for one in found.objects("edges", _EDGE)
    )
    return PlanTraffic(
        found.flag("measured"),
        rows_tps=found.number("rows_tps"),
        between_slots_tps=found.number("between_slots_tps"),
        between_vms_tps=found.number("between_vms_tps"),
        between_slots_bytes_per_s=_maybe(found, "between_slots_bytes_per_s"),
        between_vms_bytes_per_s=_maybe(found, "between_vms_bytes_per_s"),
        edges=edges,
        links=tuple(
            VmLink(
                one.name("vm"),
                one.number("out_bytes_per_s"),
                one.number("in_bytes_per_s"),
                _maybe(one, "bandwidth_mbps"),
            )
            for one in found.objects("links", tuple(VmLink.__struct_fields__), optional=True)
        ),
    )


def _maybe(fields: Fields, key: str) -> float | None:
    return fields.number(key) if fields.data.get(key) is not None else None
