"""Where the metrics of a run of `up` are: ports, and the file from which Prometheus learns them.

The controller tells on the port that was asked for, vm1 on the next one, vm2 on the one after, however
often they are started again. Beside the run's state directory lies a list for Prometheus's
`file_sd_configs`; it changes when VMs come and go, and goes with the run.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from pathlib import Path

from headgate.dashboards.up.places import HOST

SUFFIX = ".targets.json"


def port_of(port: int, vm: str) -> int | None:
    """The port of a VM's agent; None for a name without a number."""
    number = re.search(r"(\d{1,4})$", vm)
    found = port + int(number[1]) if number else port
    return found if port < found < 65536 else None


def metrics_option(port: int | None, vm: str) -> list[str]:
    """For an agent's command line."""
    found = None if port is None else port_of(port, vm)
    return [] if found is None else ["--metrics-port", str(found)]


def targets(port: int, vms: Iterable[str]) -> list[dict[str, object]]:
    """The controller and the agents, as Prometheus reads them."""
    agents = sorted(found for vm in vms if (found := port_of(port, vm)) is not None)
    groups = {"controller": [port], "agent": agents}
    return [
        {"targets": [f"{HOST}:{n}" for n in ports], "labels": {"role": role}}
        for role, ports in groups.items()
    ]


def file_of(state: Path) -> Path:
    """`.headgate/RUN.targets.json`."""
    return state.with_name(state.name + SUFFIX)


def write_targets(state: Path, port: int, vms: Iterable[str]) -> None:
    """By rename, so that nobody reads half a file."""
    new = file_of(state).with_suffix(".new")
    new.write_text(json.dumps(targets(port, vms), indent=2) + "\n", "utf-8")
    os.replace(new, file_of(state))
