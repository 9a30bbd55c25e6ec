"""What a finished plan obeys because of how it was mapped. Pure.

SAM              no slot is reserved over capacity · full bundles have their slot alone
MBA + SAM,       the supported rate is at least the planned rate, or as near to it as CPU measured above
weighted         a whole slot allows
RSM              no slot over its memory and no VM over its CPU, with the average need of a task's threads
traffic, task-   no slot over its CPU or its memory, with the average need of a task's threads
level, top-down,
greedy-matching
DSM              of each task without a fixed size, all slots in use have as many threads, give or take one
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping

from headgate.controller.models.plans import Bundle, Plan, TaskAllocation
from headgate.controller.models.task_models import Model
from headgate.controller.plan.mappers.free_slots import need_of
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.wording import significant

Need = Callable[[TaskAllocation, Bundle, float], tuple[float, float]]  # (CPU, memory), in a slot of such CPU
Rule = Callable[[Plan, float], Iterator[str]]  # of the plan and the overdraft of its models


def overdraft(topology: Topology, models: Mapping[str, Model]) -> float:
    """The most CPU that any point has of its one slot, at least 1: a slot full of such threads carries
    them at one part in so many of their peak, which no allocation takes into account."""
    used = {task.model_name for task in topology.tasks if task.static is None}
    return max((1.0, *(point.cpu for name in used for point in models[name].points)))


def crowded_full_slots(plan: Plan, overdraft: float) -> Iterator[str]:
    """Of SAM: a full bundle is whole, and alone in its slot."""
    in_slot = Counter(bundle.slot for bundle in plan.placement.bundles)
    full: Counter[str] = Counter()
    sizes = {task.task: task for task in plan.allocation.tasks}
    for bundle in plan.placement.bundles:
        if not bundle.full:
            continue
        full[bundle.task] += 1
        if in_slot[bundle.slot] > 1:
            yield f"slot {bundle.slot}: the full bundle of task {bundle.task!r} is not alone"
        if bundle.threads != sizes[bundle.task].bundle_threads:
            yield f"slot {bundle.slot}: {bundle.threads} threads are no full bundle of task {bundle.task!r}"
    for task in plan.allocation.tasks:
        if full[task.task] != task.full_bundles:
            yield f"task {task.task!r}: {full[task.task]} full bundles placed, {task.full_bundles} reserved"


def over_reserved(plan: Plan, overdraft: float) -> Iterator[str]:
    """Of SAM: no slot is reserved over capacity."""
    return _over(plan, _reserved, "reserved")


def over_slots(plan: Plan, overdraft: float) -> Iterator[str]:
    """By average needs of threads, of which none needs more than a slot, no slot is over its CPU or memory."""
    return _over(plan, _at_most, "needed")


def _over(plan: Plan, need: Need, what: str) -> Iterator[str]:
    cpus = _cpus(plan)
    for slot, (used, memory) in _in_slots(plan, need).items():
        cpu = used / cpus[slot.vm]
        if cpu > 1 + TOLERANCE or memory > 1 + TOLERANCE:
            yield f"slot {slot}: {cpu:.4f} of its CPU and {memory:.4f} of its memory are {what}"


def _cpus(plan: Plan) -> dict[str, float]:
    """Of a slot of each VM, in slots of the speed that the allocation counts in."""
    return {vm.vm: vm.speed / plan.allocation.slot_speed for vm in plan.vms}


def _at_most(task: TaskAllocation, bundle: Bundle, slot_cpu: float) -> tuple[float, float]:
    cpu, memory = need_of(task)
    return cpu * bundle.threads, memory * bundle.threads


def _in_slots(plan: Plan, need: Need) -> dict[Slot, tuple[float, float]]:
    """(CPU, memory) of each slot in use, when a bundle takes `need` of it."""
    tasks = {task.task: task for task in plan.allocation.tasks}
    cpus = _cpus(plan)
    used: dict[Slot, tuple[float, float]] = {}
    for bundle in plan.placement.bundles:
        cpu, memory = need(tasks[bundle.task], bundle, cpus[bundle.slot.vm])
        before = used.get(bundle.slot, (0.0, 0.0))
        used[bundle.slot] = before[0] + cpu, before[1] + memory
    return used


def _reserved(task: TaskAllocation, bundle: Bundle, slot_cpu: float) -> tuple[float, float]:
    """What MBA reserved for these threads; a rest has at most the whole slot."""
    if bundle.full:
        return slot_cpu, 1.0
    part = bundle.threads / task.rest_threads if task.rest_threads else 1.0
    whole = not task.static and part == 1
    most_cpu, most = (slot_cpu, 1.0) if whole else (float("inf"), float("inf"))
    return min(most_cpu, task.rest_cpu * part), min(most, task.rest_memory * part)


def unsupported(plan: Plan, overdraft: float) -> Iterator[str]:
    """Of SAM behind MBA: the planned rate is supported, or nearly (see `overdraft`)."""
    supported = plan.prediction.rate_tps
    if plan.routing == "weighted" and supported < plan.rate_tps / overdraft * (1 - TOLERANCE):
        yield f"supports {significant(supported, 6)} rows/s, planned are {significant(plan.rate_tps, 6)}"


def over_needed(plan: Plan, overdraft: float) -> Iterator[str]:
    """By average needs of threads, no slot is over its memory and no VM over its CPU."""
    used = _in_slots(plan, _average)
    for slot, (_, memory) in used.items():
        if memory > 1 + TOLERANCE:
            yield f"slot {slot}: {memory:.4f} of its memory is needed"
    cpus = _cpus(plan)
    for vm in plan.vms:
        cpu = sum(used[slot][0] for slot in vm.all_slots() if slot in used) / cpus[vm.vm]
        if cpu > vm.slots + TOLERANCE:
            yield f"VM {vm.vm!r}: {cpu:.4f} slots of CPU are needed, it has {vm.slots}"


def _average(task: TaskAllocation, bundle: Bundle, slot_cpu: float) -> tuple[float, float]:
    part = bundle.threads / task.threads
    return task.cpu_slots * part, task.memory_slots * part


def uneven(plan: Plan, overdraft: float) -> Iterator[str]:
    """Tasks of fixed size may be pinned, and slots without any thread excluded."""
    slots = {bundle.slot for bundle in plan.placement.bundles}
    counts: defaultdict[str, list[int]] = defaultdict(list)
    for bundle in plan.placement.bundles:
        counts[bundle.task].append(bundle.threads)
    for task in plan.allocation.tasks:
        if task.static:
            continue
        least = min(counts[task.task]) if len(counts[task.task]) == len(slots) else 0
        if max(counts[task.task]) > least + 1:
            yield f"task {task.task!r}: {least} to {max(counts[task.task])} threads in slots filled in turn"
