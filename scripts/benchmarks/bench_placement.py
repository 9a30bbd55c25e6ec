"""Paper 2's comparison again: what each algorithm saves of the optimum on random graphs of its class, and how fast.

`class`: problems of section 7.3 by seeds from `--first` on (`scripts/lab/placing/random_problems.py`), the optimum by
integer programming. `pipeline`: four groups of 100 tasks in a chain, all of one cost, on 8 nodes (section 7.2), by
turns. `large`: 10,000 tasks of 100 groups on 1,000 nodes.
"""
# bench: placement – task-level, top-down, refined and optimal placements: saved traffic, placements/s, large problems

from __future__ import annotations

import statistics
import time
from typing import Any

from headgate.controller.plan.placing.placement_problem import Flow, Group, Node, Problem, missing, saved
from headgate.lab.placing.placing_algorithms import PLACERS, judged, optimal, placed
from headgate.lab.placing.problem_files import asked_of
from headgate.lab.placing.random_problems import random_problem

HEURISTICS = tuple(name for name, placer in PLACERS.items() if placer.place is not None)


def of_the_class(first: int, count: int) -> list[dict[str, Any]]:
    """A row per algorithm: its saved traffic as a part of the optimum's, summed over all graphs, and the worst one."""
    best: list[float] = []
    parts: dict[str, list[float]] = {name: [] for name in HEURISTICS}
    short = dict.fromkeys(HEURISTICS, 0)
    took: list[float] = []
    unproved = 0
    for seed in range(first, first + count):
        problem = asked_of(random_problem(seed), f"seed {seed}").problem
        began = time.perf_counter()
        found = optimal(problem)
        took.append(time.perf_counter() - began)
        assert found is not None and found.counts is not None and not missing(problem, found.counts)
        unproved += not found.proved
        best.append(saved(problem, found.counts))
        for name in HEURISTICS:
            counts = placed(problem, name)
            short[name] += bool(missing(problem, counts))
            parts[name].append(saved(problem, counts))
    total = sum(best)
    rows = [
        {"what": f"class: {name}", "of_optimum": sum(parts[name]) / total,
         "worst": min(one / most for one, most in zip(parts[name], best, strict=True) if most),
         "incomplete": short[name], "n": count}
        for name in HEURISTICS
    ]  # fmt: skip
    times = {"median_s": statistics.median(took), "most_s": max(took)}
    return [*rows, {"what": "class: optimal", "of_optimum": 1.0, "unproved": unproved, "n": count, **times}]


def pipeline(turns: int) -> list[dict[str, Any]]:
    """Placements a second, the algorithms by turns."""
    groups = tuple(Group(f"g{n}", 100, 1.0) for n in range(4))
    flows = tuple(Flow(n, n + 1, 10.0 + n / 100) for n in range(3))
    problem = Problem(groups, flows, tuple(Node(f"n{n}", 1.0) for n in range(8)))
    rates: dict[str, list[float]] = {"top-down": [], "task-level": []}
    for _ in range(turns):
        for name, times in (("top-down", 1000), ("task-level", 3)):
            began = time.perf_counter()
            for _ in range(times):
                placed(problem, name)
            rates[name].append(times / (time.perf_counter() - began))
    ratios = [a / b for a, b in zip(rates["top-down"], rates["task-level"], strict=True)]
    return [
        {"what": f"pipeline: {name}", "placements_per_s": statistics.median(found), "n": turns}
        for name, found in rates.items()
    ] + [{"what": "pipeline: top-down / task-level", "ratio": statistics.median(ratios), "n": turns}]


def large(turns: int) -> list[dict[str, Any]]:
    groups = tuple(Group(f"g{n}", 100, 9.0) for n in range(100))
    flows = tuple(Flow(a, b, 10.0) for a in range(99) for b in (a + 1, a + 2) if b < 100)
    problem = Problem(groups, flows, tuple(Node(f"n{n}", 1.0) for n in range(1000)))
    took = []
    for _ in range(turns):
        began = time.perf_counter()
        counts = placed(problem, "top-down")
        took.append(time.perf_counter() - began)
    found = judged(problem, counts)
    row = {"median_s": statistics.median(took), "gap": found.gap, "incomplete": bool(found.missing)}
    return [{"what": "large: top-down, 10,000 tasks on 1,000 nodes", **row, "n": turns}]


def placement(graphs: int = 2000, first: int = 1, turns: int = 5) -> dict[str, Any]:
    """Of `graphs` problems, the first by this seed."""
    return {"rows": [*of_the_class(first, graphs), *pipeline(turns), *large(turns)]}


BENCHMARKS = {"placement": placement}
