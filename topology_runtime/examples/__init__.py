"""Topologies and models to plan with at once: those of the model-driven scheduling paper (paper 0).

    linear, diamond, star          its micro topologies, exactly (Fig. 5)
    finance, traffic, smart-grid   shapes of ours after its descriptions (section 8.3)

They have no code: they can be planned, not run. `MODELS` is a folder with its five published models.
"""

from __future__ import annotations

from pathlib import Path

from headgate.topology_runtime.topology import Topology

DEMO = "demo"  # the built-in one; it has code, and models that `headgate up` measures
NAMES = ("linear", "diamond", "star", "finance", "traffic", "smart-grid")
MODELS = Path(__file__).parent / "models"


def example(name: str) -> Path | None:
    """The file of the shipped example of that name; None when there is none."""
    return Path(__file__).parent / f"{name}.yaml" if name in NAMES else None


def logic_alone(topology: Topology) -> Topology:
    """Without its tasks of fixed size and their edges: paper 0 counts slots for source and sink apart."""
    logic = tuple(task for task in topology.tasks if task.static is None)
    names = {task.name for task in logic}
    edges = tuple(edge for edge in topology.edges if edge.source in names and edge.target in names)
    return Topology(topology.name, logic, edges)
