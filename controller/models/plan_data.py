"""What a plan is called: a digest of all it says. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from headgate.controller.models.field_reader import Fields
from headgate.controller.models.plans import (
    UNLIMITED_TPS,
    Allocation,
    Bundle,
    Certainty,
    ErrorSpread,
    Placement,
    Plan,
    Prediction,
    Share,
    SlotCount,
    SlotUse,
    TaskAllocation,
    TaskFlow,
    TaskState,
    VmUse,
    usd_per_hour,
)
from headgate.controller.models.task_models import Model
from headgate.topology_runtime.api.cluster import Slot, Vm, bandwidth_fault
from headgate.topology_runtime.api.topology import Task, Topology, digest_of
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import Suggestions, counted, shown


def with_id(plan: Plan) -> Plan:
    """The plan with the `id` that its other fields but `base_epoch` give."""
    nameless = msgspec.structs.replace(plan, id="", base_epoch=None)
    return msgspec.structs.replace(plan, id=digest_of(msgspec.json.encode(nameless)))


def models_digest(topology: Topology, models: Mapping[str, Model]) -> str:
    """The digest of the models that the tasks of this topology use."""
    used = sorted({task.model_name for task in topology.tasks if task.static is None})
    return digest_of(*(msgspec.json.encode(models[name], order="deterministic") for name in used))


# ── What a plan's tasks will say to each other, as its file says it: the block `traffic`. Pure ─────────

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
    found = top.object("traffic", PlanTraffic.__struct_fields__)
    edges = tuple(
        one.struct(EdgeTraffic, source=one.name("from"), target=one.name("to"))
        for one in found.objects("edges", _EDGE)
    )
    return found.struct(PlanTraffic, edges=edges, links=found.structs("links", VmLink, optional=True))


# ── Plans and placements as plain data: format `headgate/plan/v1`. Pure. Reading lists every fault with its
# place
#
# {"schema": "headgate/plan/v1", …, "placement": [{"vm": "vm1", "slot": 0, "threads": {"blob": 50}}]}
#
# Besides what the contract names, a plan's file has what reading it back needs: how MBA counted
# (`full_bundles` …), `"full": true` at slots that belong to one bundle, and the routing shares.

SCHEMA, PREDICTION_SCHEMA = "headgate/plan/v1", "headgate/prediction/v1"
MAX_THREADS, MAX_SLOTS = 1_000_000, 100_000  # of one task in one slot; of one VM

_WORDS = (
    "topology",
    "allocator",
    "mapper",
    "routing",
    "interference",
    "id",
    "topology_digest",
    "models_digest",
)
_TOP = (
    "schema",
    "gap",
    "search_ended",
    "gap_words",
    "margin",
    "kept",
    "slot_speed",
    "counted",
    "traffic",
    "rate_tps",
    "base_epoch",
    "allocation",
    "slots",
    "vms",
    "placement",
    "prediction",
    *_WORDS,
)
_TASK = TaskAllocation.__struct_fields__
_PLACED = ("vm", "slot", "threads", "full")
_SHARE = ("vm", "slot", "task", "share")


# ── writing ─────────────────────────────────────────────────────────────────────────────────────


def plan_data(plan: Plan, traffic: PlanTraffic | None = None) -> dict[str, Any]:
    """The plan as plain data of the file format. traffic: what its tasks will say to each other."""
    words = {name: getattr(plan, name) for name in _WORDS}
    gap, ended = plan.allocation.gap, plan.allocation.ended
    return {
        "schema": SCHEMA,
        **({"gap": gap} if gap is not None else {}),
        **({"search_ended": ended, "gap_words": plan.allocation.gap_words} if ended else {}),
        **(
            {"margin": {"factor": plan.allocation.margin, "why": plan.allocation.margin_why}}
            if plan.allocation.margin_why
            else {}
        ),
        **({"kept": plan.allocation.kept} if plan.allocation.kept else {}),
        **({"slot_speed": plan.allocation.slot_speed} if plan.allocation.slot_speed != 1.0 else {}),
        **({"counted": plan.allocation.counted} if plan.allocation.counted else {}),
        "topology": words.pop("topology"),
        "rate_tps": plan.rate_tps,
        **words,
        "base_epoch": plan.base_epoch,
        "usd_per_hour": usd_per_hour(plan.vms),
        "allocation": [asdict(task) for task in plan.allocation.tasks],
        "slots": asdict(plan.slots),
        "vms": [vm_data(vm) for vm in plan.vms],
        "placement": placement_data(plan.placement),
        "prediction": prediction_data(plan.prediction),
        **({"traffic": traffic_block(traffic)} if traffic is not None else {}),
    }


def vm_data(vm: Vm) -> dict[str, Any]:
    """A VM as files have it: without what nobody said."""
    return {key: value for key, value in asdict(vm).items() if value is not UNSET}


def placement_data(placement: Placement) -> list[dict[str, Any]]:
    """One entry per slot: its threads by task."""
    full = {bundle.slot for bundle in placement.bundles if bundle.full}
    return [
        {"vm": slot.vm, "slot": slot.number, "threads": threads, **({"full": True} if slot in full else {})}
        for slot, threads in placement.by_slot().items()
    ]


def prediction_data(prediction: Prediction) -> dict[str, Any]:
    """The contract's `prediction`; bounds of what the models' spread makes uncertain only where known."""
    data = _known(prediction)
    flows, states = data.pop("flows"), data.pop("states")
    if not states:
        data.pop("state_most_bytes")
    return {
        **data,
        **({"states": [asdict(state) for state in states]} if states else {}),
        "rate_tps": prediction.told_tps,
        **({"flows": [_known(flow) for flow in flows]} if flows else {}),
        **({"sure": sure_data(prediction.sure)} if prediction.sure is not None else {}),
        "limited_by": prediction.limited_by,
        "limited_by_slot": prediction.limited_by_slot,
        "slots": [_known(use) for use in prediction.slots],
        "vms": [_known(use) for use in prediction.vms],
        "shares": [
            {"vm": share.slot.vm, "slot": share.slot.number, "task": share.task, "share": share.share}
            for share in prediction.shares
        ],
    }


def sure_data(sure: Certainty) -> dict[str, Any]:
    """How surely it carries a rate; models by (mean, standard deviation) of the ln of what their rows cost."""
    models = {name: {"mean": mean, "spread": own} for name, (mean, own) in sure.spread.models.items()}
    spread = {"slot": sure.spread.slot, "together": sure.spread.together, "models": models}
    return {**asdict(sure), "spread": spread}


def _known(struct: Any) -> dict[str, Any]:
    return {key: value for key, value in asdict(struct).items() if value is not None}


# ── reading ─────────────────────────────────────────────────────────────────────────────────────


def plan_of(data: object, what: str = "the plan") -> Plan:
    """The plan that `plan_data` made `data` of. Raises InvalidInput with every fault."""
    faults: list[str] = []
    top = Fields(data, "", faults, _TOP)
    if top.data.get("schema") != SCHEMA:
        top.fault("schema", f"expected {SCHEMA!r}, got {shown(top.data.get('schema'))}")
    words = {name: top.name(name, "cpu" if name == "interference" else None) for name in _WORDS}
    rate_tps = top.number("rate_tps")
    epoch = top.integer("base_epoch", 0, 2**63) if top.data.get("base_epoch") is not None else None
    gap = top.number("gap") if top.data.get("gap") is not None else None
    ended = top.text("search_ended")
    margin, why = 1.0, ""
    if top.has("margin"):
        given = top.object("margin", ("factor", "why"))
        margin, why = given.number("factor", low=1.0), given.text("why")
    slot_speed = top.number("slot_speed", 1.0, above=True)
    slots = top.object("slots", SlotCount.__struct_fields__).struct(SlotCount)
    tasks = _tasks_of(top)
    vms = _vms_of(top)
    placement = Placement(tuple(_bundles_of(top, vms)))
    prediction = _prediction_of(top)
    traffic_of(top)  # it is no part of the plan itself: see `read_back`
    faults += _allocated_faults(placement, {task.task: task.threads for task in tasks})
    if faults:
        raise InvalidInput(f"{what} has {counted(len(faults), 'fault')}", faults=faults)
    sure = prediction.sure.margin if prediction.sure is not None else 1.0
    allocation = Allocation(
        words["allocator"], rate_tps * sure * margin, tasks, slots.estimated,
        gap=gap, ended=ended, margin=margin, margin_why=why, kept=top.integer("kept", 0, 2**63, 0),
        slot_speed=slot_speed, counted=top.text("counted"),
    )  # fmt: skip
    return Plan(
        rate_tps=rate_tps,
        allocation=allocation,
        slots=slots,
        vms=vms,
        placement=placement,
        prediction=prediction,
        base_epoch=epoch,
        **words,
    )


def read_back(data: object, what: str = "the plan") -> tuple[Plan, PlanTraffic | None]:
    """The plan and its traffic, where the file has it. Raises InvalidInput with every fault."""
    plan = plan_of(data, what)
    return plan, traffic_of(Fields(data, "", [], _TOP))


def placement_of(
    data: object, topology: Topology, what: str = "the placement"
) -> tuple[Placement, tuple[Vm, ...]]:
    """Threads of this topology's tasks in slots, and the VMs: of a plan, or of `{"placement": […]}`.

    Without "vms" they are those that the placement names, with slots up to the highest number it names.
    Raises InvalidInput with every fault: what is not there, and threads that are lost."""
    faults: list[str] = []
    top = Fields(data, "", faults, ("placement", "vms"))
    vms = _vms_of(top) if top.has("vms") else ()
    bundles = _bundles_of(top, vms if top.has("vms") else None)
    if top.has("placement"):
        faults += _topology_faults(Placement(tuple(bundles)), topology)
    if top.has("allocation"):
        tasks = top.objects("allocation", _TASK)
        known = {task.name("task"): task.integer("threads", 1, MAX_THREADS**2) for task in tasks}
        faults += _allocated_faults(Placement(tuple(bundles)), known)
    if faults:
        raise InvalidInput(f"{what} has {counted(len(faults), 'fault')}", faults=faults)
    vms = vms or _named(bundles)
    vm_place = {vm.vm: number for number, vm in enumerate(vms)}
    place = {task.name: number for number, task in enumerate(topology.breadth_first)}
    bundles.sort(key=lambda bundle: (vm_place[bundle.slot.vm], bundle.slot.number, place[bundle.task]))
    return Placement(tuple(bundles)), vms


def _tasks_of(top: Fields) -> tuple[TaskAllocation, ...]:
    tasks = tuple(
        fields.struct(TaskAllocation, threads=fields.integer("threads", 1, MAX_THREADS**2))
        for fields in top.objects("allocation", _TASK)
    )
    top.faults += _twice([task.task for task in tasks], "allocation: task")
    return tasks


def _vms_of(top: Fields) -> tuple[Vm, ...]:
    plain = Vm("", 0)
    vms = tuple(
        fields.struct(
            Vm,
            slots=fields.integer("slots", 1, MAX_SLOTS),
            slot_cores=fields.number("slot_cores", plain.slot_cores, above=True),
            slot_memory_bytes=fields.integer("slot_memory_bytes", 1, 2**63, plain.slot_memory_bytes),
            speed=fields.number("speed", plain.speed, above=True),
            bandwidth_mbps=_bandwidth_of(fields),
        )
        for fields in top.objects("vms", Vm.__struct_fields__)
    )
    top.faults += _twice([vm.vm for vm in vms], "vms: VM")
    return vms


def _bandwidth_of(fields: Fields) -> float | UnsetType:
    if not fields.has("bandwidth_mbps"):
        return UNSET
    given = fields.data["bandwidth_mbps"]
    fault = bandwidth_fault(given)
    if fault is not None:
        fields.fault("bandwidth_mbps", f"{fault}, got {shown(given)}")
        return UNSET
    return float(given)


def _bundles_of(top: Fields, vms: Sequence[Vm] | None) -> list[Bundle]:
    """The bundles of "placement". `vms`: there are no others; None: whichever are named."""
    sizes = {vm.vm: vm.slots for vm in vms} if vms is not None else None
    near, bundles, seen = Suggestions(), [], Counter[Slot]()
    for fields in top.objects("placement", _PLACED):
        slot = Slot(fields.name("vm"), fields.integer("slot", 0, MAX_SLOTS - 1))
        seen[slot] += 1
        if seen[slot] == 2:
            fields.fault("slot", f"{slot} is there twice")
        if sizes is not None and slot.vm not in sizes:
            fields.fault("vm", f"there is no VM {shown(slot.vm)}{near.text(slot.vm, sizes)}")
        elif sizes is not None and slot.number >= sizes[slot.vm]:
            fields.fault("slot", f"{slot.vm} has {counted(sizes[slot.vm], 'slot')}, so there is no {slot}")
        full = fields.flag("full")
        threads = fields.counts("threads", MAX_THREADS)
        bundles += [Bundle(slot, task, count, full) for task, count in threads.items()]
    return bundles


def _prediction_of(top: Fields) -> Prediction:
    found = top.object("prediction", Prediction.__struct_fields__)
    shares = tuple(
        Share(
            Slot(one.name("vm"), one.integer("slot", 0, MAX_SLOTS)),
            one.name("task"),
            one.number("share", low=-1.0),
        )
        for one in found.objects("shares", _SHARE, optional=True)
    )
    return found.struct(
        Prediction,
        rate_tps=UNLIMITED_TPS if found.data.get("rate_tps", 0) is None else found.number("rate_tps"),
        slots=found.structs("slots", SlotUse),
        vms=found.structs("vms", VmUse),
        shares=shares,
        sure=_sure_of(found) if found.data.get("sure") is not None else None,
        flows=found.structs("flows", TaskFlow, optional=True),
        states=found.structs("states", TaskState, optional=True),
    )


def _sure_of(found: Fields) -> Certainty:
    sure = found.object("sure", Certainty.__struct_fields__)
    spread = sure.object("spread", ErrorSpread.__struct_fields__)
    models = spread.object("models", ())
    learned = {name: models.object(name, ("mean", "spread")) for name in models.data}
    known = {name: (one.number("mean", low=-10.0), one.number("spread")) for name, one in learned.items()}
    return sure.struct(
        Certainty, margin=sure.number("margin", low=1.0), spread=spread.struct(ErrorSpread, models=known)
    )


def _twice(names: Sequence[str], what: str) -> list[str]:
    return [f"{what} {shown(name)} is there {n} times" for name, n in Counter(names).items() if n > 1]


def _allocated_faults(placement: Placement, allocated: dict[str, int]) -> Iterable[str]:
    """Threads that an allocation has and the placement loses, or has too many of."""
    placed = placement.by_task()
    for task in dict.fromkeys((*allocated, *placed)):
        if placed[task] != allocated.get(task, 0):
            desired = allocated.get(task, 0)
            yield f"placement: task {shown(task)}: {placed[task]} threads are placed, {desired} allocated"


def _topology_faults(placement: Placement, topology: Topology) -> Iterable[str]:
    """Tasks that the topology has not, and threads of its tasks that are lost or too many."""
    placed, near = placement.by_task(), Suggestions()
    for name in placed:
        if name not in topology.by_name:
            known = near.text(name, topology.by_name)
            yield f"placement: the topology {topology.name!r} has no task {shown(name)}{known}"
    lone = {edge.target for edge in topology.edges if edge.grouping == "global"}
    for task in topology.tasks:
        yield from _count_faults(task, placed[task.name], task.exclusive or task.name in lone)


def _count_faults(task: Task, count: int, lone: bool) -> Iterable[str]:
    if count == 0:
        yield f"placement: task {task.name!r} has no thread in any slot"
    elif task.static is not None and count != task.static.threads:
        yield f"placement: task {task.name!r} has {task.static.threads} threads (`static`), {count} are placed"
    elif lone and count > 1:
        yield f"placement: task {task.name!r} runs in one thread (`exclusive` or `global`), {count} are placed"


def _named(bundles: Iterable[Bundle]) -> tuple[Vm, ...]:
    """The VMs that a placement names: vm1, vm2, vm10."""
    highest: dict[str, int] = {}
    for bundle in bundles:
        highest[bundle.slot.vm] = max(bundle.slot.number, highest.get(bundle.slot.vm, 0))
    return tuple(Vm(name, highest[name] + 1) for name in sorted(highest, key=_counting))


def _counting(name: str) -> list[tuple[int, str]]:
    """Sorts numbers within names by their value."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.findall(r"[0-9]+|[^0-9]+", name)]
