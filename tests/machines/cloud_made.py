"""A cloud in a folder, and the command that has machines there, as a user would write one; a file says how it fails."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from headgate.controller.files.machines_command import CommandMachines, MachinesCall
from headgate.topology_runtime.cluster import Vm

CLOUD = """
import json, os, subprocess, sys, time
from pathlib import Path

cloud = Path(__file__).parent
said = json.load(sys.stdin)
with (cloud / "said.jsonl").open("a") as file:
    file.write(json.dumps(said) + "\\n")
do, name = said["do"], said.get("machine", {}).get("name")
how = json.loads((cloud / "how.json").read_text()).get(do, "") if (cloud / "how.json").exists() else ""
machines = cloud / "machines"
machines.mkdir(exist_ok=True)
if how == "refuse":
    sys.exit("quota exceeded: 0 of 0 machines left")
if do == "request" and how != "ignore":
    (machines / f"{name}-{said['token']}").write_text("running")
if do == "release" and how != "ignore":
    for path in machines.glob(f"{name}-*"):
        path.unlink()
if how == "hang":
    subprocess.Popen(["sleep", "600"])  # of its own, which must not stay either
    (cloud / "pid").write_text(str(os.getpid()))
    time.sleep(600)
if how == "die":
    os.kill(os.getpid(), 9)
if how == "garbage":
    print("Warning: your client is out of date")
if how == "flood":
    print("x" * 3_000_000)
if how == "other":
    print(json.dumps({"schema": "somebody/else/v7"}))
    sys.exit()
answer = {"schema": "headgate/machines/v1"}
if do == "list" and how != "none":
    answer["machines"] = [{"name": path.name.rpartition("-")[0], "state": path.read_text(), "ip": "10.0.0.9"}
                          for path in sorted(machines.iterdir()) if how != "late"]
print(json.dumps(answer))
"""


class Cloud:
    """The folder, and a provider that uses it; `step` is what its thread does."""

    def __init__(self, folder: Path, timeout_s: float = 20.0) -> None:
        self.folder, self.timeout_s = folder, timeout_s
        folder.mkdir(exist_ok=True)
        (folder / "cloud.py").write_text(CLOUD)
        self.revoked: list[str] = []
        self.now_s = 1000.0
        self.provider = self.born()

    def born(self) -> CommandMachines:
        """Another life of the controller, with the same files."""
        words = (sys.executable, "-I", "-S", str(self.folder / "cloud.py"))
        key = self.folder / "agent.key"
        facts = {"run": "r1", "controller": "tcp://10.0.0.1:7311"}
        call = MachinesCall(words, self.timeout_s, lambda: facts, lambda vm: key, self.revoked.append)
        self.provider = CommandMachines(self.folder / "state", call)
        return self.provider

    def fails(self, **how: str) -> None:
        (self.folder / "how.json").write_text(json.dumps(how))

    def ask(self, *names: str) -> None:
        for name in names:
            self.provider.request(Vm(name, 4, usd_per_hour=0.4))

    def step(self, later_s: float = 0.0) -> float:
        self.now_s += later_s
        return self.provider.step(self.now_s)

    def said(self, *verbs: str) -> list[dict[str, Any]]:
        path = self.folder / "said.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [said for said in map(json.loads, lines) if not verbs or said["do"] in verbs]

    def machines(self) -> list[str]:
        """What is paid for: names with their tokens."""
        folder = self.folder / "machines"
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def names(self) -> list[str]:
        return [name.rpartition("-")[0] for name in self.machines()]
