"""Where SAM and DSM put threads, and which VMs are acquired (paper 0, Alg. 4 and 6, section 7.1)."""

from __future__ import annotations

import pytest
from worlds import vms_of

from headgate.controller.knowledge.plans import Allocation, Placement, TaskAllocation
from headgate.controller.plan.acquire import covering, exact
from headgate.controller.plan.dsm import dsm
from headgate.controller.plan.room import Room
from headgate.controller.plan.sam import sam
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible

SIZES = (Vm("", 1), Vm("", 4), Vm("", 2))


def bundles(
    name: str, full: int, size: int, rest: int = 0, cpu: float = 0.0, memory: float = 0.0
) -> TaskAllocation:
    return TaskAllocation(
        name, 1.0, full * size + rest, full + cpu, full + memory, full, size, rest, cpu, memory
    )


def fixed(name: str, threads: int, cpu: float, memory: float) -> TaskAllocation:
    return TaskAllocation(name, 1.0, threads, cpu, memory, 0, 0, threads, cpu, memory, static=True)


def allocation(*tasks: TaskAllocation, slots: int = 1) -> Allocation:
    return Allocation("mba", 1.0, tasks, slots)


def table(placement: Placement) -> dict[str, list[tuple[str, int]]]:
    """slot → (task, threads)"""
    found: dict[str, list[tuple[str, int]]] = {}
    for bundle in placement.bundles:
        found.setdefault(str(bundle.slot), []).append((bundle.task, bundle.threads))
    return found


def test_sam_on_the_example_of_figure_4():
    """Section 7.4: full bundles of 2, 3, 3 and 4; rests of one thread of blue, orange and green."""
    tasks = allocation(
        bundles("blue", 2, 2, 1, 0.3, 0.3),
        bundles("orange", 1, 3, 1, 0.3, 0.3),
        bundles("yellow", 1, 3),
        bundles("green", 1, 4, 1, 0.3, 0.3),
    )
    assert table(sam(tasks, Room(vms_of(2, 2, 2)))) == {
        "vm1/0": [("blue", 2)],
        "vm1/1": [("orange", 3)],
        "vm2/0": [("yellow", 3)],
        "vm2/1": [("green", 4)],
        "vm3/0": [("blue", 2)],
        "vm3/1": [("blue", 1), ("orange", 1), ("green", 1)],
    }


def test_dsm_on_the_example_of_figure_4():
    """Section 7.2: 5, 4, 3 and 5 threads in turn over six slots."""
    tasks = allocation(*[bundles(n, 0, 0, t) for n, t in (("b", 5), ("o", 4), ("y", 3), ("g", 5))])
    assert table(dsm(tasks, Room(vms_of(2, 2, 2)))) == {
        "vm1/0": [("b", 1), ("o", 1), ("g", 1)],
        "vm1/1": [("b", 1), ("o", 1), ("g", 1)],
        "vm2/0": [("b", 1), ("o", 1), ("g", 1)],
        "vm2/1": [("b", 1), ("y", 1), ("g", 1)],
        "vm3/0": [("b", 1), ("y", 1), ("g", 1)],
        "vm3/1": [("o", 1), ("y", 1)],
    }


def test_a_rest_goes_where_least_is_free_that_holds_it():
    tasks = allocation(
        bundles("a", 0, 9, 1, 0.5, 0.1), bundles("b", 0, 9, 1, 0.6, 0.2), bundles("c", 0, 9, 1, 0.4, 0.1)
    )
    assert table(sam(tasks, Room(vms_of(3)))) == {"vm1/0": [("a", 1)], "vm1/1": [("b", 1), ("c", 1)]}


def test_memory_counts_as_well_as_cpu():
    tasks = allocation(bundles("a", 0, 9, 1, 0.1, 0.7), bundles("b", 0, 9, 1, 0.1, 0.4))
    assert len(table(sam(tasks, Room(vms_of(2))))) == 2


def test_rests_that_fill_a_slot_to_the_brim_fit():
    tasks = allocation(*[bundles(f"t{n}", 0, 9, 1, 0.1, 0.1) for n in range(10)])
    assert list(table(sam(tasks, Room(vms_of(1))))) == ["vm1/0"]


def test_sam_fails_when_slots_run_out():
    with pytest.raises(Infeasible, match="task 'b'"):
        sam(allocation(bundles("a", 1, 2), bundles("b", 0, 2, 1, 0.1, 0.1)), Room(vms_of(1)))


def test_threads_of_a_task_of_fixed_size_fit_in_one_by_one():
    tasks = allocation(fixed("in", 3, 1.5, 0.3))
    assert table(sam(tasks, Room(vms_of(2)))) == {"vm1/0": [("in", 2)], "vm1/1": [("in", 1)]}


def test_excluded_slots_hold_nothing():
    room = Room(vms_of(2, 2), frozenset({Slot("vm1", 0), Slot("vm2", 1)}))
    tasks = allocation(bundles("a", 1, 2), bundles("b", 0, 2, 1, 0.1, 0.1))
    assert list(table(sam(tasks, room))) == ["vm1/1", "vm2/0"]
    assert list(table(dsm(tasks, room))) == ["vm1/1", "vm2/0"]


@pytest.mark.parametrize("mapper", [sam, dsm])
def test_pinned_threads_stay(mapper):
    room = Room(vms_of(2, 2), pinned={"in": (Slot("vm2", 1), Slot("vm1", 0))})
    placement = mapper(allocation(fixed("in", 2, 0.2, 0.2), bundles("a", 1, 5)), room)
    slots = [str(b.slot) for b in placement.bundles if b.task == "in"]
    assert slots == ["vm1/0", "vm2/1"]


def test_a_pinned_thread_moves_from_an_excluded_or_full_slot():
    pins = {"in": (Slot("vm1", 0),), "out": (Slot("vm1", 1),)}
    tasks = allocation(fixed("in", 1, 0.6, 0.1), fixed("out", 1, 0.6, 0.1))
    away = sam(tasks, Room(vms_of(3), frozenset({Slot("vm1", 0)}), pins))
    assert table(away) == {"vm1/1": [("out", 1)], "vm1/2": [("in", 1)]}
    crowded = sam(tasks, Room(vms_of(3), pinned=pins | {"out": (Slot("vm1", 0),)}))
    assert table(crowded) == {"vm1/0": [("in", 1)], "vm1/1": [("out", 1)]}


@pytest.mark.parametrize(
    ("slots", "mix"), [(1, [1]), (3, [2, 1]), (4, [4]), (7, [4, 2, 1]), (15, [4, 4, 4, 2, 1]), (0, [])]
)
def test_exact_acquisition_wastes_nothing(slots, mix):
    assert [vm.slots for vm in exact(slots, SIZES)] == mix


@pytest.mark.parametrize(("slots", "mix"), [(1, [1]), (3, [4]), (5, [4, 1]), (7, [4, 4]), (8, [4, 4])])
def test_covering_acquisition_takes_few_vms(slots, mix):
    vms = covering(slots, SIZES)
    assert [vm.slots for vm in vms] == mix
    assert [vm.vm for vm in vms] == [f"vm{n}" for n in range(1, len(mix) + 1)]


def test_without_single_slots_the_smallest_vm_takes_the_rest():
    assert [vm.slots for vm in exact(7, SIZES[1:])] == [4, 2, 2]
