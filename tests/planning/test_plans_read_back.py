"""A plan written to a file is read back as the same plan, and its placement predicts the same."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from worlds import chain, checked, model_of, requests, vms_of

from headgate.controller.knowledge.plan_data import (
    placement_of,
    plan_data,
    plan_of,
    prediction_data,
    read_back,
)
from headgate.controller.offline.traffic_told import traffic_told
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.predict import predict
from headgate.topology_runtime.errors import Infeasible, InvalidInput


def planned(request: PlanRequest):
    try:
        return best_plan(request)
    except Infeasible:
        return None


@checked
@given(requests())
def test_what_was_written_is_read_back(request):
    plan = planned(request)
    assume(plan is not None)
    text = json.dumps(plan_data(plan), allow_nan=False)
    assert plan_of(json.loads(text)) == plan


@checked
@given(requests())
def test_the_placement_of_a_plan_predicts_what_the_plan_does(request):
    plan = planned(request)
    assume(plan is not None and plan.rate_tps > 0)
    placement, vms = placement_of(json.loads(json.dumps(plan_data(plan))), request.topology)
    found = predict(request.topology, request.models, placement, vms, plan.rate_tps)
    assert prediction_data(found) == prediction_data(plan.prediction)


TOPOLOGY = chain("a", "b", ends=True)
MODELS = {name: model_of(name, (1, 10.0, 0.4, 0.1), (3, 20.0, 1.0, 0.2)) for name in ("a", "b")}
WRITTEN = json.loads(json.dumps(plan_data(make_plan(PlanRequest(TOPOLOGY, MODELS, 45.0, vms_of(4, 4))))))


def places(data: Any) -> list[tuple[Any, ...]]:
    """The way to every value of `data`, as keys and positions."""
    if not isinstance(data, dict | list):
        return []
    keys = list(data) if isinstance(data, dict) else list(range(len(data)))
    return [(key, *rest) for key in keys for rest in [(), *places(data[key])]]


odd = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@checked
@given(st.sampled_from(places(WRITTEN)), odd | st.just("…"))
def test_whatever_stands_in_a_file_is_read_or_refused_in_words(place, value):
    data = copy.deepcopy(WRITTEN)
    holder = data
    for key in place[:-1]:
        holder = holder[key]
    if value == "…":
        del holder[place[-1]]
    else:
        holder[place[-1]] = value
    for read in (plan_of, lambda data: placement_of(data, TOPOLOGY)):
        try:
            read(data)
        except InvalidInput as error:
            assert error.faults


@checked
@given(requests())
def test_the_traffic_of_a_plan_is_read_back_with_it(request):
    plan = planned(request)
    assume(plan is not None)
    told = traffic_told(plan, request.topology)
    text = json.dumps(plan_data(plan, told), allow_nan=False)
    assert read_back(json.loads(text)) == (plan, told)
    assert read_back(json.loads(json.dumps(plan_data(plan)))) == (plan, None)


def test_what_is_wrong_with_a_block_of_traffic_is_told_with_its_place():
    data = copy.deepcopy(WRITTEN)
    data["traffic"] = {"measured": "no", "rows_tps": -1, "between_slots_tps": 1, "edges": [{"from": "a"}]}
    with pytest.raises(InvalidInput) as refused:
        plan_of(data)
    told = "\n".join(refused.value.faults)
    for place in ("traffic.measured", "traffic.rows_tps", "traffic.between_vms_tps", "traffic.edges[0].to"):
        assert place in told
