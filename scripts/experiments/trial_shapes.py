"""The three shapes for slots of a fifth of a core: what predictions are worth without two services.

linear, diamond, star     as headgate.topology_runtime.tasks.representative, but

- blob waits 200 ms a row and table 50 ms, in place of their services;
- a row of pi and xml computes a fifth as long: as many rows/s as the paper's tasks did on a whole core, and
  a row fits twice into the slot's quota of one period (4 of 20 ms).
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.tasks import representative
from headgate.topology_runtime.topology import Topology

WAIT = "headgate.topology_runtime.tasks.wait:Wait"
CHANGES: dict[str, dict[str, Any]] = {
    "blob": {"run": WAIT, "params": {"ms": 200.0}},
    "table": {"run": WAIT, "params": {"ms": 50.0}},
    "pi": {"params": {"repeats": 2_400}},
    "xml": {"params": {"documents": 3}},
}


def linear() -> Topology:
    return _small(representative.linear())


def diamond() -> Topology:
    return _small(representative.diamond())


def star() -> Topology:
    return _small(representative.star())


def _small(topology: Topology) -> Topology:
    tasks = tuple(replace(task, **CHANGES.get(task.name, {})) for task in topology.tasks)
    return replace(topology, tasks=tasks)
