"""GetRate and the order of tasks of random topologies."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.topology import Edge, Task, Topology
from headgate.topology_runtime.api.validate import faults_of


@st.composite
def dags(draw: st.DrawFn) -> Topology:
    """Connected topologies without circles: tasks in any order in the file, edges too."""
    size = draw(st.integers(1, 12))
    names = [f"t{i}" for i in range(size)]
    selectivity = st.floats(0.01, 8.0)
    edges = [
        Edge(names[draw(st.integers(0, after - 1))], names[after], draw(selectivity))
        for after in range(1, size)
    ]
    pairs = {(edge.source, edge.target) for edge in edges}
    for _ in range(draw(st.integers(0, 10)) if size > 1 else 0):
        after = draw(st.integers(1, size - 1))
        pair = names[draw(st.integers(0, after - 1))], names[after]
        if pair not in pairs:
            pairs.add(pair)
            edges.append(Edge(*pair, draw(selectivity)))
    shuffled = draw(st.permutations(names))
    return Topology("random", tuple(map(Task, shuffled)), tuple(draw(st.permutations(edges))))


@given(dags())
def test_a_random_topology_without_circles_is_valid(topology: Topology) -> None:
    assert faults_of(topology) == []


@given(dags(), st.randoms(use_true_random=False))
def test_an_edge_back_makes_a_circle_that_is_named(topology: Topology, choose: random.Random) -> None:
    if not topology.edges:
        return
    forth = choose.choice(topology.edges)
    edges = (*topology.edges, Edge(forth.target, forth.source))
    found = faults_of(Topology("back", topology.tasks, edges))
    assert len(found) == 1
    circle = found[0].partition("circle: ")[2].split(" → ")
    pairs = {(edge.source, edge.target) for edge in edges}
    assert circle[0] == circle[-1]
    assert set(pairwise(circle)) <= pairs


@given(dags())
def test_breadth_first_is_a_topological_order_of_all_tasks(topology: Topology) -> None:
    order = [task.name for task in topology.breadth_first]
    assert sorted(order) == sorted(task.name for task in topology.tasks)
    place = {name: number for number, name in enumerate(order)}
    assert all(place[edge.source] < place[edge.target] for edge in topology.edges)
    assert [task.name for task in topology.sources] == order[: len(topology.sources)]


@given(dags(), st.floats(0.1, 1e4))
def test_rates_solve_the_balance_of_every_task(topology: Topology, rate: float) -> None:
    """ω = Ω at sources + Σ ω σ over in-edges: the rates are the one solution of these equations."""
    number = {task.name: i for i, task in enumerate(topology.tasks)}
    flows = np.eye(len(number))
    inflow = np.zeros(len(number))
    for source in topology.sources:
        inflow[number[source.name]] = rate
    for edge in topology.edges:
        flows[number[edge.target], number[edge.source]] -= edge.selectivity
    solved = np.linalg.solve(flows, inflow)
    rates = topology.rates(rate)
    assert [rates[task.name] for task in topology.tasks] == pytest.approx(list(solved), rel=1e-9)
