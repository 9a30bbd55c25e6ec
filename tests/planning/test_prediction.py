"""The highest input rate of a placement and its use of slots, against an independent linear program."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog
from worlds import chain, checked, model_of, models, topologies, vms_of

from controller.knowledge.models import cpu, memory, peak_rate
from controller.knowledge.plans import Bundle, Placement, Prediction
from controller.plan.predict import predict
from topology_runtime.cluster import Slot
from topology_runtime.topology import Edge, Static, Task, Topology

VMS = vms_of(3, 2)
SLOTS = [slot for vm in VMS for slot in vm.all_slots()]
TABLE = model_of("table", (1, 3, 0.1, 0.01), (10, 10, 0.11, 0.03), (40, 20, 0.27, 0.09), (60, 40, 0.54, 0.16))
BUSY = model_of("busy", (1, 100, 0.8, 0.2))


def placed(*bundles: tuple[int, str, int]) -> Placement:
    return Placement(tuple(Bundle(SLOTS[slot], task, threads) for slot, task, threads in sorted(bundles)))


def share_of(prediction: Prediction, task: str) -> dict[str, float]:
    return {str(share.slot): share.share for share in prediction.shares if share.task == task}


def test_weighted_adds_up_peaks_and_shuffle_is_held_by_the_least():
    placement = placed((0, "table", 60), (1, "table", 60), (2, "table", 40))
    known = {"table": TABLE}
    by_weight = predict(chain("table"), known, placement, VMS)
    assert by_weight.rate_tps == pytest.approx(100)
    assert share_of(by_weight, "table") == pytest.approx({"vm1/0": 0.4, "vm1/1": 0.4, "vm1/2": 0.2})
    assert (by_weight.limited_by, by_weight.limited_by_slot) == ("table", "vm1/0")
    even = predict(chain("table"), known, placement, VMS, routing="shuffle")
    assert even.rate_tps == pytest.approx(80)
    assert even.limited_by_slot == "vm1/2"


@pytest.mark.parametrize(("interference", "rate"), [("none", 100), ("cpu", 62.5)])
def test_groups_in_one_slot_share_its_cpu(interference, rate):
    topology = chain("a", "b")
    known = {"a": BUSY, "b": BUSY}
    found = predict(topology, known, placed((0, "a", 1), (0, "b", 1)), VMS, interference=interference)
    assert found.rate_tps == pytest.approx(rate)
    assert found.slots[0].cpu == pytest.approx(1.6 * rate / 100)
    assert (found.limited_by, found.limited_by_slot) == ("a", "vm1/0")


def test_weights_lean_to_where_cpu_is_left():
    """a in slots 0 and 1, b in slot 0 only and at its peak: a may use 0.2 of slot 0, 0.8 of slot 1."""
    topology = Topology("t", (Task("a"), Task("b")), (Edge("a", "b", 0.8),))
    placement = placed((0, "a", 1), (1, "a", 1), (0, "b", 1))
    found = predict(topology, {"a": BUSY, "b": BUSY}, placement, VMS)
    assert found.rate_tps == pytest.approx(125)
    assert share_of(found, "a") == pytest.approx({"vm1/0": 0.2, "vm1/1": 0.8})
    assert found.slots[0].cpu == pytest.approx(1)


def test_tasks_out_of_the_crowd_keep_to_their_peaks():
    """a and b crowd slot 0, which the linear program sorts out; the table's slots are shared, not full."""
    edges = (Edge("a", "b"), Edge("b", "table", 0.3), Edge("b", "light"))
    topology = Topology("t", (Task("a"), Task("b"), Task("table"), Task("light")), edges)
    known = {"a": BUSY, "b": BUSY, "table": TABLE, "light": model_of("light", (1, 1000, 0.01, 0.01))}
    tables = [(1, "table", 60), (2, "table", 40), (3, "table", 10)]
    lights = [(slot, "light", 1) for slot in (1, 2, 3)]
    found = predict(topology, known, placed((0, "a", 1), (0, "b", 1), *tables, *lights), VMS)
    assert found.rate_tps == pytest.approx(62.5)
    assert share_of(found, "table") == pytest.approx({"vm1/1": 4 / 7, "vm1/2": 2 / 7, "vm2/0": 1 / 7})
    assert share_of(found, "light") == pytest.approx({"vm1/1": 1 / 3, "vm1/2": 1 / 3, "vm2/0": 1 / 3})


