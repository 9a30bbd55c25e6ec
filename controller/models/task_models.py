"""Performance models 𝒫: threads in one slot → peak rate, CPU, memory (paper 0, section 5). No I/O here.

Readings of I, C, M, T, ω̂ and τ̂ as in paper 0, section 6: I, C and M interpolate linearly between
measured points; above the largest I stays flat, C and M add up; T is the smallest *measured* thread count whose rate
is at least ω.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from typing import Any

import msgspec

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.measuring.row_spread import CPU_SPREAD, WAIT_SPREAD
from headgate.topology_runtime.measuring.wake_cost import (
    CROSSING,
    FRAME,
    ROWS,
    WAKE,
    DispatchOverhead,
    overhead_of,
)
from headgate.topology_runtime.wording import Suggestions, counted, significant

SCHEMA = "headgate/model/v1"

# Keys of a measured model's file, kept in `Model.more`:
BASE = "base_memory"  # fraction of the slot held before any thread works
WORKER = "worker_bytes"  # of the bare worker, which no model counts
LEAST = {
    **dict.fromkeys((WAKE, FRAME, CROSSING, BASE, WORKER, CPU_SPREAD, WAIT_SPREAD), 0),
    ROWS: 1,
}  # of those


class ModelSlot(msgspec.Struct, frozen=True):
    """The slot the model was measured in."""

    cores: float = 1.0
    memory_bytes: int = 3_758_096_384
    machine: str = ""


class Spread(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a point's values may be off, as half-widths: `relative` of its rate (0.05: ±5 %), or
    `rate_tps` in rows/s; `cpu` and `memory` in fractions of the slot. What is not given is exact."""

    relative: float | None = None
    rate_tps: float | None = None
    cpu: float | None = None
    memory: float | None = None


class Point(msgspec.Struct, frozen=True, omit_defaults=True):
    """At `threads` threads the task's peak stable rate is `rate_tps`; `cpu`, `memory`: fractions of
    the slot above its base load at that rate."""

    threads: int
    rate_tps: float
    cpu: float
    memory: float
    spread: Spread | None = None


class Model(msgspec.Struct, frozen=True):
    """𝒫 of one task: points by rising threads. `more`: keys of the file that are kept as they are."""

    task: str
    slot: ModelSlot
    points: tuple[Point, ...]
    more: dict[str, Any] = {}

    @property
    def wake(self) -> DispatchOverhead:
        """What a row alone costs besides; nothing where it was not measured."""
        return overhead_of(self.more)

    @property
    def spreads(self) -> tuple[float | None, float | None]:
        """How much what a row costs, and what it waits, differs from row to row (`row_spread`); None: not measured."""
        return self.more.get(CPU_SPREAD), self.more.get(WAIT_SPREAD)

    @property
    def unmeasured(self) -> bool:
        """It stands in for a model: no row of the task was measured yet."""
        return self.more.get("unmeasured") is True

    @property
    def measured(self) -> bool:
        """Do its points come of threads that ran here? Those of papers do not."""
        return "measured_at" in self.more

    @property
    def tentative(self) -> bool:
        """It comes of few or disturbed rows: it is planned with, and says of no rate that it cannot be carried."""
        return bool(self.more.get("tentative"))


def unsound(model: Model) -> Iterator[str]:
    """What no sound model says, in words: for models that come from no file. Fractions of a slot may be any: a small
    slot holds a part of what was measured in a large one.

    >>> list(unsound(Model("hash", ModelSlot(), (Point(1, 0.0, cpu=1.0, memory=0.1),))))
    ["model 'hash': 1 thread takes 0 rows/s, expected a finite number above 0"]
    """
    name, points = f"model {model.task!r}", model.points
    if not points or points[0].threads < 1 or any(b.threads <= a.threads for a, b in pairwise(points)):
        yield f"{name}: expected points with rising numbers of threads, from 1"
    for point in points:
        if not 0 < point.rate_tps < math.inf:
            many = counted(point.threads, "thread")
            yield f"{name}: {many} takes {significant(point.rate_tps)} rows/s, expected a finite number above 0"
        for what, part in (("CPU", point.cpu), ("memory", point.memory)):
            if not 0 <= part < math.inf:
                yield f"{name}: {part:g} of a slot's {what}, expected a finite number of at least 0"
    for key, least in LEAST.items():
        value = model.more.get(key, least)
        if not isinstance(value, int | float) or not least <= value < math.inf:
            yield f"{name}: {key} is {value!r}, expected a finite number of at least {least}"


# What floating-point sums may be off by, relative: a rate equal to whole peaks must take whole bundles.
EPSILON = 1e-9


def peak_rate(model: Model, threads: int) -> float:
    """I(q): the peak stable rate in rows/s of `threads` threads in one slot."""
    return _interpolated(model, threads, lambda point: point.rate_tps)


