"""Why a plan is as it is: the reasons must be those of the plan itself, checked by hand and by recount."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from msgspec.structs import replace
from scipy.optimize import linprog
from worlds import chain, checked, checked_few, model_of, requests, vms_of

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import EPSILON
from headgate.controller.plan.allocators.lsa import lsa
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.mappers.sam import NAMED
from headgate.controller.plan.plan_reasons import (
    ceilings,
    choices_of,
    limit_reason,
    supported,
    threads_reasons,
)
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.scaling import highest_plan
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.shipped_examples import MODELS, example
from headgate.topology_runtime.api.topology import Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible

TABLE = model_of("table", (1, 3, 0.1, 0.01), (10, 10, 0.11, 0.03), (40, 20, 0.27, 0.09), (60, 40, 0.54, 0.16))
BUSY = model_of("busy", (1, 100, 0.8, 0.2))


def planned(rate_tps: float, *slots: int, **more: str):
    request = PlanRequest(chain("table"), {"table": TABLE}, rate_tps, vms_of(*slots), **more)
    return make_plan(request), request.topology, request.models


def test_threads_of_mba_are_full_bundles_and_a_rest():
    topology = chain("table")
    (why,) = threads_reasons(mba(topology, {"table": TABLE}, 100.0), topology, {"table": TABLE})
    assert (why.rule, why.peak_tps, why.peak_threads, why.full_bundles) == ("bundles", 40, 60, 2)
    assert (why.rest_tps, why.rest_threads, why.rest_peak_tps) == (20, 40, 20)
    assert why.threads == why.full_bundles * why.peak_threads + why.rest_threads == 160


def test_whole_bundles_leave_no_rest():
    topology = chain("table")
    (why,) = threads_reasons(mba(topology, {"table": TABLE}, 80.0), topology, {"table": TABLE})
    assert (why.full_bundles, why.rest_tps, why.rest_threads, why.rest_peak_tps) == (2, 0, 0, None)


def test_other_reasons_for_threads():
    tasks = (
        Task("in", static=Static(2, 0.1, 0.2)),
        Task("table"),
        Task("alone", model="table", exclusive=True),
    )
    topology = Topology("t", tasks, chain("in", "table", "alone").edges)
    found = threads_reasons(lsa(topology, {"table": TABLE}, 2.5), topology, {"table": TABLE})
    assert [(why.task, why.rule, why.threads, why.one_thread_tps) for why in found] == [
        ("in", "fixed", 2, None),
        ("table", "linear", 1, 3),
        ("alone", "lone", 1, 3),
    ]


def test_slots_of_sam_by_hand():
    """in: 0.9 of the first slot. a: a full bundle, alone, and a rest that does not fit beside in. b: fits
    beside that rest only."""
    tasks = (Task("in", static=Static(1, 0.9, 0.1)), Task("a"), Task("b"))
    topology = Topology("t", tasks, chain("in", "a", "b").edges)
    models = {
        "a": model_of("a", (1, 10, 0.4, 0.1), (2, 20, 0.7, 0.1)),
        "b": model_of("b", (1, 100, 1.0, 0.1)),
    }
    plan = make_plan(PlanRequest(topology, models, 25.0, vms_of(4)))
    made = choices_of(plan)
    assert [(c.task, c.rule, str(c.at.slot)) for c in made] == [
        ("in", "empty", "vm1/0"),
        ("a", "full", "vm1/1"),
        ("b", "empty", "vm1/2"),
        ("a", "best fit", "vm1/2"),
    ]
    rest = made[-1]
    assert (rest.threads, rest.cpu, rest.memory) == (1, pytest.approx(0.2), pytest.approx(0.05))
    assert (rest.at.cpu, rest.at.memory) == (pytest.approx(0.75), pytest.approx(0.975))
    assert [(str(free.slot), free.cpu) for free in rest.passed_over] == [("vm1/0", pytest.approx(0.1))]
    assert rest.runners_up == ()


def anywhere(request: PlanRequest) -> PlanRequest:
    """Nothing excluded, nothing pinned."""
    return replace(request, excluded=frozenset(), pinned={})


def fits(free: list[float], cpu: float, memory: float) -> bool:
    return free[0] >= cpu - 2 * EPSILON and free[1] >= memory - 2 * EPSILON


@checked
@given(requests())
def test_choices_tell_what_was_free_and_take_the_best_fit(request):
    plan = best_plan(anywhere(request))
    made = choices_of(plan)
    assert bool(made) == (plan.mapper == "sam")
    free: dict[Slot, list[float]] = {}
    for choice in made:
        before = free.setdefault(choice.at.slot, [1.0, 1.0])
        assert [choice.at.cpu, choice.at.memory] == pytest.approx(before)
        if choice.rule in ("full", "empty"):
            assert before == [1.0, 1.0]
        opened = {slot: left for slot, left in free.items() if slot != choice.at.slot and left != [1.0, 1.0]}
        shared = {slot: left for slot, left in opened.items() if left != [0.0, 0.0]}
        others = [left for left in shared.values() if fits(left, choice.cpu, choice.memory)]
        if choice.rule == "best fit":
            assert all(sum(left) >= sum(before) - 4 * EPSILON for left in others)
            assert len(choice.runners_up) <= NAMED
            assert all(fits([f.cpu, f.memory], choice.cpu, choice.memory) for f in choice.runners_up)
            assert not any(f.cpu >= choice.cpu and f.memory >= choice.memory for f in choice.passed_over)
        free[choice.at.slot] = [before[0] - choice.cpu, before[1] - choice.memory]
    placed = {(bundle.slot, bundle.task): bundle.threads for bundle in plan.placement.bundles}
    for choice in made:
        placed[choice.at.slot, choice.task] -= choice.threads
    assert not made or not any(placed.values())


def test_no_choices_are_made_up_for_a_plan_of_another_room():
    tasks = (Task("in", static=Static(1, 0.1, 0.1)), Task("a", model="busy"))
    topology = Topology("t", tasks, chain("in", "a").edges)
    request = PlanRequest(topology, {"busy": BUSY}, 50.0, vms_of(3), pinned={"in": (Slot("vm1", 2),)})
    assert choices_of(make_plan(request)) == ()
    assert choices_of(make_plan(replace(request, pinned={}, mapper="dsm"))) == ()
    assert len(choices_of(make_plan(replace(request, pinned={})))) == 2


def test_even_routing_that_starves_a_slot_is_named_as_the_limit():
    why = limit_reason(*planned(100.0, 4, routing="shuffle"))
    assert (why.by, why.task, why.slot, why.threads, why.peak_tps) == ("routing", "table", "vm1/2", 40, 20)
    assert (why.rate_tps, why.share, why.weighted_tps) == (pytest.approx(80), 0.25, pytest.approx(100))


def test_threads_at_their_peak_are_named_as_the_limit():
    why = limit_reason(*planned(100.0, 4))
    assert (why.by, why.slot, why.threads, why.task_slots) == ("peak", "vm1/0", 60, 3)
    assert why.weighted_tps is None
    assert limit_reason(*planned(80.0, 4, routing="shuffle")).by == "peak"


def test_a_slot_without_cpu_is_named_as_the_limit():
    topology, models = chain("a", "b"), {"a": BUSY, "b": BUSY}
    plan = make_plan(PlanRequest(topology, models, 50.0, vms_of(1)))
    why = limit_reason(plan, topology, models)
    assert (why.by, why.task, why.slot) == ("cpu", "a", "vm1/0")
    assert (why.rate_tps, why.slot_cpu) == (pytest.approx(62.5), pytest.approx(1.0))


def test_where_nothing_is_modelled_nothing_limits():
    topology = Topology("t", (Task("in", static=Static(1, 0.5, 0.5)),))
    plan = make_plan(PlanRequest(topology, {}, 42.0, vms_of(1)))
    why = limit_reason(plan, topology, {})
    assert (why.by, why.task, why.slot, ceilings(plan, topology, {})) == (None, None, None, ())


def test_behind_an_all_edge_the_weakest_thread_is_the_ceiling():
    topology = chain("a", "b", grouping="all")
    models = {
        "a": model_of("a", (1, 1000, 0.1, 0.1)),
        "b": model_of("b", (1, 100, 0.5, 0.1), (2, 120, 0.6, 0.1)),
    }
    plan = make_plan(PlanRequest(topology, models, 10.0, vms_of(3)))
    slots = vms_of(3)[0].all_slots()
    spread = (Bundle(slots[0], "a", 1), Bundle(slots[1], "b", 2), Bundle(slots[2], "b", 1))
    found = ceilings(replace(plan, placement=Placement(spread)), topology, models)
    assert [(ceiling.task, ceiling.rate_tps) for ceiling in found] == [("b", 60), ("a", 1000)]


@checked_few
@given(requests())
def test_the_lowest_ceiling_is_what_weights_carry_when_slots_share_nothing(request):
    plan = best_plan(replace(anywhere(request), interference="none"))
    lowest = min(ceiling.rate_tps for ceiling in ceilings(plan, request.topology, request.models))
    assert plan.prediction.rate_tps == pytest.approx(lowest)
    with_cpu = predict(request.topology, request.models, plan.placement, plan.vms)
    assert with_cpu.rate_tps <= lowest * (1 + 1e-6)


@checked_few
@given(requests(routing="shuffle"))
def test_a_limit_is_the_predictions_own(request):
    plan = best_plan(anywhere(request))
    why = limit_reason(plan, request.topology, request.models)
    found = plan.prediction
    assert (why.rate_tps, why.task, why.slot) == (found.rate_tps, found.limited_by, found.limited_by_slot)
    best = supported(plan, request.topology, request.models, "weighted").rate_tps
    assert why.weighted_tps == best
    if why.by == "routing":
        assert best > found.rate_tps


# ── Why `compare` predicts MBA+DSM above MBA+SAM on eight slots: right by the models, as linear programs
# written here say of the same placements, because DSM cuts bundles up and uses what full bundles leave
# of their slots.

KNOWN = read_models(MODELS)
LINEAR = load(str(example("linear"))).topology


def curve(task, what, threads):
    points = KNOWN[task].points
    return float(
        np.interp(threads, [0, *(p.threads for p in points)], [0, *(getattr(p, what) for p in points)])
    )


def most_that_is_carried(plan, shared_cpu=True):
    """The highest Ω, with rows shared out as well as can be: peaks hold, and each slot's CPU if it is shared."""
    bundles = [b for b in plan.placement.bundles if LINEAR.by_name[b.task].static is None]
    unit, columns = LINEAR.rates(1.0), len(bundles) + 1
    totals, limits, most = [], [], []
    for task in {b.task for b in bundles}:
        totals.append([1.0 if b.task == task else 0.0 for b in bundles] + [-unit[task]])
    for slot in {b.slot for b in bundles} if shared_cpu else ():
        each = [curve(b.task, "cpu", b.threads) / curve(b.task, "rate_tps", b.threads) for b in bundles]
        limits.append([cpu if b.slot == slot else 0.0 for cpu, b in zip(each, bundles, strict=True)] + [0.0])
        fixed = [b.task for b in plan.placement.bundles if b.slot == slot and b not in bundles]
        most.append(1.0 - sum(LINEAR.by_name[task].static.cpu for task in fixed))
    bounds = [(0, curve(b.task, "rate_tps", b.threads)) for b in bundles] + [(0, None)]
    found = linprog(
        [0.0] * (columns - 1) + [-1.0], limits or None, most or None, totals, [0.0] * len(totals), bounds
    )
    return -found.fun


