"""Which tasks may be chained: run by the one thread that sends to them (topology_runtime/worker/chains.py). Pure."""

from __future__ import annotations

from collections.abc import Mapping

from headgate.controller.knowledge.models import Model, cpu
from headgate.topology_runtime.topology import Topology

COMPUTES = 0.8  # of the slot, at the peak of one thread: what such a task does not wait for, it computes


def computes(model: Model) -> bool:
    """Does one thread of the task fill its slot? Then a second thread beside it wins nothing by being another; one
    that waits for a service leaves its slot to the others meanwhile."""
    return not model.wake.waits and cpu(model, 1) >= COMPUTES


def chainable(topology: Topology, models: Mapping[str, Model]) -> tuple[str, ...]:
    """The tasks of which it is known."""
    known = ((task.name, models.get(task.model_name)) for task in topology.tasks)
    return tuple(name for name, model in known if model is not None and computes(model))
