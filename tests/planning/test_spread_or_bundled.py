"""Why `compare` predicts MBA+DSM above MBA+SAM on eight slots: right by the models, as linear programs written here
say of the same placements, because DSM cuts bundles up and uses what full bundles leave of their slots."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace
from scipy.optimize import linprog

from headgate.controller.files.model_files import read_models
from headgate.controller.plan.highest import highest_plan
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.examples import MODELS, example
from headgate.topology_runtime.loading import load

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
    """Above 110 tuples/s SAM needs a ninth slot: it keeps rests of bundles whole, and out of full bundles' slots."""
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