def test_tasks_of_fixed_size_reserve_their_cpu_and_are_shown():
    topology = Topology("t", (Task("in", static=Static(2, 0.4, 0.2)), Task("a")), (Edge("in", "a"),))
    found = predict(topology, {"a": BUSY}, placed((0, "in", 2), (0, "a", 1)), VMS)
    assert found.rate_tps == pytest.approx(75)
    assert found.slots[0].cpu == pytest.approx(1)
    assert found.slots[0].memory == pytest.approx(0.2 + 0.2 * 0.75)
    assert share_of(found, "in") == {"vm1/0": 1}
    split = predict(topology, {"a": BUSY}, placed((0, "in", 1), (1, "in", 1), (0, "a", 1)), VMS)
    assert split.rate_tps == pytest.approx(100)
    assert split.slots[1].cpu == pytest.approx(0.2)


def test_use_is_given_at_the_rate_asked_for_unless_that_is_too_much():
    placement = placed((0, "a", 1))
    known = {"a": BUSY}
    for asked, at in ((50.0, 50.0), (None, 100.0), (1000.0, 100.0)):
        found = predict(chain("a"), known, placement, VMS, asked)
        assert (found.rate_tps, found.at_rate_tps) == (pytest.approx(100), pytest.approx(at))
        assert found.slots[0].cpu == pytest.approx(0.8 * at / 100)
        assert [(vm.vm, vm.cpu) for vm in found.vms] == [("vm1", found.slots[0].cpu), ("vm2", 0)]


def test_ties_go_to_the_first_task_and_the_first_slot():
    topology = Topology("t", (Task("in", static=Static()), Task("b", model="m"), Task("a", model="m")),
                        (Edge("in", "b"), Edge("in", "a")))  # fmt: skip
    placement = placed((0, "in", 1), (1, "a", 1), (3, "b", 1))
    found = predict(topology, {"m": BUSY}, placement, VMS)
    assert (found.limited_by, found.limited_by_slot) == ("b", "vm2/0")


def test_each_thread_behind_an_all_edge_carries_the_whole_rate():
    topology = chain("a", "b", grouping="all")
    known = {
        "a": model_of("a", (1, 1000, 0.1, 0.1)),
        "b": model_of("b", (1, 100, 0.5, 0.1), (2, 120, 0.6, 0.1)),
    }
    for routing in ("weighted", "shuffle"):
        found = predict(topology, known, placed((0, "a", 1), (1, "b", 2), (2, "b", 1)), VMS, routing=routing)
        assert found.rate_tps == pytest.approx(60)
        assert share_of(found, "b") == pytest.approx({"vm1/1": 2 / 3, "vm1/2": 1 / 3})


def test_nothing_modelled_nothing_limited():
    topology = Topology("t", (Task("in", static=Static(1, 0.5, 0.5)),))
    found = predict(topology, {}, placed((0, "in", 1)), VMS, 42.0)
    assert (found.rate_tps, found.limited_by, found.limited_by_slot) == (42, None, None)


def test_a_slot_reserved_whole_lets_nothing_through():
    topology = Topology("t", (Task("in", static=Static(1, 1.0, 0.5)), Task("a")), (Edge("in", "a"),))
    found = predict(topology, {"a": BUSY}, placed((0, "in", 1), (0, "a", 1)), VMS, 10.0)
    assert (found.rate_tps, found.limited_by) == (0, "a")
    assert share_of(found, "a") == {"vm1/0": 1}


@st.composite
def worlds(draw: st.DrawFn):
    """Any topology, with any threads in any slots."""
    topology = draw(topologies(("shuffle", "fields", "all")))
    known = {task.name: draw(models(task.name)) for task in topology.tasks if task.static is None}
    bundles = []
    for task in topology.breadth_first:
        for slot in sorted(draw(st.sets(st.integers(0, len(SLOTS) - 1), min_size=1, max_size=4))):
            bundles.append((slot, task.name, draw(st.integers(1, 130))))
    order = [task.name for task in topology.breadth_first]
    bundles.sort(key=lambda bundle: (bundle[0], order.index(bundle[1])))
    return topology, known, Placement(tuple(Bundle(SLOTS[s], task, count) for s, task, count in bundles))


