"""Models measured in one size of slot, used in another. Pure.

Bytes are bytes: memory is scaled. How a task's rate changes with the cores of its slot nobody has measured: models of
another size are refused. A model that does not say in what slot it was measured is one of the slots at hand.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model, ModelSlot, Point
from headgate.controller.plan.resident import BASE
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.topology import Topology

NEAR = 0.01  # relative: so little another size is the same


def fitted(
    models: Iterable[Model], topology: Topology, slot_cores: float, slot_memory_bytes: int
) -> tuple[Model, ...]:
    """The models as fractions of these slots. Raises InvalidInput with every model of the topology that was measured
    in slots of other cores."""
    models = tuple(models)
    used = {task.model_name for task in topology.tasks if task.static is None}
    odd = [m for m in models if m.task in used and _known(m) and not near(m.slot.cores, slot_cores)]
    if odd:
        sizes = sorted({m.slot.cores for m in odd})
        own = f"`--slot-cores {sizes[0]:g}`, or " if len(sizes) == 1 and len(odd) == len(used) else ""
        raise InvalidInput(
            f"the models do not fit slots of {slot_cores:g} cores",
            faults=[f"{m.task}: measured in a slot of {m.slot.cores:g} cores" for m in odd],
            hint=f"{own}measure anew: `headgate model profile --slot-cores {slot_cores:g} …`, or leave --models out",
        )
    return tuple(_fit(model, slot_cores, slot_memory_bytes) for model in models)


def _known(model: Model) -> bool:
    return model.slot != ModelSlot()


def near(a: float, b: float) -> bool:
    """Are these cores of one size?"""
    return abs(a - b) <= NEAR * b


def _fit(model: Model, slot_cores: float, slot_memory_bytes: int) -> Model:
    slot = replace(model.slot, cores=slot_cores, memory_bytes=slot_memory_bytes)
    if not _known(model):
        return replace(model, slot=slot)
    times = model.slot.memory_bytes / slot_memory_bytes
    if times == 1.0:
        return model
    base = model.more.get(BASE)
    more = model.more | ({BASE: base * times} if isinstance(base, int | float) else {})
    return replace(model, slot=slot, points=tuple(_scaled(p, times) for p in model.points), more=more)


def _scaled(point: Point, times: float) -> Point:
    spread = point.spread
    if spread is not None and spread.memory is not None:
        spread = replace(spread, memory=spread.memory * times)
    return replace(point, memory=point.memory * times, spread=spread)
