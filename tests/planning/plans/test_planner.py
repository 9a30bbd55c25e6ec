"""What `make_plan` and `best_plan` answer to a request."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace
from worlds import chain, model_of, vms_of

from headgate.controller.models.plans import Plan
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan, plan_acquiring
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

WORK = model_of("work", (1, 100, 0.9, 0.2))
KNOWN = {"work": WORK}
TOPOLOGY = chain("work", ends=True)


def request(rate_tps: float, *slots: int, **more: object) -> PlanRequest:
    return PlanRequest(TOPOLOGY, KNOWN, rate_tps, vms_of(*slots), **more)  # type: ignore[arg-type]


def names(plan: Plan) -> list[str]:
    return [vm.vm for vm in plan.vms]


def test_the_first_vms_that_suffice_are_used():
    plan = make_plan(request(500.0, 4, 4, 4))
    assert names(plan) == ["vm1", "vm2"]
    assert msgspec.structs.astuple(plan.slots) == (5, 1, 8, 6)  # five full bundles, one slot for the ends
    assert names(make_plan(request(250.0, 4, 4, 4))) == ["vm1"]


def test_vms_are_added_one_at_a_time_in_order():
    spare = (Vm("vm8", 2), Vm("vm9", 2))
    assert names(make_plan(request(250.0, 4, may_add=spare))) == ["vm1"]
    assert names(make_plan(request(500.0, 4, may_add=spare))) == ["vm1", "vm8"]
    assert names(make_plan(request(700.0, 4, may_add=spare))) == ["vm1", "vm8", "vm9"]
    with pytest.raises(Infeasible) as refused:
        make_plan(request(900.0, 4, may_add=spare))
    assert refused.value.exit_code == 4
    assert refused.value.cause == "mba needs 9 slots"


def test_slots_that_suffice_in_sum_but_not_one_by_one():
    half = {"a": model_of("a", (1, 10, 0.6, 0.1)), "b": model_of("b", (1, 10, 0.6, 0.1))}
    crowded = PlanRequest(chain("a", "b"), half, 9.0, vms_of(1))
    with pytest.raises(Infeasible):
        make_plan(crowded)
    plan = make_plan(replace(crowded, may_add=(Vm("more", 1), Vm("unused", 1)), rate_tps=9.5))
    assert (names(plan), plan.slots.estimated, plan.slots.extra) == (["vm1", "more"], 2, 0)
    third = {**half, "c": model_of("c", (1, 10, 0.6, 0.1))}
    plan = make_plan(PlanRequest(chain("a", "b", "c"), third, 9.5, vms_of(1, 1, 1)))
    assert (plan.slots.estimated, plan.slots.extra) == (2, 1)


def test_pinned_threads_keep_their_vm():
    plan = make_plan(request(50.0, 4, 4, 4, pinned={"source": (Slot("vm3", 2),)}))
    assert names(plan) == ["vm3"]
    assert [str(b.slot) for b in plan.placement.bundles if b.task == "source"] == ["vm3/2"]
    plan = make_plan(request(500.0, 4, 4, 4, pinned={"source": (Slot("vm3", 2),)}))
    assert names(plan) == ["vm1", "vm3"]


def test_pins_to_a_lost_vm_or_an_excluded_slot_are_let_go():
    lost = {"source": (Slot("gone", 0),), "sink": (Slot("vm2", 1),)}
    plan = make_plan(request(50.0, 2, 2, pinned=lost, excluded=frozenset({Slot("vm2", 1)})))
    assert names(plan) == ["vm1"]


def test_excluded_slots_are_not_used_or_counted():
    excluded = frozenset({Slot("vm1", 0), Slot("vm1", 1)})
    plan = make_plan(request(100.0, 4, excluded=excluded))
    assert {bundle.slot.number for bundle in plan.placement.bundles} == {2, 3}
    with pytest.raises(Infeasible, match="fits into 2 slots"):
        make_plan(request(300.0, 4, excluded=excluded))


def test_one_task_of_one_thread_is_planned_again_at_a_lower_rate():
    lone = replace(request(500.0, 4), topology=Topology("t", (Task("work", exclusive=True),)))
    with pytest.raises(Infeasible):
        make_plan(lone)
    assert best_plan(lone).rate_tps == pytest.approx(100, rel=0.006)


@pytest.mark.parametrize("rate", [300.0, 5000.0, 1e9])
def test_best_plan_fills_what_there_is(rate):
    """Four slots: three full bundles and the ends, or a rest beside them."""
    asked = request(rate, 4)
    plan = best_plan(asked)
    assert plan.rate_tps == pytest.approx(min(rate, 300 + 0.8 / 0.9 * 100), rel=0.006)
    assert faults_of(plan, TOPOLOGY, KNOWN) == []
    assert plan.prediction.rate_tps >= plan.rate_tps


def test_best_plan_is_the_plan_when_it_fits():
    assert best_plan(request(250.0, 4)) == make_plan(request(250.0, 4))


def test_best_plan_finds_rates_above_some_that_do_not_fit():
    """Both fit into one slot up to 5.5 rows/s, and again from 10 to 20."""
    odd = {name: model_of(name, (1, 10, 0.1, 0.9), (2, 20, 0.1, 0.1)) for name in ("a", "b")}
    assert best_plan(PlanRequest(chain("a", "b"), odd, 19.0, vms_of(1))).rate_tps == 19
    assert best_plan(PlanRequest(chain("a", "b"), odd, 40.0, vms_of(1))).rate_tps == pytest.approx(
        20, rel=0.006
    )


def test_best_plan_places_something_even_over_capacity():
    heavy = Topology("t", tuple(Task(n, static=Static(1, 0.7, 0.1)) for n in ("a", "b", "c")))
    plan = best_plan(PlanRequest(heavy, {}, 10.0, vms_of(1, 1)))
    assert [b.threads for b in plan.placement.bundles] == [1, 1, 1]
    assert (plan.mapper, plan.slots.used) == ("dsm", 2)
    assert faults_of(plan, heavy, {}) == []


def test_without_any_slot_even_best_plan_gives_up():
    with pytest.raises(Infeasible, match="no slot"):
        best_plan(request(10.0, 1, excluded=frozenset({Slot("vm1", 0)})))


def test_at_rate_zero_every_task_still_has_a_thread():
    plan = make_plan(request(0.0, 4))
    assert sum(bundle.threads for bundle in plan.placement.bundles) == 3
    assert plan.slots.used == 1
    assert faults_of(plan, TOPOLOGY, KNOWN) == []


def test_every_fault_of_a_request_is_listed():
    wrong = PlanRequest(
        chain("wrok", ends=True), KNOWN, float("nan"), (Vm("vm1", 1), Vm("vm1", 1)),
        allocator="mbaa", mapper="samm", routing="shufle", interference="gpu",
    )  # fmt: skip
    with pytest.raises(InvalidInput) as refused:
        make_plan(wrong)
    assert refused.value.exit_code == 3
    assert [fault.split(":")[0] for fault in refused.value.faults] == [
        "task 'wrok'", "rate", "allocator", "mapper", "routing", "interference", "vms",
    ]  # fmt: skip
    assert "; did you mean 'work'?" in refused.value.faults[0]
    assert "; did you mean 'shuffle'?" in refused.value.faults[4]


def test_the_id_names_all_but_the_base_epoch():
    plan = make_plan(request(100.0, 4))
    assert make_plan(request(100.0, 4, base_epoch=7)).id == plan.id
    assert make_plan(request(100.0, 4)) == plan
    others = [request(101.0, 4), request(100.0, 5), request(100.0, 4, routing="shuffle")]
    assert len({plan.id, *(make_plan(other).id for other in others)}) == 4


def test_plans_survive_json():
    plan = make_plan(request(250.0, 4))
    assert msgspec.json.decode(msgspec.json.encode(plan), type=Plan) == plan


def test_acquiring_adds_a_slot_for_what_does_not_fit():
    sizes = (Vm("", 4), Vm("", 2), Vm("", 1))
    plan = plan_acquiring(request(500.0), sizes)
    assert ([vm.slots for vm in plan.vms], plan.slots.extra) == ([4, 2], 1)


def test_round_robin_uses_as_many_slots_as_estimated():
    plan = make_plan(request(350.0, 1, 1, 1, 1, 1, 1, mapper="dsm"))
    assert names(plan) == ["vm1", "vm2", "vm3", "vm4"]
    assert (plan.slots.estimated, plan.slots.extra) == (4, 0)


def test_a_plan_has_one_id_whatever_its_vms_were_read_from():
    """Of a VM written out and read again the default numbers are other objects."""
    asked = request(250.0, 4)
    read = msgspec.json.decode(b'{"vm": "vm1", "slots": 4, "slot_cores": 1.0, "usd_per_hour": 0.0}', type=Vm)
    assert read == asked.vms[0]
    assert make_plan(replace(asked, vms=(read,))).id == make_plan(asked).id
