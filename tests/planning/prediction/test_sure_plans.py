"""`--sure P`: over worlds that are drawn with the errors that are stated, a plan carries its rate in at least a share P
of them. What a world carries is worked out here from the plan's threads and the models' points alone."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pytest
from msgspec.structs import replace
from worlds import chain, model_of

from headgate.controller.analyze.model_bias import ENOUGH_RUNS, spread_of
from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import Bundle, ErrorSpread, Placement, Plan, Sure
from headgate.controller.models.prediction_ledger import LedgerEntry, RateKept, TaskKept, version_of
from headgate.controller.models.task_models import Model
from headgate.controller.plan.plan_steps import model_names
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.prediction import chance_of, with_certainty
from headgate.controller.plan.verifier import faults_of
from headgate.controller.planning_commands.plan_sentences import headline
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.errors import Infeasible

MODELS = {
    "a": model_of("a", (1, 40.0, 0.5, 0.1), (2, 80.0, 0.95, 0.2)),
    "b": model_of("b", (1, 100.0, 1.0, 0.1)),
    "c": model_of("c", (1, 30.0, 0.2, 0.1), (4, 120.0, 0.8, 0.2)),
}
TOPOLOGY = chain("a", "b", "c")
DRAWS = 20_000
LEARNED = ErrorSpread(models={"a": (0.1, 0.15), "b": (0.0, 0.08), "c": (-0.05, 0.1)})


def asked(
    probability: float | None, spread: ErrorSpread | None = None, strict: bool = True, slots: int = 60
) -> PlanRequest:
    sure = Sure(probability, spread or ErrorSpread(), strict) if probability is not None else None
    return PlanRequest(TOPOLOGY, MODELS, 400.0, (Vm("vm1", slots),), sure=sure)


def at(model: Model, threads: int) -> tuple[float, float]:
    """(rate, CPU) by numpy."""
    counts = [0, *(point.threads for point in model.points)]
    rates, cpus = ([0.0, *(getattr(p, key) for p in model.points)] for key in ("rate_tps", "cpu"))
    return float(np.interp(threads, counts, rates)), float(np.interp(threads, counts, cpus))


def share_of_worlds(plan: Plan, spread: ErrorSpread, seed: int = 3) -> float:
    """In which every slot has the CPU and every group the threads for its rows, when these cost what was drawn."""
    chance = np.random.default_rng(seed)
    shares = {(s.slot, s.task): s.share for s in plan.prediction.shares}
    groups: dict[object, list[tuple[str, float, float]]] = defaultdict(list)
    for bundle in plan.placement.bundles:
        rate, cpu = at(MODELS[bundle.task], bundle.threads)
        rows = plan.rate_tps * shares[bundle.slot, bundle.task]
        groups[bundle.slot].append((bundle.task, rows / rate, cpu * rows / rate))
    together = spread.together * chance.standard_normal(DRAWS) if not spread.models else np.zeros(DRAWS)
    of_model: Mapping[str, np.ndarray] = {
        name: mean + own * chance.standard_normal(DRAWS) for name, (mean, own) in spread.models.items()
    }
    carries = np.ones(DRAWS, bool)
    for members in groups.values():
        own = spread.slot * chance.standard_normal(DRAWS)
        costs = {task: np.exp(together + own + of_model.get(task, 0.0)) for task, _, _ in members}
        carries &= sum(cpu * costs[task] for task, _, cpu in members) <= 1.0
        for task, part, _ in members:
            carries &= part * costs[task] <= 1.0
    return float(carries.mean())


def mistake(share: float) -> float:
    """Three standard deviations of a share of so many draws."""
    return 3 * math.sqrt(max(share * (1 - share), 1e-4) / DRAWS)


@pytest.mark.parametrize("probability", [0.5, 0.8, 0.95, 0.99])
def test_a_plan_carries_its_rate_in_at_least_the_share_of_worlds_that_was_asked_for(
    probability: float,
) -> None:
    plan = make_plan(asked(probability))
    found = plan.prediction.sure
    assert found is not None and found.chance >= probability and found.rate_tps == plan.rate_tps == 400.0
    share = share_of_worlds(plan, ErrorSpread())
    assert share >= probability - mistake(share)
    assert share == pytest.approx(found.chance, abs=0.01 + mistake(share)), (
        "where errors are as in trials it is exact"
    )
    assert faults_of(plan, TOPOLOGY, MODELS) == []


@pytest.mark.parametrize("probability", [0.8, 0.95])
def test_where_models_err_each_for_itself_it_is_at_least_as_sure_as_is_said(probability: float) -> None:
    plan = make_plan(asked(probability, LEARNED))
    share = share_of_worlds(plan, LEARNED)
    assert plan.prediction.sure is not None and plan.prediction.sure.chance >= probability
    assert share >= plan.prediction.sure.chance - mistake(share)
    assert plan.prediction.sure.margin > make_plan(asked(probability)).prediction.sure.margin  # type: ignore[union-attr]


def test_slots_that_are_not_alike_full_are_each_reckoned_with() -> None:
    """Three slots that are full at 99 rows/s and three at 102, by many draws of what each is off by."""
    models = {"a": model_of("a", (1, 33.0, 1.0, 0.1)), "b": model_of("b", (1, 34.0, 1.0, 0.1))}
    placement = Placement(tuple(Bundle(Slot("vm1", n), "ab"[n // 3], 1) for n in range(6)))
    load = load_of(chain("a", "b"), models, placement, (Vm("vm1", 6),), True)
    chance = np.random.default_rng(8)
    z, own = chance.standard_normal((DRAWS, 1)), chance.standard_normal((DRAWS, 6))
    most = np.array([99.0] * 3 + [102.0] * 3) * np.exp(-0.05 * z - 0.053 * own)
    for rate_tps in (80.0, 90.0, 95.0, 99.0):
        share = float((most >= rate_tps).all(axis=1).mean())
        found = chance_of(load, load.even_shares(), rate_tps, ErrorSpread(), {"a": "a", "b": "b"})
        assert found == pytest.approx(share, abs=0.005 + mistake(share))


def test_without_it_a_plan_that_just_carries_its_rate_fails_in_most_worlds() -> None:
    plan = make_plan(asked(None))
    assert plan.prediction.sure is None and share_of_worlds(plan, ErrorSpread()) < 0.6


def test_the_margin_is_the_least_that_is_enough() -> None:
    plan = make_plan(asked(0.95))
    margin = plan.prediction.sure.margin  # type: ignore[union-attr]
    assert 1.05 < margin < 1.4
    request = asked(0.95)
    less = make_plan(replace(request, rate_tps=400.0 * (margin - 0.01), sure=None))
    load = load_of(TOPOLOGY, MODELS, less.placement, less.vms, True)
    shares = load.in_order(less.prediction.shares)
    assert chance_of(load, shares, 400.0, ErrorSpread(), model_names(TOPOLOGY)) < 0.95


def test_the_surer_the_more_slots_and_never_fewer() -> None:
    slots = [make_plan(asked(p)).slots.used for p in (0.5, 0.8, 0.9, 0.95, 0.99)]
    assert slots == sorted(slots) and slots[-1] > make_plan(asked(None)).slots.used


def test_acquired_vms_are_as_many_as_it_takes() -> None:
    request = replace(asked(0.95), vms=())
    plan = plan_acquiring(request, (Vm("size4", 4), Vm("size1", 1)))
    assert plan.prediction.sure is not None and plan.prediction.sure.chance >= 0.95
    assert plan.slots.total == plan.slots.used


def test_where_slots_do_not_suffice_it_is_said_or_the_surest_is_made() -> None:
    plain = make_plan(asked(None)).slots.used
    with pytest.raises(Infeasible, match=r"holds with a probability of 0\.99"):
        make_plan(asked(0.99, slots=plain + 1))
    surest = make_plan(asked(0.99, strict=False, slots=plain + 1))
    assert surest.rate_tps == 400.0 and surest.prediction.sure is not None
    assert 0.0 < surest.prediction.sure.chance < 0.99
    with pytest.raises(Infeasible, match="fits into"):
        make_plan(asked(0.99, strict=False, slots=plain - 2))


def test_plans_tell_it_in_files_and_words() -> None:
    for spread in (ErrorSpread(), LEARNED):
        plan = make_plan(asked(0.9, spread))
        assert plan_of(json.loads(json.dumps(plan_data(plan)))) == plan
        sure = plan_data(plan)["prediction"]["sure"]
        assert sure["probability"] == 0.9 and sure["chance"] >= 0.9 and sure["rate_tps"] == 400.0
        assert "400 of them with a probability of 0.9" in headline(plan)
    assert "sure" not in plan_data(make_plan(asked(None)))["prediction"]


def test_the_rate_that_a_placement_carries_so_surely() -> None:
    plan = make_plan(asked(None))
    load = load_of(TOPOLOGY, MODELS, plan.placement, plan.vms, True)
    for probability in (0.5, 0.9, 0.99):
        found = with_certainty(plan.prediction, load, None, Sure(probability), model_names(TOPOLOGY)).sure
        assert found is not None
        assert found.chance == pytest.approx(probability, abs=2e-3) and found.chance >= probability
        assert share_of_worlds(replace(plan, rate_tps=found.rate_tps), ErrorSpread()) == pytest.approx(
            probability, abs=0.012
        )


# ── what the ledger knows ───────────────────────────────────────────────────────────────────────


def entries(costs: list[float], model: Model) -> list[LedgerEntry]:
    rate = RateKept(100.0, 100.0, 100.0, None, "no")
    found = []
    for n, cost in enumerate(costs):
        uses = {"vm1": (cost, 1.0)}
        task = TaskKept("b", "b", version_of(model), 100.0, cost, 1.0, cost / 2, 0.5, False, uses)
        found.append(LedgerEntry("", "t", "d", f"run{n}", 1, "plan1", "", 40.0, rate, {}, (), (task,), {}))
    return found


def test_errors_of_models_are_learned_once_the_ledger_has_enough_runs() -> None:
    logs = np.random.default_rng(1).normal(0.05, 0.12, 30)
    costs = np.exp(logs).tolist()
    few = spread_of(MODELS, entries(costs[: ENOUGH_RUNS - 1], MODELS["b"]))
    assert few == ErrorSpread()
    found = spread_of(MODELS, entries(costs, MODELS["b"]))
    mean, own = found.models["b"]
    assert set(found.models) == {"b"}
    assert mean == pytest.approx(logs.mean(), abs=0.02) and own == pytest.approx(logs.std(ddof=1), rel=0.25)
    assert spread_of(MODELS, entries(costs, MODELS["a"])) == ErrorSpread(), (
        "of another version nothing is known"
    )


def test_calm_models_need_less_and_wild_ones_more() -> None:
    def margin(sd: float) -> float:
        logs = np.random.default_rng(2).normal(0.0, sd, 40)
        known = [
            replace(entry, tasks=(replace(entry.tasks[0], task=name, model=name),))
            for name in MODELS
            for entry in entries(np.exp(logs).tolist(), MODELS[name])
        ]
        plan = make_plan(asked(0.9, spread_of(MODELS, known)))
        assert plan.prediction.sure is not None
        return plan.prediction.sure.margin

    assert margin(0.01) < margin(0.15)