def plainly(topology, known, placement, routing, interference) -> tuple[float, dict[tuple[str, Slot], float]]:
    """(highest Ω, w of each group): the contract's definition, one variable per group, nothing clever."""
    unit = topology.rates(1.0)
    groups = [(b.task, b.slot, b.threads) for b in placement.bundles]
    threads = {t: sum(q for task, _, q in groups if task == t) for t, _, _ in groups}
    copied = {edge.target for edge in topology.edges if edge.grouping == "all"}
    weight = {t: unit[t] * (threads[t] if t in copied else 1) for t in threads}
    size = len(groups) + 1
    bounds, equal, below, limits = [(0, None)], [], [], []
    for column, (task, _, q) in enumerate(groups, 1):
        model = known.get(task)
        bounds.append((0, peak_rate(model, q) if model else None))
        if routing == "shuffle" or task in copied:
            row = np.zeros(size)
            row[0], row[column] = -weight[task] * q / threads[task], 1
            equal.append(row)
    for name in threads:
        row = np.zeros(size)
        row[0] = -weight[name]
        row[[i for i, group in enumerate(groups, 1) if group[0] == name]] = 1
        equal.append(row)
    for slot in {slot for _, slot, _ in groups} if interference == "cpu" else ():
        row, reserved = np.zeros(size), 0.0
        for column, (task, at, q) in enumerate(groups, 1):
            if at == slot and task in known:
                row[column] = cpu(known[task], q) / peak_rate(known[task], q)
            elif at == slot:
                static = topology.by_name[task].static
                reserved += static.cpu * q / static.threads
        below.append(row)
        limits.append(max(0.0, 1 - reserved))
    cost = np.zeros(size)
    cost[0] = -1
    found = linprog(cost, below or None, limits or None, np.array(equal), np.zeros(len(equal)), bounds)
    assert found.status == 0
    return float(found.x[0]), {(task, slot): weight[task] for task, slot, _ in groups}


@checked
@given(worlds(), st.sampled_from(["weighted", "shuffle"]), st.sampled_from(["cpu", "none"]))
def test_the_rate_is_the_highest_there_is(world, routing, interference):
    topology, known, placement = world
    found = predict(topology, known, placement, VMS, routing=routing, interference=interference)
    best, weight = plainly(topology, known, placement, routing, interference)
    assert found.rate_tps == pytest.approx(best, rel=1e-5, abs=1e-6)
    shares = {(share.task, share.slot): share.share for share in found.shares}
    for task in topology.by_name:
        assert math.fsum(s for (name, _), s in shares.items() if name == task) == pytest.approx(1)
    used: dict[Slot, list[float]] = {}
    for bundle in placement.bundles:
        rate = weight[bundle.task, bundle.slot] * shares[bundle.task, bundle.slot] * found.rate_tps
        at = used.setdefault(bundle.slot, [0.0, 0.0])
        model = known.get(bundle.task)
        if model is None:
            static = topology.by_name[bundle.task].static
            at[0] += static.cpu * bundle.threads / static.threads
            at[1] += static.memory * bundle.threads / static.threads
            continue
        part = rate / peak_rate(model, bundle.threads)
        assert part <= 1 + 1e-5
        at[0] += cpu(model, bundle.threads) * part
        at[1] += memory(model, bundle.threads) * part
    for use in found.slots:
        cpu_used, memory_used = used[Slot(use.vm, use.slot)]
        assert (use.cpu, use.memory) == (
            pytest.approx(cpu_used, abs=1e-6),
            pytest.approx(memory_used, abs=1e-6),
        )
    assert len(found.slots) == len(used)
    assert sum(vm.cpu for vm in found.vms) == pytest.approx(sum(slot.cpu for slot in found.slots))


@checked
@given(worlds())
def test_the_limiting_task_cannot_be_given_more(world):
    """With weighted routing every group of the limiting task is at its peak or in a slot without CPU."""
    topology, known, placement = world
    found = predict(topology, known, placement, VMS)
    weight = plainly(topology, known, placement, "weighted", "cpu")[1]
    free = {Slot(use.vm, use.slot): 1 - use.cpu for use in found.slots}
    copied = {edge.target for edge in topology.edges if edge.grouping == "all"}
    shares = {(share.task, share.slot): share.share for share in found.shares}
    tight = []
    for bundle in placement.bundles:
        if bundle.task == found.limited_by:
            rate = weight[bundle.task, bundle.slot] * shares[bundle.task, bundle.slot] * found.rate_tps
            peak_tps = peak_rate(known[bundle.task], bundle.threads)
            tight.append(rate >= peak_tps * (1 - 1e-5) or free[bundle.slot] <= 1e-5)
    assert any(tight) if found.limited_by in copied else all(tight)
