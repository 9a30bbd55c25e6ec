"""Mappers that look at every slot for every thread say so where that would take minutes, and at once."""

from __future__ import annotations

import time

import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.errors import Infeasible

MODELS = {name: model_of(name, (1, 100, 0.05, 0.01), (10, 1000, 0.5, 0.1)) for name in "ab"}
ASKED = PlanRequest(chain("a", "b"), MODELS, 800_000.0, vms_of(*[4] * 500), routing="shuffle")
AT_ONCE_S = 5.0  # of computing; without a refusal it is minutes


@pytest.mark.parametrize("mapper", ["topology", "traffic", "task-level", "greedy-matching"])
def test_thousands_of_slots_are_refused_in_one_clear_error(mapper):
    began_s = time.process_time()
    with pytest.raises(Infeasible) as refused:
        make_plan(replace(ASKED, mapper=mapper, rate_tps=2_000_000.0, vms=vms_of(*[4] * 1500)))
    assert time.process_time() - began_s < AT_ONCE_S
    told = str(refused.value.cause)
    assert mapper in told and ("more than it does in seconds" in told or "every pair" in told)


def test_top_down_answers_with_thousands_of_slots():
    found = make_plan(replace(ASKED, mapper="top-down"))
    assert found.slots.used >= 800
