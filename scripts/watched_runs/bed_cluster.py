"""A cluster on hosts of a bed (host_bed.py), and whoever gives commands to it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from watched_runs.host_bed import Bed, BedHost

HEADGATE = [sys.executable, "-P", "-m", "dashboards.cli"]
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
CLUSTER_S = 300.0


class Cluster:
    """Its hosts, its file, and whoever gives commands."""

    def __init__(self, made: Bed, wheels: Path) -> None:
        self.bed, self.wheels = made, wheels
        self.name = f"bed{os.getpid()}"
        self.file = made.folder / "hosts.toml"
        self.said = ""  # by the first `up`

    def host(self, name: str) -> BedHost:
        return next(host for host in self.bed.hosts if host.name == name)

    def write(self, *vms: str, slots: int = 2) -> None:
        lines = ['schema = "headgate/hosts/v1"', f'name = "{self.name}"', "[defaults]", 'user = "root"']
        lines += [f"slots = {slots}", "slot_cores = 0.2", 'slot_memory = "256M"', f'python = "{PYTHON}"']
        lines += ["[controller]", f'host = "{self.bed.hosts[0].address}"']
        for vm in vms:
            lines += ["[[vm]]", f'name = "{vm}"', f'host = "{self.host(vm).address}"']
        self.file.write_text("\n".join(lines) + "\n")

    def run(self, *words: str, code: int | None = 0, within: Path | None = None) -> str:
        """`headgate WORDS`; what it printed."""
        ran = subprocess.run(
            [*HEADGATE, *words], env=self.bed.environment(), cwd=within or self.bed.folder,
            capture_output=True, text=True, timeout=CLUSTER_S,
        )  # fmt: skip
        assert code is None or ran.returncode == code, (
            f"{words} ended {ran.returncode}\n{ran.stdout}\n{ran.stderr}"
        )
        return ran.stdout + (ran.stderr if code is None or code else "")

    def cluster(self, command: str, *words: str, code: int | None = 0) -> str:
        return self.run("cluster", command, str(self.file), *words, code=code)

    def up(self, *words: str, code: int | None = 0) -> str:
        return self.cluster("up", "--wheelhouse", str(self.wheels), *words, code=code)

    def services(self) -> dict[str, dict[str, Any]]:
        found = json.loads(self.cluster("status", "-o", "json", code=None).partition("error[")[0])
        return {row["service"]: row for row in found["services"]}

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.run("status", "-o", "json"))
        return found
