"""Mappers of papers 1 to 3 over a topology's threads: each paper's own rule on cases small enough to see."""

from __future__ import annotations

import time
from collections import defaultdict

import pytest
from examples import examples
from hypothesis import given
from msgspec.structs import replace
from patience import timed
from worlds import chain, model_of, requests, vms_of

from headgate.controller.models.plan_data import plan_data, plan_of
from headgate.controller.models.plans import (
    Allocation,
    Bundle,
    MeasuredTraffic,
    Placement,
    TaskAllocation,
    TaskFlow,
)
from headgate.controller.plan.mappers.free_slots import Room, TopologySpread
from headgate.controller.plan.mappers.task_groups import MOST_PAIRS, task_level_mapper, top_down_mapper
from headgate.controller.plan.mappers.topology_based import most_in_slot, topology_based
from headgate.controller.plan.mappers.traffic_based import traffic_based
from headgate.controller.plan.placing.placement_problem import Flow, Group, Node, Problem
from headgate.controller.plan.placing.top_down import top_down
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.predict.vm_links import crossings_of
from headgate.controller.plan.schedulers import MAPPERS
from headgate.controller.plan.verifier import faults_of
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import Infeasible

BY_NEED = ("traffic", "task-level", "top-down", "greedy-matching")


def allocation(**threads: tuple[int, float, float]) -> Allocation:
    """Task → (threads, CPU and memory of one thread)."""
    tasks = tuple(
        TaskAllocation(name, 1.0, count, cpu * count, memory * count)
        for name, (count, cpu, memory) in threads.items()
    )
    return Allocation("mba", 1.0, tasks, 1)


def flows(*triples: tuple[str, str, float]) -> tuple[TaskFlow, ...]:
    return tuple(TaskFlow(*triple) for triple in triples)


def measured(rows: dict[tuple[str, str], float], **more: dict) -> MeasuredTraffic:
    """Rows on edges at 100 rows/s; sizes of rows and cores of tasks as they are."""
    work = {task: cores / 100 for task, cores in more.get("work", {}).items()}
    return MeasuredTraffic(60.0, {e: r / 100 for e, r in rows.items()}, more.get("row_bytes", {}), work)


def by_slot(placement: Placement) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = defaultdict(dict)
    for bundle in placement.bundles:
        found[str(bundle.slot)][bundle.task] = bundle.threads
    return dict(found)


@pytest.mark.parametrize(("alpha", "most"), [(0.0, 3), (1.0, 7), (0.5, 5)])
def test_paper_1_most_executors_in_a_slot(alpha, most):
    """E = 10, W = 4: ⌈10/4⌉ = 3, E − W + 1 = 7."""
    assert most_in_slot(10, 4, alpha) == most


def test_paper_1_executors_go_beside_what_feeds_them():
    """α = 1, β = 1: all of a → b → c may be where a is; slots are dealt out to VMs in turn."""
    asked = allocation(a=(2, 0.1, 0.1), b=(2, 0.1, 0.1), c=(2, 0.1, 0.1))
    room = Room(vms_of(2, 2), flows=flows(("a", "b", 9), ("b", "c", 9)), spread=TopologySpread(1.0, 1.0))
    found = by_slot(topology_based(asked, room))
    assert found == {"vm1/0": {"a": 2, "b": 1}, "vm2/0": {"b": 1, "c": 2}}  # M(1) = 3
    early = by_slot(topology_based(asked, replace(room, spread=TopologySpread(1.0, 0.0))))
    assert len(early) == 4  # β = 0: empty slots first, from the first component on
    assert list(by_slot(topology_based(allocation(a=(2, 1, 1)), replace(room, flows=())))) == [
        "vm1/0",
        "vm2/0",
    ]


def test_paper_1_heaviest_pairs_share_a_slot_and_then_a_vm():
    """Two slots on each of two VMs; a, b say most, then c, d; slots a b and c d say more than a b and e f."""
    asked = allocation(**{name: (1, 0.45, 0.1) for name in "abcdef"})
    room = Room(
        vms_of(2, 2),
        flows=flows(("a", "b", 90), ("c", "d", 80), ("e", "f", 70), ("a", "c", 5), ("b", "e", 1)),
    )
    found = by_slot(traffic_based(asked, room))
    together = {slot: "".join(sorted(tasks)) for slot, tasks in found.items()}
    assert sorted(together.values()) == ["ab", "cd", "ef"]
    vm_of = {tasks: slot.split("/")[0] for slot, tasks in together.items()}
    assert vm_of["ab"] == vm_of["cd"] != vm_of["ef"]


