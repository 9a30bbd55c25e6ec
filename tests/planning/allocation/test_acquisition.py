"""Which VMs are acquired: the cheapest mix, and one slot more until the mapper fits."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import chain, checked, model_of, requests

from headgate.controller import planning_commands as offline
from headgate.controller.files.planning_inputs import read_prices
from headgate.controller.plan.acquire import cheapest, covering, exact
from headgate.controller.plan.planner import MOST_SLOTS, PlanRequest, make_plan, plan_acquiring
from headgate.controller.plan.schedulers import ALLOCATORS
from headgate.topology_runtime.api.cluster import Slot, Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

SIZES = (Vm("", 4), Vm("", 2), Vm("", 1))
LIST = (Vm("small", 1, usd_per_hour=0.1), Vm("large", 4, usd_per_hour=0.3), Vm("odd", 3, usd_per_hour=0.25))
KNOWN = {"work": model_of("work", (1, 100, 0.9, 0.2))}


def slots(vms: tuple[Vm, ...]) -> list[int]:
    return [vm.slots for vm in vms]


@pytest.mark.parametrize(
    ("desired", "mix"),
    [(0, []), (1, [1]), (2, [1, 1]), (3, [3]), (4, [4]), (6, [3, 3]), (7, [4, 3]), (15, [4, 4, 4, 3])],
)
def test_the_cheapest_mix_by_hand(desired, mix):
    assert slots(cheapest(desired, LIST)) == mix


def test_of_equal_price_fewer_vms_and_then_fewer_slots_win():
    per_slot = (Vm("", 1, usd_per_hour=0.1), Vm("", 2, usd_per_hour=0.2), Vm("", 4, usd_per_hour=0.4))
    assert slots(cheapest(7, per_slot)) == [4, 2, 1]  # 0.1 × 7 in floating point is not 0.7
    flat = (Vm("", 8, usd_per_hour=0.5), Vm("", 4, usd_per_hour=0.5), Vm("", 6, usd_per_hour=0.5))
    assert slots(cheapest(3, flat)) == [4]
    twins = (Vm("", 2, usd_per_hour=0.2, rack="r2"), Vm("", 2, usd_per_hour=0.2, rack="r1"))
    assert {vm.rack for vm in cheapest(6, twins)} == {"r2"}


@st.composite
def lists(draw: st.DrawFn) -> tuple[Vm, ...]:
    size = st.builds(Vm, st.just(""), st.integers(1, 5), usd_per_hour=st.sampled_from([0.1, 0.2, 0.3, 0.7]))
    return tuple(draw(st.lists(size, min_size=1, max_size=3)))


@checked
@given(st.integers(0, 12), lists())
def test_no_mix_is_cheaper(desired, sizes):
    """Against all mixes: cost, then VMs, then slots."""
    mixes = [
        counts
        for counts in product(range(desired + 1), repeat=len(sizes))
        if sum(n * size.slots for n, size in zip(counts, sizes, strict=True)) >= desired
    ]

    def worth(counts: tuple[int, ...]) -> tuple[int, int, int]:
        pairs = list(zip(counts, sizes, strict=True))
        cost = sum(n * round(size.usd_per_hour * 10) for n, size in pairs)
        return cost, sum(counts), sum(n * size.slots for n, size in pairs)

    found = cheapest(desired, sizes)
    cost = sum(round(vm.usd_per_hour * 10) for vm in found)
    assert (cost, len(found), sum(slots(found))) == min(worth(counts) for counts in mixes)
    assert [vm.vm for vm in found] == [f"vm{number}" for number in range(1, len(found) + 1)]


@pytest.mark.parametrize("acquire", [exact, covering, cheapest])
@pytest.mark.parametrize(
    "pair", [("mba", "sam"), ("mba", "dsm"), ("lsa", "dsm"), ("mba", "rsm"), ("lsa", "rsm")]
)
def test_the_plan_names_every_vm_it_acquires(acquire, pair):
    request = PlanRequest(chain("work", ends=True), KNOWN, 450.0, (), allocator=pair[0], mapper=pair[1])
    plan = plan_acquiring(request, LIST, acquire)
    assert plan.slots.estimated == 5
    assert plan.vms == acquire(plan.slots.estimated + plan.slots.extra, LIST)
    assert plan.slots.total == sum(slots(plan.vms)) >= plan.slots.used


def test_vms_excluded_slots_and_pins_of_the_request_are_not_looked_at():
    asked = PlanRequest(chain("work", ends=True), KNOWN, 450.0, ())
    busy = replace(
        asked, vms=(Vm("vm1", 9),), excluded=frozenset({Slot("vm1", 0)}), pinned={"source": (Slot("vm1", 1),)}
    )
    assert plan_acquiring(busy, SIZES) == plan_acquiring(asked, SIZES)


def test_a_thread_that_needs_a_whole_vm_takes_vms_large_enough():
    """RSM counts CPU per VM: one thread of fixed size may use the CPU of two slots."""
    wide = Topology("t", (Task("in", static=Static(1, 1.5, 0.2)),))
    plan = plan_acquiring(PlanRequest(wide, {}, 1.0, (), mapper="rsm"), SIZES)
    assert (slots(plan.vms), plan.slots.estimated, plan.slots.extra) == ([2], 0, 2)
    with pytest.raises(Infeasible, match="whatever VMs are acquired"):
        plan_acquiring(PlanRequest(wide, {}, 1.0, (), mapper="rsm"), SIZES[2:])


@pytest.mark.parametrize("mapper", ["sam", "rsm"])
def test_a_thread_that_no_slot_holds_is_infeasible(mapper):
    heavy = Topology("t", (Task("in", static=Static(1, 0.1, 1.5)),))
    with pytest.raises(Infeasible) as refused:
        plan_acquiring(PlanRequest(heavy, {}, 1.0, (), mapper=mapper), SIZES)
    assert "task 'in'" in (refused.value.cause or "")
    assert "whatever VMs are acquired" in refused.value.what


def test_many_more_slots_than_estimated_are_found_without_trying_each():
    """1,000 threads of 0.6 of a slot's memory: ρ is 600, and each needs a slot of its own."""
    tried: list[int] = []

    def counted(desired: int, sizes: object) -> tuple[Vm, ...]:
        tried.append(desired)
        return exact(desired, SIZES)

    model = {"work": model_of("work", (1, 10, 0.1, 0.6))}
    request = PlanRequest(chain("work"), model, 10_000.0, (), allocator="lsa", mapper="rsm")
    plan = plan_acquiring(request, SIZES, counted)
    assert (plan.slots.estimated, plan.slots.extra, plan.slots.used) == (600, 400, 1000)
    assert len(tried) < 50