def cpu(model: Model, threads: int) -> float:
    """C(q): fraction of the slot's CPU at the peak rate of `threads` threads.

    Above the largest point whole largest bundles add up and the rest interpolates (paper 0, section
    8.5). A measured 1.01 is taken as it is: then the slot carries its threads at 1 / 1.01 of their peak."""
    return _added_up(model, threads, lambda point: point.cpu)


def memory(model: Model, threads: int) -> float:
    """M(q): fraction of the slot's memory at the peak rate of `threads` threads; sums as `cpu` does."""
    return _added_up(model, threads, lambda point: point.memory)


def memory_held(model: Model, threads: int, part: float) -> float:
    """Fraction of the slot's memory that `threads` threads hold at `part` of their peak rate. What was measured is a
    stock: a table, a cache or an import is as large at any rate. For models of papers it is that part of M(q), as
    printed (paper 0, Alg. 3)."""
    most = memory(model, threads)
    return most if model.measured else most * part


def threads_for(model: Model, rate_tps: float) -> int | None:
    """T(ω): the smallest measured thread count whose peak rate is ≥ `rate_tps`; None above ω̂."""
    desired = rate_tps * (1 - EPSILON)
    return next((point.threads for point in model.points if point.rate_tps >= desired), None)


def peak(model: Model) -> tuple[float, int]:
    """(ω̂, τ̂): the highest peak rate of one slot in rows/s, and the fewest threads that reach it."""
    best = max(
        model.points, key=lambda point: point.rate_tps
    )  # of equals the first, which has the fewest threads
    return best.rate_tps, best.threads


def has_spread(model: Model) -> bool:
    """Does any point say how far it may be off?"""
    return any(point.spread is not None for point in model.points)


def at_worst(model: Model) -> Model:
    """The model with every rate at the low end of its spread, and CPU and memory at their high end."""
    return _shifted(model, -1)


def at_best(model: Model) -> Model:
    """The model with every rate at the high end of its spread, and CPU and memory at their low end."""
    return _shifted(model, 1)


def _shifted(model: Model, way: int) -> Model:
    return msgspec.structs.replace(model, points=tuple(_moved(point, way) for point in model.points))


def half_widths(point: Point) -> tuple[float, float, float]:
    """How far rate (rows/s), CPU and memory of a point may be off either way; 0 where nothing is known."""
    spread = point.spread or Spread()
    half_tps = (spread.relative or 0.0) * point.rate_tps if spread.rate_tps is None else spread.rate_tps
    return half_tps, spread.cpu or 0.0, spread.memory or 0.0


def _moved(point: Point, way: int) -> Point:
    half_tps, half_cpu, half_memory = half_widths(point)
    return Point(
        point.threads,
        max(0.0, point.rate_tps + way * half_tps),
        max(0.0, point.cpu - way * half_cpu),
        max(0.0, point.memory - way * half_memory),
    )


def unknown_tasks(topology: Topology, models: Mapping[str, Model]) -> tuple[str, ...]:
    """Tasks that nothing is known of yet: their models only stand in."""
    return tuple(
        task.name
        for task in topology.breadth_first
        if task.static is None and (model := models.get(task.model_name)) is not None and model.unmeasured
    )


def unsure_tasks(topology: Topology, models: Mapping[str, Model]) -> tuple[str, ...]:
    """Tasks of which little or nothing is known: no rate is refused for them."""
    unknown = unknown_tasks(topology, models)
    return tuple(
        task.name
        for task in topology.breadth_first
        if task.static is None
        and (task.name in unknown or ((model := models.get(task.model_name)) is not None and model.tentative))
    )


def missing_models(topology: Topology, models: Mapping[str, Model]) -> list[str]:
    """One fault, with the nearest known name, for each task that has neither a model nor a fixed size."""
    near = Suggestions()
    return [
        f"task {task.name!r}: no model {task.model_name!r}{near.text(task.model_name, models)}"
        for task in topology.tasks
        if task.static is None and task.model_name not in models
    ]


def _interpolated(model: Model, threads: int, value_of: Callable[[Point], float]) -> float:
    """Linear between points, from nothing at no threads to the first point, flat above the last."""
    points = model.points
    if threads >= points[-1].threads:
        return value_of(points[-1])
    above = bisect_right(points, threads, key=lambda point: point.threads)
    high = points[above]
    if above == 0:
        return value_of(high) * max(0, threads) / high.threads
    low = points[above - 1]
    part = (threads - low.threads) / (high.threads - low.threads)
    return value_of(low) + (value_of(high) - value_of(low)) * part


def _added_up(model: Model, threads: int, value_of: Callable[[Point], float]) -> float:
    last = model.points[-1]
    bundles, rest = divmod(threads, last.threads)
    return bundles * value_of(last) + _interpolated(model, rest, value_of)
