"""Threads and slots that the allocators reserve (paper 0, Alg. 2 and 3)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worlds import chain, checked, model_of, models

from headgate.controller.knowledge.models import peak, peak_rate
from headgate.controller.knowledge.plans import TaskAllocation
from headgate.controller.plan.allocating import slots_for
from headgate.controller.plan.lsa import lsa
from headgate.controller.plan.mba import bundles_for, mba
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.topology import Edge, Static, Task, Topology

PI = model_of("pi", (1, 105, 0.92, 0.02), (2, 110, 0.95, 0.035))


@pytest.mark.parametrize("peaks", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("off", [0.0, 1e-12, -1e-12])
def test_whole_peaks_take_whole_bundles_only(peaks, off):
    found = bundles_for("pi", peaks * 110 * (1 + off), PI)
    assert (found.full_bundles, found.rest_threads, found.threads) == (peaks, 0, 2 * peaks)
    assert found.cpu_slots == peaks


def test_a_rest_for_one_thread_is_scaled_down():
    found = bundles_for("pi", 110 + 21, PI)
    assert (found.full_bundles, found.rest_threads) == (1, 1)
    assert found.rest_cpu == pytest.approx(0.92 * 21 / 105)
    assert found.memory_slots == pytest.approx(1 + 0.02 * 21 / 105)


def test_a_rest_for_several_threads_is_not_scaled():
    found = bundles_for("pi", 110 + 108, PI)
    assert (found.full_bundles, found.rest_threads, found.rest_cpu) == (1, 2, 0.95)


def test_a_task_without_rows_has_a_thread_that_reserves_nothing():
    for allocation in (mba(chain("pi"), {"pi": PI}, 0.0), lsa(chain("pi"), {"pi": PI}, 0.0)):
        assert [(t.threads, t.cpu_slots, t.memory_slots) for t in allocation.tasks] == [(1, 0, 0)]
        assert allocation.slots == 0


def test_tasks_of_fixed_size_are_not_counted_in_slots():
    topology = Topology("t", (Task("in", static=Static(3, 0.9, 0.9)), Task("pi")), (Edge("in", "pi"),))
    allocation = mba(topology, {"pi": PI}, 105.0)
    assert allocation.slots == 1
    assert [(t.task, t.threads, t.static) for t in allocation.tasks] == [("in", 3, True), ("pi", 1, False)]


@pytest.mark.parametrize(("used", "slots"), [(0.0, 0), (1e-12, 0), (1.0, 1), (3 * 1.1 / 3.3, 1), (1.001, 2)])
def test_rounding_makes_no_slot(used, slots):
    assert slots_for([TaskAllocation("a", 1.0, 1, used, 0.0)]) == slots
    assert slots_for([TaskAllocation("a", 1.0, 1, 0.0, used)]) == slots


@pytest.mark.parametrize("allocator", [mba, lsa])
@pytest.mark.parametrize("edge", [{"grouping": "global"}, {"grouping": "all"}])
def test_one_thread_carries_the_whole_rate_or_nothing_does(allocator, edge):
    topology = chain("a", "pi", **edge)
    known = {"a": model_of("a", (1, 1000, 0.1, 0.1)), "pi": PI}
    found = allocator(topology, known, 105.0).tasks[1]
    assert (found.threads, found.cpu_slots) == (1, pytest.approx(0.92))
    with pytest.raises(Infeasible) as refused:
        allocator(topology, known, 106.0)
    assert refused.value.exit_code == 4
    assert "task 'pi' is reached by" in refused.value.faults[0]


def test_an_exclusive_task_has_one_thread():
    topology = Topology("t", (Task("pi", exclusive=True),))
    assert mba(topology, {"pi": PI}, 50.0).tasks[0].threads == 1
    with pytest.raises(Infeasible):
        mba(topology, {"pi": PI}, 110.0)


@checked
@given(models("t"), st.floats(0.0, 1e5))
def test_mba_threads_suffice_and_reserve_what_they_were_measured_with(model, rate):
    found = bundles_for("t", rate, model)
    peak_tps, peak_threads = peak(model)
    carried = found.full_bundles * peak_tps + peak_rate(model, found.rest_threads)
    assert carried >= rate * (1 - 1e-6)
    assert found.threads == found.full_bundles * peak_threads + found.rest_threads >= 1
    assert found.full_bundles * peak_tps <= rate * (1 + 1e-6)
    assert 0 <= found.rest_cpu <= max(point.cpu for point in model.points)
    assert 0 <= found.rest_memory <= max(point.memory for point in model.points)


@checked
@given(models("t"), st.floats(0.0, 1e4), st.floats(1.0, 3.0))
def test_lsa_is_linear(model, rate, times):
    once, more = (lsa(chain("t"), {"t": model}, r).tasks[0] for r in (rate, rate * times))
    assert more.cpu_slots == pytest.approx(once.cpu_slots * times, rel=1e-6, abs=1e-6)
    assert more.memory_slots == pytest.approx(once.memory_slots * times, rel=1e-6, abs=1e-6)
    assert more.threads * peak_rate(model, 1) >= rate * times * (1 - 1e-6)
