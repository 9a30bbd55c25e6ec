"""Why a plan is as it is: why so many threads, why this slot, and what limits it. Pure.

Nothing is decided here: the reasons are what the allocator wrote down, what SAM notes while it maps, and
the limits that the prediction is made of.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headgate.controller.models.plans import Allocation, Placement, Plan, Prediction, TaskAllocation
from headgate.controller.models.task_models import Model, peak, peak_rate, unknown_tasks
from headgate.controller.plan.allocators.allocation_rules import lone_tasks
from headgate.controller.plan.allocators.many_senders import among, senders_of
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.mappers.sam import SlotChoice, sam
from headgate.controller.plan.predict.linear_program import TOLERANCE
from headgate.controller.plan.predict.placement_load import PlacementLoad, load_of
from headgate.controller.plan.predict.prediction import ROUTINGS, predict, slot_uses
from headgate.controller.plan.predict.vm_speeds import models_at
from headgate.topology_runtime.api.topology import Topology


class ThreadsReason(msgspec.Struct, frozen=True):
    """Why a task that sees `rate_tps` has `threads` threads. rule:

    fixed     the topology says how many
    lone      only one thread may run it
    linear    LSA: as often as one thread's `one_thread_tps` goes into the rate
    bundles   MBA: `full_bundles` of `peak_threads` threads, which carry `peak_tps` each (ω̂, τ̂), then
              `rest_threads` for `rest_tps`, of which one slot's threads carry `rest_peak_tps`
    other     another allocator's own reasons"""

    task: str
    rate_tps: float
    threads: int
    rule: str
    cpu_slots: float
    memory_slots: float
    one_thread_tps: float | None = None
    peak_tps: float | None = None
    peak_threads: int | None = None
    full_bundles: int = 0
    rest_tps: float = 0.0
    rest_threads: int = 0
    rest_peak_tps: float | None = None


class LimitReason(msgspec.Struct, frozen=True):
    """What stops the input rate at `rate_tps`: of the `task_slots` slots with threads of `task` this
    `slot` first. by: "peak" (its `threads` carry no more than `peak_tps`), "cpu" (its CPU is used up),
    "routing" (as "peak", but only since shuffle gives them too large a share), None (nothing limits it; without
    `rate_tps` what does is not known yet).
    `weighted_tps`: what shuffled rows would come to with weights."""

    rate_tps: float | None
    by: str | None
    task: str | None
    slot: str | None
    threads: int | None = None
    peak_tps: float | None = None
    share: float | None = None
    slot_cpu: float | None = None
    task_slots: int | None = None
    weighted_tps: float | None = None


class Ceiling(msgspec.Struct, frozen=True):
    """The input rate at which all threads of `task` are at their peaks, if every slot had CPU enough and
    rows went where threads can take them."""

    task: str
    rate_tps: float


RULES = {"mba": "bundles", "lsa": "linear"}


def threads_reasons(
    allocation: Allocation, topology: Topology, models: Mapping[str, Model]
) -> tuple[ThreadsReason, ...]:
    """One reason per task, in the allocation's order."""
    lone = lone_tasks(topology)
    model_of = {task.name: task.model_name for task in topology.tasks}
    models = models_at(models, allocation.slot_speed)
    threads = {task.task: task.threads for task in allocation.tasks}
    found = []
    for task in allocation.tasks:
        model = models.get(model_of[task.task])
        if model is not None and task.task not in lone:
            model = among(model, senders_of(topology, task.task, threads))
        found.append(_threads_reason(task, allocation.allocator, task.task in lone, model))
    return tuple(found)


