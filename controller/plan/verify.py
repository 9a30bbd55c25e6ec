"""The verifier: what any sound plan obeys, checked on the finished plan and nothing the mappers kept. Pure.

always                 every thread is placed once, in a slot there is, and as many as allocated ·
                       rates follow GetRate · shares of each task sum to one · counts agree ·
                       the plan is of this topology and these models
SAM                    no slot is reserved over capacity · full bundles have their slot alone
MBA + SAM, weighted    the supported rate is at least the planned rate
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from controller.knowledge.models import Model
from controller.knowledge.plans import Plan, TaskAllocation
from controller.plan.identity import models_digest
from topology_runtime.cluster import Slot
from topology_runtime.topology import Topology

TOLERANCE = 1e-6  # of sums and of the linear program behind the shares


def faults_of(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> list[str]:
    """Every rule that `plan` breaks, in words; empty for a sound plan."""
    faults = [*_wrong_origin(plan, topology, models), *_misplaced(plan), *_wrong_counts(plan)]
    faults += [*_wrong_rates(plan, topology), *_wrong_shares(plan)]
    if plan.mapper == "sam":
        faults += [*_crowded_full_slots(plan), *_over_capacity(plan), *_unsupported(plan)]
    return faults


def _wrong_origin(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> Iterator[str]:
    if plan.topology_digest != topology.digest:
        yield f"plan is for another topology ({plan.topology_digest}, not {topology.digest})"
    elif plan.models_digest != models_digest(topology, models):
        yield "plan is from other models"


def _misplaced(plan: Plan) -> Iterator[str]:
    slots = {slot for vm in plan.vms for slot in vm.all_slots()}
    bundles = Counter((bundle.slot, bundle.task) for bundle in plan.placement.bundles)
    placed: Counter[str] = Counter()
    for bundle in plan.placement.bundles:
        placed[bundle.task] += bundle.threads
        if bundle.slot not in slots:
            yield f"slot {bundle.slot} of task {bundle.task!r} is in no VM of the plan"
        if bundle.threads < 1:
            yield f"slot {bundle.slot} has {bundle.threads} threads of task {bundle.task!r}"
    yield from (
        f"task {task!r} is listed twice in slot {slot}" for (slot, task), n in bundles.items() if n > 1
    )
    wanted = {task.task: task.threads for task in plan.allocation.tasks}
    for name in wanted.keys() | placed.keys():
        if placed[name] != wanted.get(name, 0):
            yield f"task {name!r}: {placed[name]} threads are placed, {wanted.get(name, 0)} allocated"


def _wrong_counts(plan: Plan) -> Iterator[str]:
    counts, used = plan.slots, plan.placement.slots_used()
    total = sum(vm.slots for vm in plan.vms)
    if counts.used != used or counts.total != total:
        yield f"slots: says {counts.used} of {counts.total} are used, has {used} of {total}"
    carrying = {bundle.slot.vm for bundle in plan.placement.bundles}
    yield from (f"VM {vm.vm!r} carries no thread" for vm in plan.vms if vm.vm not in carrying)


def _wrong_rates(plan: Plan, topology: Topology) -> Iterator[str]:
    rates = topology.rates(plan.rate_tps)
    if sorted(rates) != sorted(task.task for task in plan.allocation.tasks):
        yield "allocation: not the tasks of the topology, each once"
        return
    for task in plan.allocation.tasks:
        if not math.isclose(task.rate_tps, rates[task.task], rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            yield f"task {task.task!r}: allocated for {task.rate_tps:g} tuples/s, sees {rates[task.task]:g}"
        if task.threads < 1:
            yield f"task {task.task!r} has no thread"


def _wrong_shares(plan: Plan) -> Iterator[str]:
    sums: defaultdict[str, float] = defaultdict(float)
    groups = {(bundle.slot, bundle.task) for bundle in plan.placement.bundles}
    for share in plan.prediction.shares:
        sums[share.task] += share.share
        if not -TOLERANCE <= share.share <= 1 + TOLERANCE:
            yield f"share of task {share.task!r} in slot {share.slot} is {share.share:g}"
        if (share.slot, share.task) not in groups:
            yield f"share of task {share.task!r} in slot {share.slot}, where it has no thread"
    for task in plan.allocation.tasks:
        if not abs(sums[task.task] - 1) <= TOLERANCE:
            yield f"shares of task {task.task!r} sum to {sums[task.task]:g}"


def _crowded_full_slots(plan: Plan) -> Iterator[str]:
    in_slot = Counter(bundle.slot for bundle in plan.placement.bundles)
    full: Counter[str] = Counter()
    sizes = {task.task: task for task in plan.allocation.tasks}
    for bundle in plan.placement.bundles:
        if not bundle.full:
            continue
        full[bundle.task] += 1
        if in_slot[bundle.slot] > 1:
            yield f"slot {bundle.slot}: the full bundle of task {bundle.task!r} is not alone"
        if bundle.task in sizes and bundle.threads != sizes[bundle.task].bundle_threads:
            yield f"slot {bundle.slot}: {bundle.threads} threads are no full bundle of task {bundle.task!r}"
    for task in plan.allocation.tasks:
        if full[task.task] != task.full_bundles:
            yield f"task {task.task!r}: {full[task.task]} full bundles placed, {task.full_bundles} reserved"


def _over_capacity(plan: Plan) -> Iterator[str]:
    tasks = {task.task: task for task in plan.allocation.tasks}
    cpu: defaultdict[Slot, float] = defaultdict(float)
    memory: defaultdict[Slot, float] = defaultdict(float)
    for bundle in plan.placement.bundles:
        if bundle.task not in tasks:
            continue
        used_cpu, used_memory = _reserved(tasks[bundle.task], bundle.threads, bundle.full)
        cpu[bundle.slot] += used_cpu
        memory[bundle.slot] += used_memory
    for slot in cpu:
        if cpu[slot] > 1 + TOLERANCE or memory[slot] > 1 + TOLERANCE:
            yield f"slot {slot}: {cpu[slot]:.4f} of its CPU and {memory[slot]:.4f} of its memory are reserved"


def _reserved(task: TaskAllocation, threads: int, full: bool) -> tuple[float, float]:
    """CPU and memory of a slot that MBA reserved for these threads."""
    if full:
        return 1.0, 1.0
    part = threads / task.rest_threads if task.rest_threads else 1.0
    return task.rest_cpu * part, task.rest_memory * part


def _unsupported(plan: Plan) -> Iterator[str]:
    supported = plan.prediction.rate_tps
    if plan.routing == "weighted" and supported < plan.rate_tps * (1 - TOLERANCE):
        yield f"supports {supported:g} tuples/s, planned are {plan.rate_tps:g}"
