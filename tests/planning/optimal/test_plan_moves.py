"""Relabelling: a new plan keeps as many threads where they are as its shape allows."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import pytest
from examples import examples
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked_few, model_of, vms_of

from headgate.controller.execute.plan_diff import diff
from headgate.controller.models.plans import Bundle, Plan, ThreadAt
from headgate.controller.plan import plan_moves as relabelling
from headgate.controller.plan.plan_moves import relabel
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import Infeasible

ABC = chain("a", "b", "c")
KNOWN = {name: model_of(name, (1, 60, 0.5, 0.2), (2, 100, 0.9, 0.2)) for name in "abc"}


def plan_for(rate_tps: float, *slots: int, **more: object) -> Plan:
    request = PlanRequest(ABC, KNOWN, rate_tps, vms_of(*slots), **more)  # type: ignore[arg-type]
    return make_plan(request)


def started(plan: Plan, topology: Topology = ABC) -> tuple[ThreadAt, ...]:
    return diff((), plan.placement, topology, 1).start


def renamed(threads: tuple[ThreadAt, ...], names: dict[Slot, Slot]) -> tuple[ThreadAt, ...]:
    return tuple(replace(thread, slot=names.get(thread.slot, thread.slot)) for thread in threads)


def kept(plan: Plan, threads: tuple[ThreadAt, ...]) -> int:
    have = staying(plan, threads)
    return sum(min(b.threads, have[b.task, b.slot]) for b in plan.placement.bundles)


def staying(plan: Plan, threads: tuple[ThreadAt, ...]) -> Counter[tuple[str, Slot]]:
    """Threads per task and slot that may stay: their partition is one of the plan's."""
    planned = {task.task: task.threads for task in plan.allocation.tasks}
    return Counter((t.task, t.slot) for t in threads if t.partition < planned.get(t.task, 0))


def most_kept(plan: Plan, threads: tuple[ThreadAt, ...], excluded: frozenset[Slot]) -> int:
    """By trying everything: VMs of one size among themselves, and for each pair the slots within. Slots in
    which a task of fixed size runs and shall run keep their name."""
    now = staying(plan, threads)
    static = {task.task for task in plan.allocation.tasks if task.static}
    desired: dict[Slot, list[Bundle]] = {}
    for bundle in plan.placement.bundles:
        desired.setdefault(bundle.slot, []).append(bundle)
    fixed = {b.slot for b in plan.placement.bundles if b.task in static and now[b.task, b.slot]}

    def most_within(vm: Vm, real: Vm) -> float:
        best = -math.inf
        for names in permutations(real.all_slots()):
            pairs = [pair for pair in zip(vm.all_slots(), names, strict=True) if pair[0] in desired]
            if all(name not in excluded and (slot == name or slot not in fixed) for slot, name in pairs):
                stay = (min(b.threads, now[b.task, name]) for slot, name in pairs for b in desired[slot])
                best = max(best, sum(stay))
        return best

    return max(
        sum(most_within(vm, real) for vm, real in zip(plan.vms, order, strict=True))
        for order in permutations(plan.vms)
        if all(a.slots == b.slots for a, b in zip(plan.vms, order, strict=True))
    )  # fmt: skip


def test_a_plan_in_other_slots_is_the_same_plan():
    plan = plan_for(330.0, 4, 4, 4)
    assert len(plan.vms) == 3
    swap = {"vm1": "vm3", "vm3": "vm1", "vm2": "vm2"}
    names = {s: Slot(swap[s.vm], 3 - s.number) for vm in plan.vms for s in vm.all_slots()}
    threads = renamed(started(plan), names)
    moved = relabel(plan, threads, frozenset())
    assert diff(threads, moved.placement, ABC, 1000).start == ()
    assert moved.id != plan.id
    assert faults_of(moved, ABC, KNOWN) == []


