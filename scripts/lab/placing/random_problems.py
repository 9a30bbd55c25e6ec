"""Random placement problems of paper 2's class (section 7.3), by a seed.

17 tasks in 3 to 7 groups, which cost 500 % together, a dearer group having more tasks; each group but the last leads to
1, 2 or 3 later ones (with 70, 25 and 5 %); 5 to 20 MB/s on every edge; 8 nodes of 100 %. Costs by which not all
tasks fit on the nodes are drawn again.
"""

from __future__ import annotations

import random
from typing import Any

TASKS, NODES, COST = 17, 8, 5.0
GROUPS = (3, 7)
FANOUT, CHANCES = (1, 2, 3), (0.70, 0.25, 0.05)
TRAFFIC = (5.0, 20.0)


def random_problem(seed: int, tasks: int = TASKS, nodes: int = NODES) -> dict[str, Any]:
    """The problem as its file has it; the cost grows with the nodes, so that they are as full as the paper's."""
    chance = random.Random(seed)
    count = min(chance.randint(*GROUPS), tasks)
    sizes = sorted(_cut(chance, tasks, count))
    cost = COST * nodes / NODES
    while True:
        points = sorted(chance.random() for _ in range(count - 1))
        costs = sorted(cost * (b - a) for a, b in zip([0.0, *points], [*points, 1.0], strict=True))
        if _fit(sizes, costs, nodes):
            break
    groups = list(zip(sizes, costs, strict=True))
    chance.shuffle(groups)
    edges = [
        {"from": f"g{one}", "to": f"g{other}", "traffic": round(chance.uniform(*TRAFFIC), 6)}
        for one in range(count - 1)
        for other in _later(chance, one, count)
    ]
    return {
        "groups": [
            {"id": f"g{number}", "tasks": size, "cost": round(cost, 9)}
            for number, (size, cost) in enumerate(groups)
        ],
        "edges": edges,
        "nodes": [{"id": f"n{number}", "capacity": 1.0} for number in range(1, nodes + 1)],
    }


def _fit(sizes: list[int], costs: list[float], nodes: int) -> bool:
    """Does every task find a node, the dearest first, each taking the first that holds it?"""
    free = [1.0] * nodes
    for each in sorted(
        (cost / size for cost, size in zip(costs, sizes, strict=True) for _ in range(size)), reverse=True
    ):
        place = next((place for place, left in enumerate(free) if left >= each), None)
        if place is None:
            return False
        free[place] -= each
    return True


def _cut(chance: random.Random, tasks: int, groups: int) -> list[int]:
    points = sorted(chance.sample(range(1, tasks), groups - 1))
    return [b - a for a, b in zip([0, *points], [*points, tasks], strict=True)]


def _later(chance: random.Random, one: int, count: int) -> list[int]:
    most = count - 1 - one
    return sorted(chance.sample(range(one + 1, count), min(most, chance.choices(FANOUT, CHANCES)[0])))
