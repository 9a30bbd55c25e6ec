"""Links of VMs: what a plan has them carry, and that no plan has them carry more than they hold."""

from __future__ import annotations

import json
import statistics

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from headgate.controller.models.plan_data import plan_data, plan_of, read_back
from headgate.controller.models.plans import MeasuredTraffic, Plan
from headgate.controller.models.task_models import Model, ModelSlot, Point
from headgate.controller.plan.planner import PlanRequest, best_plan, make_plan
from headgate.controller.plan.planning_request import room_of
from headgate.controller.plan.predict.prediction import predict
from headgate.controller.plan.predict.vm_links import NarrowLinks, links_of, overfull
from headgate.controller.plan.schedulers import MAPPERS
from headgate.controller.plan.verifier import faults_of
from headgate.controller.planning_commands.plan_sentences import planned_traffic
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible, InvalidInput

MODELS = {
    name: Model(name, ModelSlot(), (Point(1, 60.0, 0.4, 0.1), Point(2, 100.0, 0.8, 0.2)))
    for name in ("a", "b", "c")
}


def topology(grouping: str = "shuffle", sizes: tuple[float | None, ...] = (500.0, 2000.0, 100.0)) -> Topology:
    ends = Static(1, 0.1, 0.1)
    tasks = (
        Task("in", "source", static=ends),
        *(Task(name) for name in ("a", "b", "c")),
        Task("out", static=ends),
    )
    edges = (
        Edge("in", "a", row_bytes=sizes[0]),
        Edge("a", "b", 2.0, row_bytes=sizes[1]),
        Edge("a", "c", 1.0, grouping, row_bytes=sizes[2]),  # type: ignore[arg-type]
        Edge("b", "out", 0.5),
        Edge("c", "out"),
    )
    return Topology("linked", tasks, edges)


def vms(*mbps: float | None, slots: int = 2) -> tuple[Vm, ...]:
    plain = [Vm(f"vm{number}", slots) for number in range(1, 1 + len(mbps))]
    return tuple(
        vm if link is None else replace(vm, bandwidth_mbps=link) for vm, link in zip(plain, mbps, strict=True)
    )


def request(mbps: tuple[float | None, ...] = (1000.0,) * 4, **more: object) -> PlanRequest:
    what: dict[str, object] = {
        "topology": topology(),
        "models": MODELS,
        "rate_tps": 120.0,
        "vms": vms(*mbps),
        "fixed": True,
        **more,
    }
    return PlanRequest(**what)  # type: ignore[arg-type]


def by_graph(document: dict[str, object], flow: Topology) -> dict[str, tuple[float, float]]:
    """VM → (Mbit/s out, in), from a plan's JSON alone: a graph of VMs with the bytes of every pair of slots."""
    plan = json.loads(json.dumps(document))
    threads = {row["task"]: row["threads"] for row in plan["allocation"]}
    shares = {}
    for share in plan["prediction"]["shares"]:
        shares.setdefault(share["task"], {})[share["vm"], share["slot"]] = share["share"]
    known = [edge.row_bytes for edge in flow.edges if edge.row_bytes is not None]
    usual = statistics.geometric_mean(known)
    rates = dict.fromkeys(shares, 0.0) | {"in": plan["rate_tps"]}
    graph = networkx.MultiDiGraph()
    graph.add_nodes_from(vm["vm"] for vm in plan["vms"])
    edges = networkx.DiGraph([(edge.source, edge.target, {"edge": edge}) for edge in flow.edges])
    for task in networkx.topological_sort(edges):
        for _, target, edge in edges.out_edges(task, data="edge"):
            rows = rates[task] * edge.selectivity
            rates[target] += rows
            size = float(f"{usual:.3g}") if edge.row_bytes is None else edge.row_bytes
            rows *= threads[target] if edge.grouping == "all" else 1
            for here, part in shares[task].items():
                stays = edge.grouping == "local" and here in shares[target]
                for there, taken in shares[target].items():
                    if here[0] != there[0] and not stays:
                        graph.add_edge(here[0], there[0], bytes=rows * size * part * taken)
    return {
        vm: (graph.out_degree(vm, weight="bytes") * 8e-6, graph.in_degree(vm, weight="bytes") * 8e-6)
        for vm in graph
    }


