"""The micro topologies of paper 0 (section 8.3) and the authors' own performance models."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from controller.knowledge.model_files import read_models
from controller.plan.planner import PlanRequest
from topology_runtime.cluster import Vm
from topology_runtime.topology import Edge, Static, Task, Topology

MODELS = read_models(Path(__file__).parent / "models")
SIZES = tuple(Vm(f"D{size}", size, usd_per_hour=0.098 * size) for size in (4, 2, 1))
FIVE_D3 = tuple(Vm(f"vm{number}", 4, usd_per_hour=0.392) for number in range(1, 6))
LOGIC = ("blob", "table", "pi", "xml", "file")
ENDS = {
    "source": Task("source", kind="source", static=Static(1, 0.10, 0.15)),
    "sink": Task("sink", static=Static(1, 0.10, 0.20)),
}


def _topology(name: str, order: tuple[str, ...], arrows: list[tuple[str, str]], ends: bool) -> Topology:
    if ends:
        reached, leaving = {target for _, target in arrows}, {source for source, _ in arrows}
        arrows = [
            *[("source", task) for task in order if task not in reached],
            *arrows,
            *[(task, "sink") for task in order if task not in leaving],
        ]
        order = ("source", *order, "sink")
    tasks = tuple(ENDS.get(task) or Task(task) for task in order)
    return Topology(name, tasks, tuple(Edge(source, target) for source, target in arrows))


def linear(ends: bool = False) -> Topology:
    return _topology("linear", LOGIC, list(pairwise(LOGIC)), ends)


def diamond(ends: bool = False) -> Topology:
    branches = ("blob", "xml", "table", "file")
    return _topology("diamond", (*branches, "pi"), [(branch, "pi") for branch in branches], ends)


def star(ends: bool = False) -> Topology:
    arrows = [("blob", "pi"), ("table", "pi"), ("pi", "xml"), ("pi", "file")]
    return _topology("star", ("blob", "table", "pi", "xml", "file"), arrows, ends)


def request(topology: Topology, rate_tps: float, vms: tuple[Vm, ...] = (), **more: str) -> PlanRequest:
    return PlanRequest(topology, MODELS, rate_tps, vms, **more)  # type: ignore[arg-type]
