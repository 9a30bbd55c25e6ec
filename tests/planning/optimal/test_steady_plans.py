"""Of plans for as few slots the one with the fewest moves, tried against all there are; what goes before moves."""

from __future__ import annotations

from collections import Counter
from itertools import combinations_with_replacement, permutations, product
from math import comb

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from scipy.optimize import linprog
from worlds import chain, examples, model_of, vms_of

from headgate.controller.models.plans import Bundle, Placement, Plan
from headgate.controller.models.task_models import cpu, memory, peak_rate
from headgate.controller.plan.plan_moves import moves, relabel, threads_of
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

OURS = {"allocator": "optimal", "mapper": "optimal"}
ONE_VM = vms_of(8)  # nothing crosses between VMs, and nothing costs more: of as few slots moves alone decide


def contents(plan: Plan) -> list[dict[str, int]]:
    return list(plan.placement.by_slot().values())


def carries(slots, models, rate_tps) -> bool:
    """Can rows be shared out so that every slot's CPU and every group's peak suffice? One variable for each group."""
    groups = [(s, task, n) for s, mix in enumerate(slots) for task, n in mix.items()]
    upper = [(0.0, peak_rate(models[task], n)) for _, task, n in groups]
    used = np.zeros((len(slots), len(groups)))
    fed = np.zeros((len(models), len(groups)))
    for g, (s, task, n) in enumerate(groups):
        used[s, g] = cpu(models[task], n) / peak_rate(models[task], n)
        fed[list(models).index(task), g] = -1.0
    wanted = np.full(len(models), -rate_tps * (1 - 1e-7))
    found = linprog(
        np.zeros(len(groups)), np.vstack([used, fed]), [*np.ones(len(slots)), *wanted], bounds=upper
    )
    return found.status == 0


def fewest_moves(models, rate_tps, slots: int, now: list[dict[str, int]], alone: list[dict[str, int]]) -> int:
    """Of every way to fill so many slots with measured numbers of threads, with what is in a slot now, or would be
    if nothing were in force."""
    counts = [[0, *(point.threads for point in model.points)] for model in models.values()]
    mixes = [{t: n for t, n in zip(models, of, strict=True) if n} for of in product(*counts)] + now
    mixes = [mix for mix in mixes if mix and sum(memory(models[t], n) for t, n in mix.items()) <= 1 + 1e-9]
    mixes += [mix for mix in alone if mix not in mixes]
    there = now + [{}] * max(0, slots - len(now))

    def needed(chosen) -> int:
        started, ended = (sum(sum(mix.values()) for mix in of) for of in (chosen, now))
        kept = max(
            sum((Counter(mix) & Counter(there[at])).total() for mix, at in zip(chosen, places, strict=True))
            for places in permutations(range(len(there)), slots)
        )
        return started + ended - 2 * kept

    assume(comb(len(mixes) + slots - 1, slots) < 3000)
    ways = sorted(combinations_with_replacement(mixes, slots), key=needed)
    return needed(next(way for way in ways if carries(way, models, rate_tps)))


@st.composite
def changes(draw):
    """Models of two tasks, what is planned for first, and then."""
    part = st.integers(1, 9).map(lambda tenths: tenths / 10)
    models = {}
    for name in "ab":
        sizes = sorted(draw(st.sets(st.integers(1, 6), min_size=1, max_size=3)))
        points = [(n, draw(st.integers(10, 60)) * 1.0, draw(part), draw(part)) for n in sizes]
        models[name] = model_of(name, *points)
    first = draw(st.sampled_from(["optimal", "mba"]))
    before_tps = draw(st.integers(10, 80)) * 1.0
    return models, first, before_tps, before_tps * draw(st.sampled_from([0.8, 1.05, 1.1, 1.2, 1.4]))


