"""Random small placement problems, and the best of all placements of them, tried one by one."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st

from headgate.controller.plan.placing.problem import Flow, Group, Node, Problem


@st.composite
def problems(draw: st.DrawFn, most_tasks: int = 6, most_nodes: int = 3) -> Problem:
    """Few enough tasks that all placements can be tried; often they do not all fit."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4).filter(lambda s: sum(s) <= most_tasks))
    cost = st.integers(0, 12).map(lambda tenths: tenths / 10)
    groups = tuple(Group(f"g{n}", size, draw(cost)) for n, size in enumerate(sizes))
    pairs = list(itertools.combinations(range(len(groups)), 2))
    joined = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=5)) if pairs else []
    flows = tuple(Flow(a, b, draw(st.integers(0, 20)) / 2) for a, b in sorted(joined))
    sizes_of = draw(st.lists(st.sampled_from([0.4, 1.0, 1.0, 1.7]), min_size=1, max_size=most_nodes))
    return Problem(groups, flows, tuple(Node(f"n{n}", capacity) for n, capacity in enumerate(sizes_of)))


def best_by_trying(problem: Problem) -> tuple[int, float]:
    """(the fewest tasks that are nowhere, the most traffic saved with so few) over every placement of every task."""
    tasks = [g for g, group in enumerate(problem.groups) for _ in range(group.tasks)]
    link = {}
    for flow in problem.flows:
        pairs = problem.groups[flow.a].tasks * problem.groups[flow.b].tasks
        link[flow.a, flow.b] = link[flow.b, flow.a] = flow.traffic / pairs
    best = (len(tasks) + 1, 0.0)
    nowhere = len(problem.nodes)
    for where in itertools.product(range(nowhere + 1), repeat=len(tasks)):
        load = [0.0] * (nowhere + 1)
        for task, node in zip(tasks, where, strict=True):
            load[node] += problem.groups[task].cost / problem.groups[task].tasks
        if any(load[n] > node.capacity + 1e-9 for n, node in enumerate(problem.nodes)):
            continue
        out = where.count(nowhere)
        if out > best[0]:
            continue
        together = sum(
            link.get((tasks[i], tasks[j]), 0.0)
            for i, j in itertools.combinations(range(len(tasks)), 2)
            if where[i] == where[j] != nowhere
        )
        if out < best[0] or together > best[1]:
            best = out, together
    return best