@pytest.mark.parametrize("rate", [1e9, 1e300, 1.7e308])
@pytest.mark.parametrize("pair", [("mba", "sam"), ("lsa", "rsm"), ("mba", "dsm")])
def test_a_rate_beyond_all_measure_is_infeasible(rate, pair):
    doubled = Topology("t", (Task("a", model="work"), Task("work")), (Edge("a", "work", 2.0),))
    request = PlanRequest(doubled, KNOWN, rate, (Vm("vm1", 4),), allocator=pair[0], mapper=pair[1])
    for plan in (lambda: make_plan(request), lambda: plan_acquiring(request, SIZES)):
        with pytest.raises(Infeasible) as refused:
            plan()
        assert len("".join(refused.value.lines())) < 300
    assert f"{MOST_SLOTS:,}" in refused.value.what or "no slots carry" in refused.value.what


def test_without_sizes_nothing_is_acquired():
    with pytest.raises(InvalidInput, match="no VM size"):
        plan_acquiring(PlanRequest(chain("work"), KNOWN, 1.0, ()), ())


@checked
@given(
    requests(),
    st.sampled_from([("mba", "sam"), ("mba", "dsm"), ("lsa", "dsm"), ("mba", "rsm"), ("lsa", "rsm")]),
)
def test_an_acquired_plan_is_the_plan_on_those_vms(request, pair):
    asked = replace(request, allocator=pair[0], mapper=pair[1], rate_tps=min(request.rate_tps, 300.0))
    assume(ALLOCATORS[pair[0]].allocate(request.topology, request.models, asked.rate_tps).slots <= 200)
    try:
        plan = plan_acquiring(asked, SIZES)
    except Infeasible:
        return
    again = make_plan(replace(asked, vms=plan.vms, may_add=(), excluded=frozenset(), pinned={}, fixed=True))
    assert again.placement == plan.placement
    assert again.prediction == plan.prediction


