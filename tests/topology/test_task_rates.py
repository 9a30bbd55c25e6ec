"""GetRate and the order of tasks: published topologies, and properties of random ones."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.topology import Edge, Task, Topology
from headgate.topology_runtime.validate import faults_of


def joined(name: str, *arrows: str) -> Topology:
    """A topology of arrows such as "a b": an edge from a to b."""
    pairs = [arrow.split() for arrow in arrows]
    names = dict.fromkeys(task for pair in pairs for task in pair)
    return Topology(name, tuple(map(Task, names)), tuple(Edge(*pair) for pair in pairs))


LINEAR = joined("linear", "source blob", "blob table", "table pi", "pi xml", "xml file", "file sink")
BRANCHES = ("blob", "xml", "table", "file")
DIAMOND = joined("diamond", *(f"source {b}" for b in BRANCHES), *(f"{b} pi" for b in BRANCHES), "pi sink")
STAR = joined(
    "star", "source blob", "source table", "blob pi", "table pi", "pi xml", "pi file", "xml sink", "file sink"
)


@pytest.mark.parametrize(
    ("topology", "multiples"),
    [
        (LINEAR, dict.fromkeys(("source", "blob", "table", "pi", "xml", "file", "sink"), 1)),
        (DIAMOND, {"source": 1, "blob": 1, "xml": 1, "table": 1, "file": 1, "pi": 4, "sink": 4}),
        (STAR, {"source": 1, "blob": 1, "table": 1, "pi": 2, "xml": 2, "file": 2, "sink": 4}),
    ],
)
def test_the_micro_topologies_of_paper_0(topology: Topology, multiples: dict[str, float]) -> None:
    """Section 8.3: selectivity 1:1, output duplicated to every out-edge; pi of Diamond sees 4 Ω."""
    assert faults_of(topology) == []
    assert topology.rates(50.0) == {task: 50.0 * multiple for task, multiple in multiples.items()}


def test_selectivity_multiplies_along_a_way_and_adds_up_where_ways_meet() -> None:
    edges = (
        Edge("a", "b", 0.5),
        Edge("a", "c", 3.0),
        Edge("b", "d", 2.0),
        Edge("c", "d"),
        Edge("x", "d", 0.1),
    )
    topology = Topology("t", tuple(map(Task, "abcdx")), edges)
    assert topology.rates(10.0) == pytest.approx({"a": 10, "x": 10, "b": 5, "c": 30, "d": 10 + 30 + 1})


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


@given(dags())
def test_with_a_share_on_every_edge_nothing_is_lost_or_made(topology: Topology) -> None:
    """If each task shares its rows among its out-edges, what the sinks take is what the sources gave."""
    out = {task.name: len(topology.out_edges(task.name)) for task in topology.tasks}
    edges = tuple(Edge(edge.source, edge.target, 1 / out[edge.source]) for edge in topology.edges)
    shared = Topology("shared", topology.tasks, edges)
    rates = shared.rates(100.0)
    taken = sum(rates[task.name] for task in shared.sinks)
    assert taken == pytest.approx(100.0 * len(shared.sources))
