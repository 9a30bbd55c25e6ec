"""A cluster on hosts of a bed (host_bed.py), and whoever gives commands to it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from watched_runs.host_bed import Bed, BedHost, wait_for

HEADGATE = [sys.executable, "-P", "-m", "headgate.dashboards.cli"]
PYTHON = Path(sys.base_prefix) / "bin" / "python3"
CLUSTER_S = 300.0
SLOT = {"cores": 0.2, "memory_bytes": 268435456, "machine": "any"}

FLOW = """
from headgate.topology_runtime.builder import topology
from headgate.topology_runtime.tasks.counter import Counter
from headgate.topology_runtime.tasks.collect_to_file import CollectToFile

def double(row):
    return row * 2

flow = topology("doubles")
flow.source("numbers", Counter) >> flow.task("double", double) >> flow.task("store", CollectToFile, path={path!r})
"""


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

    def submit(self, name: str, rows_before: int = 500, rate_tps: int = 100) -> Path:
        """A topology that doubles numbers, offered so many a second; where its rows arrive, some of them already."""
        folder = self.bed.folder / name
        rows = self.bed.folder / f"{name}.jsonl"
        (folder / "models").mkdir(parents=True)
        (folder / "flow.py").write_text(FLOW.format(path=str(rows)))
        rows.touch()
        rows.chmod(0o666)  # tasks are of a user of their own, and on each host of another
        self.bed.folder.chmod(0o755)
        for task in ("double", "store"):
            points = [{"threads": n, "rate_tps": 40.0, "cpu": 0.5, "memory": 0.1} for n in (1, 2)]
            model = {"schema": "headgate/model/v1", "task": task, "slot": SLOT, "points": points}
            (folder / "models" / f"{task}.json").write_text(json.dumps(model))
        options = ["--models", f"{name}/models", "--rates", str(rate_tps), "--on-every-host", "store.path"]
        self.run("submit", f"{name}/flow.py:flow", *options)
        wait_for(lambda: arrived(rows) > rows_before, f"{rows_before} rows", 60)
        return rows

    def stopped(self, rows: Path) -> Counter[int]:
        """The run's rows, once it has ended and the controller waits for the next."""
        ran_s = self.status()["seconds"]
        self.run("stop")

        def waits() -> bool:
            try:
                now = json.loads(self.run("status", "-o", "json", code=None).partition("error[")[0] or "{}")
            except json.JSONDecodeError:
                return False
            return bool(now) and now["topology"] is None and now["seconds"] <= ran_s

        wait_for(waits, "a controller that waits for the next topology", 90)
        return Counter(int(line) for line in rows.read_text().split())

    def other_build(self) -> Path:
        """A wheel that differs from the one that was built, but in nothing that matters."""
        own = next((self.bed.home / ".cache" / "headgate" / "wheels").glob("*/headgate-*.whl"))
        other = self.bed.folder / "other" / own.name
        other.parent.mkdir()
        shutil.copy(own, other)
        with zipfile.ZipFile(other, "a") as wheel:
            wheel.writestr("headgate_other_build.py", "")
        return other


def arrived(rows: Path) -> int:
    return rows.read_text().count("\n") if rows.exists() else 0
