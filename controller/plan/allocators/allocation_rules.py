"""What every allocator does the same: rates, tasks of fixed size, tasks of one thread, ρ. Pure.

An allocator differs only in what it gives a task that may have any number of threads.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence

from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, TaskAllocation
from headgate.controller.models.task_models import EPSILON, Model, cpu, memory_held, peak_rate
from headgate.controller.plan.allocators.many_senders import senders_of
from headgate.topology_runtime.api.topology import Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wording import significant

ForTask = Callable[[str, float, Model, int], TaskAllocation]  # the last: threads that send to each of its own


def allocate(
    allocator: str, topology: Topology, models: Mapping[str, Model], rate_tps: float, for_task: ForTask
) -> Allocation:
    """The allocation at input rate Ω = `rate_tps`, tasks in breadth-first order.

    Raises Infeasible when a task that runs in one thread only cannot carry its rate."""
    rates = topology.rates(rate_tps)
    lone = lone_tasks(topology)
    tasks: list[TaskAllocation] = []
    faults: list[str] = []
    for task in topology.breadth_first:
        rate = rates[task.name]
        if task.static is not None:
            tasks.append(_fixed(task.name, rate, task.static))
            continue
        model = models[task.model_name]
        if model.unmeasured:
            tasks.append(_unmeasured(task.name, rate))
            continue
        if task.name not in lone:
            senders = senders_of(topology, task.name, {one.task: one.threads for one in tasks})
            tasks.append(for_task(task.name, rate, model, senders))
            continue
        tasks.append(one_thread(task.name, rate, model))
        faults += _overloaded(task, rate, model)
    if faults:
        raise Infeasible(f"no allocation carries {significant(rate_tps, 6)} rows/s", faults=faults)
    return Allocation(allocator, rate_tps, tuple(tasks), slots_for(tasks))


def lone_tasks(topology: Topology) -> set[str]:
    """Tasks that get one thread: `exclusive`, or reached by a `global` edge (all rows go to one thread)
    or an `all` edge (each thread would carry the whole rate, so a second one helps nothing)."""
    reached = {edge.target for edge in topology.edges if edge.grouping in ("global", "all")}
    return reached | {task.name for task in topology.tasks if task.exclusive}


def one_thread(task: str, rate_tps: float, model: Model) -> TaskAllocation:
    """One thread; CPU in proportion to its rate (paper 0, Alg. 3, lines 22–24), memory as `memory_held` says."""
    part = rate_tps / peak_rate(model, 1)
    used_cpu, used_memory = cpu(model, 1) * part, memory_held(model, 1, part)
    return TaskAllocation(
        task,
        rate_tps,
        threads=1,
        cpu_slots=used_cpu,
        memory_slots=used_memory,
        rest_threads=1,
        rest_cpu=used_cpu,
        rest_memory=used_memory,
    )


def _unmeasured(task: str, rate_tps: float) -> TaskAllocation:
    """One thread, for which nothing else is known: a slot of its own."""
    return TaskAllocation(
        task, rate_tps, threads=1, cpu_slots=1.0, memory_slots=1.0, full_bundles=1, bundle_threads=1
    )


def unknown_shared(allocation: Allocation, unknown: Collection[str], share: float) -> Allocation:
    """The allocation where each task that nothing is known of is counted with this share of a slot."""
    tasks = [
        TaskAllocation(
            task.task, task.rate_tps, threads=1, cpu_slots=share, memory_slots=share,
            rest_threads=1, rest_cpu=share, rest_memory=share,
        )
        if task.task in unknown
        else task
        for task in allocation.tasks
    ]  # fmt: skip
    return replace(allocation, tasks=tuple(tasks), slots=slots_for(tasks))


def of_slots(allocation: Allocation, room: float) -> Allocation:
    """The allocation with memory in whole slots that was counted in what a bare worker leaves of one, `room`."""
    if room == 1.0:
        return allocation
    tasks = (
        replace(task, memory_slots=task.memory_slots * room, rest_memory=task.rest_memory * room)
        for task in allocation.tasks
    )
    return replace(allocation, tasks=tuple(tasks))


def slots_for(tasks: Sequence[TaskAllocation], cpus: Sequence[float] = ()) -> int:
    """ρ = max(⌈Σ cpu⌉, ⌈Σ memory⌉) over tasks that are not of fixed size (paper 0, section 6.2). cpus: of the first
    slots in their order, where they are of VMs of several speeds; more are like the last (left out: 1)."""
    counted = [task for task in tasks if not task.static]
    cpu_left = math.fsum(task.cpu_slots for task in counted)
    fewest = _up(math.fsum(task.memory_slots for task in counted))
    for slots, has in enumerate(cpus):
        if cpu_left <= EPSILON * max(1.0, cpu_left) and slots >= fewest:
            return slots
        cpu_left -= has
    return max(len(cpus) + _up(max(0.0, cpu_left) / (cpus[-1] if cpus else 1.0)), fewest)


def whole_times(rate_tps: float, peak_tps: float) -> tuple[int, float]:
    """(n, rest): `rate_tps` = n × `peak_tps` + rest, where a rest that is only rounding counts as 0."""
    times = math.floor(rate_tps / peak_tps * (1 + EPSILON) + EPSILON)
    rest = rate_tps - times * peak_tps
    return times, rest if rest > EPSILON * max(peak_tps, rate_tps) else 0.0


def _up(slots: float) -> int:
    return math.ceil(slots * (1 - EPSILON) - EPSILON)


def _fixed(task: str, rate_tps: float, static: Static) -> TaskAllocation:
    """`static.cpu`, what its rate adds to it, and `static.memory`: all its threads reserve that together."""
    used_cpu = static.cpu + static.cpu_each * rate_tps
    return TaskAllocation(
        task,
        rate_tps,
        threads=static.threads,
        cpu_slots=used_cpu,
        memory_slots=static.memory,
        rest_threads=static.threads,
        rest_cpu=used_cpu,
        rest_memory=static.memory,
        static=True,
    )


def _overloaded(task: Task, rate_tps: float, model: Model) -> list[str]:
    most = peak_rate(model, 1)
    if rate_tps <= most * (1 + EPSILON):
        return []
    why = "exclusive" if task.exclusive else "reached by an `all` or `global` edge"
    carries = f"its one thread carries {significant(most, 6)} rows/s, not {significant(rate_tps, 6)}"
    return [f"task {task.name!r} is {why}: {carries}"]
