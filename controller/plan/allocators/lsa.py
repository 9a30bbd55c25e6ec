"""Linear scaling allocation (paper 0, Alg. 2): as many threads as one thread's peak goes into the rate."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.controller.models.plans import Allocation, TaskAllocation
from headgate.controller.models.task_models import Model, cpu, memory, memory_held, peak_rate
from headgate.controller.plan.allocators.allocation_rules import allocate, whole_times
from headgate.controller.plan.allocators.many_senders import among
from headgate.topology_runtime.api.topology import Topology


def lsa(topology: Topology, models: Mapping[str, Model], rate_tps: float) -> Allocation:
    """LSA at input rate `rate_tps` in rows/s. Raises Infeasible (see `allocate`)."""
    return allocate("lsa", topology, models, rate_tps, threads_in_line)


def threads_in_line(task: str, rate_tps: float, model: Model, senders: int = 0) -> TaskAllocation:
    """⌈ω / I(1)⌉ threads, at least one; CPU C(1) in proportion to ω / I(1), memory as each thread holds it."""
    model = among(model, senders)
    peak_tps = peak_rate(model, 1)
    whole, rest_tps = whole_times(rate_tps, peak_tps)
    threads, rest = max(1, whole + (rest_tps > 0)), rest_tps / peak_tps
    return TaskAllocation(
        task,
        rate_tps,
        threads=threads,
        cpu_slots=cpu(model, 1) * (whole + rest),
        memory_slots=memory(model, 1) * whole + memory_held(model, 1, rest) * (threads - whole),
    )