def _threads_reason(task: TaskAllocation, allocator: str, lone: bool, model: Model | None) -> ThreadsReason:
    about = (task.task, task.rate_tps, task.threads)
    needs = (task.cpu_slots, task.memory_slots)
    if task.static or model is None:
        return ThreadsReason(*about, "fixed", *needs)
    if model.unmeasured:
        return ThreadsReason(*about, "unmeasured", *needs)
    peak_tps, peak_threads = peak(model)
    rule = "lone" if lone else RULES.get(allocator, "other")
    rest_tps = max(0.0, task.rate_tps - task.full_bundles * peak_tps)
    if task.rest_threads and not lone:  # full bundles on faster VMs carry more
        rest_tps = min(rest_tps, peak_rate(model, task.rest_threads))
    return ThreadsReason(
        *about,
        rule,
        *needs,
        one_thread_tps=peak_rate(model, 1),
        peak_tps=peak_tps,
        peak_threads=peak_threads,
        full_bundles=task.full_bundles,
        rest_tps=rest_tps if task.rest_threads else 0.0,
        rest_threads=task.rest_threads,
        rest_peak_tps=peak_rate(model, task.rest_threads) if task.rest_threads else None,
    )


def choices_of(plan: Plan) -> tuple[SlotChoice, ...]:
    """Every choice SAM made for this plan, in order; none for other mappers, and none when threads of
    the plan were pinned or slots excluded (then SAM mapped in another room than this)."""
    if plan.mapper != "sam":
        return ()
    made: list[SlotChoice] = []
    placement = sam(plan.allocation, Room(plan.vms), made)
    return tuple(made) if _same(placement, plan.placement) else ()


def _same(one: Placement, other: Placement) -> bool:
    return set(one.bundles) == set(other.bundles)


def limit_reason(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> LimitReason:
    """What limits the plan's prediction, and whether by the threads, the slot's CPU or the routing."""
    found = plan.prediction
    if found.limited_by is None:
        return LimitReason(found.told_tps, None, None, None)
    load = load_of(topology, models, plan.placement, plan.vms, shared_cpu=plan.interference == "cpu")
    shares = ROUTINGS[plan.routing](load).shares
    g = _group(load, found)
    group, share = load.groups[g], shares[g]
    rows_tps = load.unit[group.task] * share * found.rate_tps
    at_peak = group.peak_tps is not None and rows_tps >= group.peak_tps * (1 - TOLERANCE)
    best_tps = supported(plan, topology, models, "weighted").rate_tps
    routed = best_tps > found.rate_tps * (1 + TOLERANCE)
    return LimitReason(
        found.rate_tps,
        "cpu" if not at_peak else "routing" if routed else "peak",
        found.limited_by,
        found.limited_by_slot,
        threads=group.threads,
        peak_tps=group.peak_tps,
        share=share,
        slot_cpu=slot_uses(load, shares, found.rate_tps)[group.slot].cpu,
        task_slots=len(load.by_task[group.task]),
        weighted_tps=best_tps if plan.routing != "weighted" else None,
    )


def supported(plan: Plan, topology: Topology, models: Mapping[str, Model], routing: str) -> Prediction:
    """The prediction for the plan's placement under another routing."""
    if routing == plan.routing:
        return plan.prediction
    return predict(
        topology,
        models,
        plan.placement,
        plan.vms,
        plan.rate_tps,
        routing=routing,
        interference=plan.interference,
    )


def ceilings(plan: Plan, topology: Topology, models: Mapping[str, Model]) -> tuple[Ceiling, ...]:
    """The ceiling of every task that sees rows and is not unknown, the lowest first."""
    load = load_of(topology, models, plan.placement, plan.vms, shared_cpu=False)
    lowest = load.ceilings(load.peak_shares())
    unknown = unknown_tasks(topology, models)
    found = [
        Ceiling(load.tasks[t], rate_tps) for t, rate_tps in lowest.items() if load.tasks[t] not in unknown
    ]
    return tuple(sorted(found, key=lambda ceiling: ceiling.rate_tps))  # stable: ties in order of tasks


def _group(load: PlacementLoad, found: Prediction) -> int:
    """The group that the prediction names."""
    task = load.tasks.index(str(found.limited_by))
    return next(
        g for g in load.by_task[task] if str(load.slots[load.groups[g].slot]) == found.limited_by_slot
    )
