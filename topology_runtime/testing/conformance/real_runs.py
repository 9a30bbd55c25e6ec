"""A run of `headgate up` whose worker, VM and controller a test kills; source → sink, on three VMs."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys.keyring import Keyring
from headgate.topology_runtime.testing.conformance.patience import PATIENCE_S, until
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request

VMS, RATE_TPS, ANSWER_S = "1,1,1", 100_000, 5.0
SOURCE, SINK = "source", "sink"
STATIC = {"cpu": 0.9, "memory": 0.4}  # of a slot: each task has one of its own


def task(name: str, run: str, params: dict[str, Any], threads: int) -> dict[str, Any]:
    return {"name": name, "run": run, "params": params, "static": {"threads": threads, **STATIC}}


class RealRun:
    """The processes of one run. In `folder` are its topology, its state and its logs."""

    def __init__(
        self, folder: Path, source: dict[str, Any], sink: dict[str, Any], grouping: str = "shuffle"
    ) -> None:
        """source, sink: as `task` makes them. grouping: of the rows between them."""
        self.folder, self.state = folder, folder / "state"
        document = {
            "schema": "headgate/topology/v1",
            "name": "conformance",
            "tasks": [{**source, "kind": "source"}, sink],
            "edges": [{"from": SOURCE, "to": SINK, "grouping": grouping}],
        }
        (folder / "topology.json").write_text(json.dumps(document))
        words = ["up", "topology.json", "--vms", VMS, "--rates", str(RATE_TPS), "--seconds", "inf"]
        words += ["--state-dir", "state", "--trace-dir", "traces", "-o", "json"]
        paths = [path for path in sys.path if path and not path.startswith(sys.prefix)]
        with open(folder / "out.json", "wb") as out, open(folder / "log.txt", "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "headgate", *words],
                cwd=folder,
                env=os.environ | {"PYTHONPATH": os.pathsep.join(paths)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=log,
                process_group=0,
            )

    @property
    def log(self) -> str:
        return (self.folder / "log.txt").read_text(errors="replace")[-4000:]

    def status(self) -> dict[str, Any]:
        """Of the run, as its controller says; waits for one that is not there."""
        return until(self._status, lambda: f"for the controller to answer; the run says:\n{self.log}")

    def _status(self) -> dict[str, Any] | None:
        assert self.process.poll() is None, f"the run has ended:\n{self.log}"
        try:
            where = json.loads((self.state / "controller" / "endpoint").read_text())
            contact = Keyring(self.state / "keys").key("operator", "local").contact(where["commands"])
            reply = channels.ask(contact, Request("status", {}), ANSWER_S)
        except (OSError, ValueError, HeadgateError):
            return None  # it is being started
        found: dict[str, Any] = reply.data
        return found if not reply.error else None

    def place_of(self, task: str) -> tuple[str, int]:
        """VM and slot of a thread of this task."""

        def found() -> tuple[str, int] | None:
            slots = [
                (vm["vm"], s["slot"])
                for vm in self.status()["vms"]
                for s in vm["slots"]
                if task in s["threads"]
            ]
            return slots[0] if slots else None

        return until(found, f"for a thread of {task}")

    def _process_of(self, *words: str) -> psutil.Process | None:
        for child in psutil.Process(self.process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                line = " ".join(child.cmdline()) + " "
                if all(f"{word} " in line for word in words):
                    return child
        return None

    def _kill(self, *words: str) -> None:
        """`kill -9` of a process below it that was started with these words."""
        found = until(lambda: self._process_of(*words), f"for a process {' '.join(words)}")
        found.kill()

    # ── what is done to it ──────────────────────────────────────────────────────────────────────

    def kill_worker(self, task: str) -> None:
        vm, slot = self.place_of(task)
        self._kill("headgate.topology_runtime.worker", f"--vm {vm}", f"--slot {slot}")

    def kill_vm(self, task: str) -> None:
        """Agent and workers of the VM of this task, at once; and what is on its disk."""
        vm, _ = self.place_of(task)
        agent = until(lambda: self._process_of("agent run", f"--vm {vm}"), f"for the agent of {vm}")
        for one in [agent, *agent.children(recursive=True)]:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.kill()
        shutil.rmtree(self.state / "agents" / vm, ignore_errors=True)

    def kill_controller(self) -> None:
        self._kill("controller run")

    # ── what is seen of it ──────────────────────────────────────────────────────────────────────

    def dead_letters(self) -> int:
        return int(self.status()["tuples"]["dead_lettered"])

    def alarms(self, task: str) -> list[str]:
        """What it says of a task that waits or fails."""
        return [alarm["text"] for alarm in self.status()["alarms"] if task in alarm["text"]]

    def rows_read(self) -> int:
        return int(self.status()["tuples"]["emitted"])

    def memory_bytes(self, task: str) -> int:
        """Of the worker of this task; 0 while it is none."""
        vm, slot = self.place_of(task)
        found = self._process_of("headgate.topology_runtime.worker", f"--vm {vm}", f"--slot {slot}")
        with contextlib.suppress(psutil.NoSuchProcess):
            return int(found.memory_info().rss) if found is not None else 0
        return 0

    def end(self) -> dict[str, Any]:
        """Its summary: it reads no more, and what is in flight is done."""
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the run does not end:\n{self.log}") from None
        assert self.process.returncode == 0, f"the run ended with {self.process.returncode}:\n{self.log}"
        summary: dict[str, Any] = json.loads((self.folder / "out.json").read_text())
        return summary

    def close(self) -> None:
        """However it is: nothing of it stays."""
        if self.process.poll() is not None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            below = psutil.Process(self.process.pid).children(recursive=True)
            for one in [psutil.Process(self.process.pid), *below]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        self.process.wait()
