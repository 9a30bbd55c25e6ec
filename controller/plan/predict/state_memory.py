"""What the states of keyed tasks take of slots' memory, beside what models say. Pure.

States are a stock: a thread holds the part of them that it has of the key ranges, and that is its part of the task's
rows, whatever their rate. Of what memory has no room for a worker keeps no more than a bound there.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from msgspec.structs import replace

from headgate.controller.models.plans import (
    Allocation,
    Placement,
    Prediction,
    Share,
    TaskAllocation,
    TaskState,
)
from headgate.controller.models.task_models import Model, peak
from headgate.controller.plan.allocators.allocation_rules import slots_for
from headgate.controller.plan.allocators.many_senders import among, senders_of
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import larger_slots

MOST = 0.5  # of a slot's memory is for states, where nobody says how much
MIB = 1 << 20


def parts_of(
    states: Sequence[TaskState], most_bytes: int, vms: Iterable[Vm]
) -> tuple[dict[str, float], float]:
    """(task → its states, the most of a slot that states take): in memory of the smallest slot."""
    size = min((vm.slot_memory_bytes for vm in vms), default=0)
    if not size:
        return {}, MOST
    return {state.task: state.memory_bytes / size for state in states}, most_of(most_bytes, size)


def most_of(most_bytes: int, slot_memory_bytes: int) -> float:
    """The part of a slot's memory that states may take; the rest of them is on disk."""
    return min(1.0, most_bytes / slot_memory_bytes) if most_bytes else MOST


def in_slots(
    states: Sequence[TaskState], most_bytes: int, shares: Iterable[Share], vms: Iterable[Vm]
) -> dict[Slot, float]:
    """Slot → the part of its memory that states take."""
    if not states:
        return {}
    sizes = {vm.vm: vm.slot_memory_bytes for vm in vms}
    taken = {state.task: state.memory_bytes for state in states}
    held: defaultdict[Slot, float] = defaultdict(float)
    for share in shares:
        if share.task in taken and share.slot.vm in sizes:
            held[share.slot] += taken[share.task] * share.share / sizes[share.slot.vm]
    return {slot: min(part, most_of(most_bytes, sizes[slot.vm])) for slot, part in held.items()}


def by_threads(placement: Placement) -> list[Share]:
    """Shares as if all threads of a task had the same: before they are known."""
    all_of = placement.by_task()
    return [Share(b.slot, b.task, b.threads / all_of[b.task]) for b in placement.bundles]


def with_states(
    found: Prediction, states: Sequence[TaskState], most_bytes: int, vms: Sequence[Vm]
) -> Prediction:
    """The prediction with what states take of each slot's memory."""
    if not states:
        return found
    held = in_slots(states, most_bytes, found.shares, vms)
    uses = []
    for use in found.slots:
        more = held.get(Slot(use.vm, use.slot), 0.0)
        ends = [None if end is None else end + more for end in (use.memory_low, use.memory_high)]
        uses.append(replace(use, memory=use.memory + more, memory_low=ends[0], memory_high=ends[1]))
    more_of: defaultdict[str, float] = defaultdict(float)
    for slot, part in held.items():
        more_of[slot.vm] += part
    of_vms = tuple(replace(vm, memory=vm.memory + more_of[vm.vm]) for vm in found.vms)
    return replace(found, slots=tuple(uses), vms=of_vms, states=tuple(states), state_most_bytes=most_bytes)


# ── threads: no more in a slot than it has memory for, with the states that they hold ───────────────────


def beside_states(
    topology: Topology,
    models: Mapping[str, Model],
    rate_tps: float,
    parts: Mapping[str, float],
    room: float,
    most: float,
) -> dict[str, Model]:
    """The models with what states take at each point: so many threads hold the part of them that they carry of the
    rows. Points that hold more than `room` are left out. Raises Infeasible where none is left."""
    rates, found, faults, needed = topology.rates(rate_tps), dict(models), [], 0.0
    for task in topology.tasks:
        if not (part := parts.get(task.name, 0.0)) or task.static is not None:
            continue
        model = found[task.model_name]
        points = tuple(
            replace(point, memory=point.memory + min(most, part * _carried(point.rate_tps, rates[task.name])))
            for point in model.points
        )
        fit = tuple(point for point in points if point.memory <= room + TOLERANCE)
        if not fit and not model.unmeasured:
            holds = points[0].memory
            needed = max(needed, (holds + 1.0 - room) * model.slot.memory_bytes)
            faults.append(
                f"task {task.name!r} and its states hold {holds:.2f} of a slot's memory in one slot"
            )
        found[task.model_name] = replace(model, points=fit or points)
    if faults:
        raise Infeasible("no slot has the memory that states take", faults=faults, hint=larger_slots(needed))
    return found


def _carried(peak_tps: float, rate_tps: float) -> float:
    return min(1.0, peak_tps / rate_tps) if rate_tps > 0 else 1.0


def fewer_points(models: Mapping[str, Model], fit: Mapping[str, Model]) -> dict[str, Model]:
    """The models with those points only that are in `fit` too."""
    return {
        name: replace(
            model, points=tuple(p for p in model.points if p.threads in {q.threads for q in fit[name].points})
        )
        for name, model in models.items()
    }


def allocated_with(
    allocation: Allocation,
    topology: Topology,
    models: Mapping[str, Model],
    parts: Mapping[str, float],
    most: float,
) -> Allocation:
    """The allocation with the memory that states take; a full bundle has its slot anyhow."""
    threads = {task.task: task.threads for task in allocation.tasks}

    def model_of(task: str) -> Model | None:
        model = models.get(topology.by_name[task].model_name)
        return model and among(model, senders_of(topology, task, threads))

    tasks = [
        _with_part(task, model_of(task.task), parts[task.task], most)
        if parts.get(task.task) and not task.static
        else task
        for task in allocation.tasks
    ]
    return replace(allocation, tasks=tuple(tasks), slots=slots_for(tasks))


def _with_part(task: TaskAllocation, model: Model | None, part: float, most: float) -> TaskAllocation:
    if not task.full_bundles or model is None:
        more = min(part, most) if task.rest_threads else part  # of LSA threads are anywhere
        return replace(task, memory_slots=task.memory_slots + more, rest_memory=task.rest_memory + more)
    rest_tps = max(0.0, task.rate_tps - task.full_bundles * peak(model)[0])
    more = min(most, part * _carried(rest_tps, task.rate_tps)) if task.rest_threads else 0.0
    return replace(task, memory_slots=task.memory_slots + more, rest_memory=task.rest_memory + more)
