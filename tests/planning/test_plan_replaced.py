"""The plan in force is not replaced by one that carries less, unless it cannot stay."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.core.decide import PlanQuestion, choose
from headgate.controller.execute.diff import diff
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.cluster import Slot

TOPOLOGY = chain("a")
KNOWN = {"a": model_of("a", (1, 10, 0.1, 0.2), (2, 100, 0.9, 0.2))}
# By shuffle five threads carry no more than the one that is alone: 50, where the three pairs of now carry 300.
WORSE = PlanRequest(TOPOLOGY, KNOWN, 205.0, vms_of(4), routing="shuffle")
PRESENT = make_plan(replace(WORSE, rate_tps=300.0))
THREADS = diff((), PRESENT.placement, TOPOLOGY, 1).start


def asked(request: PlanRequest, forced: bool = False) -> str:
    return choose(PlanQuestion(request, THREADS, PRESENT, forced, frozenset(), 100)).action


@pytest.mark.parametrize(("rate", "action"), [(205.0, "none"), (200.0, "enact"), (300.0, "adopt")])
def test_a_plan_that_carries_less_of_the_rate_is_not_used(rate, action):
    assert asked(replace(WORSE, rate_tps=rate)) == action


def test_it_is_used_when_the_present_one_cannot_stay():
    assert asked(WORSE, forced=True) == "enact"
    assert asked(replace(WORSE, excluded=frozenset({Slot("vm1", 0)}))) == "enact"
    assert asked(replace(WORSE, vms=vms_of(4, first=2))) == "enact"
