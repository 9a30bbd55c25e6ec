"""What no plan can be made of is refused with each fault, before anything is worked out with it; speeds of VMs may be
far apart."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.models.task_models import Point
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan, plan_acquiring
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.errors import InvalidInput

POINT = Point(1, 10.0, 0.1, 0.1)
SOUND = PlanRequest(
    chain("a", "b", ends=True),
    {name: model_of(name, (1, 10.0, 0.1, 0.1), (2, 20.0, 0.2, 0.2)) for name in "ab"},
    15.0,
    vms_of(4, 4),
)
BAD_POINTS = {
    "1 thread takes -1 rows/s": [replace(POINT, rate_tps=-1.0)],
    "1 thread takes 0 rows/s": [replace(POINT, rate_tps=0.0)],
    "1 thread takes nan rows/s": [replace(POINT, rate_tps=math.nan)],
    "1 thread takes inf rows/s": [replace(POINT, rate_tps=math.inf)],
    "-0.1 of a slot's memory": [replace(POINT, memory=-0.1)],
    "nan of a slot's memory": [replace(POINT, memory=math.nan)],
    "-0.1 of a slot's CPU": [replace(POINT, cpu=-0.1)],
    "inf of a slot's CPU": [replace(POINT, cpu=math.inf)],
    "expected points with rising": [],
    "expected points with rising numbers": [POINT, POINT],
    "rising numbers of threads, from 1": [replace(POINT, threads=0)],
}


def refused(asked: PlanRequest) -> str:
    """The first fault, the same whoever plans."""
    found = set()
    for make in (make_plan, best_plan, lambda request: plan_acquiring(request, vms_of(4))):
        with pytest.raises(InvalidInput) as error:
            make(asked)
        found.add(error.value.faults[0])
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(("said", "points"), BAD_POINTS.items())
@pytest.mark.parametrize("pair", [("mba", "sam"), ("lsa", "rsm"), ("optimal", "optimal")])
def test_models_that_no_task_can_have(said, points, pair):
    bad = replace(SOUND.models["a"], points=tuple(points))
    models = {**SOUND.models, "a": bad}
    asked = replace(SOUND, models=models, allocator=pair[0], mapper=pair[1])
    assert refused(asked).startswith("model 'a'") and said in refused(asked)


@pytest.mark.parametrize("key", ["base_memory", "worker_bytes", "frame_cpu", "frame_rows", "wait_spread"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf, "much", None])
def test_what_processes_hold_by_no_sound_model(key, value):
    bad = replace(SOUND.models["a"], more={key: value})
    assert f"{key} is {value!r}" in refused(replace(SOUND, models={**SOUND.models, "a": bad}))


@pytest.mark.parametrize("selectivity", [0.0, -1.0, math.nan, math.inf])
def test_edges_that_nothing_or_no_number_of_rows_passes(selectivity):
    edges = tuple(replace(edge, selectivity=selectivity) for edge in SOUND.topology.edges)
    topology = replace(SOUND.topology, edges=edges)
    assert f"selectivity {selectivity}" in refused(replace(SOUND, topology=topology))


@pytest.mark.parametrize("size", [{"slot_memory_bytes": 0}, {"slot_memory_bytes": -1}, {"slot_cores": 0.0}])
def test_slots_without_memory_or_cores(size):
    asked = replace(SOUND, vms=tuple(replace(vm, **size) for vm in SOUND.vms))
    with pytest.raises(InvalidInput) as error:
        make_plan(asked)
    assert len(error.value.faults) == 2


@pytest.mark.parametrize("pair", [("mba", "sam"), ("lsa", "rsm"), ("optimal", "optimal"), ("mba", "traffic")])
def test_speeds_that_are_ten_thousand_times_apart(pair):
    vms = tuple(replace(vm, speed=speed) for vm, speed in zip(vms_of(4, 4), (0.01, 100.0), strict=True))
    asked = replace(SOUND, vms=vms, allocator=pair[0], mapper=pair[1])
    plan = make_plan(asked)
    assert plan.prediction.rate_tps >= 15.0 and not faults_of(plan, asked.topology, asked.models)
    assert {bundle.slot.vm for bundle in plan.placement.bundles} == {"vm2"}