@given(changes())
@examples(250)
def test_no_plan_of_as_few_slots_moves_fewer_threads(change):
    models, first, before_tps, rate_tps = change
    asked = PlanRequest(chain("a", "b"), models, before_tps, ONE_VM, allocator=first)
    asked = replace(asked, mapper="sam" if first == "mba" else "optimal")
    try:
        before = make_plan(asked)
        plan = make_plan(replace(asked, **OURS, rate_tps=rate_tps, in_force=before.placement))
    except Infeasible:
        assume(False)
    assume(plan.slots.used <= 3 and before.slots.used <= 4)
    assert faults_of(plan, asked.topology, models) == []
    assert plan.prediction.rate_tps >= rate_tps * (1 - 1e-6)
    done = moves(relabel(plan, threads_of(before.placement), frozenset()).placement, before.placement)
    alone = make_plan(replace(asked, **OURS, rate_tps=rate_tps))
    assert done <= fewest_moves(models, rate_tps, plan.slots.used, contents(before), contents(alone))


def planned(rate_tps: float, slots: tuple[int, ...], in_force: Placement | None = None) -> Plan:
    """a and b may each be packed in several ways, and say all they say to each other."""
    models = {
        "a": model_of("a", (1, 50, 0.3, 0.2), (2, 80, 0.5, 0.3), (4, 100, 0.7, 0.5)),
        "b": model_of("b", (1, 60, 0.4, 0.2), (3, 100, 0.6, 0.4)),
    }
    asked = PlanRequest(chain("a", "b"), models, rate_tps, vms_of(*slots), in_force=in_force, **OURS)
    return make_plan(asked)


def test_what_carries_a_lower_rate_in_as_few_slots_stays_as_it_is():
    before = planned(400.0, (8,))
    lower = next(rate for rate in range(399, 0, -1) if planned(rate, (8,)).placement != before.placement)
    assert planned(lower, (8,)).slots.used == before.slots.used
    assert moves(planned(lower, (8,), before.placement).placement, before.placement) == 0


def test_fewer_slots_and_a_lower_price_go_before_moves():
    """What runs takes more slots, or VMs, than the rate needs."""
    before = planned(400.0, (2, 2, 2, 2))
    assert (
        planned(100.0, (2, 2, 2, 2), before.placement).slots.used == planned(100.0, (2, 2, 2, 2)).slots.used
    )
    vms = tuple(replace(one, usd_per_hour=1.0) for one in vms_of(2, 2))
    asked = PlanRequest(chain("a"), {"a": model_of("a", (1, 50, 0.9, 0.2))}, 100.0, vms, **OURS)
    apart = Placement((Bundle(Slot("vm1", 0), "a", 1), Bundle(Slot("vm2", 0), "a", 1)))
    assert len(make_plan(replace(asked, in_force=apart)).vms) == 1


def test_less_between_vms_goes_before_moves():
    """Both threads of a on one VM and both of b on the other: every row crosses, and half of them need not."""
    models = {name: model_of(name, (1, 50, 0.9, 0.2)) for name in "ab"}
    asked = PlanRequest(chain("a", "b"), models, 100.0, vms_of(2, 2), **OURS)
    bundles = [Bundle(Slot(f"vm{n}", slot), task, 1) for n, task in ((1, "a"), (2, "b")) for slot in (0, 1)]
    found = make_plan(replace(asked, in_force=Placement(tuple(bundles))))
    crossings = crossings_of(found, asked.topology)
    assert crossings.between_vms_tps == 0.5 * crossings.rows_tps


def test_what_is_gone_or_unknown_is_no_hindrance():
    """Slots that may not be used, VMs that are not there, tasks that the topology has no more."""
    before = planned(400.0, (8,))
    strange = (Bundle(Slot("vm9", 0), "a", 1), Bundle(Slot("vm1", 7), "gone", 2), *before.placement.bundles)
    assert planned(400.0, (8,), Placement(strange)).slots.used == before.slots.used
    assert planned(400.0, (8,), Placement(())).placement == before.placement
