"""Weights, key ranges and modelled rates of the threads of a plan."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from worlds import checked, model_of, requests, vms_of

from headgate.controller.execute.plan_diff import diff
from headgate.controller.execute.rollout import around_dead, modelled_tps, owners_of_ranges, routes
from headgate.controller.models.plans import Plan, ThreadAt
from headgate.controller.models.task_models import peak_rate
from headgate.controller.plan.planner import PlanRequest, make_plan
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.errors import Infeasible
from headgate.topology_runtime.wire.messages import Route

TABLE = model_of("table", (1, 3, 0.01, 0.01), (40, 20, 0.27, 0.09), (60, 40, 0.54, 0.16))
LOOSE = model_of("loose", (1, 1000, 0.1, 0.1))


def topology(grouping: str, second: str = "shuffle") -> Topology:
    tasks = (
        Task("source", kind="source", static=Static(2, 0.1, 0.1)), Task("loose"),
        Task("table"), Task("sink", static=Static(1, 0.1, 0.1)),
    )  # fmt: skip
    edges = (
        Edge("source", "loose"),
        Edge("source", "table", 0.5, grouping, key="k"),
        Edge("loose", "table", 0.5, second, key="k"),
        Edge("table", "sink"),
    )
    return Topology("t", tasks, edges)


def planned(shape: Topology, rate_tps: float = 100.0, **more: str) -> tuple[Plan, tuple[ThreadAt, ...]]:
    known = {"table": TABLE, "loose": LOOSE}
    plan = make_plan(PlanRequest(shape, known, rate_tps, vms_of(4, 4), **more))  # type: ignore[arg-type]
    return plan, diff((), plan.placement, shape, 1).start


def counts(route: Route) -> Counter[int]:
    found: Counter[int] = Counter()
    for thread, ranges in route.ranges:
        found[thread] += ranges
    return found


def test_shares_are_split_evenly_within_a_group():
    shape = topology("shuffle")
    plan, threads = planned(shape)
    found = routes(shape, plan, threads)
    assert [route.edge for route in found] == [0, 1, 2, 3]
    shares = {(share.slot, share.task): share.share for share in plan.prediction.shares}
    sizes = Counter((thread.slot, thread.task) for thread in threads)
    weights = dict(found[1].targets)
    assert len(weights) == sum(b.threads for b in plan.placement.bundles if b.task == "table") == 160
    for thread in threads:
        if thread.task == "table":
            group = thread.slot, "table"
            assert weights[thread.thread] == pytest.approx(shares[group] / sizes[group])
    assert found[2].targets == found[1].targets
    assert not any(route.ranges for route in found)


def test_shuffle_routing_weighs_all_threads_alike():
    shape = topology("shuffle")
    plan, threads = planned(shape, routing="shuffle")
    weights = [weight for _, weight in routes(shape, plan, threads)[1].targets]
    assert weights == pytest.approx([1 / 160] * 160)


def test_what_rounding_leaves_over_goes_to_the_largest_remainders():
    ranges = [1.9, 3.2, 1018.9]
    owners = owners_of_ranges([(thread, many / KEY_RANGES) for thread, many in enumerate(ranges)], ())
    assert Counter(owners) == {0: 2, 1: 3, 2: 1019}


def test_around_a_dead_thread_rows_and_ranges_go_to_those_left_in_their_proportions():
    before = (
        Route(0, ((1, 0.5), (2, 0.3), (3, 0.2)), ((1, 500), (2, 300), (3, 224))),
        Route(1, ((1, 1.0),)),
        Route(2, ((3, 1.0),)),
    )
    new = tuple(Route(edge, ((9, 1.0),)) for edge in range(3))
    first, second, third = around_dead(before, {2, 3}, new)
    assert dict(first.targets) == pytest.approx({2: 0.6, 3: 0.4})
    assert sum(many for _, many in first.ranges) == KEY_RANGES and {t for t, _ in first.ranges} == {2, 3}
    assert first.ranges[1:] == before[0].ranges[1:], "what has an owner stays with it"
    assert (second, third) == (new[1], before[2])


def test_a_global_edge_goes_to_the_lowest_thread():
    shape = topology("shuffle")
    plan, threads = planned(shape)
    lone = replace(
        shape, edges=(shape.edges[0], replace(shape.edges[1], grouping="global"), *shape.edges[2:])
    )
    lowest = min(thread.thread for thread in threads if thread.task == "table")
    assert routes(lone, plan, threads)[1].targets == ((lowest, 1.0),)


def test_every_fields_edge_into_a_task_uses_the_same_ranges():
    shape = topology("fields", "fields")
    plan, threads = planned(shape)
    found = routes(shape, plan, threads)
    assert found[1].ranges == found[2].ranges
    assert counts(found[1]).total() == KEY_RANGES
    assert len(found[1].ranges) == 160  # one run per thread
    assert found[0].ranges == found[3].ranges == ()


def test_ranges_stay_with_their_owners():
    shape = topology("fields", "fields")
    plan, threads = planned(shape)
    before = routes(shape, plan, threads)
    assert routes(shape, plan, threads, before) == before
    less, _ = planned(shape, 80.0)
    change = diff(threads, less.placement, shape, 1000)
    after = routes(shape, less, (*change.keep, *change.start), before)
    old, new = counts(before[1]), counts(after[1])
    assert not new.keys() & {thread.thread for thread in change.leave}
    moved = sum(a != b for a, b in zip(expanded(before[1]), expanded(after[1]), strict=True))
    assert moved == sum(max(0, old[thread] - new[thread]) for thread in old)


def expanded(route: Route) -> list[int]:
    return [thread for thread, count in route.ranges for _ in range(count)]


@checked
@given(
    st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40).filter(lambda parts: sum(parts) > 0.01),
    st.lists(st.integers(0, 60), min_size=0, max_size=KEY_RANGES),
)
def test_ranges_follow_weights_and_move_least(parts, owners):
    total = math.fsum(parts)
    targets = [(thread, part / total) for thread, part in enumerate(parts)]
    before = (owners * KEY_RANGES)[:KEY_RANGES] if owners else []
    found = owners_of_ranges(targets, before)
    have = Counter(found)
    assert len(found) == KEY_RANGES
    for thread, weight in targets:
        assert abs(have[thread] - weight * KEY_RANGES) < 1 + 1e-6
    stayed = sum(a == b for a, b in zip(found, before, strict=False))
    had = Counter(before)
    assert stayed == sum(min(had[thread], have[thread]) for thread in have)
    if not before:
        runs = 1 + sum(a != b for a, b in pairwise(found))
        assert runs == len(have)


def test_threads_are_modelled_for_their_part_of_the_peak():
    shape = topology("shuffle")
    plan, threads = planned(shape)
    found = modelled_tps(plan, shape, {"table": TABLE, "loose": LOOSE}, threads)
    sizes = Counter((thread.slot, thread.task) for thread in threads)
    by_task = defaultdict(list)
    for thread in threads:
        by_task[thread.task].append(found[thread.thread])
        if thread.task == "table":
            size = sizes[thread.slot, thread.task]
            assert found[thread.thread] == pytest.approx(peak_rate(TABLE, size) / size)
    assert by_task["source"] == pytest.approx([50, 50])
    assert by_task["sink"] == pytest.approx([100])
    assert by_task["loose"] == [1000]


@checked
@given(requests(), st.sampled_from(["weighted", "shuffle"]))
def test_routes_of_any_plan(request, routing):
    try:
        plan = make_plan(replace(request, routing=routing))
    except Infeasible:
        return
    threads = diff((), plan.placement, request.topology, 1).start
    of_task = defaultdict(set)
    for thread in threads:
        of_task[thread.task].add(thread.thread)
    for edge, route in zip(request.topology.edges, routes(request.topology, plan, threads), strict=True):
        assert {thread for thread, _ in route.targets} == of_task[edge.target]
        assert math.fsum(weight for _, weight in route.targets) == pytest.approx(1)
        assert all(weight >= 0 for _, weight in route.targets)
        assert bool(route.ranges) == (edge.grouping == "fields")
        assert counts(route).total() == (KEY_RANGES if edge.grouping == "fields" else 0)
    modelled = modelled_tps(plan, request.topology, request.models, threads)
    assert modelled.keys() == {thread.thread for thread in threads}
    assert all(math.isfinite(rate) and rate >= 0 for rate in modelled.values())
