"""VMs of several speeds: what a task does there, and plans that load none of them beyond what it has."""

from __future__ import annotations

import heapq
import math
import random

import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.task_models import Model, Point, Spread, peak
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.predict.latency import latency_of
from headgate.controller.plan.predict.vm_speeds import at_speed
from headgate.controller.plan.schedulers import pair_of, pairs
from headgate.controller.plan.verifier import faults_of
from headgate.lab.experiments.verify_plans import random_request
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

COMPUTING = model_of("hash", (1, 100, 1.0, 0.05), (2, 100, 1.0, 0.06))
MODELS = {
    "a": model_of("a", (1, 100, 1.0, 0.05)),
    "b": model_of("b", (1, 50, 1.0, 0.05)),
    "c": model_of("c", (1, 200, 1.0, 0.05)),
}
TOPOLOGY = chain("a", "b", "c", ends=True)
OF_A_ROW = 1 / 100 + 1 / 50 + 1 / 200  # slots of speed 1


def of_speeds(*speeds: float, slots: int = 2) -> tuple[Vm, ...]:
    return tuple(Vm(f"vm{n}", slots, speed=speed) for n, speed in enumerate(speeds, 1))


def carried_by_threads(threads: int, wait_s: float, cpu_s: float, speed: float) -> tuple[float, float]:
    """(rows/s, part of the core in use) of threads that each wait, then take the one core, for 2,000 rows."""
    ready = [(wait_s, thread) for thread in range(threads)]
    heapq.heapify(ready)
    free_s = 0.0
    for _ in range(2000):
        at_s, thread = heapq.heappop(ready)
        free_s = max(free_s, at_s) + cpu_s / speed
        heapq.heappush(ready, (free_s + wait_s, thread))
    return 2000 / free_s, 2000 * cpu_s / speed / free_s


def test_a_computing_task_is_as_fast_as_its_vm():
    half = at_speed(COMPUTING, 0.5)
    assert [(p.threads, p.rate_tps, p.cpu, p.memory) for p in half.points] == [
        (1, 50, 1.0, 0.05),
        (2, 50, 1.0, 0.06),
    ]
    assert at_speed(COMPUTING, 1.0) is COMPUTING


@pytest.mark.parametrize("speed", [0.01, 0.25, 0.5, 0.8, 1.3, 2.0, 100.0])
@pytest.mark.parametrize("wait_ms", [0.0, 1.0, 10.0, 50.0])
def test_a_task_that_waits_is_what_a_simulated_slot_shows(speed, wait_ms):
    wait_s, cpu_s, counts = wait_ms / 1000, 0.002, (1, 2, 5, 10, 40)
    measured = {n: carried_by_threads(n, wait_s, cpu_s, 1.0) for n in counts}
    model = model_of("one", *((n, tps, cpu, 0.1) for n, (tps, cpu) in measured.items()))
    moved = at_speed(model, speed)
    for point in moved.points:
        tps, cpu = carried_by_threads(point.threads, wait_s, cpu_s, speed)
        assert point.rate_tps == pytest.approx(tps, rel=0.02)
        assert point.cpu == pytest.approx(cpu, rel=0.02)
        assert point.memory == 0.1


def test_spreads_and_the_cost_of_a_wake_go_along():
    points = (Point(1, 100.0, 1.0, 0.1, Spread(rate_tps=10.0, cpu=0.1, memory=0.02)),)
    slow = at_speed(replace(COMPUTING, points=points, more={"wake_cpu": 0.001, "waiting": True}), 0.5)
    assert slow.points[0].spread == Spread(rate_tps=5.0, cpu=0.1, memory=0.02)
    assert slow.wake.cpu == 0.002 and slow.wake.waits


def test_a_slow_vm_is_planned_for_what_it_carries():
    (vm,) = of_speeds(0.5, slots=8)
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 80.0, (vm,)))
    fast = make_plan(PlanRequest(TOPOLOGY, MODELS, 160.0, (replace(vm, speed=1.0),)))
    ends = 2 * 0.1  # what the source and the sink reserve is twice as much of a slow slot
    assert plan.slots.used == math.ceil(80 * OF_A_ROW / 0.5 + ends)
    assert plan.prediction.rate_tps >= 80
    assert all(use.cpu <= 1 + 1e-9 for use in plan.prediction.slots)
    threads = {task.task: task.threads for task in fast.allocation.tasks}
    assert {task.task: task.threads for task in plan.allocation.tasks} == threads


@pytest.mark.parametrize("rate_tps", [20, 60, 110, 160, 220, 240, 260, 300, 320])
@pytest.mark.parametrize("pair", ["mba+sam", "optimal+optimal"])
def test_of_fast_and_slow_vms_as_few_slots_are_used_as_there_must_be(rate_tps, pair):
    vms = of_speeds(*(1.0, 0.5) * 4)
    allocator, mapper = pair_of(pair)
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, rate_tps, vms, allocator=allocator, mapper=mapper))
    fewest, left = 0, rate_tps * OF_A_ROW + 0.2
    for speed in [1.0] * 8 + [0.5] * 8:
        if left > 1e-9:
            fewest, left = fewest + 1, left - speed
    assert fewest <= plan.slots.used <= fewest + 1
    assert plan.prediction.rate_tps >= rate_tps * (1 - 1e-9)
    assert all(use.cpu <= 1 + 1e-9 for use in plan.prediction.slots)
    assert faults_of(plan, TOPOLOGY, MODELS) == []