def test_the_prediction_is_that_of_the_renamed_placement():
    plan = plan_for(233.0, 4, 4, 4)
    names = {s: Slot(s.vm, 3 - s.number) for vm in plan.vms for s in vm.all_slots()}
    moved = relabel(plan, renamed(started(plan), names))
    anew = predict(ABC, KNOWN, moved.placement, moved.vms, plan.rate_tps)
    assert moved.prediction.slots != plan.prediction.slots
    for field in ("slots", "vms"):
        for one, other in zip(getattr(moved.prediction, field), getattr(anew, field), strict=True):
            assert (one.vm, one.cpu) == (other.vm, pytest.approx(other.cpu))
    assert [(s.slot, s.task) for s in moved.prediction.shares] == [(s.slot, s.task) for s in anew.shares]
    limiting = {str(b.slot) for b in moved.placement.bundles if b.task == anew.limited_by}
    assert moved.prediction.limited_by_slot in limiting


def test_nothing_is_renamed_without_a_gain():
    plan = plan_for(250.0, 4, 4)
    assert relabel(plan, ()) is plan
    assert relabel(plan, started(plan), frozenset()) is plan
    strange = tuple(replace(thread, slot=Slot("elsewhere", 0)) for thread in started(plan))
    assert relabel(plan, strange, frozenset()) is plan


def test_unused_slots_are_taken_only_when_they_are_known_to_be_good():
    plan = plan_for(50.0, 4)  # all in one slot
    threads = renamed(started(plan), {Slot("vm1", 0): Slot("vm1", 3), Slot("vm1", 1): Slot("vm1", 2)})
    assert {b.slot for b in relabel(plan, threads).placement.bundles} <= {Slot("vm1", 0), Slot("vm1", 1)}
    assert kept(relabel(plan, threads, frozenset()), threads) == len(threads)
    bad = frozenset({Slot("vm1", 3), Slot("vm1", 2)})
    assert relabel(plan, threads, bad) is plan


def test_pinned_threads_keep_their_slot():
    topology = chain("a", "b", "c", ends=True)
    request = PlanRequest(topology, KNOWN, 250.0, vms_of(4, 4, 4))
    before = make_plan(request)
    threads = started(before, topology)
    pins = {n: tuple(t.slot for t in threads if t.task == n) for n in ("source", "sink")}
    after = relabel(make_plan(replace(request, rate_tps=120.0, pinned=pins)), threads, frozenset())
    stay = diff(threads, after.placement, topology, 1000).keep
    assert {"source", "sink"} <= {thread.task for thread in stay}


def test_a_source_that_has_to_go_elsewhere_is_not_renamed_to_where_it_is():
    topology = chain("a", "b", "c", ends=True)
    request = PlanRequest(topology, KNOWN, 120.0, vms_of(3, 3))
    threads = started(make_plan(request), topology)
    pins = {"source": (Slot("vm2", 0),)}
    plan = make_plan(replace(request, pinned=pins))
    assert [b.slot for b in plan.placement.bundles if b.task == "source"] == [*pins["source"]]
    after = relabel(plan, threads, frozenset(), pins)
    assert [b.slot for b in after.placement.bundles if b.task == "source"] == [*pins["source"]]
    renamed = relabel(plan, threads, frozenset())
    assert [b.slot for b in renamed.placement.bundles if b.task == "source"] != [*pins["source"]]


@pytest.mark.parametrize(
    ("rate", "elsewhere"), [(330.0, Slot("vm1", 3)), (330.0, Slot("vm2", 3)), (30.0, Slot("vm1", 3))]
)
def test_a_running_task_of_fixed_size_outweighs_any_gain(rate, elsewhere):
    """All that is to share the source's slot runs elsewhere: giving the plan's slot that name would keep
    more threads, and move the source."""
    topology = chain("a", "b", "c", ends=True)
    plan = make_plan(PlanRequest(topology, KNOWN, rate, vms_of(4, 4, 4)))
    home = next(b.slot for b in plan.placement.bundles if b.task == "source")
    beside = [b.task for b in plan.placement.bundles if b.slot == home and b.task != "source"]
    assert elsewhere != home
    assert len(beside) > 1
    others = [ThreadAt(number, task, elsewhere) for number, task in enumerate(beside, 2)]
    moved = relabel(plan, (ThreadAt(1, "source", home), *others), frozenset())
    assert [b.slot for b in moved.placement.bundles if b.task == "source"] == [home]
    free = relabel(plan, tuple(others), frozenset())
    assert [b.slot for b in free.placement.bundles if b.task == "source"] == [elsewhere]


