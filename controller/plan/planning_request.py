"""What a plan is made for: a topology with its models and rate, the slots there may be, and how to schedule. Pure."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.models.plans import MeasuredTraffic, Placement, Sure, TaskFlow, TaskState
from headgate.controller.models.task_models import Model, missing_models, unsound
from headgate.controller.plan.mappers.free_slots import GreedyBounds, Room, TopologySpread, Weights
from headgate.controller.plan.predict.prediction import INTERFERENCES, ROUTINGS
from headgate.controller.plan.predict.slot_fit import memory_of_tasks
from headgate.controller.plan.schedulers import pair_faults
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import did_you_mean

MOST_WEIGHT = 1e9  # in a distance: far below what overflows
MOST_MARGIN = 10.0  # times the rate, that may be asked for


class PlanRequest(msgspec.Struct, frozen=True):
    """What to plan for. `vms`: present, in order of preference; `may_add`: may be acquired, in this
    order, as few as possible; `excluded`: slots that hold nothing; `pinned`: task of fixed size → slots
    of its threads, kept if possible. `fixed`: `vms` are paid for anyhow, so the plan names them all, and
    mappers that spread threads use them all. `sure`: how surely the plan is to carry the rate. `traffic`: what was
    measured between tasks, and of their CPU; left out: what selectivities and models say. `in_force`: what runs, for
    schedulers that choose among equals by moves. `margin`: to plan for so many times the rate (None: as the models'
    spread says), and why. `unknown`: of a slot, for each task that nothing is known of yet. `states`: what states of
    keyed tasks take, of which no slot keeps more than `state_most_bytes` in memory (0: half of it). `p95_ms`: 95 of 100
    rows are to be done so soon after they are due (None: whenever). weights, spread, as_printed, bounds, greedy: as of
    `Room`."""

    topology: Topology
    models: dict[str, Model]
    rate_tps: float
    vms: tuple[Vm, ...]
    may_add: tuple[Vm, ...] = ()
    excluded: frozenset[Slot] = frozenset()
    pinned: dict[str, tuple[Slot, ...]] = {}
    allocator: str = "mba"
    mapper: str = "sam"
    routing: str = "weighted"
    interference: str = "cpu"
    weights: Weights = Weights()
    spread: TopologySpread = TopologySpread()
    as_printed: bool = False
    bounds: dict[str, float] = {}
    traffic: MeasuredTraffic | None = None
    fixed: bool = False
    base_epoch: int | None = None
    sure: Sure | None = None
    in_force: Placement | None = None
    margin: float | None = None
    margin_why: str = "it was asked for"
    unknown: float = 1.0
    states: tuple[TaskState, ...] = ()
    state_most_bytes: int = 0
    p95_ms: float | None = None
    greedy: GreedyBounds = GreedyBounds()


def check(request: PlanRequest) -> None:
    """Raises InvalidInput with every fault of the request."""
    faults = missing_models(request.topology, request.models)
    used = {task.model_name for task in request.topology.tasks if task.static is None}
    faults += [
        fault for name in sorted(used & request.models.keys()) for fault in unsound(request.models[name])
    ]
    faults += [
        f"edge {edge.source} → {edge.target}: selectivity {edge.selectivity}, expected a number above 0"
        for edge in request.topology.edges
        if not 0 < edge.selectivity < math.inf
    ]
    rate = request.rate_tps
    if request.margin is not None and not 1 <= request.margin <= MOST_MARGIN:
        faults.append(f"margin: expected a number from 1 to {MOST_MARGIN:g}, got {request.margin}")
    if request.p95_ms is not None and not 0 < request.p95_ms < math.inf:
        faults.append(f"p95_ms: expected a number above 0, got {request.p95_ms}")
    if not (math.isfinite(rate) and rate >= 0):
        faults.append(f"rate: expected a finite rate of at least 0 rows/s, got {rate}")
    choices: list[tuple[str, str, dict[str, Any] | tuple[str, ...]]] = [
        ("routing", request.routing, ROUTINGS),
        ("interference", request.interference, INTERFERENCES),
    ]
    faults += [f"{what}: {why}" for what, why in pair_faults(request.allocator, request.mapper).items()]
    for what, chosen, known in choices:
        if chosen not in known:
            faults.append(f"{what}: no {chosen!r}, there are {', '.join(known)}{did_you_mean(chosen, known)}")
    for part in ("memory", "cpu", "network"):
        weight = getattr(request.weights, part)
        if not 0 <= weight <= MOST_WEIGHT:
            faults.append(f"weights.{part}: expected a number from 0 to {MOST_WEIGHT:g}, got {weight}")
    for part in ("alpha", "beta"):
        if not 0 <= getattr(request.spread, part) <= 1:
            faults.append(
                f"spread.{part}: expected a number from 0 to 1, got {getattr(request.spread, part)}"
            )
    faults += request.greedy.faults()
    faults += [
        f"bounds: {vm or 'VMs'!r} may use {part} of the CPU, expected a part above 0 and at most 1"
        for vm, part in request.bounds.items()
        if not 0 < part <= 1
    ]
    names = Counter(vm.vm for vm in (*request.vms, *request.may_add))
    faults += [f"vms: {name!r} is there {count} times" for name, count in names.items() if count > 1]
    faults += [
        f"vms: {vm.vm!r} has the speed {vm.speed}, expected a number above 0"
        for vm in (*request.vms, *request.may_add)
        if not 0 < vm.speed < math.inf
    ]
    faults += [
        f"vms: slots of {vm.vm!r} have {vm.slot_memory_bytes} bytes of memory and {vm.slot_cores} cores"
        for vm in (*request.vms, *request.may_add)
        if vm.slot_memory_bytes < 1 or not 0 < vm.slot_cores < math.inf
    ]
    if faults:
        raise InvalidInput(f"topology {request.topology.name!r} cannot be planned", faults=faults)


def room_of(request: PlanRequest) -> Room:
    """VMs in filling order: those that pinned threads keep anyhow come first; of those that are present, fast ones."""
    present = {slot for vm in request.vms for slot in vm.all_slots()} - request.excluded
    pinned = {
        task: tuple(slot for slot in slots if slot in present) for task, slots in request.pinned.items()
    }
    kept = {slot.vm for slots in pinned.values() for slot in slots}
    vms = (*sorted(request.vms, key=lambda vm: -vm.speed), *request.may_add)
    ordered = sorted(vms, key=lambda vm: vm.vm not in kept)  # stable: else in the request's order
    flows = flows_measured(request) or flows_of(request.topology, request.rate_tps)
    memory = memory_of_tasks(request.topology, request.models, ordered)
    return Room(
        vms=tuple(ordered),
        excluded=request.excluded,
        pinned=pinned,
        weights=request.weights,
        flows=flows,
        spread=request.spread,
        memory=memory,
        as_printed=request.as_printed,
        bounds=request.bounds,
        greedy=request.greedy,
    )


# ── What tasks send each other at the input rate: as it was measured, or by selectivities ───────────────


def flows_measured(request: PlanRequest) -> tuple[TaskFlow, ...]:
    """What was measured, at the planned rate; a size of rows that the topology gives goes before."""
    if request.traffic is None:
        return ()
    edges = {(edge.source, edge.target): edge for edge in request.topology.edges}
    return tuple(
        flow
        if (given := edges[flow.source, flow.target].row_bytes) is None
        else replace(flow, row_bytes=given)
        for flow in request.traffic.flows(request.rate_tps or 1.0)
        if (flow.source, flow.target) in edges
    )


def flows_of(topology: Topology, rate_tps: float) -> tuple[TaskFlow, ...]:
    """What tasks send each other at an input rate, by selectivities; at the rate 0 as at 1."""
    rates = topology.rates(rate_tps or 1.0)
    return tuple(
        TaskFlow(e.source, e.target, rates[e.source] * e.selectivity, e.row_bytes) for e in topology.edges
    )
