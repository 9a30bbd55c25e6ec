"""Rows that come alone cost more: what that means for the CPU and the rate of a placement (decision 20)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Bundle, Placement
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.controller.plan.predict.placement_load import load_of
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.verifier import faults_of
from headgate.lab.reproduction import reproduction_cells as c
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.measuring.wake_cost import IN_FULL_SLOT, cpu_of_slot, like_own, share_of_wakes

ROOT = Path(__file__).resolve().parents[3]

VMS = (Vm("vm1", 4),)
PAIR = Topology("pair", (Task("a"), Task("b")), (Edge("a", "b"),))


def model(task: str, rate_tps: float, wake_cpu: float | None) -> Model:
    more = {} if wake_cpu is None else {"wake_cpu": wake_cpu}
    return Model(task, ModelSlot(), (Point(1, rate_tps, 1.0, 0.1),), more)


def models(wake_cpu: float | None, a_tps: float = 100.0, b_tps: float = 1000.0) -> dict[str, Model]:
    return {"a": model("a", a_tps, wake_cpu), "b": model("b", b_tps, wake_cpu)}


def placed(*slots: str) -> Placement:
    """A thread of each task named in each slot."""
    return Placement(
        tuple(Bundle(Slot("vm1", n), task, 1) for n, tasks in enumerate(slots) for task in tasks)
    )


@given(st.floats(0.0, 3.0), st.floats(0.0, 1.0))
def test_a_slot_is_full_between_what_rows_cost_alone_and_together(alone: float, cheaper: float) -> None:
    """More rows never use less: from one to where even rows that wait for it overfill it, it is just full."""
    in_full = alone * cheaper
    used = cpu_of_slot(alone, in_full)
    assert min(1.0, alone) <= used <= max(1.0, in_full)
    assert used >= cpu_of_slot(0.99 * alone, 0.99 * in_full)


@given(st.floats(0.0, 1000.0), st.floats(0.0, 1000.0))
def test_rows_share_wakes_with_their_own_task_more_than_with_others(own: float, others: float) -> None:
    both = share_of_wakes(like_own(own, others))
    assert share_of_wakes(own + others) <= both <= share_of_wakes(own) <= 1.0
    assert share_of_wakes(own, full=True) == pytest.approx(IN_FULL_SLOT * share_of_wakes(own))


def test_alone_at_its_peak_a_task_uses_what_was_measured() -> None:
    load = load_of(PAIR, models(0.002), placed("a", "b"), VMS, shared_cpu=True)
    assert next(cpu for cpu, _ in load.needs([1.0, 1.0], 100.0)) == pytest.approx(1.0)


def test_few_rows_cost_more_each() -> None:
    load = load_of(PAIR, models(0.002), placed("a", "b"), VMS, shared_cpu=True)
    (few, _), _ = load.needs([1.0, 1.0], 10.0)
    assert few == pytest.approx(0.1 + 10 * 0.002 * (share_of_wakes(10) - share_of_wakes(100, full=True)))


def test_a_task_that_waits_had_lone_rows_at_its_peak_too() -> None:
    """Its slot had room: what its rows were measured with holds the wakes in full."""
    waiting = Model("a", ModelSlot(), (Point(8, 100.0, 0.4, 0.1),), {"wake_cpu": 0.002, "waiting": True})
    placement = Placement((Bundle(Slot("vm1", 0), "a", 8), Bundle(Slot("vm1", 1), "b", 1)))
    load = load_of(PAIR, models(0.002) | {"a": waiting}, placement, VMS, shared_cpu=True)
    (peak, _), _ = load.needs([1.0, 1.0], 100.0)
    (few, _), _ = load.needs([1.0, 1.0], 10.0)
    assert peak == pytest.approx(0.4)
    assert few == pytest.approx(0.04 + 10 * 0.002 * (share_of_wakes(10) - share_of_wakes(100)))


def test_a_task_that_is_cheap_in_bulk_is_dear_beside_a_slow_one() -> None:
    """b alone takes 1,000 rows/s; 80 of them come one by one and fill the slot sooner than its model says."""
    plain, dear = (predict(PAIR, models(wake), placed("ab"), VMS) for wake in (None, 0.002))
    assert plain.rate_tps == pytest.approx(1 / (1 / 100 + 1 / 1000))
    assert 0.8 * plain.rate_tps < dear.rate_tps < 0.97 * plain.rate_tps
    assert dear.slots[0].cpu == pytest.approx(1.0, abs=0.005)


@pytest.mark.parametrize("wake", [0.0, 0.002])
def test_rows_of_others_share_a_wake(wake: float) -> None:
    """Two tasks at 50 rows/s use of one slot less than of a slot each, by what their wakes share."""
    apart, together = (
        sum(use.cpu for use in predict(PAIR, models(wake), placed(*slots), VMS, 50.0).slots)
        for slots in (("a", "b"), ("ab",))
    )
    shared = 2 * 50 * wake * (share_of_wakes(50) - share_of_wakes(like_own(50, 50)))
    assert together == pytest.approx(apart - shared)


def test_rows_that_wait_keep_nobody_company() -> None:
    """Each comes when its wait is over: beside them a row costs what it costs alone, while theirs share with it."""
    waiting = Model("b", ModelSlot(), (Point(8, 100.0, 0.4, 0.1),), {"wake_cpu": 0.002, "waiting": True})
    known = models(0.002) | {"b": waiting}
    bundles = [(Bundle(Slot("vm1", 0), "a", 1), Bundle(Slot("vm1", n), "b", 8)) for n in (1, 0)]
    apart, together = (
        sum(use.cpu for use in predict(PAIR, known, Placement(both), VMS, 50.0).slots) for both in bundles
    )
    shared = 50 * 0.002 * (share_of_wakes(50) - share_of_wakes(like_own(50, 50)))
    assert together == pytest.approx(apart - shared)


SINK = Task("sink", "sink", static=Static(1, 0.0, 0.0, cpu_per_tps=0.001))
ENDED = Topology("ended", (Task("a"), SINK), (Edge("a", "sink"),))


@pytest.mark.parametrize(("wake", "cheaper"), [(0.0, 1.0), (0.002, IN_FULL_SLOT)])
def test_rows_of_a_sink_cost_less_in_a_full_slot_and_are_company(wake: float, cheaper: float) -> None:
    bundles = Bundle(Slot("vm1", 0), "a", 1), Bundle(Slot("vm1", 0), "sink", 1)
    load = load_of(ENDED, models(wake), Placement(bundles), VMS, shared_cpu=True)
    (some, _), *_ = load.needs([1.0, 1.0], 50.0)
    at_peak = 0.01 - wake * share_of_wakes(100, full=True)
    assert some == pytest.approx(50 * (at_peak + wake * share_of_wakes(like_own(50, 50)) + 0.001))
    rate_tps = predict(ENDED, models(wake), Placement(bundles), VMS).rate_tps
    each = at_peak + wake * share_of_wakes(like_own(rate_tps, rate_tps), full=True) + 0.001 * cheaper
    assert rate_tps == pytest.approx(1 / each, rel=1e-6)


@given(
    st.floats(0.0, 0.004),
    st.floats(20.0, 500.0),
    st.floats(20.0, 2000.0),
    st.sampled_from(["weighted", "shuffle"]),
    st.sampled_from([("ab",), ("a", "b"), ("ab", "ab"), ("ab", "b"), ("a", "ab", "b")]),
)
def test_no_slot_is_over_full_at_the_supported_rate(
    wake: float, a_tps: float, b_tps: float, routing: str, slots: tuple[str, ...]
) -> None:
    found = predict(PAIR, models(wake, a_tps, b_tps), placed(*slots), VMS, routing=routing)
    assert found.rate_tps > 0
    assert all(use.cpu <= 1.011 for use in found.slots)  # decision 16 gives away a hundredth
    assert predict(PAIR, models(wake, a_tps, b_tps), placed(*slots), VMS, routing=routing) == found


def test_without_what_a_wake_costs_nothing_changes() -> None:
    for slots in (("ab",), ("a", "b"), ("ab", "ab")):
        assert predict(PAIR, models(None), placed(*slots), VMS) == predict(
            PAIR, models(0.0), placed(*slots), VMS
        )


@pytest.mark.parametrize("shape", ["linear", "diamond", "star", "traffic"])
def test_a_slot_aware_plan_carries_what_it_was_made_for(shape: str) -> None:
    """What MBA reserves of a slot for a bundle is more than it uses at a lower rate, however dear its wakes are."""
    topology, measured = c.topology_of(shape), read_models(ROOT / "docs" / "experiments" / "models-waits")
    assert all(found.wake.cpu > 0 for found in measured.values())
    vms = tuple(Vm(f"vm{n}", 4) for n in range(1, 40))
    for rate_tps in range(10, 500, 35):
        request = PlanRequest(topology, measured, float(rate_tps), vms, allocator="mba", mapper="sam")
        plan = make_plan(request)
        assert list(faults_of(plan, topology, measured)) == []
        assert plan.prediction.rate_tps >= rate_tps * (1 - 1e-6)