def test_paper_1_a_thread_joins_what_it_speaks_with_where_there_is_room():
    """c speaks with a and b alone, which are in the fuller slot; d has no room there."""
    asked = allocation(a=(1, 0.3, 0.1), b=(1, 0.3, 0.1), e=(1, 0.1, 0.1), c=(1, 0.2, 0.1), d=(1, 0.5, 0.1))
    room = Room(vms_of(2), flows=flows(("a", "b", 90), ("b", "c", 20), ("b", "d", 10)))
    found = by_slot(traffic_based(asked, room))
    assert set(found["vm1/0"]) == {"a", "b", "c"}


def test_paper_1_measured_traffic_goes_before_selectivities():
    topology = chain("a", "b", "c")
    models = {name: model_of(name, (1, 100, 0.45, 0.1)) for name in "abc"}
    asked = PlanRequest(topology, models, 100.0, vms_of(2), allocator="lsa", mapper="traffic", fixed=True)
    said = make_plan(replace(asked, traffic=measured({("a", "b"): 1.0, ("b", "c"): 50.0})))
    where = {bundle.task: bundle.slot for bundle in said.placement.bundles}
    assert where["b"] == where["c"] != where["a"]
    where = {bundle.task: bundle.slot for bundle in make_plan(asked).placement.bundles}
    assert where["a"] == where["b"] != where["c"]


def test_large_rows_go_before_many_rows():
    """As many bytes as the sizes make of rows; a size that the topology gives goes before the measured one."""
    topology = chain("a", "b", "c")
    models = {name: model_of(name, (1, 100, 0.45, 0.1)) for name in "abc"}
    asked = PlanRequest(topology, models, 100.0, vms_of(2), allocator="lsa", mapper="traffic", fixed=True)
    rows, sizes = {("a", "b"): 100.0, ("b", "c"): 10.0}, {("a", "b"): 10.0, ("b", "c"): 1000.0}
    plan = make_plan(replace(asked, traffic=measured(rows, row_bytes=sizes)))
    where = {bundle.task: bundle.slot for bundle in plan.placement.bundles}
    assert where["b"] == where["c"] != where["a"]
    found = crossings_of(plan, topology)
    assert (found.between_slots_tps, found.between_slots_bytes_per_s) == pytest.approx((100, 1000))
    given = replace(topology, edges=(replace(topology.edges[0], row_bytes=5000.0), topology.edges[1]))
    plan = make_plan(replace(asked, topology=given, traffic=measured(rows, row_bytes=sizes)))
    where = {bundle.task: bundle.slot for bundle in plan.placement.bundles}
    assert where["a"] == where["b"] != where["c"]


def test_threads_that_use_more_than_their_model_says_are_given_more_room():
    """Four threads of 0.2 fit into a slot by their model; measured they use 0.4. What fits nowhere so
    is put by models."""
    topology = chain("a", "b")
    models = {name: model_of(name, (1, 50, 0.2, 0.1)) for name in "ab"}
    asked = PlanRequest(topology, models, 100.0, vms_of(1, 1, 1, 1), allocator="lsa", mapper="traffic")
    assert make_plan(asked).slots.used == 1
    rows = {("a", "b"): 100.0}
    plan = make_plan(replace(asked, traffic=measured(rows, work={"a": 0.8, "b": 0.8})))
    assert plan.slots.used == 2
    assert not faults_of(plan, topology, models)
    one = replace(asked, vms=vms_of(1))
    assert make_plan(replace(one, traffic=measured(rows, work={"a": 0.8, "b": 0.8}))).slots.used == 1


def test_a_plan_keeps_what_it_was_made_by_and_reads_back():
    topology = chain("a", "b", "c")
    models = {name: model_of(name, (1, 100, 0.45, 0.1)) for name in "abc"}
    asked = PlanRequest(topology, models, 100.0, vms_of(2), allocator="lsa", mapper="traffic", fixed=True)
    plan = make_plan(replace(asked, traffic=measured({("a", "b"): 1.0}, row_bytes={("a", "b"): 10.0})))
    assert plan.prediction.flows == (TaskFlow("a", "b", 1.0, 10.0),)
    assert plan_of(plan_data(plan)) == plan
    assert "flows" not in plan_data(make_plan(asked))["prediction"]


def test_paper_2_is_the_algorithm_of_headgate_place():
    asked = allocation(a=(4, 0.2, 0.1), b=(8, 0.1, 0.05), c=(2, 0.1, 0.3))
    given = flows(("a", "b", 40.0), ("b", "c", 10.0))
    groups = (Group("a", 4, 0.8), Group("b", 8, 0.8), Group("c", 2, 0.6))
    problem = Problem(
        groups, (Flow(0, 1, 40.0), Flow(1, 2, 10.0)), tuple(Node(f"n{n}", 1.0) for n in range(4))
    )
    counts = top_down(problem)
    found = by_slot(top_down_mapper(asked, Room(vms_of(4), flows=given)))
    for place, name in enumerate("abc"):
        at = {int(slot.split("/")[1]): tasks[name] for slot, tasks in found.items() if name in tasks}
        assert at == dict(counts[place])


