"""What the machines can carry, asked of the planner in a process of its own (`--rate-scale auto`)."""

from __future__ import annotations

import subprocess
from pathlib import Path

from headgate.dashboards.up.settings import UpSettings
from headgate.dashboards.up.supervisor import ChildRefused, headgate_command

LIMIT_S = 60.0  # planning a thousand tasks takes a second; imports come on top


def capacity_tps(settings: UpSettings, topology: Path, models: Path) -> float:
    """The highest input rate that fits all VMs there may be. Raises what the planner says."""
    command = headgate_command("controller", "capacity", str(topology), "--models", str(models))
    command += ["--vms", ",".join(str(vm.slots) for vm in settings.all_vms)]
    command += ["--allocator", settings.allocator, "--mapper", settings.mapper, "--routing", settings.routing]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    if done.returncode != 0:
        raise ChildRefused("the planner", done.returncode, done.stderr.splitlines())
    return float(done.stdout)
