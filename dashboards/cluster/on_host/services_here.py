"""The services of a cluster on this host: units where systemd runs, else keepers of ours."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

from headgate.dashboards.cluster.on_host.doing import NotDone, run, told

UNITS = Path("/etc/systemd/system")
START_S, STOP_S = 10.0, 40.0
KEPT = ("json", "state", "lock")  # files of a service


class ServicesHere:
    """home: the cluster's folder on this host, named like the cluster."""

    def __init__(self, home: Path) -> None:
        self.home, self.cluster = home, home.name

    def state(self, name: str) -> dict[str, Any]:
        """What is known of one: does it run, and with which settings?"""
        if self.unit(name).exists():
            shown = told(["systemctl", "show", self.unit(name).name, "-p", "ActiveState,MainPID,NRestarts"])
            lines = dict(line.partition("=")[::2] for line in shown.splitlines())
            text = self.unit(name).read_bytes()
            return {
                "running": lines.get("ActiveState") == "active",
                "pid": int(lines.get("MainPID", "0")),
                "restarts": int(lines.get("NRestarts", "0")),
                "digest": hashlib.sha256(text).hexdigest(),
            }
        keeper = self.keeper(name)
        try:
            state: dict[str, Any] = json.loads((self.home / "services" / f"{name}.state").read_bytes())
        except (FileNotFoundError, ValueError):
            state = {}
        return {**state, "running": bool(keeper), "keeper": keeper}

    def others(self, known: list[str]) -> list[str]:
        there = {path.stem for path in self.home.glob("services/*.json")}
        prefix = f"headgate-{self.cluster}-"
        units = {path.stem.removeprefix(prefix) for path in UNITS.glob(f"{prefix}*.service")}
        return sorted((there | units) - set(known))

    def unit(self, name: str) -> Path:
        return UNITS / f"headgate-{self.cluster}-{name}.service"

    def keeper(self, name: str) -> int:
        """The process that holds the service's lock; 0: none."""
        try:
            lock = os.open(self.home / "services" / f"{name}.lock", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return 0
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return int(os.read(lock, 32) or b"0")
        finally:
            os.close(lock)
        return 0

    def start(self, name: str, systemd: bool) -> int:
        """By a unit that is written already, or by a keeper of ours that outlives this link; its process. Raises
        NotDone."""
        if systemd:
            run(["systemctl", "daemon-reload"], "read the units")
            run(["systemctl", "enable", "--quiet", self.unit(name).name], "enable the unit")
            run(["systemctl", "restart", self.unit(name).name], "start the unit")
            return int(self.state(name)["pid"])
        self.stop_keeper(name)
        (self.home / "services" / f"{name}.state").unlink(missing_ok=True)
        settings = self.home / "services" / f"{name}.json"
        command = [sys.executable, "-P", str(self.home / "keeper.py"), str(settings)]
        log = os.open(self.home / "log" / f"{name}.keeper", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = [(os.POSIX_SPAWN_DUP2, nothing, 0), *((os.POSIX_SPAWN_DUP2, log, n) for n in (1, 2))]
        os.posix_spawn(sys.executable, command, dict(os.environ), file_actions=streams, setsid=True)
        os.close(log)
        os.close(nothing)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if self.keeper(name) and (pid := self.state(name).get("pid")):
                return int(pid)
            time.sleep(0.02)
        raise NotDone(f"{name} did not start within {START_S:g} s")

    def stop(self, name: str) -> None:
        """And it does not come again, nor is anything of it kept but its log. Raises NotDone."""
        if self.unit(name).exists():
            run(["systemctl", "disable", "--now", "--quiet", self.unit(name).name], "stop the unit")
            self.unit(name).unlink()
            run(["systemctl", "daemon-reload"], "read the units")
        self.stop_keeper(name)
        for suffix in KEPT:
            (self.home / "services" / f"{name}.{suffix}").unlink(missing_ok=True)

    def stop_keeper(self, name: str) -> None:
        for number, patience_s in ((signal.SIGTERM, STOP_S), (signal.SIGKILL, START_S)):
            keeper = self.keeper(name)
            if not keeper:
                return
            os.kill(keeper, number)
            deadline = time.monotonic() + patience_s
            while self.keeper(name) == keeper and time.monotonic() < deadline:
                time.sleep(0.02)
        if self.keeper(name):
            raise NotDone(f"{name} does not stop")