def test_paper_2_task_level_refuses_what_is_quadratic():
    asked = allocation(a=(2000, 0.001, 0.0), b=(2000, 0.001, 0.0))
    with pytest.raises(Infeasible, match=f"more than {MOST_PAIRS:,}"):
        task_level_mapper(asked, Room(vms_of(8), flows=flows(("a", "b", 1.0))))


@pytest.mark.parametrize("mapper", BY_NEED)
def test_a_thread_too_many_is_refused_and_named(mapper):
    with pytest.raises(Infeasible, match="1 thread of task 'a' fit into no slot"):
        MAPPERS[mapper].place(allocation(a=(3, 0.6, 0.1)), Room(vms_of(2)))


@pytest.mark.parametrize("mapper", [*BY_NEED, "topology"])
def test_pinned_threads_stay_and_excluded_slots_are_empty(mapper):
    asked = allocation(s=(1, 0.1, 0.1), t=(1, 0.6, 0.1), a=(3, 0.3, 0.1))
    pinned, other, barred = Slot("vm2", 1), Slot("vm1", 2), Slot("vm1", 0)
    pins = {"s": (pinned,), "t": (other,)}
    room = Room(vms_of(3, 3), frozenset({barred}), pins, flows=flows(("s", "a", 5.0), ("s", "t", 9.0)))
    found = MAPPERS[mapper].place(asked, room)
    assert Bundle(pinned, "s", 1) in found.bundles and Bundle(other, "t", 1) in found.bundles
    assert barred not in {bundle.slot for bundle in found.bundles}


@pytest.mark.parametrize("mapper", BY_NEED)
def test_no_more_vms_are_taken_than_needed(mapper):
    """Twenty VMs may be added; what the threads need are two."""
    models = {"a": model_of("a", (1, 10, 0.5, 0.1))}
    asked = PlanRequest(
        chain("a"), models, 80.0, (), may_add=vms_of(*[2] * 20), allocator="lsa", mapper=mapper
    )
    found = make_plan(asked)
    assert found.slots.total == 4
    assert faults_of(found, chain("a"), models) == []


@given(requests())
@examples(60)
def test_crossings_are_what_leaves_by_shares(request_):
    """Summed over every pair of groups of threads, one by one."""
    try:
        plan = best_plan(replace(request_, mapper="rsm"))
    except Infeasible:
        return
    topology = request_.topology
    rates = topology.rates(plan.rate_tps)
    found = crossings_of(plan, topology)
    rows = slots = vms = 0.0
    for edge in topology.edges:
        flow = rates[edge.source] * edge.selectivity
        rows += flow
        for one in plan.prediction.shares:
            there = [s for s in plan.prediction.shares if s.task == edge.target]
            if one.task != edge.source:
                continue
            if edge.grouping == "local" and any(s.slot == one.slot for s in there):
                continue
            for other in there:
                slots += flow * one.share * other.share * (one.slot != other.slot)
                vms += flow * one.share * other.share * (one.slot.vm != other.slot.vm)
    assert found.rows_tps == pytest.approx(rows)
    assert found.between_slots_tps == pytest.approx(slots, abs=1e-9)
    assert found.between_vms_tps == pytest.approx(vms, abs=1e-9)


# ── Mappers that look at every slot for every thread say so where that would take minutes, and at once ───

MODELS = {name: model_of(name, (1, 100, 0.05, 0.01), (10, 1000, 0.5, 0.1)) for name in "ab"}
ASKED = PlanRequest(chain("a", "b"), MODELS, 800_000.0, vms_of(*[4] * 500), routing="shuffle")
AT_ONCE_S = 5.0  # of computing; without a refusal it is minutes


@timed
@pytest.mark.parametrize("mapper", ["topology", "traffic", "task-level"])
def test_thousands_of_slots_are_refused_in_one_clear_error(mapper, timed):
    began_s = time.process_time()
    with pytest.raises(Infeasible) as refused:
        make_plan(replace(ASKED, mapper=mapper, rate_tps=2_000_000.0, vms=vms_of(*[4] * 1500)))
    assert not timed or time.process_time() - began_s < AT_ONCE_S
    told = str(refused.value.cause)
    assert mapper in told and ("more than it does in seconds" in told or "every pair" in told)


@pytest.mark.parametrize("mapper", ["top-down", "greedy-matching", "rsm"])
def test_others_answer_with_thousands_of_slots(mapper):
    found = make_plan(replace(ASKED, mapper=mapper))
    assert found.slots.used >= 800
