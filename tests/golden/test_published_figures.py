"""What paper 0 says its allocators and mappers gave, from its own models (to 0.01 unless it rounds more)."""

from __future__ import annotations

import math

import pytest
from msgspec.structs import replace

from headgate.controller.files.planning_inputs import read_models
from headgate.controller.models.plans import Allocation, Bundle, Placement, Plan, TaskAllocation
from headgate.controller.models.task_models import memory, peak_rate
from headgate.controller.plan.allocators.lsa import lsa
from headgate.controller.plan.allocators.mba import mba
from headgate.controller.plan.planner import PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.scaling import highest_plan
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api import shipped_examples as examples
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.loading import load
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import Infeasible

# ── The micro topologies of paper 0 (section 8.3) and the authors' own performance models, as shipped ───

MODELS = read_models(examples.MODELS)
SIZES = tuple(Vm(f"D{size}", size, usd_per_hour=0.098 * size) for size in (4, 2, 1))
FIVE_D3 = tuple(Vm(f"vm{number}", 4, usd_per_hour=0.392) for number in range(1, 6))
WHOLE = {name: load(name).topology for name in ("linear", "diamond", "star")}
LOGIC = {name: examples.logic_alone(topology) for name, topology in WHOLE.items()}


def linear(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["linear"]


def diamond(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["diamond"]


def star(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["star"]


def request(topology: Topology, rate_tps: float, vms: tuple[Vm, ...] = (), **more: str) -> PlanRequest:
    return PlanRequest(topology, MODELS, rate_tps, vms, **more)  # type: ignore[arg-type]


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────


def totals(allocation: Allocation) -> tuple[float, float]:
    counted = [task for task in allocation.tasks if not task.static]
    return sum(task.cpu_slots for task in counted), sum(task.memory_slots for task in counted)


def of(allocation: Allocation, name: str) -> TaskAllocation:
    return next(task for task in allocation.tasks if task.task == name)


def best_in_steps_of_ten(topology: Topology, **pair: str) -> Plan:
    """Section 8.5: the highest rate, in steps of 10 rows/s, that fits five D3 VMs."""
    return highest_plan(replace(request(topology, 0.0, FIVE_D3, **pair), fixed=True), 10.0)


@pytest.mark.parametrize(("rate", "slots"), [(50, 7), (100, 13), (200, 25)])
def test_lsa_linear_slots_estimated(rate, slots):
    assert lsa(linear(), MODELS, rate).slots == slots


def test_lsa_linear_totals_at_50():
    cpu, memory = totals(lsa(linear(), MODELS, 50))
    assert (math.floor(100 * cpu), math.floor(100 * memory)) == (242, 623)


def test_lsa_blob():
    at_50, at_100 = of(lsa(linear(), MODELS, 50), "blob"), of(lsa(linear(), MODELS, 100), "blob")
    assert (at_50.threads, at_100.threads) == (25, 50)
    assert at_50.memory_slots == pytest.approx(5.98, abs=0.01)
    assert at_100.cpu_slots == pytest.approx(3.37, abs=0.01)
    assert at_100.memory_slots == pytest.approx(11.96, abs=0.01)


@pytest.mark.parametrize(("rate", "memory", "slots"), [(50, 6.23, 7), (100, 12.47, 13)])
def test_lsa_memory_totals(rate, memory, slots):
    """Section 8.4.1 prints ⌈6.23⌉ and ⌈12.47⌉ for Star; its models give them for Linear (Star: 6.31)."""
    allocation = lsa(linear(), MODELS, rate)
    assert totals(allocation)[1] == pytest.approx(memory, abs=0.01)
    assert allocation.slots == slots


@pytest.mark.parametrize("ends", [False, True], ids=["logic alone", "with source and sink"])
@pytest.mark.parametrize(
    ("topology", "rate", "estimated", "total", "total_with_ends"),
    [
        (linear, 50, 4, 4, 4),
        (linear, 100, 7, 7, 7),
        (linear, 200, 14, 15, 15),
        (diamond, 50, 5, 5, 5),
        (diamond, 100, 10, 10, 10),
        (diamond, 200, 20, 20, 20),
        (star, 50, 4, 4, 5),
        (star, 100, 8, 8, 9),
        (star, 200, 17, 17, 17),
    ],
)
def test_mba_and_sam_slots(topology, rate, estimated, total, total_with_ends, ends):
    plan = plan_acquiring(request(topology(ends), float(rate)), SIZES)
    assert plan.slots.estimated == estimated
    assert plan.slots.total == (total_with_ends if ends else total)
    assert plan.slots.extra == plan.slots.total - estimated
    assert plan.prediction.rate_tps == pytest.approx(rate, rel=1e-6)
    assert faults_of(plan, topology(ends), MODELS) == []


@pytest.mark.parametrize(
    ("topology", "rate", "estimated", "total", "total_with_ends"),
    [
        (linear, 50, 7, 7, 7),
        (linear, 100, 13, 14, 14),
        (linear, 200, 25, 26, 28),
        (diamond, 50, 7, 8, 8),
        (diamond, 100, 13, 14, 14),
        (diamond, 200, 26, 30, 30),
        (star, 50, 7, 7, 7),
        (star, 100, 13, 13, 14),
        (star, 200, 26, 27, 27),
    ],
)
def test_lsa_and_rsm_slots(topology, rate, estimated, total, total_with_ends):
    plan = plan_acquiring(request(topology(), float(rate), allocator="lsa", mapper="rsm"), SIZES)
    assert (plan.slots.estimated, plan.slots.total) == (estimated, total)
    assert faults_of(plan, topology(), MODELS) == []
    whole = plan_acquiring(request(topology(True), float(rate), allocator="lsa", mapper="rsm"), SIZES)
    assert whole.slots.total == total_with_ends


def test_slots_saved_over_all_micro_topologies():
    """Section 8.4.1 says about half; with its own models it is 56 of 146, 38 %."""
    needed = {
        pair: sum(
            plan_acquiring(request(topology(), rate, allocator=pair[0], mapper=pair[1]), SIZES).slots.total
            for topology in (linear, diamond, star)
            for rate in (50.0, 100.0, 200.0)
        )
        for pair in (("lsa", "rsm"), ("mba", "sam"))
    }
    assert needed == {("lsa", "rsm"): 146, ("mba", "sam"): 90}


def test_mba_blob_at_100():
    blob = of(mba(linear(), MODELS, 100), "blob")
    assert blob.threads == 170
    assert blob.cpu_slots == pytest.approx(3.1469, abs=1e-9)
    assert blob.memory_slots == pytest.approx(3.263, abs=1e-9)
    assert (blob.full_bundles, blob.bundle_threads, blob.rest_threads) == (3, 50, 20)


def test_mba_linear_at_50():
    allocation = mba(linear(), MODELS, 50)
    assert math.floor(100 * totals(allocation)[0]) == 323
    assert math.floor(100 * of(allocation, "blob").memory_slots) == 128


def test_diamond_at_100_table_bundles():
    plan = plan_acquiring(request(diamond(), 100.0), SIZES)
    bundles = [b for b in plan.placement.bundles if b.task == "table"]
    assert sorted((b.threads, b.full) for b in bundles) == [(40, False), (60, True), (60, True)]


@pytest.mark.parametrize("interference", ["cpu", "none"])
def test_diamond_at_100_with_shuffle_is_limited_to_80(interference):
    plan = plan_acquiring(request(diamond(), 100.0, routing="shuffle", interference=interference), SIZES)
    given = sorted(100 * share.share for share in plan.prediction.shares if share.task == "table")
    assert given == pytest.approx([25, 37.5, 37.5])
    assert [peak_rate(MODELS["table"], threads) for threads in (40, 60)] == [20, 40]
    assert plan.prediction.rate_tps == pytest.approx(80)
    assert plan.prediction.limited_by == "table"
    limiting = next(b for b in plan.placement.bundles if b.task == "table" and b.threads == 40)
    assert plan.prediction.limited_by_slot == str(limiting.slot)


def test_linear_on_20_slots():
    by_lsa = best_in_steps_of_ten(linear(), allocator="lsa", mapper="dsm")
    assert (by_lsa.rate_tps, of(by_lsa.allocation, "table").threads) == (160, 54)
    by_dsm = best_in_steps_of_ten(linear(), mapper="dsm")
    assert by_dsm.rate_tps == 280
    assert {b.threads for b in by_dsm.placement.bundles if b.task == "blob"} == {23, 24}
    by_sam = best_in_steps_of_ten(linear())
    assert by_sam.rate_tps == 280
    blob = of(by_sam.allocation, "blob")
    assert (blob.full_bundles, blob.bundle_threads, blob.rest_threads) == (9, 50, 20)
    assert (blob.threads, of(by_sam.allocation, "table").threads) == (470, 420)
    assert by_sam.prediction.rate_tps == pytest.approx(280, rel=1e-6)


@pytest.mark.parametrize(("ends", "rate"), [(False, 240), (True, 230)])
def test_star_on_20_slots(ends, rate):
    plan = best_in_steps_of_ten(star(ends))
    assert plan.rate_tps == rate
    assert of(plan.allocation, "xml").rate_tps == pytest.approx(2 * rate)


@pytest.mark.parametrize(
    ("topology", "planned"),
    [
        (linear, (160, 150, 280, 280, 280)),
        (diamond, (150, 150, 200, 200, 200)),
        (star, (150, 140, 240, 240, 240)),
    ],
)
def test_planned_rates_of_the_five_pairs_on_20_slots(topology, planned):
    pairs = (("lsa", "dsm"), ("lsa", "rsm"), ("mba", "dsm"), ("mba", "rsm"), ("mba", "sam"))
    found = [best_in_steps_of_ten(topology(), allocator=a, mapper=m).rate_tps for a, m in pairs]
    assert found == list(planned)


def test_rsm_may_refuse_a_rate_and_plan_a_higher_one():
    """So the first rate refused is not where to stop: 140 is, 150 is not."""
    asked = replace(request(diamond(), 140.0, FIVE_D3, allocator="lsa", mapper="rsm"), fixed=True)
    with pytest.raises(Infeasible):
        make_plan(asked)
    assert make_plan(replace(asked, rate_tps=150.0)).rate_tps == 150


def test_what_the_text_says_and_its_models_do_not():
    """Section 8.4.1 has 18 threads of table, and 8 % of memory beside four of blob."""
    assert of(lsa(diamond(), MODELS, 50), "table").threads == 17
    assert 1 - 4 * memory(MODELS["blob"], 1) == pytest.approx(0.0432)


def test_seventeen_table_threads_over_five_slots():
    """Section 8.4.1: 2 threads on each of 4 slots and 9 on another carry 4 × 5 + I(9) rows/s."""
    vms = (Vm("vm1", 4), Vm("vm2", 1))
    placement = Placement(
        (*[Bundle(Slot("vm1", n), "table", 2) for n in range(4)], Bundle(Slot("vm2", 0), "table", 9))
    )
    prediction = predict(Topology("table", (Task("table"),)), MODELS, placement, vms)
    assert prediction.rate_tps == pytest.approx(29.375)


def test_cost_of_the_exact_mix():
    """Section 8.2: 15 slots are 3 × D3, D2 and D1, at the price of 15 single slots."""
    plan = plan_acquiring(request(linear(), 200.0), SIZES)
    assert [vm.slots for vm in plan.vms] == [4, 4, 4, 2, 1]
    assert sum(vm.usd_per_hour for vm in plan.vms) == pytest.approx(15 * 0.098)
