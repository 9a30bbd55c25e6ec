"""Algorithms that place groups of tasks: what every answer obeys, and what the best one is, found in other ways."""

from __future__ import annotations

import networkx
import pytest
from examples import examples
from hypothesis import given
from hypothesis import strategies as st
from made_problems import best_by_trying, problems

from headgate.controller.offline.random_problems import random_problem
from headgate.controller.plan.placing.algorithms import PLACERS, best, judged, placed
from headgate.controller.plan.placing.granularity import finer
from headgate.controller.plan.placing.optimal import optimal, relaxed
from headgate.controller.plan.placing.problem import Flow, Group, Node, Problem, missing, saved
from headgate.controller.plan.placing.reading import alike, asked_of
from headgate.controller.plan.placing.top_down import top_down

HEURISTICS = [name for name, placer in PLACERS.items() if placer.place is not None]


def answers(problem: Problem) -> dict[str, float | None]:
    """What each heuristic saves; None where tasks are nowhere. Every answer is within counts and capacities."""
    found: dict[str, float | None] = {}
    for name in HEURISTICS:
        counts = placed(problem, name)
        for node, one in enumerate(problem.nodes):
            load = sum(
                at.get(node, 0) * g.cost / g.tasks for g, at in zip(problem.groups, counts, strict=True)
            )
            assert load <= one.capacity + 1e-6, name
        for group, at in zip(problem.groups, counts, strict=True):
            assert sum(at.values()) <= group.tasks and all(count > 0 for count in at.values())
        found[name] = None if missing(problem, counts) else saved(problem, counts)
    others = [value for name, value in found.items() if name != "refined" and value is not None]
    if others:
        assert found["refined"] is not None and found["refined"] >= max(others) - 1e-9
    return found


@given(problems())
@examples(150)
def test_the_optimum_is_the_best_of_all_placements(problem):
    out, most = best_by_trying(problem)
    found = best(problem)
    assert sum(found.missing.values()) == out
    assert found.saved == pytest.approx(most, abs=1e-6)
    for name, value in answers(problem).items():
        if value is not None:
            assert out == 0, name
            assert value <= most + 1e-6, name
    if out == 0:
        assert found.bound == pytest.approx(most, abs=1e-6)
        assert found.gap == pytest.approx(0, abs=1e-6)
        assert relaxed(problem) >= most - 1e-6


@given(st.integers(2, 7), st.integers(0, 10**6))
@examples(30)
def test_tasks_that_go_two_by_two_are_a_matching(count, seed):
    """Nodes that hold two tasks each: the best placement is a matching of most weight, which networkx finds."""
    graph = networkx.gnp_random_graph(count, 0.7, seed=seed)
    for number, (a, b) in enumerate(graph.edges):
        graph[a][b]["weight"] = 1 + (seed + 7 * number * number) % 11
    problem = Problem(
        tuple(Group(f"g{n}", 1, 0.5) for n in range(count)),
        tuple(Flow(a, b, float(graph[a][b]["weight"])) for a, b in graph.edges),
        tuple(Node(f"n{n}", 1.0) for n in range(count)),
    )
    matched = networkx.max_weight_matching(graph)
    assert best(problem).saved == pytest.approx(sum(graph[a][b]["weight"] for a, b in matched))


@pytest.mark.parametrize("seed", range(40))
def test_random_problems_of_the_class_are_placed_whole_and_within_the_bound(seed):
    problem = asked_of(random_problem(seed), "made").problem
    assert sum(group.tasks for group in problem.groups) == 17 and len(problem.nodes) == 8
    assert 3 <= len(problem.groups) <= 7 and problem.total_cost == pytest.approx(5.0)
    assert all(5 <= flow.traffic <= 20 for flow in problem.flows)
    found = answers(problem)
    most = optimal(problem)
    assert most is not None and most.proved and most.counts is not None
    assert saved(problem, most.counts) == pytest.approx(most.bound)
    for name, value in found.items():
        assert value is not None, name
        assert value <= most.bound + 1e-6


def test_a_seed_is_a_problem():
    assert random_problem(3) == random_problem(3) != random_problem(4)


def figure_2(capacity: float = 0.4) -> Problem:
    """Paper 2, Figure 2: four groups of 40 % in a chain, the second of twenty tasks, the third flow a slight one."""
    sizes = (10, 20, 10, 10)
    groups = tuple(Group(f"v{n}", size, 0.4) for n, size in enumerate(sizes, 1))
    flows = (Flow(0, 1, 10.0), Flow(1, 2, 9.9), Flow(2, 3, 1.0))
    return Problem(groups, flows, tuple(Node(f"n{n}", capacity) for n in range(1, 5)))


def test_top_down_splits_both_groups_evenly_as_in_example_2():
    """Five tasks of v1 and ten of v2 on each of two nodes: 50 links a node, 100 of 200; v3 and v4 likewise."""
    counts = top_down(figure_2())
    assert [dict(at) for at in counts] == [{0: 5, 1: 5}, {0: 10, 1: 10}, {2: 5, 3: 5}, {2: 5, 3: 5}]
    assert saved(figure_2(), counts) == pytest.approx(10.0 * 100 / 200 + 1.0 * 50 / 100)


