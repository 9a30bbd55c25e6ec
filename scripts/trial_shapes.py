"""The three shapes with plain waits for the two services: what predictions are worth without them.

linear, diamond, star     as topology_runtime.tasks.representative, blob waits 200 ms a row, table 50 ms
"""

from __future__ import annotations

from msgspec.structs import replace

from topology_runtime.tasks import representative
from topology_runtime.topology import Topology

WAITS_MS = {"blob": 200.0, "table": 50.0}
WAIT = "topology_runtime.tasks.wait:Wait"


def linear() -> Topology:
    return _waiting(representative.linear())


def diamond() -> Topology:
    return _waiting(representative.diamond())


def star() -> Topology:
    return _waiting(representative.star())


def _waiting(topology: Topology) -> Topology:
    tasks = tuple(
        replace(task, run=WAIT, params={"ms": WAITS_MS[task.name]}) if task.name in WAITS_MS else task
        for task in topology.tasks
    )
    return replace(topology, tasks=tasks)
