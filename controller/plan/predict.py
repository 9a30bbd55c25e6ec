"""What a placement will do (paper 0, section 8.5; contract: `prediction`). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model, has_spread
from headgate.controller.knowledge.plans import Placement, Prediction, Share, SlotUse, VmUse
from headgate.controller.plan.intervals import with_intervals
from headgate.controller.plan.likely import likely_rate
from headgate.controller.plan.load import NOWHERE, PlacementLoad, load_of
from headgate.controller.plan.shares import shuffled, weighted
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.topology import Topology

ROUTINGS = {"weighted": weighted, "shuffle": shuffled}
INTERFERENCES = ("cpu", "none")
USAGES = ("scaled", "peak")


def predict(
    topology: Topology,
    models: Mapping[str, Model],
    placement: Placement,
    vms: Sequence[Vm],
    rate_tps: float | None = None,
    *,
    routing: str = "weighted",
    interference: str = "cpu",
    usage: str = "scaled",
) -> Prediction:
    """The highest input rate the placement supports, what limits it, and its use of slots and VMs at
    `rate_tps` (None: at the supported rate), if it supports that much.

    interference "cpu": groups share their slot's CPU; "none": each as if alone. usage "peak": CPU and
    memory with every group at its own peak. A placement that nothing limits (no task has a model)
    supports `rate_tps`; one without a thread of a modelled task supports nothing. Models with spread
    give intervals (see `with_intervals`) and the rate that is likely (see `likely_rate`)."""
    loaded = partial(load_of, topology, placement=placement, vms=vms, shared_cpu=interference == "cpu")
    load = loaded(models=models)
    split = ROUTINGS[routing](load)
    limit = split.limit
    supported = limit.rate_tps if limit is not None else rate_tps or 0.0
    at_tps = supported if rate_tps is None else min(rate_tps, supported)
    asked_tps = None if usage == "peak" else at_tps
    uses = slot_uses(load, split.shares, asked_tps)
    found = Prediction(
        rate_tps=supported,
        limited_by=load.tasks[limit.task] if limit else None,
        limited_by_slot=str(load.slots[limit.slot]) if limit and limit.slot != NOWHERE else None,
        slots=uses,
        vms=vm_uses(uses, vms),
        at_rate_tps=at_tps,
        shares=tuple(
            Share(load.slots[group.slot], load.tasks[group.task], split.shares[g])
            for g, group in enumerate(load.groups)
        ),
    )
    used = {name: models[name] for name in {t.model_name for t in topology.tasks if t.static is None}}
    if not any(has_spread(model) for model in used.values()):
        return found
    found = replace(found, likely_tps=likely_rate(load, split))
    return with_intervals(found, used, lambda moved: loaded(models=moved), ROUTINGS[routing], asked_tps)


def slot_uses(load: PlacementLoad, shares: Sequence[float], rate_tps: float | None) -> tuple[SlotUse, ...]:
    """What `PlacementLoad.needs` gives, with the slots it is of."""
    needs = zip(load.slots, load.needs(shares, rate_tps), strict=True)
    return tuple(SlotUse(slot.vm, slot.number, *need) for slot, need in needs)


def vm_uses(uses: Sequence[SlotUse], vms: Sequence[Vm]) -> tuple[VmUse, ...]:
    """Sums of the slots of each VM, in slots; VMs without threads use nothing."""
    cpu, memory = {vm.vm: 0.0 for vm in vms}, {vm.vm: 0.0 for vm in vms}
    for use in uses:
        cpu[use.vm] = cpu.get(use.vm, 0.0) + use.cpu
        memory[use.vm] = memory.get(use.vm, 0.0) + use.memory
    return tuple(VmUse(vm, cpu[vm], memory[vm]) for vm in cpu)
