"""R-Storm mapping (paper 0, Alg. 5): thread by thread to the nearest VM, and the slots it then takes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import checked, models, requests, vms_of

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Allocation, Placement, TaskAllocation
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.acquire import exact
from headgate.controller.plan.mappers.free_slots import Room, Weights
from headgate.controller.plan.mappers.rsm import rsm
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.schedulers import ALLOCATORS
from headgate.topology_runtime.api import shipped_examples as examples
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

PUBLISHED = read_models(examples.MODELS)
SIZES = (Vm("", 4), Vm("", 2), Vm("", 1))


def task(name: str, threads: int, cpu: float, memory: float) -> TaskAllocation:
    """`threads` threads that need `cpu` and `memory` each."""
    return TaskAllocation(name, 1.0, threads, threads * cpu, threads * memory)


def mapped(vms: tuple[Vm, ...], *tasks: TaskAllocation, **room: object) -> dict[str, list[tuple[str, int]]]:
    """slot → (task, threads)"""
    found: dict[str, list[tuple[str, int]]] = {}
    placement = rsm(Allocation("lsa", 1.0, tasks, 1), Room(vms, **room))  # type: ignore[arg-type]
    for bundle in placement.bundles:
        found.setdefault(str(bundle.slot), []).append((bundle.task, bundle.threads))
    return found


def test_a_sweep_takes_one_thread_of_each_task():
    """The second slot of `a` comes after the first of `b`, which is why it goes to another VM."""
    tasks = task("a", 2, 0.5, 0.6), task("b", 1, 0.5, 0.3)
    assert mapped(vms_of(1, 1), *tasks) == {"vm1/0": [("a", 1), ("b", 1)], "vm2/0": [("a", 1)]}


def test_memory_is_counted_per_slot_and_cpu_per_vm():
    assert mapped(vms_of(2), task("a", 3, 0.6, 0.3)) == {"vm1/0": [("a", 3)]}  # 1.8 of two slots' CPU
    assert len(mapped(vms_of(2), task("a", 2, 0.1, 0.6))) == 2
    with pytest.raises(Infeasible, match=r"task 'a': 0\.7 of a slot's CPU and 0\.1 of its memory"):
        mapped(vms_of(1, 1), task("a", 3, 0.7, 0.1))


def test_the_vm_with_least_to_spare_comes_first():
    assert list(mapped(vms_of(4, 1), task("a", 1, 0.5, 0.5))) == ["vm2/0"]
    only_network = Weights(memory=0.0, cpu=0.0)
    assert list(mapped(vms_of(4, 1), task("a", 1, 0.5, 0.5), weights=only_network)) == ["vm1/0"]


def test_threads_stay_in_the_vm_and_then_in_the_rack_of_the_one_before():
    vms = (Vm("vm1", 1, rack="r1"), Vm("vm2", 1, rack="r2"), Vm("vm3", 1, rack="r1"))
    assert list(mapped(vms, task("a", 2, 0.6, 0.6))) == ["vm1/0", "vm3/0"]
    elsewhere = Weights(network=0.0)
    assert list(mapped(vms, task("a", 2, 0.6, 0.6), weights=elsewhere)) == ["vm1/0", "vm2/0"]


def test_a_thread_takes_the_fullest_slot_that_holds_it():
    tasks = task("a", 1, 0.1, 0.5), task("b", 1, 0.1, 0.7), task("c", 1, 0.1, 0.3)
    assert mapped(vms_of(2), *tasks) == {"vm1/0": [("a", 1)], "vm1/1": [("b", 1), ("c", 1)]}


def test_threads_of_fixed_size_reserve_what_they_need_together():
    ends = TaskAllocation("in", 1.0, 2, 0.8, 0.8, rest_threads=2, rest_cpu=0.8, rest_memory=0.8, static=True)
    assert mapped(vms_of(1, 1), ends, task("a", 1, 0.1, 0.5)) == {
        "vm1/0": [("in", 1), ("a", 1)],
        "vm2/0": [("in", 1)],
    }


def test_pinned_threads_stay_where_they_fit():
    pins = {"a": (Slot("vm2", 1), Slot("vm9", 0))}
    assert mapped(vms_of(2, 2), task("a", 2, 0.5, 0.5), pinned=pins)["vm2/1"] == [("a", 2)]
    pins = {"a": (Slot("vm2", 0), Slot("vm2", 0))}
    assert mapped(vms_of(1, 2), task("a", 2, 0.5, 0.6), pinned=pins)["vm2/0"] == [("a", 1)]


def test_excluded_slots_give_neither_memory_nor_cpu():
    room = {"excluded": frozenset({Slot("vm1", 0), Slot("vm2", 0)})}
    assert mapped(vms_of(2, 1), task("a", 2, 0.5, 0.5), **room) == {"vm1/1": [("a", 2)]}
    with pytest.raises(Infeasible):
        mapped(vms_of(2, 1), task("a", 3, 0.5, 0.1), **room)


def test_without_a_slot_there_is_no_mapping():
    with pytest.raises(Infeasible, match="no VM holds"):
        mapped((), task("a", 1, 0.1, 0.1))


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_weights_are_numbers_of_at_least_zero(weight):
    request = PlanRequest(
        Topology("t", (Task("pi"),)), PUBLISHED, 10.0, vms_of(4), mapper="rsm", weights=Weights(cpu=weight)
    )
    with pytest.raises(InvalidInput) as refused:
        make_plan(request)
    assert [fault.split(":")[0] for fault in refused.value.faults] == ["weights.cpu"]


# ── as the paper has it ─────────────────────────────────────────────────────────────────────────


# ── any world ───────────────────────────────────────────────────────────────────────────────────


def by_definition(allocation: Allocation, room: Room) -> dict[tuple[Slot, str], int] | None:
    """Alg. 5 as it stands, looking at every VM for every thread; None when it fails."""
    slots = {vm.vm: {s: 1.0 for s in vm.all_slots() if s not in room.excluded} for vm in room.vms}
    vms = [vm for vm in room.vms if slots[vm.vm]]
    cpu = {vm.vm: float(len(slots[vm.vm])) for vm in vms}
    memory = dict(cpu)
    placed: dict[tuple[Slot, str], int] = {}
    left = {t.task: t.threads for t in allocation.tasks}

    def fits(vm: str, slot: Slot, c: float, m: float) -> bool:
        return cpu[vm] >= c - EPSILON and slots[vm][slot] >= m - EPSILON

    def put(slot: Slot, name: str, c: float, m: float) -> None:
        cpu[slot.vm] -= c
        memory[slot.vm] -= m
        slots[slot.vm][slot] -= m
        placed[slot, name] = placed.get((slot, name), 0) + 1
        left[name] -= 1

    def distance(vm: Vm, reference: Vm, c: float, m: float) -> float:
        spare_m, spare_c = max(memory[vm.vm] - m, 0.0), max(cpu[vm.vm] - c, 0.0)
        network = 0.0 if vm == reference else 0.5 if vm.rack == reference.rack else 1.0
        weights = room.weights
        return (
            weights.memory * spare_m * spare_m + weights.cpu * spare_c * spare_c + weights.network * network
        )

    needs = [(t.task, t.cpu_slots / t.threads, t.memory_slots / t.threads) for t in allocation.tasks]
    for name, c, m in needs:
        for slot in room.pinned.get(name, ())[: left[name]]:
            if slot in slots.get(slot.vm, {}) and fits(slot.vm, slot, c, m):
                put(slot, name, c, m)
    reference = vms[0] if vms else None
    while any(left.values()):
        for name, c, m in needs:
            if not left[name]:
                continue
            holding = [vm for vm in vms if any(fits(vm.vm, slot, c, m) for slot in slots[vm.vm])]
            if not holding:
                return None
            reference = min(holding, key=lambda vm: distance(vm, reference, c, m))
            fitting = [slot for slot in slots[reference.vm] if fits(reference.vm, slot, c, m)]
            put(min(fitting, key=lambda slot: slots[slot.vm][slot]), name, c, m)
    return placed


def threads_of(placement: Placement) -> dict[tuple[Slot, str], int]:
    return {(bundle.slot, bundle.task): bundle.threads for bundle in placement.bundles}


@st.composite
def crowds(draw: st.DrawFn) -> tuple[Allocation, Room]:
    """Up to 6 tasks of up to 40 threads for up to 60 VMs in up to 3 racks, a slot or two excluded."""
    need = st.integers(0, 60).map(lambda hundredths: hundredths / 100)
    tasks = tuple(
        task(f"t{n}", draw(st.integers(1, 40)), draw(need), draw(need))
        for n in range(draw(st.integers(1, 6)))
    )
    racks, sizes = st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 4)
    vms = tuple(
        Vm(f"vm{number}", slots, rack=rack)
        for number, (slots, rack) in enumerate(
            draw(st.lists(st.tuples(sizes, racks), min_size=1, max_size=60))
        )
    )
    weight = st.sampled_from([0.0, 0.5, 1.0, 1.0, 3.0])
    excluded = draw(st.frozensets(st.sampled_from([s for vm in vms for s in vm.all_slots()]), max_size=2))
    weights = Weights(draw(weight), draw(weight), draw(weight))
    return Allocation("lsa", 1.0, tasks, 1), Room(vms, excluded, {}, weights)


def planned(request: PlanRequest, allocator: str) -> tuple[Allocation, Room]:
    """With pins."""
    allocation = ALLOCATORS[allocator].allocate(
        request.topology, request.models, min(request.rate_tps, 200.0)
    )
    return allocation, Room((*request.vms, *request.may_add), request.excluded, request.pinned)


@checked
@given(crowds() | st.builds(planned, requests(), st.sampled_from(["lsa", "mba"])))
def test_it_places_as_a_look_at_every_vm_would(crowd):
    allocation, room = crowd
    expected = by_definition(allocation, room)
    try:
        assert threads_of(rsm(allocation, room)) == expected
    except Infeasible:
        assert expected is None


@checked
@given(models("a"), st.floats(0.1, 300.0), st.sampled_from(["lsa", "mba"]))
def test_acquiring_stops_at_the_first_count_that_fits(model, rate, allocator):
    """Up to sixteen slots more than ρ; a thread that no slot holds is refused."""
    request = PlanRequest(
        Topology("t", (Task("a"),)), {"a": model}, rate, (), allocator=allocator, mapper="rsm"
    )
    try:
        plan = plan_acquiring(request, SIZES)
    except Infeasible as error:
        assert "no VM holds" in (error.cause or "")
        assert model.points[0].memory > 1
        return
    assert plan.slots.total == sum(vm.slots for vm in plan.vms) == plan.slots.estimated + plan.slots.extra
    if 0 < plan.slots.extra <= 16 and plan.slots.estimated:
        fewer = Room(exact(plan.slots.total - 1, SIZES))
        assert by_definition(plan.allocation, fewer) is None
