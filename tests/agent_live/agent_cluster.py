"""A real agent with real workers in real slots, and the test as its controller."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from keys_made import MadeKeys
from patience import PATIENCE_S, until

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.platform import cgroups, processes
from headgate.topology_runtime.rates.schedule import Schedule
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.channels import ServerChannel, Waiter

HERE = str(Path(__file__).parent)
VM = "vm1"
GROUPS = [4, 24]
KEYS = MadeKeys("agent", VM)
NS = 1_000_000_000
Message = TypeVar("Message", m.Hello, m.Report, m.SampleBlock, m.DeadLetters, m.Goodbye)


def topology(folder: Path, max_call_s: float = 10.0) -> Topology:
    given = {"folder": str(folder)}
    return Topology(
        "line",
        (
            Task("source", kind="source", run="agent_tasks:Numbers", static=Static()),
            Task("work", run="agent_tasks:Work", params=given, max_call_s=max_call_s),
            Task("store", run="agent_tasks:Store", params=given),
        ),
        (Edge("source", "work"), Edge("work", "store")),
    )


class Cluster:
    """One agent process and what it has said; `tell` is the controller's side."""

    def __init__(self, folder: Path, workers_as: str = "agent", settings: tuple[str, ...] = ()) -> None:
        self.folder, self.workers_as, self.settings = folder, workers_as, settings
        self.run = f"test-{os.getpid()}-{folder.name}"
        self.rows = folder / "rows"
        self.rows.mkdir()
        self.rows.chmod(0o777)  # tasks of another user write there …
        self.channel: ServerChannel[m.FromController, m.FromAgent] = ServerChannel(
            channels.from_agent, KEYS.guard
        )
        self.waiter = Waiter([self.channel])
        self.heard: list[m.FromAgent] = []
        self.peer = b""
        self.boot, self.counter = 1, 0
        self.topology = topology(self.rows)
        self.threads: tuple[m.ThreadSpec, ...] = ()
        self.schedule: Schedule | None = None
        self.draining = False
        self.chained: tuple[str, ...] = ()
        self.known: object = None
        self.start_agent()

    def command(self) -> list[str]:
        """The agent's command line, without an owner."""
        words = [
            sys.executable,
            "-P",
            "-m",
            "headgate",
            "agent",
            "run",
            "--vm",
            VM,
            "--run",
            self.run,
        ]
        key = str(KEYS.file(self.folder / "vm1.key"))
        words += ["--controller", self.channel.endpoint, "--key", key, "--slots", "2", "--slot-cores", "0.4"]
        words += [
            "--workers-as",
            self.workers_as,
            *(word for one in self.settings for word in ("--set", one)),
        ]
        return [*words, "--slot-memory", "256M", "--state-dir", str(self.folder / "vm1")]

    def start_agent(self) -> None:
        command = [*self.command(), "--owner", str(os.getpid())]
        with (self.folder / "agent.log").open("ab") as log:
            groups = GROUPS if os.geteuid() == 0 else None  # that no worker of another user may be in
            self.agent = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=log, extra_groups=groups)

    # ── the controller's side ───────────────────────────────────────────────────────────────────

    def pump(self, seconds: float = 0.02) -> None:
        self.waiter.wait(seconds)
        while (came := self.channel.receive()) is not None:
            self.peer, _, message = came
            self.heard.append(message)
            if isinstance(message, m.Hello | m.Report):
                self.channel.send(self.peer, m.Welcome(self.boot, self.run, time.time_ns()))
            if isinstance(message, m.Report) and message.token < m.Token(self.boot, 1, self.counter):
                self.tell()

    def wait(self, what: Callable[[], bool]) -> None:
        until(lambda: self.pump() or what(), (self.folder / "agent.log").read_text, every_s=0.0)

    def all(self, kind: type[Message]) -> list[Message]:
        return [message for message in self.heard if isinstance(message, kind)]

    @property
    def report(self) -> m.Report:
        return self.all(m.Report)[-1]

    def worker(self, number: int) -> m.WorkerStatus | None:
        if not self.all(m.Report):
            return None
        return next((w for w in self.report.workers if w.slot.number == number), None)

    def want(self, *threads: tuple[int, str, int], draining: bool = False) -> None:
        self.threads = tuple(m.ThreadSpec(n, task, Slot(VM, slot)) for n, task, slot in threads)
        self.draining = draining
        self.tell_new()

    def tell_new(self) -> None:
        self.counter += 1
        self.tell()

    def tell(self) -> None:
        """The desired state: endpoints and source positions as they were reported."""
        reports = self.all(m.Report)
        workers = reports[-1].workers if reports else ()
        acked = max((s.acked for r in reports for s in r.sources), default=0)
        targets = {t.task: t.thread for t in self.threads}
        edges = enumerate(self.topology.edges)
        self.channel.send(
            self.peer,
            m.DesiredState(
                token=m.Token(self.boot, 1, self.counter),
                phase="committed",
                run=self.run,
                topology=self.topology,
                user_paths=(HERE, str(self.rows)),  # … and find it
                threads=self.threads,
                routes_number=1,
                routes=tuple(
                    m.Route(n, ((targets[e.target], 1.0),)) for n, e in edges if e.target in targets
                ),
                workers=tuple(m.WorkerAt(w.slot, w.incarnation, w.endpoint) for w in workers),
                schedule=self.schedule,
                starts=(m.SourceStart("source", 0, acked),),
                draining=self.draining,
                chained=self.chained,
            ),
        )

    def ready(self, *numbers: int) -> bool:
        """These workers are up and connected under the newest state; endpoints are passed on meanwhile."""
        if not self.all(m.Report):
            return False
        now = {w.slot.number: (w.incarnation, w.endpoint) for w in self.report.workers}
        if self.known != now:
            self.known = now
            self.tell_new()
        workers = [self.worker(n) for n in numbers]
        token = m.Token(self.boot, 1, self.counter)
        return all(w is not None and w.ready and w.token == token for w in workers)

    def offer(self, rate_tps: float) -> None:
        self.schedule = Schedule(time.time_ns(), ((0.0, rate_tps),))
        self.tell_new()

    # ── what there is ───────────────────────────────────────────────────────────────────────────

    def pids(self) -> list[int]:
        """The agent's worker processes."""
        data = processes.read(f"/proc/{self.agent.pid}/task/{self.agent.pid}/children")
        return [int(pid) for pid in (data or b"").split()]

    def stored(self) -> Counter[int]:
        return Counter(int(line) for path in self.rows.iterdir() for line in path.read_text().split())

    def groups(self) -> list[Path]:
        points = [point for kind in ("cgroup", "cgroup2") for point, _ in cgroups.mounted(kind)]
        return [
            point / f"headgate-{self.run}" for point in points if (point / f"headgate-{self.run}").exists()
        ]

    def close(self) -> None:
        if self.agent.poll() is None:
            self.agent.terminate()
        self.agent.wait(PATIENCE_S)
        self.channel.close(linger_ms=0)


LINE = ((1, "source", 0), (2, "work", 1), (3, "store", 0))