@pytest.mark.parametrize("grouping", ["shuffle", "all", "local", "fields"])
@pytest.mark.parametrize("mapper", ["sam", "dsm", "traffic", "greedy-matching"])
def test_what_links_carry_is_what_a_graph_of_the_plans_json_sums_up(grouping: str, mapper: str):
    flow = topology(grouping)
    rate_tps = 40.0 if grouping == "all" else 120.0
    single = vms(*(1000.0,) * 12, slots=1)
    plan = make_plan(request(topology=flow, mapper=mapper, rate_tps=rate_tps, vms=single))
    expected = by_graph(plan_data(plan), flow)
    found = {
        link.vm: (link.out_bytes_per_s * 8e-6, link.in_bytes_per_s * 8e-6) for link in links_of(plan, flow)
    }
    assert found.keys() == expected.keys() and any(out for out, _ in found.values())
    for vm, ways in found.items():
        assert ways == pytest.approx(expected[vm], rel=1e-9), vm
    assert sum(out for out, _ in found.values()) == pytest.approx(sum(way for _, way in found.values()))


def test_a_row_to_all_threads_travels_once_for_each():
    flow = topology("all")
    plan = make_plan(request(topology=flow, mapper="dsm", rate_tps=40.0, vms=vms(*(1000.0,) * 12, slots=1)))
    tasks = tuple(replace(one, threads=3) if one.task == "c" else one for one in plan.allocation.tasks)
    more = replace(plan, allocation=replace(plan.allocation, tasks=tasks))
    expected = by_graph(plan_data(more), flow)
    found = {
        link.vm: (link.out_bytes_per_s * 8e-6, link.in_bytes_per_s * 8e-6) for link in links_of(more, flow)
    }
    assert found == {vm: pytest.approx(ways) for vm, ways in expected.items()}
    assert expected != by_graph(plan_data(plan), flow)


def test_a_link_that_what_comes_would_fill_is_too_narrow():
    """Both ways count, each for itself."""
    plan = make_plan(request(mapper="dsm"))
    out, taken = by_graph(plan_data(plan), topology())["vm3"]
    assert taken > 2 * out
    with pytest.raises(NarrowLinks) as refused:
        make_plan(request(mbps=(1000.0, 1000.0, taken * 0.9, 1000.0), mapper="dsm"))
    assert [fault.split()[0] for fault in refused.value.faults] == ["vm3"]
    kept = make_plan(request(mbps=(1000.0, 1000.0, taken * 1.1, 1000.0), mapper="dsm"))
    assert kept.placement == plan.placement


def test_measured_rows_and_sizes_go_before_selectivities():
    flow = replace(topology(), edges=tuple(replace(edge, row_bytes=None) for edge in topology().edges))
    measured = MeasuredTraffic(
        60.0,
        {(edge.source, edge.target): 3.0 for edge in flow.edges},
        {(edge.source, edge.target): 1000.0 for edge in flow.edges},
        {},
    )
    plain = make_plan(request(topology=flow))
    assert links_of(plain, flow) == ()  # no size is known: nothing can be said
    plan = make_plan(request(topology=flow, traffic=measured, mapper="dsm"))
    said = replace(
        flow,
        edges=tuple(
            replace(edge, row_bytes=1000.0, selectivity=3.0 if edge.source == "in" else 1.0)
            for edge in flow.edges
        ),
    )
    as_said = make_plan(request(topology=said, mapper="dsm", allocator="lsa"))
    assert {link.vm for link in links_of(plan, flow)} == {link.vm for link in links_of(as_said, said)}
    rows = {edge: 3.0 * 120 * 1000 for edge in ((e.source, e.target) for e in flow.edges)}
    assert sum(link.out_bytes_per_s for link in links_of(plan, flow)) <= sum(rows.values())


def test_a_plan_that_links_do_not_hold_is_refused_with_its_shortfall_and_the_rate_that_fits():
    wide = make_plan(request(mapper="dsm"))
    fullest = (
        max(max(link.out_bytes_per_s, link.in_bytes_per_s) for link in links_of(wide, topology())) * 8e-6
    )
    narrow = request(mbps=(fullest / 2,) * 4, mapper="dsm")
    with pytest.raises(NarrowLinks) as refused:
        make_plan(narrow)
    assert refused.value.exit_code == 4
    assert (
        f"{fullest:.4g} Mbit/s and its link has {fullest / 2:.4g}: {fullest / 2:.4g}"
        in refused.value.faults[0]
    )
    assert refused.value.rate_tps == pytest.approx(60.0)
    assert "fits up to 60 rows/s" in str(refused.value.hint)
    less = best_plan(narrow)
    assert 1.0 < less.rate_tps < 120.0 and not overfull(less, topology())


