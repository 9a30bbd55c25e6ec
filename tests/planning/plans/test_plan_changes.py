"""A plan made over another keeps its VMs and threads, and is as sound and as good as it was."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked, checked_few, model_of, requests, vms_of

from headgate.controller.core.plan_choice import PlanQuestion, choose
from headgate.controller.execute.plan_diff import diff
from headgate.controller.models.plans import Bundle, Placement, Plan, ThreadAt, usd_per_hour
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.verifier import faults_of
from headgate.controller.planning_commands.plan_changes import based_on, changes
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
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
def test_it_stays_sound_and_costs_the_same_and_no_fewer_threads_stay(pair):
    found = based_on(pair.new, pair.old, pair.request.topology, False)
    assert faults_of(found, pair.request.topology, pair.request.models) == []
    assert usd_per_hour(found.vms) == usd_per_hour(pair.new.vms)
    assert found.slots == pair.new.slots
    assert found.prediction.rate_tps == pair.new.prediction.rate_tps
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


# ── The plan in force is not replaced by one that carries less, unless it cannot stay ───────────────────

REPLACED = chain("a")
KNOWN = {"a": model_of("a", (1, 10, 0.1, 0.2), (2, 100, 0.9, 0.2))}
# By shuffle five threads carry no more than the one that is alone: 50, where the three pairs of now carry 300.
WORSE = PlanRequest(REPLACED, KNOWN, 205.0, vms_of(4), routing="shuffle")
PRESENT = make_plan(replace(WORSE, rate_tps=300.0))
THREADS = diff((), PRESENT.placement, REPLACED, 1).start


def asked(request: PlanRequest, forced: bool = False) -> str:
    return choose(PlanQuestion(request, THREADS, PRESENT, forced, frozenset(), 100)).action


@pytest.mark.parametrize(("rate", "action"), [(205.0, "none"), (200.0, "enact"), (300.0, "adopt")])
def test_a_plan_that_carries_less_of_the_rate_is_not_used(rate, action):
    assert asked(replace(WORSE, rate_tps=rate)) == action


def test_it_is_used_when_the_present_one_cannot_stay():
    assert asked(WORSE, forced=True) == "enact"
    assert asked(replace(WORSE, excluded=frozenset({Slot("vm1", 0)}))) == "enact"
    assert asked(replace(WORSE, vms=vms_of(4, first=2))) == "enact"


# ── The least change from the threads there are to a placement ──────────────────────────────────────────

TOPOLOGY = Topology("t", (Task("in", static=Static(3)), Task("a")), (Edge("in", "a"),))
S0, S1, S2 = (Slot("vm1", number) for number in range(3))


def placement(*bundles: tuple[Slot, str, int]) -> Placement:
    return Placement(tuple(Bundle(*bundle) for bundle in bundles))


def test_a_first_placement_starts_everything_in_order():
    change = diff((), placement((S0, "in", 2), (S0, "a", 1), (S1, "in", 1)), TOPOLOGY, 5)
    assert change.start == (
        ThreadAt(5, "in", S0, 0), ThreadAt(6, "in", S0, 1), ThreadAt(7, "a", S0), ThreadAt(8, "in", S1, 2),
    )  # fmt: skip
    assert (change.keep, change.leave, change.next_thread) == ((), (), 9)


def test_a_moved_partition_is_a_new_thread_of_the_same_partition():
    now = (ThreadAt(1, "in", S0, 0), ThreadAt(2, "in", S1, 1), ThreadAt(3, "in", S1, 2))
    change = diff(now, placement((S0, "in", 1), (S1, "in", 1), (S2, "in", 1)), TOPOLOGY, 4)
    assert change.keep == now[:2]
    assert change.start == (ThreadAt(4, "in", S2, 2),)
    assert change.leave == (now[2],)


def test_a_partition_that_exists_twice_stays_once():
    """In mid re-plan the old and the new thread of a partition both run."""
    now = (
        ThreadAt(1, "in", S0, 0),
        ThreadAt(2, "in", S1, 0),
        ThreadAt(3, "in", S1, 1),
        ThreadAt(4, "in", S1, 2),
    )
    change = diff(now, placement((S0, "in", 1), (S1, "in", 2)), TOPOLOGY, 5)
    assert [thread.thread for thread in change.keep] == [1, 3, 4]
    assert change.start == ()


@checked
@given(requests(), st.floats(0.0, 1.0), st.randoms(use_true_random=False))
def test_every_change_is_minimal_and_complete(request, part, random):
    try:
        before, after = make_plan(request), make_plan(replace(request, rate_tps=request.rate_tps * part))
    except Infeasible:
        return
    threads = diff((), before.placement, request.topology, 1).start
    slots = [slot for vm in before.vms for slot in vm.all_slots()]
    names = dict(zip(slots, random.sample(slots, len(slots)), strict=True))
    threads = tuple(replace(thread, slot=names[thread.slot]) for thread in threads)
    change = diff(threads, after.placement, request.topology, len(threads) + 1)
    have = Counter((thread.task, thread.slot) for thread in threads)
    desired = {(bundle.task, bundle.slot): bundle.threads for bundle in after.placement.bundles}
    assert len(change.keep) == sum(min(count, have[place]) for place, count in desired.items())
    assert Counter((t.task, t.slot) for t in (*change.keep, *change.start)) == desired
    assert sorted([*change.keep, *change.leave], key=lambda t: t.thread) == list(threads)
    numbers = [thread.thread for thread in change.start]
    assert numbers == list(range(len(threads) + 1, change.next_thread))
    partitions = defaultdict(list)
    for thread in (*change.keep, *change.start):
        partitions[thread.task].append(thread.partition)
    for task in request.topology.tasks:
        found = sorted(partitions[task.name])
        assert found == (list(range(len(found))) if task.static else [0] * len(found))
