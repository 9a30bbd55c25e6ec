"""A plan that was made before, for what there is now: its placement stays, what is said of it is worked out anew
where VMs or models are others since. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec.structs import replace

from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plans import Plan
from headgate.controller.plan.identity import models_digest, with_id
from headgate.controller.plan.linear_program import TOLERANCE
from headgate.controller.plan.predict import INTERFERENCES, ROUTINGS, predict
from headgate.controller.plan.verify import faults_of
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.topology import Topology

MIB = 1024**2


def made_again(
    plan: Plan,
    topology: Topology,
    models: Mapping[str, Model],
    there: Sequence[Vm],
    excluded: Collection[Slot] = (),
) -> Plan:
    """`plan` on the VMs that are `there`. Raises InvalidInput with everything that keeps it from being run there."""
    if plan.topology_digest != topology.digest:
        changed = f"the topology {topology.name!r} has changed since"
        other = f"it is for the topology {plan.topology!r}, {topology.name!r} runs"
        raise InvalidInput(
            f"plan {plan.id} cannot be run here",
            cause=changed if plan.topology == topology.name else other,
            hint=f"`headgate history --topology {topology.name}` lists the plans of {topology.name}",
        )
    here = {vm.vm: vm for vm in there}
    faults = [*_places(plan, here), *_quarantined(plan, excluded), *_words(plan, topology)]
    if not faults:
        found = _on(plan, topology, models, here)
        as_made = found.models_digest == plan.models_digest
        faults = [
            *faults_of(found, topology, models, by_mapper=as_made),
            *(() if as_made else _memory(found)),
        ]
        if not faults:
            return found
    raise InvalidInput(
        f"plan {plan.id} cannot be run here",
        faults=faults,
        hint="`headgate status` shows the VMs that there are, `headgate history` other plans",
    )


def _places(plan: Plan, here: Mapping[str, Vm]) -> Iterator[str]:
    planned = {vm.vm: vm for vm in plan.vms}
    highest: dict[str, int] = {}
    for bundle in plan.placement.bundles:
        highest[bundle.slot.vm] = max(bundle.slot.number, highest.get(bundle.slot.vm, 0))
    for name, number in highest.items():
        vm, was = here.get(name), planned.get(name)
        if vm is None or was is None:
            yield f"VM {name!r} is not there"
            continue
        if number >= vm.slots:
            yield f"VM {name!r} has {counted(vm.slots, 'slot')}, so there is no slot {name}/{number}"
        if (vm.slot_cores, vm.slot_memory_bytes) != (was.slot_cores, was.slot_memory_bytes):
            yield f"slots of VM {name!r} have {_size(vm)}, the plan is for slots of {_size(was)}"


def _size(vm: Vm) -> str:
    return f"{vm.slot_cores:g} cores and {vm.slot_memory_bytes / MIB:,.0f} MiB"


def _quarantined(plan: Plan, excluded: Collection[Slot]) -> Iterator[str]:
    for slot in sorted({bundle.slot for bundle in plan.placement.bundles} & set(excluded)):
        yield f"slot {slot} is given up: its worker died too often"


def _words(plan: Plan, topology: Topology) -> Iterator[str]:
    """What a prediction takes for granted."""
    for name in dict.fromkeys(bundle.task for bundle in plan.placement.bundles):
        if name not in topology.by_name:
            yield f"the topology has no task {name!r}"
    if plan.routing not in ROUTINGS or plan.interference not in INTERFERENCES:
        yield f"nothing is known of routing {plan.routing!r} with interference {plan.interference!r}"


def _on(plan: Plan, topology: Topology, models: Mapping[str, Model], here: Mapping[str, Vm]) -> Plan:
    digest = models_digest(topology, models)
    if digest == plan.models_digest and all(here.get(vm.vm) == vm for vm in plan.vms):
        return plan
    carrying = {bundle.slot.vm for bundle in plan.placement.bundles}
    vms = tuple(here[vm.vm] for vm in plan.vms if vm.vm in carrying)
    prediction = predict(
        topology,
        models,
        plan.placement,
        vms,
        plan.rate_tps,
        routing=plan.routing,
        interference=plan.interference,
    )
    slots = replace(plan.slots, total=sum(vm.slots for vm in vms), used=plan.placement.slots_used())
    return with_id(replace(plan, vms=vms, slots=slots, prediction=prediction, models_digest=digest))


def _memory(plan: Plan) -> Iterator[str]:
    """By other models than it was made from a slot may need more than it has."""
    for use in plan.prediction.slots:
        if use.memory > 1 + TOLERANCE:
            yield f"slot {use.vm}/{use.slot} would need {use.memory:.2f} of its memory by the models of now"
