"""Mappers that go by what each thread needs, on VMs of several speeds: they have a plan where SAM has one."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from msgspec.structs import replace
from worlds import chain, model_of

from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Allocation, Placement, Plan, TaskAllocation, TaskFlow
from headgate.controller.models.task_models import Model
from headgate.controller.plan.mappers.free_slots import Room
from headgate.controller.plan.mappers.task_groups import task_level_mapper, top_down_mapper
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.schedulers import pair_of, pairs
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.errors import Infeasible

Mapper = Callable[[Allocation, Room], Placement]

TOPOLOGY = chain("a", "b", "c", ends=True)
MODELS = {
    "a": model_of("a", (1, 100, 1.0, 0.05)),
    "b": model_of("b", (1, 50, 1.0, 0.05)),
    "c": model_of("c", (1, 200, 1.0, 0.05)),
}
CLUSTERS = {  # speeds of VMs of two slots, and the most that SAM carries there
    (1.0, 0.5) * 4: 320,
    (1.0, 0.25) * 4: 260,
    (2.0, 1.0, 0.5, 0.25) * 2: 360,
}
OTHERS = [pair for pair in pairs() if not pair.startswith("optimal") and pair != "mba+sam"]
BY_LOAD = [pair for pair in OTHERS if not pair.endswith(("rsm", "dsm", "topology"))]  # of each slot


def vms_of_speeds(speeds: tuple[float, ...]) -> tuple[Vm, ...]:
    return tuple(Vm(f"vm{number}", 2, speed=speed) for number, speed in enumerate(speeds, 1))


def planned(request: PlanRequest, pair: str) -> Plan | None:
    """The plan, sound by the rules of its mapper; None: there is none."""
    allocator, mapper = pair_of(pair)
    try:
        plan = make_plan(replace(request, allocator=allocator, mapper=mapper))
    except Infeasible:
        return None
    assert faults_of(plan, request.topology, request.models) == []
    return plan


@pytest.mark.parametrize("pair", OTHERS)
@pytest.mark.parametrize("speeds", CLUSTERS)
def test_there_is_a_plan_up_to_what_sam_carries(pair: str, speeds: tuple[float, ...]) -> None:
    most_tps = CLUSTERS[speeds]
    for part in (0.25, 0.5, 0.7, 0.75, 0.8, 0.9, 1.0):
        request = PlanRequest(TOPOLOGY, MODELS, part * most_tps, vms_of_speeds(speeds))
        assert planned(request, "mba+sam") is not None
        plan = planned(request, pair)
        assert plan is not None, part
        if pair in BY_LOAD:
            assert plan.prediction.rate_tps >= 0.98 * request.rate_tps, part


@pytest.mark.parametrize("pair", ["mba+rsm", "mba+traffic", "lsa+rsm"])
@pytest.mark.parametrize("speeds", CLUSTERS)
def test_the_best_that_fits_is_no_less_than_what_sam_carries(pair: str, speeds: tuple[float, ...]) -> None:
    """Only one way to count was asked how high a rate could be: 236 of 330 rows/s were told as the most."""
    allocator, mapper = pair_of(pair)
    request = PlanRequest(TOPOLOGY, MODELS, 1000.0, vms_of_speeds(speeds), allocator=allocator, mapper=mapper)
    assert best_plan(request).rate_tps >= 0.99 * CLUSTERS[speeds]


def test_a_plan_says_when_it_counts_otherwise() -> None:
    vms = vms_of_speeds((1.0, 0.5) * 4)
    found = {rate: planned(PlanRequest(TOPOLOGY, MODELS, rate, vms), "mba+traffic") for rate in (60.0, 300.0)}
    assert [plan.allocation.counted[:23] for plan in found.values() if plan] == [
        "",
        "VMs are of several spee",
    ]
    for plan in filter(None, found.values()):
        assert plan_of(plan_data(plan)) == plan


@pytest.mark.parametrize("place", [task_level_mapper, top_down_mapper])
def test_memory_is_held_to_where_slots_have_more_cpu_than_memory(place: Mapper) -> None:
    """By CPU a fast slot has room for eight threads of b, by memory for two; slots of one core would not do."""
    b = TaskAllocation("b", 1.0, threads=4, cpu_slots=2.0, memory_slots=1.6)
    a = TaskAllocation("a", 1.0, threads=5, cpu_slots=5.0, memory_slots=0.25)
    room = Room((Vm("fast", 2, speed=4.0), Vm("slow", 4)), flows=(TaskFlow("a", "b", 1.0),))
    held = place(Allocation("lsa", 1.0, (a, b), 6), room).by_slot().items()
    assert sum(sum(threads.values()) for _, threads in held) == 9
    for slot, threads in held:
        assert 0.4 * threads.get("b", 0) + 0.05 * threads.get("a", 0) <= 1
        assert 0.5 * threads.get("b", 0) + threads.get("a", 0) <= (4 if slot.vm == "fast" else 1)


def models_of(chance: random.Random) -> dict[str, Model]:
    """Tasks that compute, and hold up to three fifths of a slot."""
    return {
        name: model_of(name, (1, chance.uniform(30, 200), 1.0, held := chance.uniform(0.05, 0.4)),
                       (2, chance.uniform(30, 220), 1.0, 1.5 * held))
        for name in "abc"
    }  # fmt: skip


@pytest.mark.parametrize("pair", [pair for pair in OTHERS if pair.startswith("mba")])
def test_of_random_worlds_no_more_are_without_a_plan_than_at_one_speed(pair: str) -> None:
    without = {True: 0, False: 0}
    for seed in range(40):
        chance = random.Random(seed)
        speeds = tuple(chance.choice((0.25, 0.5, 1.0, 1.5, 2.0)) for _ in range(6))
        request = PlanRequest(TOPOLOGY, models_of(chance), chance.uniform(20, 200), vms_of_speeds(speeds))
        for mixed in (True, False):
            vms = request.vms if mixed else tuple(replace(vm, speed=1.0) for vm in request.vms)
            here = replace(request, vms=vms)
            sam = planned(here, "mba+sam")
            if sam is not None and sam.prediction.rate_tps >= request.rate_tps * (1 - 1e-6):
                without[mixed] += planned(here, pair) is None
    assert without[True] <= max(1, without[False]), without