def test_what_gains_nothing_keeps_its_name():
    plan = plan_for(450.0, 4, 4, 4, 4)
    swap = {"vm1": "vm2", "vm2": "vm1"}
    here = [thread for thread in started(plan) if thread.slot.vm in swap]
    threads = tuple(replace(t, slot=Slot(swap[t.slot.vm], t.slot.number)) for t in here)
    moved = relabel(plan, threads, frozenset())
    assert kept(moved, threads) > kept(plan, threads)
    for vm in ("vm3", "vm4"):
        assert [b for b in moved.placement.bundles if b.slot.vm == vm] == [
            b for b in plan.placement.bundles if b.slot.vm == vm
        ]


@st.composite
def small_moves(draw: st.DrawFn):
    """(topology, plan, threads of another plan with its slots renamed at random, excluded slots)."""
    topology = draw(st.sampled_from([ABC, chain("a", "b", "c", ends=True)]))
    shape = draw(st.sampled_from([(1, 1, 1), (2, 2), (3, 2), (2, 2, 1), (3, 3), (3, 2, 3, 2), (3, 3, 3, 3)]))
    rates = st.floats(1.0, 70.0 * sum(shape) / 3)
    slots = [slot for vm in vms_of(*shape) for slot in vm.all_slots()]
    excluded = draw(st.frozensets(st.sampled_from(slots), max_size=2))
    asked = PlanRequest(topology, KNOWN, 0.0, vms_of(*shape))
    try:
        plan = make_plan(replace(asked, rate_tps=draw(rates), excluded=excluded))
        before = make_plan(replace(asked, rate_tps=draw(rates)))
    except Infeasible:
        assume(False)
    names = dict(zip(slots, draw(st.permutations(slots)), strict=True))
    return topology, plan, renamed(started(before, topology), names), excluded


@examples(300)
@given(small_moves())
def test_no_labels_keep_more(move):
    """And so the diff is the least there is."""
    topology, plan, threads, excluded = move
    moved = relabel(plan, threads, excluded)
    best = most_kept(plan, threads, excluded)
    assert kept(moved, threads) == best
    assert not {b.slot for b in moved.placement.bundles} & excluded
    assert faults_of(moved, topology, KNOWN) == []
    change = diff(threads, moved.placement, topology, 1000)
    assert len(change.keep) == best
    assert len(change.leave) == len(threads) - best
    assert len(change.start) == sum(b.threads for b in plan.placement.bundles) - best


@checked_few
@given(small_moves())
def test_estimates_for_many_vms_never_move_more(move):
    _, plan, threads, excluded = move
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relabelling, "EXACT_PAIRS", 0)
        moved = relabel(plan, threads, excluded)
    assert kept(moved, threads) >= kept(plan, threads)
    assert not {b.slot for b in moved.placement.bundles} & excluded


def test_estimates_find_swapped_vms():
    plan = plan_for(1100.0, *[4] * 12)
    order = [vm.vm for vm in plan.vms]
    swap = dict(zip(order, [*order[1:], order[0]], strict=True))
    names = {s: Slot(swap[s.vm], s.number) for vm in plan.vms for s in vm.all_slots()}
    threads = renamed(started(plan), names)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relabelling, "EXACT_PAIRS", 0)
        moved = relabel(plan, threads)
    assert kept(moved, threads) > 0.8 * len(threads) > 2 * kept(plan, threads)
    assert all(isinstance(vm, Vm) for vm in moved.vms)