# ── Price lists: what a VM of each size is and costs ────────────────────────────────────────────────────

SHIPPED = Path(offline.__file__).parent / "azure-d.toml"
HEAD = 'schema = "headgate/prices/v1"\n'
SIZE = '[[size]]\nname = "D1"\nslots = 1\nusd_per_hour = 0.098\n'


@pytest.fixture
def faults(tmp_path):
    def faults_of(text: str) -> list[str]:
        path = tmp_path / "prices.toml"
        path.write_text(text, "utf-8")
        with pytest.raises(InvalidInput) as refused:
            read_prices(path)
        assert refused.value.exit_code == 3
        return [*refused.value.faults] or refused.value.lines()

    return faults_of


def test_the_shipped_list_is_that_of_the_paper():
    sizes = read_prices(SHIPPED)
    assert [(size.vm, size.slots, size.usd_per_hour) for size in sizes] == [
        ("D1", 1, 0.098), ("D2", 2, 0.196), ("D3", 4, 0.392), ("D4", 8, 0.784),
    ]  # fmt: skip
    assert {(size.slot_memory_bytes, size.slot_cores, size.speed, size.rack) for size in sizes} == {
        (3_758_096_384, 1.0, 1.0, "r1")
    }
    assert [vm.slots for vm in cheapest(15, sizes)] == [8, 4, 2, 1]


def test_what_may_be_left_out_may_be_given(tmp_path):
    path = tmp_path / "own.toml"
    more = 'slot_memory_bytes = 1000\nspeed = 2\nslot_cores = 0.5\nrack = "r7"\n'
    path.write_text(HEAD + SIZE + more, "utf-8")
    assert read_prices(path) == (Vm("D1", 1, 0.5, 1000, 0.098, "r7", 2),)


def test_every_fault_is_listed_with_its_place(faults):
    second = '[[size]]\nname = "D1"\nslots = 0\nusd_per_hour = nan\nslot_memry_bytes = 1\nspeed = -1\n'
    third = '[[size]]\nname = "a b"\nslots = true\nrack = 3\n'
    assert faults('schema = "headgate/prices/v2"\nsizes = 1\n' + SIZE + second + third) == [
        "sizes: unknown key; did you mean 'size'?",
        "schema: expected 'headgate/prices/v1', got 'headgate/prices/v2'",
        "size[1].slot_memry_bytes: unknown key; did you mean 'slot_memory_bytes'?",
        "size[1].name: 'D1' is listed twice",
        "size[1].slots: expected a whole number from 1 to 1024, got 0",
        "size[1].usd_per_hour: expected a number above 0 and at most 1e+06, got nan",
        "size[1].speed: expected a number above 0 and at most 1000, got -1",
        "size[2].usd_per_hour: is missing",
        "size[2].name 'a b': names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots",
        "size[2].rack: expected a name, got 3",
        "size[2].slots: expected a whole number from 1 to 1024, got True",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (HEAD, "size: expected at least one [[size]]"),
        (HEAD + "size = 3\n", "size: expected at least one [[size]]"),
        (HEAD + "size = [3]\n", "size[0]: expected a table, got 3"),
        ("", "schema: expected 'headgate/prices/v1', got None"),
        ("[[size", "is not TOML"),
        (HEAD + HEAD, "is not TOML"),
        ("#" * (1024 * 1024), "is not TOML"),
        ("#" * (1024 * 1024 + 1), "is larger than"),
    ],
)
def test_what_is_no_price_list_is_refused(faults, text, words):
    if text.startswith("##") and len(text) == 1024 * 1024:
        words = "schema: expected"  # a comment as long as is allowed
    assert any(words in fault for fault in faults(text))


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(InvalidInput, match="cannot be read"):
        read_prices(tmp_path / "absent.toml")
    os.mkfifo(tmp_path / "pipe.toml")
    with pytest.raises(InvalidInput, match="is not a regular file"):
        read_prices(tmp_path / "pipe.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff\n")
    with pytest.raises(InvalidInput, match="not TOML"):
        read_prices(tmp_path / "latin.toml")
