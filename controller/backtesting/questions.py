"""What to plan with where nothing runs: a topology, its models, and VMs that may be had."""

from __future__ import annotations

from typing import Any

from headgate.controller.backtesting.world import BacktestQuestion
from headgate.controller.knowledge.models import Model, missing_models
from headgate.controller.offline.options import topology_and_models
from headgate.controller.offline.vm_options import slot_cores_of, slot_price
from headgate.controller.replaying.world import Delays
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.topology import Topology

VMS, SLOTS = 64, 4


def question_of(options: dict[str, Any]) -> BacktestQuestion:
    """Of the options `topology`, `models`, `enact_s`, `machine_s`. Raises UsageError, InvalidInput."""
    topology, models = topology_and_models(options)
    return question_for(topology, models, Delays(options["enact_s"], options["machine_s"]))


def question_for(
    topology: Topology, models: dict[str, Model], delays: Delays, vms: int = VMS, slots: int = SLOTS
) -> BacktestQuestion:
    """With so many VMs of so many slots each, of the cores that the models were measured in. Raises InvalidInput."""
    if faults := missing_models(topology, models):
        raise InvalidInput(f"topology {topology.name!r} cannot be planned", faults=faults)
    cores = slot_cores_of(topology, models)
    usd = round(slots * slot_price(cores), 9)
    there = tuple(Vm(f"vm{n}", slots, cores, usd_per_hour=usd) for n in range(1, vms + 1))
    return BacktestQuestion(topology, models, there, delays)
