"""A new plan that moves little against a plan that is in force: same VMs, slots renamed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from msgspec.structs import replace

from headgate.controller.execute.diff import diff
from headgate.controller.knowledge.plans import Placement, Plan
from headgate.controller.plan.identity import with_id
from headgate.controller.plan.predict import vm_uses
from headgate.controller.plan.relabel import relabel
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.topology import Topology


def based_on(plan: Plan, base: Plan, topology: Topology, fixed: bool) -> Plan:
    """`plan` with VMs and slots renamed so that most threads of `base` stay where they are.

    Acquired VMs take the names of the base's VMs of their kind; others get names that are new.
    `fixed`: the plan's VMs have their names already, and all of them belong to it."""
    if not fixed:
        plan = _renamed_vms(plan, base.vms)
    threads = diff((), base.placement, topology, 1).start
    spare = () if fixed else tuple(vm for vm in base.vms if vm.vm not in {own.vm for own in plan.vms})
    wide = replace(plan, vms=(*plan.vms, *spare))  # a VM of the base may serve better than the one named
    found = relabel(wide, threads, frozenset())
    vms = _as_many(plan, found)
    prediction = replace(found.prediction, vms=vm_uses(found.prediction.slots, vms))
    return with_id(replace(found, vms=vms, prediction=prediction))


def _as_many(plan: Plan, found: Plan) -> tuple[Vm, ...]:
    """VMs of `found`, which may have more than the `plan`: as many of each kind, those with threads first."""
    carrying = {bundle.slot.vm for bundle in found.placement.bundles}
    desired = Counter(_kind(vm) for vm in plan.vms)
    desired.subtract(_kind(vm) for vm in found.vms if vm.vm in carrying)
    vms = []
    for vm in found.vms:
        if vm.vm not in carrying:
            desired[_kind(vm)] -= 1
        if vm.vm in carrying or desired[_kind(vm)] >= 0:
            vms.append(vm)
    return tuple(vms)


def _kind(vm: Vm) -> Vm:
    return replace(vm, vm="")


def _renamed_vms(plan: Plan, present: Sequence[Vm]) -> Plan:
    """The plan on VMs called like those `present`, kind by kind."""
    free = list(present)
    taken = {vm.vm for vm in present}
    fresh = (name for n in range(1, len(plan.vms) + len(taken) + 1) if (name := f"vm{n}") not in taken)
    names: dict[str, str] = {}
    for vm in plan.vms:
        alike = next((one for one in free if _kind(one) == _kind(vm)), None)
        names[vm.vm] = alike.vm if alike is not None else next(fresh)
        if alike is not None:
            free.remove(alike)
    return _with_names(plan, names)


def _with_names(plan: Plan, names: dict[str, str]) -> Plan:
    bundles = [
        replace(bundle, slot=replace(bundle.slot, vm=names[bundle.slot.vm]))
        for bundle in plan.placement.bundles
    ]
    limited = plan.prediction.limited_by_slot
    if limited is not None:
        vm, _, number = limited.rpartition("/")
        limited = f"{names[vm]}/{number}"
    shares = [
        replace(share, slot=replace(share.slot, vm=names[share.slot.vm])) for share in plan.prediction.shares
    ]
    prediction = replace(
        plan.prediction,
        limited_by_slot=limited,
        slots=tuple(replace(use, vm=names[use.vm]) for use in plan.prediction.slots),
        vms=tuple(replace(use, vm=names[use.vm]) for use in plan.prediction.vms),
        shares=tuple(shares),
    )
    vms = tuple(replace(vm, vm=names[vm.vm]) for vm in plan.vms)
    return replace(plan, vms=vms, placement=Placement(tuple(bundles)), prediction=prediction)
