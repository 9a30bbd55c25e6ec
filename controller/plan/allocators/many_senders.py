"""What a slot's threads carry among those that send to them (ours, decision 121). Pure.

A model's peak has frames as large as they are from one sender. Each thread that sends to a thread sends frames of its
own, so with many of them frames are smaller, and a quick task's slot spends its CPU on them. Senders are all threads of
the tasks before it, as if none was in the same slot: a plan may carry more than is counted here, never less.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.controller.models.task_models import Model, Point
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.wake_cost import RowsIn, cpu_per_tps

HALVINGS = 50  # of the rate in question


def senders_of(topology: Topology, task: str, threads: Mapping[str, int]) -> int:
    """Threads that send to each thread of the task, when tasks have so many."""
    return sum(threads[edge.source] for _, edge in topology.in_edges(task))


def among(model: Model, senders: int) -> Model:
    """The model where so many threads send to each of its own; itself where it does not say what frames cost."""
    if not model.wake.frame or not senders:
        return model
    return replace(model, points=tuple(_among(model, point, senders) for point in model.points))


def cpu_at(model: Model, point: Point, senders: int, rate_tps: float) -> float:
    """Of a full slot, for so many rows/s to the point's threads."""
    flow = RowsIn(rate_tps, senders * point.threads)
    return rate_tps * cpu_per_tps(point.cpu, point.rate_tps, model.wake, rate_tps, True, flow)


def _among(model: Model, point: Point, senders: int) -> Point:
    most = max(1.0, point.cpu)
    used = cpu_at(model, point, senders, point.rate_tps)
    if used <= most:
        return replace(point, cpu=max(point.cpu, used))
    low, high = 0.0, point.rate_tps
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if cpu_at(model, point, senders, middle) <= most else (low, middle)
    return replace(point, rate_tps=low, cpu=most)