def test_a_link_that_just_holds_it_is_wide_enough():
    wide = make_plan(request(mapper="dsm"))
    fullest = (
        max(max(link.out_bytes_per_s, link.in_bytes_per_s) for link in links_of(wide, topology())) * 8e-6
    )
    assert make_plan(request(mbps=(fullest,) * 4, mapper="dsm")).placement == wide.placement
    with pytest.raises(NarrowLinks):
        make_plan(request(mbps=(fullest * 0.999,) * 4, mapper="dsm"))


def test_only_links_that_somebody_knows_are_looked_at():
    assert (
        make_plan(request(mbps=(None,) * 4)).id
        == make_plan(
            PlanRequest(topology(), MODELS, 120.0, tuple(Vm(f"vm{n}", 2) for n in range(1, 5)), fixed=True)
        ).id
    )
    with pytest.raises(NarrowLinks) as refused:
        make_plan(request(mbps=(None, 0.001, None, None), mapper="dsm"))
    assert [fault.split()[0] for fault in refused.value.faults] == ["vm2"]


@given(st.floats(0.05, 20.0), st.sampled_from(sorted(set(MAPPERS) - {"optimal"})))
def test_no_plan_that_is_made_has_a_link_carry_more_than_it_holds(mbps: float, mapper: str):
    asked = request(mbps=(mbps,) * 4, mapper=mapper, rate_tps=80.0)
    try:
        plan = make_plan(asked)
    except Infeasible:
        try:
            plan = best_plan(asked)
        except Infeasible:
            return
        assert plan.rate_tps < 80.0
    for out, taken in by_graph(plan_data(plan), topology()).values():
        assert max(out, taken) <= mbps * (1 + 1e-6)


def test_the_verifier_finds_a_plan_that_fills_a_link_too_much():
    plan = make_plan(request(mapper="dsm"))
    narrow = replace(plan, vms=vms(*(0.001,) * 4))
    assert [fault for fault in faults_of(narrow, topology(), MODELS) if fault.startswith("link: vm1 would ")]
    assert not [fault for fault in faults_of(plan, topology(), MODELS) if fault.startswith("link")]


def test_a_plans_file_keeps_links_and_what_they_carry():
    plan = make_plan(request(mbps=(1000.0, None, 10.5, None)))
    document = json.loads(json.dumps(plan_data(plan, planned_traffic(plan, topology()))))
    assert [vm.get("bandwidth_mbps") for vm in document["vms"]] == [1000.0, None, 10.5, None]
    again, told = read_back(document)
    assert again.vms == plan.vms and told == planned_traffic(plan, topology())
    assert [link.bandwidth_mbps for link in told.links] == [1000.0, None, 10.5, None]
    unknown = make_plan(request(mbps=(None,) * 4))
    assert "links" not in plan_data(unknown, planned_traffic(unknown, topology()))["traffic"]


@pytest.mark.parametrize("value", [0, -1, "much", True, None, 1e9, float("nan")])
def test_a_file_with_a_link_that_cannot_be_is_refused_by_its_place(value: object):
    document = plan_data(make_plan(request()))
    document["vms"][1]["bandwidth_mbps"] = value
    with pytest.raises(InvalidInput) as refused:
        plan_of(document)
    assert any(
        fault.startswith("vms[1].bandwidth_mbps: expected a number of Mbit/s")
        for fault in refused.value.faults
    )


@pytest.mark.parametrize("wide", [(1000.0, 1000.0, 1.0, 1.0), (1.0, 1.0, 1000.0, 1000.0)])
def test_greedy_matching_puts_talkers_where_links_are_wide(wide: tuple[float, ...]):
    flow = topology(sizes=(500.0, 9000.0, 50.0))
    narrow = {f"vm{number}" for number, mbps in enumerate(wide, 1) if mbps == 1.0}

    def said(*mbps: float) -> float:
        plan = unchecked(request(mbps=mbps, mapper="greedy-matching", rate_tps=100.0, topology=flow))
        return sum(
            link.out_bytes_per_s + link.in_bytes_per_s for link in links_of(plan, flow) if link.vm in narrow
        )

    assert said(*wide) < said(1e6, 1e6, 1e6, 1e6)


def unchecked(asked: PlanRequest) -> Plan:
    """The plan, if nobody looked at links once it is made."""
    wide = make_plan(replace(asked, vms=tuple(replace(vm, bandwidth_mbps=1e7) for vm in asked.vms)))
    placement = MAPPERS[asked.mapper].place(wide.allocation, room_of(asked))
    found = predict(asked.topology, asked.models, placement, asked.vms, asked.rate_tps)
    return replace(wide, placement=placement, prediction=found)
