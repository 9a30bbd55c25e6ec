"""Which VMs get a thread that only answers for snapshots: those with none that could."""

from __future__ import annotations

from headgate.controller.execute.keepers import answering
from headgate.topology_runtime.cluster import Slot, Vm
from headgate.topology_runtime.messages import Keepers, ThreadSpec

VMS = tuple(Vm(f"vm{n}", n, 1.0, 1 << 28) for n in (1, 2))
ONE, FIRST, SECOND = Slot("vm1", 0), Slot("vm2", 0), Slot("vm2", 1)


def held(*homes: tuple[int, str]) -> Keepers:
    return Keepers("tally", 3, ((7, 1024),), True, homes)


def desired(number: int, slot: Slot) -> ThreadSpec:
    return ThreadSpec(number, "sink", slot)


def test_one_on_each_vm_without_a_thread_in_the_place_of_the_first_that_had_a_snapshot() -> None:
    keepers = [held((7, "vm1"), (8, "vm2")), held((9, "vm2"))]
    found = answering(keepers, (), VMS, set())
    assert [(t.thread, t.task, t.slot) for t in found] == [(7, "tally", ONE), (8, "tally", FIRST)]
    assert all(t.leaving and t.answers for t in found)


def test_none_where_another_thread_can_answer() -> None:
    assert answering([held((7, "vm1"))], [desired(1, ONE)], VMS, set()) == ()


def test_a_thread_in_a_quarantined_slot_cannot_answer_and_another_slot_is_taken_if_there_is_one() -> None:
    keepers = [held((7, "vm1"), (8, "vm2"))]
    found = answering(keepers, [desired(1, FIRST)], VMS, {ONE, FIRST})
    assert [t.slot for t in found] == [ONE, SECOND]


def test_none_where_nothing_is_to_be_asked() -> None:
    assert answering([held()], (), VMS, {ONE}) == ()
