"""What no plan can be quicker than: the latency constraints that the models already rule out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from headgate.controller.knowledge.models import Model, peak_rate
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.edges import HOP_MS
from headgate.topology_runtime.topology import LatencyConstraint, Topology


def refuse_below_floor(topology: Topology, models: Mapping[str, Model]) -> None:
    """Raises InvalidInput, with the floor, where a constraint asks for less than its tasks take for one row, each
    alone in a slot, and its hops. Tasks without a model count as nothing."""
    faults = list(_faults(topology, models))
    if faults:
        raise InvalidInput(
            "a latency constraint cannot be met", faults=faults, hint="a higher limit_ms, or quicker tasks"
        )


def floor_ms(constraint: LatencyConstraint, topology: Topology, models: Mapping[str, Model]) -> float:
    """Of one row: its hops, and what each task but the first takes for it by its model."""
    names = [topology.by_name[name].model_name for name in constraint.path[1:]]
    known = [models[name] for name in names if name in models and not models[name].unmeasured]
    return HOP_MS * len(names) + sum(1000 / rate for model in known if (rate := peak_rate(model, 1)) > 0)


def _faults(topology: Topology, models: Mapping[str, Model]) -> Iterator[str]:
    for constraint in topology.latency_constraints:
        floor = floor_ms(constraint, topology, models)
        if constraint.limit_ms < floor:
            yield (
                f"{' → '.join(constraint.path)}: {constraint.limit_ms:g} ms are allowed, and by the models of its "
                f"tasks a row takes {floor:.3g} ms"
            )
