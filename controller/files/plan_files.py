"""Plans and placements in files: reading them. What they hold: `controller/knowledge/plan_data.py`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from headgate.controller.files.contents import json_of
from headgate.controller.knowledge.plan_data import plan_of, read_back
from headgate.controller.knowledge.plan_traffic import PlanTraffic
from headgate.controller.knowledge.plans import Plan
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.trace_plans import is_id, the_plan

MAX_BYTES = 64 * 1024**2  # a plan of 10,000 slots and 1,000 tasks takes about 5 MiB


def read_json(path: str | os.PathLike[str]) -> Any:
    """The data of a JSON file. Raises InvalidInput: unreadable, no regular file, too large, not JSON."""
    data, fault = json_of(path, MAX_BYTES)
    if fault is not None:
        raise InvalidInput(f"{path} {fault}")
    return data


def read_plan(path: str | os.PathLike[str]) -> Plan:
    """The plan of a file. Raises InvalidInput with every fault."""
    return plan_of(read_json(path), str(path))


def read_base(path: str, topology: Topology) -> Plan:
    """The plan in force, of a file. Raises InvalidInput: no plan, or one of another topology."""
    base = read_plan(path)
    if base.topology != topology.name:
        raise InvalidInput(
            f"{path} is a plan of {base.topology!r}, not of {topology.name!r}",
            hint="headgate diff compares plans of any two topologies",
        )
    return base


def named_plan(name: str, traces: Path) -> tuple[Plan, PlanTraffic | None]:
    """The plan of a file, or of all runs the one whose id begins so; and its traffic, if that is told. Raises
    InvalidInput."""
    if not is_id(name):
        return read_back(read_json(name), name)
    found = the_plan(name, traces)
    return read_back(found.data, f"plan {found.head.id} in {found.folder}")