def test_top_down_saves_at_least_what_the_paper_says_task_level_does():
    """Example 2: task-level allocation has 84 of 200 links of the first flow together, top-down 100."""
    assert saved(figure_2(), top_down(figure_2())) > 10.0 * 84 / 200


def test_groups_that_are_placed_apart_are_fused():
    """Alg. 4, lines 19 to 24: a, b fill a node, c and d another, and all fit on one when b and c are seen."""
    groups = tuple(Group(name, 1, 0.2) for name in "abcd")
    flows = (Flow(0, 1, 9.0), Flow(2, 3, 8.0), Flow(1, 2, 1.0))
    problem = Problem(groups, flows, (Node("n1", 0.4), Node("n2", 0.9)))
    for name in HEURISTICS:
        assert saved(problem, placed(problem, name)) == 18.0, name


def test_what_does_not_fit_on_one_node_is_not_fused():
    groups = tuple(Group(name, 1, 0.3) for name in "abcd")
    flows = (Flow(0, 1, 9.0), Flow(2, 3, 8.0), Flow(1, 2, 1.0))
    problem = Problem(groups, flows, (Node("n1", 0.6), Node("n2", 0.9)))
    assert set(answers(problem).values()) == {17.0}


def test_two_groups_of_one_cost_are_bound_by_the_largest_nodes():
    """Together on one node, or half and half on two: (0.5² + 0.5²) of the traffic, and no more whoever looks."""
    groups = (Group("a", 8, 1.0), Group("b", 8, 1.0))
    for sizes, part in (([2.0], 1.0), ([1.0, 1.0], 0.5), ([1.5, 0.5], 0.625)):
        nodes = tuple(Node(f"n{n}", size) for n, size in enumerate(sizes))
        problem = Problem(groups, (Flow(0, 1, 8.0),), nodes)
        assert relaxed(problem) == pytest.approx(8.0 * part, rel=1e-5)
        assert best(problem).saved == pytest.approx(8.0 * part)


def test_larger_nodes_are_taken_first_and_hold_more():
    problem = Problem(
        (Group("a", 8, 4.0), Group("b", 8, 4.0)), (Flow(0, 1, 1.0),), (Node("s", 2.0), Node("l", 6.0))
    )
    counts = top_down(problem)
    assert [dict(at) for at in counts] == [{1: 6, 0: 2}, {1: 6, 0: 2}]


def test_finer_tasks_fit_where_coarse_ones_do_not():
    """Section 5: three tasks of 60 % on two nodes of 90 % do not fit; as tasks of 30 % they do."""
    problem = Problem((Group("a", 3, 1.8),), (), (Node("n1", 0.9), Node("n2", 0.9)))
    assert missing(problem, top_down(problem)) == {"a": 1}
    fine = finer(problem)
    assert fine is not None and fine.groups[0].tasks == 2
    assert not missing(fine, top_down(fine))
    assert finer(Problem((Group("a", 3, 2.0),), (), (Node("n1", 0.9), Node("n2", 0.9)))) is None


def test_a_task_is_moved_out_of_the_way_of_one_that_fits_nowhere():
    problem = Problem(
        (Group("a", 2, 0.6), Group("b", 2, 0.6), Group("c", 1, 0.7)),
        (Flow(0, 1, 5.0),),
        (Node("n1", 1.0), Node("n2", 1.0)),
    )
    for name in HEURISTICS:
        assert not missing(problem, placed(problem, name)), name


def test_too_many_contents_leave_the_bound_of_each_flow():
    groups = tuple(Group(f"g{n}", 100, 9.0) for n in range(20))
    flows = tuple(Flow(n, n + 1, 10.0) for n in range(19))
    problem = Problem(groups, flows, tuple(Node(f"n{n}", 1.0) for n in range(200)))
    assert optimal(problem) is None
    found = judged(problem, top_down(problem))
    assert not found.missing and found.bound is not None and found.gap is not None
    assert found.saved <= found.bound < problem.total_traffic


def test_a_skewed_group_is_cut_where_costs_change():
    assert alike([0.1, 0.9, 0.105, 0.95, 0.1]) == [[0, 4, 2], [1, 3]]
    asked = asked_of(
        {
            "groups": [
                {"id": "a", "tasks": 3, "costs": [0.1, 0.5, 0.1]},
                {"id": "b", "tasks": 2, "cost": 0.4},
            ],
            "edges": [{"from": "a", "to": "b", "traffic": 6.0}],
            "nodes": [{"id": "n1", "capacity": 1.0}, {"id": "n2", "capacity": 1.0}],
        },
        "made",
    )
    assert [(group.id, group.tasks, group.cost) for group in asked.problem.groups] == [
        ("a", 2, 0.2), ("a", 1, 0.5), ("b", 2, 0.4),
    ]  # fmt: skip
    assert sorted(flow.traffic for flow in asked.problem.flows) == [2.0, 4.0]
    assert asked.problem.total_traffic == 6.0
