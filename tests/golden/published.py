"""The micro topologies of paper 0 (section 8.3) and the authors' own performance models, as shipped."""

from __future__ import annotations

from headgate.controller.files.model_files import read_models
from headgate.controller.plan.planner import PlanRequest
from headgate.topology_runtime import examples
from headgate.topology_runtime.cluster import Vm
from headgate.topology_runtime.loading import load
from headgate.topology_runtime.topology import Topology

MODELS = read_models(examples.MODELS)
SIZES = tuple(Vm(f"D{size}", size, usd_per_hour=0.098 * size) for size in (4, 2, 1))
FIVE_D3 = tuple(Vm(f"vm{number}", 4, usd_per_hour=0.392) for number in range(1, 6))
WHOLE = {name: load(name).topology for name in ("linear", "diamond", "star")}
LOGIC = {name: examples.logic_alone(topology) for name, topology in WHOLE.items()}


def linear(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["linear"]


def diamond(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["diamond"]


def star(ends: bool = False) -> Topology:
    return (WHOLE if ends else LOGIC)["star"]


def request(topology: Topology, rate_tps: float, vms: tuple[Vm, ...] = (), **more: str) -> PlanRequest:
    return PlanRequest(topology, MODELS, rate_tps, vms, **more)  # type: ignore[arg-type]