def test_a_slow_vm_is_used_last():
    slow, fast = of_speeds(0.3, 1.0)
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 50.0, (slow, fast)))
    assert {bundle.slot.vm for bundle in plan.placement.bundles} == {fast.vm}
    pins = {"source": (Slot(slow.vm, 1),)}
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 40.0, (slow, fast), pinned=pins))
    there = {(bundle.task, str(bundle.slot)) for bundle in plan.placement.bundles}
    assert ("source", "vm1/1") in there
    assert {slot for task, slot in there if slot.startswith("vm1")} == {"vm1/1"}


def test_a_task_of_one_thread_goes_where_one_thread_carries_its_rate():
    topology = Topology(
        "one",
        (Task("source", kind="source", static=Static(1, 0.1, 0.1)), Task("a"), Task("one", exclusive=True)),
        (Edge("source", "a"), Edge("a", "one")),
    )
    models = {"a": model_of("a", (1, 30, 1.0, 0.1)), "one": model_of("one", (1, 100, 1.0, 0.1))}
    vms = (Vm("vm1", 2), Vm("vm2", 6, speed=0.5))
    plan = make_plan(PlanRequest(topology, models, 90.0, vms))
    assert plan.prediction.rate_tps >= 90 and plan.slots.used > 2
    assert next(bundle.slot.vm for bundle in plan.placement.bundles if bundle.task == "one") == "vm1"
    with pytest.raises(Infeasible) as refused:
        make_plan(PlanRequest(topology, models, 90.0, of_speeds(0.5, slots=12)))
    assert "its one thread carries 50" in str(refused.value.faults)


@pytest.mark.parametrize("pair", pairs())
def test_no_scheduler_breaks_its_rules_on_vms_of_any_speed(pair):
    allocator, mapper = pair_of(pair)
    slow_search = allocator == "optimal"
    for seed in range(12 if slow_search else 60):
        chance = random.Random(f"{pair} {seed}")
        request = replace(random_request(chance), allocator=allocator, mapper=mapper)
        vms = tuple(replace(vm, speed=chance.choice((0.5, 0.8, 1.0, 2.0))) for vm in request.vms)
        request = replace(request, vms=vms)
        try:
            plan = make_plan(request)
        except Infeasible:
            continue
        assert faults_of(plan, request.topology, request.models) == [], seed


@pytest.mark.parametrize("speeds", [(0.01, 1.0), (1.0, 100.0), (0.01, 100.0)])
def test_speeds_far_apart_are_planned_with(speeds):
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 20.0, of_speeds(*speeds)))
    assert plan.prediction.rate_tps >= 20
    assert {bundle.slot.vm for bundle in plan.placement.bundles} == {"vm2"}


@pytest.mark.parametrize("speed", [0.0, -1.0, math.nan, math.inf])
def test_a_speed_that_is_none_is_refused(speed):
    with pytest.raises(InvalidInput) as refused:
        make_plan(PlanRequest(TOPOLOGY, MODELS, 20.0, of_speeds(speed)))
    assert "vm1" in str(refused.value.faults) and "speed" in str(refused.value.faults)


def test_the_best_that_slow_vms_carry_is_found():
    plan = best_plan(PlanRequest(TOPOLOGY, MODELS, 1000.0, of_speeds(0.5, slots=4)))
    most = (4 * 0.5 - 0.2) / OF_A_ROW
    assert 0.8 * most < plan.rate_tps <= most


def test_a_plan_says_of_what_slots_it_counts():
    plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 260.0, of_speeds(*(1.0, 0.5) * 4)))
    assert plan.allocation.slot_speed == 0.5
    assert plan_of(plan_data(plan)) == plan
    usual = make_plan(PlanRequest(TOPOLOGY, MODELS, 60.0, vms_of(4)))
    assert "slot_speed" not in plan_data(usual)


def test_rows_take_longer_on_a_slow_vm():
    found = {}
    for speed in (1.0, 0.5):
        vms = of_speeds(speed, slots=8)
        plan = make_plan(PlanRequest(TOPOLOGY, MODELS, 20.0, vms))
        found[speed] = latency_of(TOPOLOGY, MODELS, plan.placement, vms, plan.prediction, 20.0)
    own_ms = 1000 * OF_A_ROW
    assert found[0.5].rows.p50_ms - found[1.0].rows.p50_ms > 0.5 * own_ms


def test_the_peak_of_a_model_rises_with_the_speed():
    chance = random.Random(5)
    for _ in range(200):
        counts = sorted(chance.sample(range(1, 60), 4))
        points = tuple(Point(n, chance.uniform(1, 500), chance.uniform(0.01, 1), 0.1) for n in counts)
        model = Model("any", COMPUTING.slot, points)
        peaks = [peak(at_speed(model, speed))[0] for speed in (0.1, 0.5, 0.9, 1.0, 1.1, 2.0, 10.0)]
        assert peaks == sorted(peaks)
