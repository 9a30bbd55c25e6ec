"""Models measured in one size of slot, used in another. Pure.

Bytes are bytes: memory is scaled. How a task's rate changes with the cores of its slot nobody has measured: models of
another size are refused. A model that does not say in what slot it was measured is one of the slots at hand.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from msgspec.structs import replace

from headgate.controller.models.plans import Placement, Plan
from headgate.controller.models.task_models import BASE, WORKER, Model, ModelSlot, Point, memory
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.state_memory import in_slots
from headgate.topology_runtime.api.cluster import Slot, Vm, refuse_small_slots
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput
from headgate.topology_runtime.wording import larger_slots

# ── Memory that a placement holds in each slot, what tasks import counted once. Pure ────────────────────
#
# The contract's prediction scales a task's whole memory with its rate. A process keeps what it once imported,
# and two tasks in a slot share it: as measured, adding whole models explains 82 % of the
# variance, a base once and an increment per group 99 %.

MIB = 1 << 20


def resident_memory(
    placement: Placement, topology: Topology, models: Mapping[str, Model]
) -> dict[Slot, float]:
    """Slot → bytes above the bare worker: the largest base of its tasks, and what each group adds to its own.

    Groups without a model (tasks of fixed size) count nothing here."""
    bases: defaultdict[Slot, float] = defaultdict(float)
    added: defaultdict[Slot, float] = defaultdict(float)
    for bundle in placement.bundles:
        model = models.get(topology.by_name[bundle.task].model_name)
        if model is None:
            continue
        size, held = model.slot.memory_bytes, memory(model, bundle.threads)
        base = min(held, float(model.more.get(BASE, 0.0)))
        bases[bundle.slot] = max(bases[bundle.slot], base * size)
        added[bundle.slot] += (held - base) * size
    return {slot: bases[slot] + added[slot] for slot in bases}


def worker_memory(topology: Topology, models: Mapping[str, Model]) -> float:
    """Bytes of a bare worker, by the models of these tasks; 0: none says."""
    used = {task.model_name for task in topology.tasks if task.static is None}
    return max((float(models[name].more.get(WORKER, 0.0)) for name in used if name in models), default=0.0)


def memory_of_tasks(topology: Topology, models: Mapping[str, Model], vms: Iterable[Vm]) -> float:
    """The fraction of a slot's memory, the smallest one's, that a bare worker leaves to tasks. Raises Infeasible where
    it leaves none."""
    size = min((vm.slot_memory_bytes for vm in vms), default=0)
    if not size:
        return 1.0
    worker_bytes = worker_memory(topology, models)
    used = {task.model_name for task in topology.tasks if task.static is None} & models.keys()
    measured = {name: models[name] for name in used if models[name].measured}
    tasks = {name: model.points[0].memory * model.slot.memory_bytes for name, model in measured.items()}
    refuse_small_slots(size, worker_bytes, tasks)
    return 1.0 - worker_bytes / size


def within_memory(topology: Topology, models: Mapping[str, Model], room: float) -> dict[str, Model]:
    """The models with no more threads in a slot than it has memory for: `room` of it is the tasks'. Raises Infeasible
    with every measured task of which one thread alone holds more."""
    used = {task.model_name for task in topology.tasks if task.static is None}
    found, faults, largest = dict(models), [], 0.0
    for name in sorted(used):
        model = models[name]
        if not model.measured:
            continue
        fit = tuple(point for point in model.points if point.memory <= room + TOLERANCE / 2)
        if fit:
            found[name] = replace(model, points=fit)
            continue
        size = model.slot.memory_bytes
        holds = model.points[0].memory * size
        largest = max(largest, holds + (1.0 - room) * size)
        faults.append(
            f"task {name!r} holds {holds / MIB:,.0f} MiB in one thread, a slot has {room * size / MIB:,.0f}"
        )
    if faults:
        raise Infeasible(
            "no slot has the memory that a task holds", faults=faults, hint=larger_slots(largest)
        )
    return found


def held_memory(
    placement: Placement,
    topology: Topology,
    models: Mapping[str, Model],
    vms: Iterable[Vm],
    states: Mapping[Slot, float] = {},
) -> dict[Slot, float]:
    """Slot → fraction of its memory that its process holds, the bare worker, what tasks of fixed size reserve and
    what `states` take included; nothing when no model says how large a bare worker is, and nothing of states is
    known."""
    worker_bytes = worker_memory(topology, models)
    if worker_bytes <= 0 and not states:
        return {}
    sizes = {vm.vm: vm.slot_memory_bytes for vm in vms}
    resident = resident_memory(placement, topology, models)
    held: defaultdict[Slot, float] = defaultdict(float)
    for bundle in placement.bundles:
        static = topology.by_name[bundle.task].static
        if static is not None:
            held[bundle.slot] += static.memory * bundle.threads / static.threads
    return {
        slot: (worker_bytes + resident.get(slot, 0.0)) / sizes[slot.vm] + held[slot] + states.get(slot, 0.0)
        for slot in {bundle.slot for bundle in placement.bundles}
        if slot.vm in sizes
    }


def overfull_slots(
    placement: Placement,
    topology: Topology,
    models: Mapping[str, Model],
    vms: Iterable[Vm],
    states: Mapping[Slot, float] = {},
) -> list[str]:
    """Slots that would hold more memory than they have, by measured models and states, in words: with their tasks, of
    which the one that holds most comes first."""
    vms = tuple(vms)
    held = sorted(held_memory(placement, topology, models, vms, states).items())
    over = [(slot, part) for slot, part in held if part > 1 + TOLERANCE]
    return [f"slot {slot} would hold {part:.4f} of its memory{_by_task(slot, placement, topology, models)}"
            for slot, part in over]  # fmt: skip


def _by_task(slot: Slot, placement: Placement, topology: Topology, models: Mapping[str, Model]) -> str:
    held = {}
    for bundle in placement.bundles:
        model = models.get(topology.by_name[bundle.task].model_name)
        if bundle.slot == slot and model is not None:
            held[bundle.task] = memory(model, bundle.threads) * model.slot.memory_bytes / MIB
    ordered = sorted(held.items(), key=lambda one: -one[1])
    return f": {', '.join(f'{task} {mib:,.0f} MiB' for task, mib in ordered)}" if ordered else ""


def refuse_overfull(
    what: str,
    placement: Placement,
    topology: Topology,
    models: Mapping[str, Model],
    vms: Iterable[Vm],
    states: Mapping[Slot, float] = {},
) -> None:
    """Raises Infeasible with `what`, every slot that would hold more memory than it has, and a size that holds it."""
    vms = tuple(vms)
    if faults := overfull_slots(placement, topology, models, vms, states):
        sizes = {vm.vm: vm.slot_memory_bytes for vm in vms}
        held = held_memory(placement, topology, models, vms, states)
        most = max(part * sizes[slot.vm] for slot, part in held.items())
        raise Infeasible(what, faults=faults, hint=f"more slots, or {larger_slots(most)}")


def beside_worker(
    topology: Topology, models: Mapping[str, Model], room: float
) -> tuple[Topology, dict[str, Model]]:
    """(topology, models) with memory as fractions of what a bare worker leaves of a slot, `room`: for allocators that
    fill whole slots."""
    if room == 1.0:
        return topology, dict(models)
    found = {
        name: replace(model, points=tuple(replace(p, memory=p.memory / room) for p in model.points))
        for name, model in models.items()
    }
    tasks = tuple(
        task
        if task.static is None
        else replace(task, static=replace(task.static, memory=task.static.memory / room))
        for task in topology.tasks
    )
    return replace(topology, tasks=tasks), found


@dataclass(frozen=True, slots=True)
class HeldMemory:
    """What the processes of a plan hold in memory, worked out once per plan."""

    plan: str
    slots: dict[Slot, float]

    @classmethod
    def of(cls, plan: Plan, topology: Topology, models: Mapping[str, Model]) -> HeldMemory:
        found = plan.prediction
        states = in_slots(found.states, found.state_most_bytes, found.shares, plan.vms)
        return cls(plan.id, held_memory(plan.placement, topology, models, plan.vms, states))


NEAR = 0.01  # relative: so little another size is the same


def fitted(
    models: Iterable[Model], topology: Topology, slot_cores: float, slot_memory_bytes: int
) -> tuple[Model, ...]:
    """The models as fractions of these slots. Raises InvalidInput with every model of the topology that was measured
    in slots of other cores."""
    models = tuple(models)
    used = {task.model_name for task in topology.tasks if task.static is None}
    odd = [m for m in models if m.task in used and _known(m) and not near(m.slot.cores, slot_cores)]
    if odd:
        sizes = sorted({m.slot.cores for m in odd})
        own = f"`--slot-cores {sizes[0]:g}`, or " if len(sizes) == 1 and len(odd) == len(used) else ""
        raise InvalidInput(
            f"the models do not fit slots of {slot_cores:g} cores",
            faults=[f"{m.task}: measured in a slot of {m.slot.cores:g} cores" for m in odd],
            hint=f"{own}measure again: `headgate model profile --slot-cores {slot_cores:g} …`, or leave --models out",
        )
    return tuple(_fit(model, slot_cores, slot_memory_bytes) for model in models)


def _known(model: Model) -> bool:
    return model.slot != ModelSlot()


def near(a: float, b: float) -> bool:
    """Are these cores of one size?"""
    return abs(a - b) <= NEAR * b


def _fit(model: Model, slot_cores: float, slot_memory_bytes: int) -> Model:
    slot = replace(model.slot, cores=slot_cores, memory_bytes=slot_memory_bytes)
    if not _known(model):
        return replace(model, slot=slot)
    times = model.slot.memory_bytes / slot_memory_bytes
    if times == 1.0:
        return model
    base = model.more.get(BASE)
    more = model.more | ({BASE: base * times} if isinstance(base, int | float) else {})
    return replace(model, slot=slot, points=tuple(_scaled(p, times) for p in model.points), more=more)


def _scaled(point: Point, times: float) -> Point:
    spread = point.spread
    if spread is not None and spread.memory is not None:
        spread = replace(spread, memory=spread.memory * times)
    return replace(point, memory=point.memory * times, spread=spread)
