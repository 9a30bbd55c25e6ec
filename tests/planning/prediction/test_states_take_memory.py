"""States are a stock: whoever has twice the ranges holds twice the state, and no slot is planned over its memory. By an
own calculation, which takes models as straight lines between their points."""

from __future__ import annotations

import random

import numpy as np
import pytest
from moving_worlds import threads_in, worlds
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Plan, TaskState
from headgate.controller.models.task_models import Model
from headgate.controller.plan.planner import PlanRequest, carrying_plan, make_plan
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.schedulers import pairs
from headgate.controller.plan.steadiness import as_it_is
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

SLOT = vms_of(1)[0].slot_memory_bytes


def held_by_model(model: Model, threads: int) -> float:
    counts, memory = zip(*((point.threads, point.memory) for point in model.points), strict=True)
    whole, rest = divmod(threads, counts[-1])
    return whole * memory[-1] + float(np.interp(rest, (0, *counts), (0.0, *memory)))


def held(request: PlanRequest, plan: Plan) -> tuple[dict[Slot, float], dict[Slot, float]]:
    """Slot → part of its memory: models' in full, tasks of fixed size, and states by the rows that come there; and the
    part of states alone."""
    found = dict.fromkeys((bundle.slot for bundle in plan.placement.bundles), 0.0)
    states = dict.fromkeys(found, 0.0)
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    for bundle in plan.placement.bundles:
        static = request.topology.by_name[bundle.task].static
        if static is not None:
            found[bundle.slot] += static.memory * bundle.threads / static.threads
            continue
        found[bundle.slot] += held_by_model(request.models[bundle.task], bundle.threads)
        for state in request.states:
            if state.task == bundle.task:
                states[bundle.slot] += state.memory_bytes * shares[bundle.slot, bundle.task] / SLOT
    most = request.state_most_bytes / SLOT or 0.5
    states = {slot: min(most, part) for slot, part in states.items()}
    return {slot: part + states[slot] for slot, part in found.items()}, states


def with_states(seed: int, request: PlanRequest) -> PlanRequest:
    rng = random.Random(seed)
    states = []
    for task in request.topology.tasks:
        if task.static is None:
            size = int(rng.uniform(0.05, 1.5) * SLOT)
            states.append(TaskState(task.name, size, size))
    models = {
        name: replace(
            model,
            more={"measured_at": "then", "worker_bytes": 1.0},
            points=tuple(replace(p, memory=0.6 * p.memory) for p in model.points),
        )
        for name, model in request.models.items()
    }
    return replace(request, models=models, states=tuple(states))


@pytest.mark.parametrize(
    "pair", [pair for pair in pairs() if "optimal" not in pair or pair == "optimal+optimal"]
)
def test_no_slot_is_planned_over_its_memory_with_the_states_in_it(pair):
    fitted = 0
    for seed, asked in worlds(pair, range(2 if "optimal" in pair else 8), keyed=True):
        request = with_states(seed, asked)
        try:
            plan, _ = carrying_plan(request)
        except Infeasible:
            continue
        fitted += 1
        mine, states = held(request, plan)
        assert max(mine.values()) <= 1 + 1e-6, (seed, mine)
        without = predict(
            request.topology, request.models, plan.placement, plan.vms, plan.prediction.at_rate_tps
        )
        for use, bare in zip(plan.prediction.slots, without.slots, strict=True):
            assert use.memory - bare.memory == pytest.approx(states[Slot(use.vm, use.slot)], abs=1e-6)
        assert faults_of(plan, request.topology, request.models) == []
        assert plan_of(plan_data(plan)).prediction == plan.prediction
    assert fitted or pair.split("+")[1] in ("dsm", "topology"), (
        "of those that look at no memory few plans hold"
    )


TOPOLOGY = chain("count", grouping="fields", key=0)
TOPOLOGY = replace(TOPOLOGY, tasks=tuple(replace(task, state="keyed") for task in TOPOLOGY.tasks))
MODELS = {"count": model_of("count", (1, 100, 0.5, 0.05), (2, 190, 0.9, 0.1))}
MODELS["count"] = replace(MODELS["count"], more={"measured_at": "then", "worker_bytes": 1.0})


def planned(rate_tps: float, part: float, **more: object) -> Plan:
    states = (TaskState("count", int(part * SLOT), int(part * SLOT)),)
    request = PlanRequest(TOPOLOGY, MODELS, rate_tps, vms_of(8), states=states, **more)  # type: ignore[arg-type]
    return carrying_plan(request)[0]


def test_the_memory_of_states_is_shared_as_rows_are_and_not_by_the_thread():
    alone, two = planned(100.0, 0.4), planned(380.0, 0.4)
    assert [use.memory for use in alone.prediction.slots] == [pytest.approx(0.05 + 0.4)]
    assert [use.memory for use in two.prediction.slots] == [pytest.approx(0.1 + 0.2)] * 2


def test_more_state_than_a_slot_may_keep_in_memory_counts_as_that():
    assert planned(100.0, 3.0).prediction.slots[0].memory == pytest.approx(0.05 + 0.5)
    most = planned(100.0, 3.0, state_most_bytes=SLOT // 4)
    assert most.prediction.slots[0].memory == pytest.approx(0.05 + 0.25)


def test_states_that_have_outgrown_their_slots_do_not_stay_as_they_are():
    models = {"count": replace(MODELS["count"], points=(replace(MODELS["count"].points[0], memory=0.6),))}
    request = PlanRequest(TOPOLOGY, models, 90.0, vms_of(8))
    before = carrying_plan(request)[0]
    assert threads_in(before.placement)
    small, large = (TaskState("count", 1, int(part * SLOT)) for part in (0.3, 0.45))
    assert as_it_is(replace(request, states=(small,)), before) is not None
    assert as_it_is(replace(request, states=(large,)), before) is None


def test_a_task_that_fits_into_no_slot_with_its_states_is_refused_in_words():
    models = {"count": replace(MODELS["count"], points=(replace(MODELS["count"].points[0], memory=0.6),))}
    with pytest.raises(Infeasible, match="states"):
        carrying_plan(PlanRequest(TOPOLOGY, models, 90.0, vms_of(8), states=(TaskState("count", 1, SLOT),)))


def test_threads_that_could_stay_are_not_put_where_states_leave_no_room():
    """Of plans with fewer moves some held more than their slots have, and were refused as unsound."""
    topology = chain("a", "b", "c", ends=True)
    models = {name: model_of(name, (1, peak, 0.2, 0.2)) for name, peak in (("a", 60), ("b", 60), ("c", 120))}
    models = {name: replace(model, more=MODELS["count"].more) for name, model in models.items()}
    request = PlanRequest(topology, models, 100.0, vms_of(4, 4), allocator="optimal", mapper="optimal")
    before = make_plan(request)
    states = (TaskState("a", int(0.3 * SLOT), int(0.3 * SLOT)),)
    asked = replace(request, rate_tps=40.0, vms=before.vms, in_force=before.placement, states=states)
    plan = make_plan(asked)
    assert max(held(asked, plan)[0].values()) <= 1 + 1e-6
    assert faults_of(plan, topology, models) == []
