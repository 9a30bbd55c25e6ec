"""A plan made over another keeps its VMs and threads, and is as sound and as good as it was."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked_few, model_of, requests, vms_of

from headgate.controller.knowledge.plans import Plan, usd_per_hour
from headgate.controller.offline.basing import based_on
from headgate.controller.offline.changes import changes
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.verify import faults_of
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Infeasible

SIZES = (Vm("", 4, usd_per_hour=0.4), Vm("", 2, usd_per_hour=0.2), Vm("", 1, usd_per_hour=0.1))


@dataclass(frozen=True)
class Pair:
    request: PlanRequest
    old: Plan
    new: Plan


@st.composite
def pairs(draw: st.DrawFn) -> Pair:
    """Plans of one topology for two rates, each on VMs acquired for it."""
    request = replace(draw(requests()), pinned={}, excluded=frozenset())
    rates = draw(st.tuples(st.floats(1.0, 300.0), st.floats(1.0, 300.0)))
    try:
        old, new = (plan_acquiring(replace(request, rate_tps=rate), SIZES) for rate in rates)
    except Infeasible:
        assume(False)
    return Pair(request, old, new)


@checked_few
@given(pairs())
def test_it_stays_sound_and_costs_the_same(pair):
    found = based_on(pair.new, pair.old, pair.request.topology, False)
    assert faults_of(found, pair.request.topology, pair.request.models) == []
    assert usd_per_hour(found.vms) == usd_per_hour(pair.new.vms)
    assert found.slots == pair.new.slots
    assert found.prediction.rate_tps == pair.new.prediction.rate_tps


@checked_few
@given(pairs())
def test_no_fewer_threads_stay_than_without(pair):
    found = based_on(pair.new, pair.old, pair.request.topology, False)
    assert changes(pair.old, found).total("stay") >= changes(pair.old, pair.new).total("stay")


@checked_few
@given(pairs())
def test_the_same_plan_again_changes_nothing(pair):
    again = based_on(pair.old, pair.old, pair.request.topology, False)
    assert again == pair.old


@pytest.mark.parametrize("kept", ["vm1", "vm2"])
def test_the_vm_with_the_desired_threads_is_kept(kept):
    """Of two VMs one slot each remains; the plan made anew would always name vm1."""
    topology = chain("a")
    request = PlanRequest(
        topology, {"a": model_of("a", (1, 10.0, 0.5, 0.1), (2, 20.0, 1.0, 0.2))}, 10.0, vms_of(1, 1)
    )
    old = plan_acquiring(replace(request, rate_tps=40.0), vms_of(1))
    gone = next(vm.vm for vm in old.vms if vm.vm != kept)
    bundles = [bundle for bundle in old.placement.bundles if bundle.slot.vm != gone]
    old = replace(old, placement=replace(old.placement, bundles=tuple(bundles)))
    found = based_on(plan_acquiring(request, vms_of(1)), old, topology, False)
    assert [vm.vm for vm in found.vms] == [kept]


def test_new_vms_get_names_that_the_base_has_not():
    topology = chain("a")
    models = {"a": model_of("a", (1, 10.0, 1.0, 0.1))}
    small = plan_acquiring(PlanRequest(topology, models, 10.0, ()), (Vm("", 1),))
    large = plan_acquiring(PlanRequest(topology, models, 40.0, ()), (Vm("", 4),))
    found = based_on(large, small, topology, False)
    assert [(vm.vm, vm.slots) for vm in found.vms] == [("vm2", 4)]


def test_a_vm_that_only_shares_its_name_is_another():
    topology, models = chain("a"), {"a": model_of("a", (1, 10.0, 1.0, 0.1))}
    request = PlanRequest(topology, models, 10.0, vms_of(1), fixed=True)
    small, large = make_plan(request), make_plan(replace(request, vms=vms_of(2)))
    found = changes(small, large)
    assert (found.total("stay"), found.total("move")) == (0, 1)
    assert [(vm.change, vm.slots) for vm in found.vms] == [("removed", 1), ("added", 2)]


def test_a_price_alone_makes_no_other_vm():
    topology, models = chain("a"), {"a": model_of("a", (1, 10.0, 1.0, 0.1))}
    plan = make_plan(PlanRequest(topology, models, 10.0, vms_of(1)))
    dearer = replace(plan, vms=tuple(replace(vm, usd_per_hour=9.0) for vm in plan.vms))
    assert changes(plan, dearer).vms == () and changes(plan, dearer).total("stay") == 1


def test_vms_that_were_acquired_with_slots_to_spare_stay_in_the_plan():
    topology, models = chain("a"), {"a": model_of("a", (1, 10.0, 1.0, 0.1))}
    request = PlanRequest(topology, models, 10.0, vms_of(1, 1, 1), fixed=True)
    plan = make_plan(request)
    found = based_on(plan, plan, topology, False)
    assert found == plan and len(found.vms) == 3
