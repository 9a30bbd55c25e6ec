"""`headgate lab place PROBLEM.json`: groups of tasks onto nodes, so that little traffic crosses (paper 2's problem)."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.number_options import Number
from headgate.topology_runtime.commands.output import Format, emit, format_options, to_json
from headgate.topology_runtime.errors import Infeasible, InvalidInput, UsageError
from headgate.topology_runtime.wording import counted, significant

if TYPE_CHECKING:
    from headgate.controller.plan.placing.placement_problem import Problem
    from headgate.lab.placing.placing_algorithms import JudgedPlacement
    from headgate.lab.placing.problem_files import Asked

SCHEMA = "headgate/placement/v1"


@click.command()
@click.argument("problem", required=False, type=click.Path(path_type=Path), metavar="PROBLEM.json")
@click.option(
    "--algorithm", default="refined", metavar="task-level|top-down|refined|optimal", show_default=True
)
@click.option("--search-seconds", "seconds", type=Number(0.01, 86_400), default=20.0, show_default=True,
              help="For optimal: the best found in so long, with its gap.")  # fmt: skip
@click.option("--regroup", is_flag=True, help="If tasks do not fit, cut groups into finer ones that do.")
@click.option("--generate", type=int, metavar="SEED", help="Print a random problem of the paper's class.")
@format_options
def place(
    output: Format, problem: Path | None, algorithm: str, seconds: float, regroup: bool, generate: int | None
) -> None:
    """Place groups of tasks onto nodes: little traffic between nodes, no node over its capacity.

    \b
    {"groups": [{"id": "a", "tasks": 10, "cost": 1.2}, …],      cost: of all its tasks (or costs: of each)
     "edges": [{"from": "a", "to": "b", "traffic": 5.0}, …],    each task of a to each of b alike
     "nodes": [{"id": "n1", "capacity": 1.0}, …],
     "balance": 1.1}                                            no node over so many times the average (or left out)

    \b
    headgate lab place problem.json --algorithm top-down
    headgate lab place problem.json --algorithm top-down:as-printed:by-traffic
    headgate lab place --generate 7 > problem.json

    The answer has its gap: by what part of the best it may be short, at most. Exit code 4 when tasks fit nowhere."""
    if (problem is None) == (generate is None):
        raise UsageError(
            "missing problem to place",
            hint="name one: headgate lab place PROBLEM.json, or make one: --generate SEED",
        )
    if generate is not None:
        from headgate.lab.placing.random_problems import random_problem

        click.echo(to_json(random_problem(generate), 2))
        return
    answer(output, str(problem), algorithm, seconds, regroup)


def answer(output: Format, named: str, algorithm: str, seconds: float, regroup: bool) -> None:
    """Print the answer. Raises InvalidInput, and Infeasible once it is printed when tasks are nowhere."""
    from headgate.controller.files.planning_inputs import read_json
    from headgate.lab.placing.placing_algorithms import way_fault
    from headgate.lab.placing.problem_files import asked_of, finer

    if fault := way_fault(algorithm):
        raise InvalidInput(f"--algorithm: {fault}")
    asked = asked_of(read_json(named), named)
    problem = asked.problem
    found, took_s = _timed(problem, algorithm, seconds)
    if found.missing and regroup and (fine := finer(problem)) is not None:
        problem = fine
        found, took_s = _timed(problem, algorithm, seconds)
    document = document_of(asked, problem, found, algorithm, took_s)
    if problem is not asked.problem:
        document["regrouped"] = _sizes(asked, problem)
    rows = [
        {"node": node, "group": group, "tasks": count}
        for node, groups in document["placement"].items()
        for group, count in groups.items()
    ]
    emit(output, document, rows)
    if output == "table":
        click.echo(f"\n{told(found, problem, took_s)}")
    if found.timed_out:
        click.echo(f"the solver ran out of its {seconds:g} s: this is the best it found", err=True)
    if found.missing:
        raise short_of(problem, found)


def _timed(problem: Problem, algorithm: str, seconds: float) -> tuple[JudgedPlacement, float]:
    """The answer and how long the algorithm took; not how long its bound did, unless that is the algorithm."""
    from headgate.lab.placing import placing_algorithms as algorithms

    began = time.perf_counter()
    if algorithm == "optimal":
        found = algorithms.best(problem, seconds)
        return found, time.perf_counter() - began
    counts = algorithms.placed(problem, algorithm)
    took_s = time.perf_counter() - began
    return algorithms.judged(problem, counts), took_s


def document_of(
    asked: Asked, problem: Problem, found: JudgedPlacement, algorithm: str, took_s: float
) -> dict[str, Any]:
    """The answer as JSON has it. `tasks`: which tasks of groups that gave the cost of each."""
    placement: dict[str, dict[str, int]] = {}
    which: dict[str, dict[str, list[int]]] = {}
    for part, at in zip(asked.parts, found.counts, strict=True):
        members = iter(part.tasks or ())
        for place, count in sorted(at.items()):
            node = problem.nodes[place].id
            groups = placement.setdefault(node, {})
            groups[part.id] = groups.get(part.id, 0) + count
            if part.tasks is not None and len(part.tasks) == sum(at.values()):
                tasks = which.setdefault(node, {}).setdefault(part.id, [])
                tasks += [next(members) for _ in range(count)]
    order = [node.id for node in problem.nodes if node.id in placement]
    document = {
        "schema": SCHEMA,
        "algorithm": algorithm,
        "complete": not found.missing,
        "placement": {node: placement[node] for node in order},
        "saved_traffic": found.saved,
        "total_traffic": problem.total_traffic,
        "bound": found.bound,
        "gap": found.gap,
        "unplaced": found.missing,
        "timed_out": found.timed_out,
        "seconds": took_s,
    }
    return document | ({"tasks": {node: which[node] for node in order if node in which}} if which else {})


def _sizes(asked: Asked, problem: Problem) -> dict[str, int]:
    """Group → how many tasks it has now."""
    sizes: dict[str, int] = {}
    for part, group in zip(asked.parts, problem.groups, strict=True):
        sizes[part.id] = sizes.get(part.id, 0) + group.tasks
    return sizes


def told(found: JudgedPlacement, problem: Problem, took_s: float) -> str:
    """The answer in a sentence."""
    total = problem.total_traffic
    part = f" ({found.saved / total:.1%})" if total else ""
    saved = f"saves {significant(found.saved, 6)} of {significant(total, 6)} traffic{part}"
    text = f"{saved} in {significant(took_s * 1000, 3)} ms"
    if found.gap is None:
        return text
    return (
        f"{text}; no placement saves more"
        if found.gap <= 1e-9
        else f"{text}; at most {found.gap:.2%} below the best"
    )


def short_of(problem: Problem, found: JudgedPlacement) -> Infeasible:
    """What is missing, in numbers, and the nearest problem that fits."""
    left = ", ".join(f"{counted(count, 'task')} of {name!r}" for name, count in found.missing.items())
    most = max(node.capacity for node in problem.nodes)
    faults = [
        f"a task of {group.id!r} costs {group.each:g}, the largest node holds {most:g}"
        for group in problem.groups
        if group.each > most
    ]
    cost, capacity = problem.total_cost, problem.total_capacity
    if cost > capacity:
        cause = f"the tasks cost {cost:g}, the nodes hold {capacity:g}: {cost - capacity:g} are missing"
        hint = f"nodes of {cost - capacity:.6g} more at least, or groups that cost {capacity / cost:.4g} × as much"
    else:
        cause = f"the tasks cost {cost:g} and the nodes hold {capacity:g}, but not task by task"
        hint = "--regroup cuts groups into finer tasks, which fit"
    return Infeasible(f"{left} fit on no node", cause=cause, hint=hint, faults=faults)