def highest(mapper, slots):
    return highest_plan(PlanRequest(LINEAR, KNOWN, 1.0, (Vm("vm1", slots),), mapper=mapper, fixed=True), 1.0)


@pytest.mark.parametrize("slots", [6, 7, 8])
@pytest.mark.parametrize("mapper", ["dsm", "sam"])
def test_what_is_predicted_is_what_the_models_allow(mapper, slots):
    plan = highest(mapper, slots)
    assert plan.prediction.rate_tps == pytest.approx(most_that_is_carried(plan), rel=0.01)


def test_on_eight_slots_bundles_cut_up_use_cpu_that_full_bundles_leave():
    """Above 110 rows/s SAM needs a ninth slot: it keeps rests of bundles whole, and out of full bundles' slots."""
    dsm, sam = highest("dsm", 8), highest("sam", 8)
    assert dsm.prediction.rate_tps > sam.prediction.rate_tps
    request = PlanRequest(LINEAR, KNOWN, sam.rate_tps + 1.0, (Vm("vm1", 8),), fixed=True)
    with pytest.raises(Infeasible):
        make_plan(request)
    assert make_plan(replace(request, vms=(Vm("vm1", 9),)))
    left = [1 - curve(b.task, "cpu", b.threads) for b in sam.placement.bundles if b.full]
    assert sum(left) > 1.5
    slots = {b.slot for b in dsm.placement.bundles}
    assert all(len([b for b in dsm.placement.bundles if b.slot == slot]) > 1 for slot in slots)


def test_what_it_rests_on_is_that_tasks_in_one_slot_share_nothing_but_its_cpu():
    """SAM's full bundles are alone, so for them nothing has to be believed; and it carries what it plans."""
    dsm, sam = highest("dsm", 8), highest("sam", 8)
    assert sam.prediction.rate_tps >= sam.rate_tps * 0.999
    assert dsm.prediction.rate_tps < dsm.rate_tps
