"""Model-based allocation (paper 0, Alg. 3): whole slots at the peak rate, the fewest threads for the rest."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.controller.models.plans import Allocation, TaskAllocation
from headgate.controller.models.task_models import Model, Point, cpu, memory, peak, peak_rate, threads_for
from headgate.controller.plan.allocators.allocation_rules import allocate, one_thread, whole_times
from headgate.controller.plan.allocators.many_senders import among, cpu_at
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.wake_cost import cpu_of_slot, cpu_per_tps


def mba(topology: Topology, models: Mapping[str, Model], rate_tps: float) -> Allocation:
    """MBA at input rate `rate_tps` in rows/s. Raises Infeasible (see `allocate`)."""
    return allocate("mba", topology, models, rate_tps, bundles_for)


def bundles_for(task: str, rate_tps: float, model: Model, senders: int = 0) -> TaskAllocation:
    """Full bundles of τ̂ threads, a whole slot each, and the T(rest) threads of what is left. senders: threads that send
    to each of its own, see `among`.

    A task that sees no rows still has one thread, since rows may come before the next plan."""
    alone, model = model, among(model, senders)
    peak_tps, peak_threads = peak(model)
    bundles, rest_tps = whole_times(rate_tps, peak_tps)
    rest_threads, rest_cpu, rest_memory = 0, 0.0, 0.0
    if rest_tps > 0 or bundles == 0:
        rest_threads = threads_for(model, rest_tps) or peak_threads
        if rest_threads > 1:
            rest_cpu, rest_memory = cpu(model, rest_threads), memory(model, rest_threads)
        else:
            one = one_thread(task, rest_tps, model)
            rest_cpu, rest_memory = one.rest_cpu, one.rest_memory
        rest_cpu = max(rest_cpu, cpu_alone(alone, rest_threads, rest_tps, senders))
    return TaskAllocation(
        task,
        rate_tps,
        threads=bundles * peak_threads + rest_threads,
        cpu_slots=bundles + rest_cpu,
        memory_slots=bundles + rest_memory,
        full_bundles=bundles,
        bundle_threads=peak_threads,
        rest_threads=rest_threads,
        rest_cpu=rest_cpu,
        rest_memory=rest_memory,
    )


def cpu_alone(model: Model, threads: int, rate_tps: float, senders: int = 0) -> float:
    """What these threads use of a slot of their own at this rate, at most the whole: what is to be reserved when
    wakes make few rows dear (decision 20), or many senders small frames. Beside others, whose rows share the wakes,
    they use less."""
    peak_tps = peak_rate(model, threads)
    if not (model.wake.cpu or model.wake.frame) or not 0 < rate_tps <= peak_tps:
        return 0.0
    point = Point(threads, peak_tps, cpu(model, threads), 0.0)
    framed = cpu_at(model, point, senders, rate_tps) if senders else 0.0
    if not model.wake.cpu:
        return min(1.0, framed)
    alone, in_full = (
        rate_tps * cpu_per_tps(cpu(model, threads), peak_tps, model.wake, rate_tps, full)
        for full in (False, True)
    )
    return min(1.0, max(framed, cpu_of_slot(alone, in_full)))


def rising(model: Model) -> Model:
    """The model with, at each point up to the peak, the least CPU and memory of it, the points after it and
    the whole slot that a full bundle takes: MBA needs no more by it than by `model`, and never less at a
    higher rate."""
    points = list(model.points)
    peak_threads = peak(model)[1]
    least_cpu = least_memory = 1.0
    for place in range(len(points) - 1, -1, -1):
        if points[place].threads <= peak_threads:
            least_cpu = min(least_cpu, points[place].cpu)
            least_memory = min(least_memory, points[place].memory)
            points[place] = replace(points[place], cpu=least_cpu, memory=least_memory)
    return replace(model, points=tuple(points))
