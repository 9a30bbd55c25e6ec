"""Tasks made finer until they fit (paper 2, section 5). Pure.

The paper takes the greatest common divisor of all groups' costs and all nodes' capacities as the cost of every task, in
hundredths: then tasks are all alike and fill nodes to the brim. Costs are rounded up to hundredths and capacities down.
"""

from __future__ import annotations

import math

from headgate.controller.plan.placing.problem import SLACK, Group, Problem

UNITS = 100  # of a capacity of 1


def finer(problem: Problem) -> Problem | None:
    """The problem with tasks of one cost that fit; None when its nodes have no room for all of them."""
    costs = [_up(group.cost) for group in problem.groups]
    capacities = [_down(node.capacity) for node in problem.nodes]
    if sum(costs) > sum(capacities):
        return None
    size = math.gcd(*costs, *capacities)
    groups = tuple(
        Group(group.id, max(1, cost // size) if size else group.tasks, group.cost)
        for group, cost in zip(problem.groups, costs, strict=True)
    )
    return Problem(groups, problem.flows, problem.nodes)


def _up(cost: float) -> int:
    return math.ceil(cost * UNITS * (1 - SLACK))


def _down(capacity: float) -> int:
    return math.floor(capacity * UNITS * (1 + SLACK))
