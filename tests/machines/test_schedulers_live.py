"""What docs/schedulers.md has Kubernetes and Slurm start, started as it stands there: the agents register."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_read import pod, words

from headgate.topology_runtime import channels
from headgate.topology_runtime.keys.keyring import read_key
from headgate.topology_runtime.messages import Request
from watched_runs.children import end

pytestmark = pytest.mark.live

PAGE = Path(__file__).resolve().parents[2] / "docs" / "schedulers.md"
BIN = Path(sys.executable).parent
LIMIT_S = 60.0


class Started:
    """The folders of containers are folders in `root`; names of services are this machine."""

    def __init__(self, root: Path) -> None:
        self.root, self.children = root, list[subprocess.Popen[bytes]]()
        self.keys = root / "made"
        self.headgate("keys", "init", str(self.keys))
        self.env = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.port = 0

    def headgate(self, *words: str) -> str:
        command = [sys.executable, "-P", "-m", "headgate.dashboards.cli", *words]
        done = subprocess.run(command, cwd=self.root, capture_output=True, text=True, timeout=LIMIT_S)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def in_root(self, pod: str, word: str) -> str:
        """Paths of the container's file system are below a folder of its own."""
        found = re.sub(r"/(secret|keys|var/lib/headgate)\b", lambda m: f"{self.root}/{pod}/{m[1]}", word)
        return found.replace("headgate-controller", "127.0.0.1").replace("0.0.0.0", "127.0.0.1")

    def start(self, name: str, spec: dict[str, Any], secret: list[str], **env: str) -> None:
        """A pod: its init containers one after the other, then its container."""
        for folder in ("secret", "keys", "var/lib/headgate"):
            (self.root / name / folder).mkdir(parents=True)
        for file in secret:
            (self.root / name / "secret" / file).write_bytes((self.keys / file).read_bytes())
            (self.root / name / "secret" / file).chmod(0o644)
        for container in spec["initContainers"]:
            command = [self.in_root(name, word) for word in words(container, **env)]
            subprocess.run(command, check=True, timeout=LIMIT_S, capture_output=True)
        [container] = spec["containers"]
        self.spawn([self.in_root(name, word) for word in words(container, **env)])

    def spawn(self, command: list[str], **env: str) -> None:
        command = [
            re.sub(r"(-port|--port|7311|:7311)=?\b.*", lambda m: self._port(m[0]), word) for word in command
        ]
        with (self.root / "log").open("ab") as log:
            self.children.append(
                subprocess.Popen(
                    command, cwd=self.root, env=self.env | env, stdout=log, stderr=log, process_group=0
                )
            )

    def _port(self, word: str) -> str:
        """Any port: those of the manifests may be taken here."""
        if word.startswith((":", "7")):
            return word.replace("7311", str(self.port))
        return word.partition("=")[0] + "=0"

    def endpoint(self) -> Path:
        return self.root / "controller" / "var/lib/headgate" / "state" / "1" / "controller" / "endpoint"

    def vms(self) -> set[str]:
        commands = json.loads(self.endpoint().read_text())["commands"]
        contact = read_key(self.keys / "operator.local.key").contact(commands)
        return {vm["vm"] for vm in channels.ask(contact, Request("status"), LIMIT_S).data["vms"]}

    def wait(self, what: Callable[[], Any]) -> None:
        end = time.monotonic() + LIMIT_S
        while not what():
            assert time.monotonic() < end, (self.root / "log").read_text()
            time.sleep(0.1)

    def end(self) -> None:
        end(self.children)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Started]:
    found = Started(tmp_path)
    try:
        yield found
    finally:
        found.end()


def test_what_the_page_has_started_is_a_cluster(started: Started) -> None:
    names = [f"headgate-agent-{n}" for n in range(2)]
    for name in (*names, "node7"):
        started.headgate("keys", "add", "agent", name, "--keys", str(started.keys))
    started.start("controller", pod("Deployment", "headgate-controller"), ["trust.json", "controller.key"])
    started.wait(started.endpoint().exists)
    started.port = int(json.loads(started.endpoint().read_text())["control"].rpartition(":")[2])
    secret = [f"agent.{name}.key" for name in names]
    for name in names:
        agent = pod("StatefulSet", "headgate-agent")
        started.start(name, agent, secret, POD_NAME=name, POD_IP="127.0.0.1")
        [kept] = (started.root / name / "keys").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    started.wait(lambda: started.vms() == set(names))

    [script] = re.findall(r"```sh\n(#!/bin/bash\n.*?)```", PAGE.read_text("utf-8"), re.S)
    own = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_CPUS_PER_TASK": "2", "HEADGATE_KEYS": str(started.keys),
           "HEADGATE_CONTROLLER": f"tcp://127.0.0.1:{started.port}", "TMPDIR": str(started.root)}  # fmt: skip
    (started.root / "agents.sh").write_text(script)
    started.spawn(["bash", str(started.root / "agents.sh")], **own)
    started.wait(lambda: started.vms() == {*names, "node7"})
