"""What slots hold in memory: imports once, threads each, the bare worker where it is known."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from worlds import chain, model_of

from headgate.controller.knowledge.plans import Bundle, Placement
from headgate.controller.plan.resident import held_memory, resident_memory
from headgate.topology_runtime.cluster import Slot, Vm

SIZE = 3_758_096_384
A = replace(model_of("a", (1, 10, 0.5, 0.10), (11, 50, 0.9, 0.20)), more={"base_memory": 0.09})
B = replace(model_of("b", (1, 10, 0.5, 0.06)), more={"base_memory": 0.05})
FLOW = chain("a", "b", ends=True)
FIRST, SECOND = Slot("vm1", 0), Slot("vm1", 1)
PLACED = Placement(
    (Bundle(FIRST, "source", 1), Bundle(FIRST, "a", 11), Bundle(FIRST, "b", 1), Bundle(SECOND, "b", 1))
)


def test_what_two_tasks_import_is_counted_once():
    held = resident_memory(PLACED, FLOW, {"a": A, "b": B})
    assert held[FIRST] == pytest.approx((0.09 + 0.11 + 0.01) * SIZE)
    assert held[SECOND] == pytest.approx(0.06 * SIZE)


def test_the_bare_worker_and_tasks_of_fixed_size_are_held_too():
    known = {"a": replace(A, more={**A.more, "worker_bytes": SIZE // 100}), "b": B}
    held = held_memory(PLACED, FLOW, known, [Vm("vm1", 2)])
    assert held[FIRST] == pytest.approx(0.01 + 0.21 + 0.15, rel=1e-6)
    assert held[SECOND] == pytest.approx(0.01 + 0.06, rel=1e-6)


@pytest.mark.parametrize("worker_bytes", [None, 0, "much", True])
def test_without_a_known_worker_nothing_is_claimed(worker_bytes):
    known = {"a": replace(A, more={"worker_bytes": worker_bytes}), "b": B}
    assert held_memory(PLACED, FLOW, known, [Vm("vm1", 2)]) == {}
