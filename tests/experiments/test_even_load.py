"""Paper 3's Fig. 4 and 5 on plans: what is counted, and in which order placements come."""

from __future__ import annotations

from collections import Counter

import pytest

from headgate.controller.models.plans import Allocation, TaskAllocation, TaskFlow
from headgate.controller.plan.mappers.free_slots import Room
from headgate.lab.experiments.even_load import measured, placements
from headgate.lab.reproduction.paper_tables import LOGIC
from headgate.topology_runtime.api.cluster import Slot, Vm


def test_what_is_more_than_a_slot_is_used_by_nobody():
    """1.2 of CPU in one of two slots; 0.1 and a row in four go to the other one."""
    tasks = TaskAllocation("a", 1.0, 3, 0.9, 0.1), TaskAllocation("b", 1.0, 4, 0.4, 0.1)
    room = Room((Vm("vm1", 1), Vm("vm2", 1)), flows=(TaskFlow("a", "b", 10.0),))
    held = {Slot("vm1", 0): Counter(a=3, b=3), Slot("vm2", 0): Counter(b=1)}
    found = measured(Allocation("mba", 1.0, tasks, 2), room, held)
    assert found["cpu_utilization"] == pytest.approx((1.0 + 0.1) / 2)
    assert found["words_utilization"] == pytest.approx(0.25)
    assert found["cpu_deviation"] == pytest.approx(0.55 / 0.65)
    assert (found["over"], found["slots"]) == (1.0, 2.0)


@pytest.mark.parametrize("name", ["diamond", "finance"])
def test_greedy_matching_uses_most_of_the_cpu_most_evenly_as_in_figures_4_and_5(name):
    found = placements(LOGIC[name], 100.0, 5)
    for other in ("even", "random"):
        assert found["deviation"]["cpu_utilization"] > found[other]["cpu_utilization"]
        assert found["deviation"]["cpu_deviation"] < found[other]["cpu_deviation"]
        assert found["utilization"]["words_utilization"] > found[other]["words_utilization"]
