"""What a task does on a VM of another speed than the one its model was measured on. Pure.

With c = C(q) / I(q), the slot's CPU that a row takes, and b, the time that a row waits without CPU, q threads in one
slot of a VM of speed s carry at most

    s / c              rows/s by the slot's CPU
    q / (b + c / s)    rows/s by their number

(the asymptotic bounds of a closed queueing network: P. J. Denning, J. P. Buzen, The operational analysis of queueing
network models, Computing Surveys 10, 1978). What they carry at speed 1, as it was measured, is some part of the lower
one; at speed s it is taken for the same part. b is that of the fewest threads that were measured: q / I(q) - c.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec.structs import replace

from headgate.controller.models.task_models import Model, Point
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.wake_cost import times_the_cpu


def at_speed(model: Model, speed: float) -> Model:
    """The model as it would be, had it been measured on a VM of that speed (above 0; 1: as it is). Rates in rows/s, CPU
    as fractions of such a slot; memory stays. A model that only stands in for one says nothing of rates.

    >>> model = Model("hash", ModelSlot(), (Point(1, 100.0, cpu=1.0, memory=0.1),))
    >>> at_speed(model, 0.5).points[0].rate_tps
    50.0
    """
    if speed == 1.0 or model.unmeasured:
        return model
    more = model.more | times_the_cpu(model.more, 1 / speed)
    return replace(model, points=tuple(_moved(model, point, speed) for point in model.points), more=more)


def models_at(models: Mapping[str, Model], speed: float) -> dict[str, Model]:
    """All of them, see `at_speed`."""
    return {name: at_speed(model, speed) for name, model in models.items()}


def topology_at(topology: Topology, speed: float) -> Topology:
    """The topology with tasks of fixed size as they would be on a VM of that speed: what they reserve and use of a
    slot's CPU is more where the slot is slower."""
    if speed == 1.0 or all(task.static is None for task in topology.tasks):
        return topology
    tasks = tuple(
        task
        if (fixed := task.static) is None
        else replace(
            task,
            static=replace(
                fixed,
                cpu=fixed.cpu / speed,
                cpu_per_tps=fixed.cpu_each / speed if fixed.cpu_each else fixed.cpu_per_tps,
            ),
        )
        for task in topology.tasks
    )
    return replace(topology, tasks=tasks)


def carried_tps(model: Model, point: Point, speed: float) -> float:
    """What the threads of one of its points carry at that speed, in rows/s."""
    if point.rate_tps <= 0 or point.cpu <= 0:
        return point.rate_tps
    per_row, first = point.cpu / point.rate_tps, model.points[0]
    waits_s = 0.0
    if first.rate_tps > 0:
        waits_s = max(0.0, (first.threads - first.cpu) / first.rate_tps)

    def bound(at: float) -> float:
        return min(at / per_row, point.threads / (waits_s + per_row / at))

    return point.rate_tps * bound(speed) / bound(1.0)


def _moved(model: Model, point: Point, speed: float) -> Point:
    rate_tps = carried_tps(model, point, speed)
    times = rate_tps / point.rate_tps if point.rate_tps > 0 else 1.0
    of_cpu, spread = times / speed, point.spread
    if spread is not None:
        spread = replace(
            spread,
            rate_tps=None if spread.rate_tps is None else spread.rate_tps * times,
            cpu=None if spread.cpu is None else spread.cpu * of_cpu,
        )
    return replace(point, rate_tps=rate_tps, cpu=point.cpu * of_cpu, spread=spread)
