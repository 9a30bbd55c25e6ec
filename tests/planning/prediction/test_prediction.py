"""The highest input rate of a placement, what limits it and its use of slots, in small worlds."""

from __future__ import annotations

import pytest
from worlds import chain, model_of, vms_of

from headgate.controller.models.plans import Bundle, Placement, Prediction
from headgate.controller.plan.predict.prediction import predict
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology

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


def test_shares_are_by_peak_wherever_that_carries_as_much():
    """Both slots are full either way; a in the one and b in the other would carry no more."""
    both = placed((0, "a", 1), (0, "b", 1), (1, "a", 1), (1, "b", 1))
    found = predict(chain("a", "b"), {"a": BUSY, "b": BUSY}, both, VMS)
    assert found.rate_tps == pytest.approx(125)
    for task in "ab":
        assert share_of(found, task) == pytest.approx({"vm1/0": 0.5, "vm1/1": 0.5})


@pytest.mark.parametrize("routing", ["weighted", "shuffle"])
def test_a_task_that_is_nowhere_lets_nothing_through(routing):
    found = predict(chain("a", "b"), {"a": BUSY, "b": BUSY}, placed((0, "a", 1)), VMS, 10.0, routing=routing)
    assert (found.rate_tps, found.limited_by, found.limited_by_slot) == (0, "b", None)


def test_cpu_measured_above_a_whole_slot_limits_it():
    found = predict(chain("a"), {"a": model_of("a", (1, 102, 1.02, 0.1))}, placed((0, "a", 1)), VMS)
    assert found.rate_tps == pytest.approx(100)
    assert found.slots[0].cpu == pytest.approx(1)


def test_use_at_the_peak_is_that_of_every_group_alone():
    placement = placed((0, "a", 1), (0, "b", 1), (1, "a", 1))
    found = predict(chain("a", "b"), {"a": BUSY, "b": BUSY}, placement, VMS, 10.0, usage="peak")
    assert [use.cpu for use in found.slots] == pytest.approx([1.6, 0.8])
    assert [use.memory for use in found.slots] == pytest.approx([0.4, 0.2])
    assert found.vms[0].cpu == pytest.approx(2.4)


def test_what_is_cheaper_by_a_hair_is_not_driven_to_its_peak():
    """A thread of `wait` costs a little less CPU beside others of its kind, and both slots are full of `heavy`:
    the highest rate alone would send every row to the larger group, to its last thread."""
    wait = model_of("wait", (1, 10, 0.02, 0.01), (20, 200, 0.36, 0.05), (22, 220, 0.39, 0.05))
    heavy = model_of("heavy", (1, 120, 0.96, 0.1))
    both = placed((0, "wait", 20), (0, "heavy", 1), (1, "wait", 22), (1, "heavy", 1))
    found = predict(chain("wait", "heavy"), {"wait": wait, "heavy": heavy}, both, VMS)
    used = {slot: share * found.rate_tps for slot, share in share_of(found, "wait").items()}
    assert max(used["vm1/0"] / 200, used["vm1/1"] / 220) < 0.88
    assert sum(used.values()) == pytest.approx(2 / (0.39 / 220 + 0.8 / 100), rel=0.01)


@pytest.mark.parametrize("routing", ["weighted", "shuffle"])
def test_a_source_uses_cpu_in_proportion_to_its_rate(routing):
    """0.1 always and 0.002 for each row/s, beside a task that takes 0.008: 0.9 / 0.01."""
    static = Static(1, 0.1, 0.15, cpu_per_tps=0.002)
    topology = Topology("t", (Task("in", "source", static=static), Task("a")), (Edge("in", "a"),))
    found = predict(topology, {"a": BUSY}, placed((0, "in", 1), (0, "a", 1)), VMS, 50.0, routing=routing)
    assert (found.rate_tps, found.limited_by) == (pytest.approx(90), "a")
    assert found.slots[0].cpu == pytest.approx(0.1 + 50 * 0.01)


def test_a_source_alone_in_its_slot_may_be_what_limits():
    static = Static(1, 0.2, 0.1, cpu_per_tps=0.02)
    topology = Topology("t", (Task("in", "source", static=static), Task("a")), (Edge("in", "a"),))
    found = predict(topology, {"a": BUSY}, placed((0, "in", 1), (1, "a", 1)), VMS)
    assert (found.rate_tps, found.limited_by, found.limited_by_slot) == (pytest.approx(40), "in", "vm1/0")


def test_rows_go_where_the_source_leaves_room():
    static = Static(1, 0.0, 0.0, cpu_per_tps=0.004)
    topology = Topology("t", (Task("in", "source", static=static), Task("a")), (Edge("in", "a"),))
    found = predict(topology, {"a": BUSY}, placed((0, "in", 1), (0, "a", 1), (1, "a", 1)), VMS)
    assert found.rate_tps == pytest.approx(150), "slot 1 carries its 100, slot 0 besides its 0.6"
    assert share_of(found, "a") == pytest.approx({"vm1/0": 1 / 3, "vm1/1": 2 / 3}, rel=0.02)
