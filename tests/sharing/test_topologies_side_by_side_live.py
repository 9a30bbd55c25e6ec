"""Two topologies on one cluster of two VMs, as real processes: slots go by priority, come back when one is stopped, and
whatever is killed, each topology loses nothing."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from keys_made import operator
from real_run import RealRun, headgate

from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request

pytestmark = pytest.mark.live

FLOWS = """
from pathlib import Path

from headgate import topology
from headgate.tasks import FilesSource

HERE = Path(__file__).parent


class Twice:
    def __call__(self, row):
        return {"n": row["n"], "twice": 2 * int(row["n"])}


class Write:
    def __init__(self, name):
        self.path = HERE / f"{name}.out"

    def open(self, context):
        self.file = self.path.open("a")

    def __call__(self, row):
        assert row["twice"] == 2 * int(row["n"])
        print(row["n"], file=self.file, flush=True)


def made(name):
    flow = topology(name)
    rows = flow.source("rows", FilesSource, path=str(HERE / f"{name}.csv"))
    rows >> flow.task("twice", Twice) >> flow.task("write", Write, name=name)
    return flow


low, high = made("low"), made("high")
"""
MODEL = {"schema": "headgate/model/v1", "slot": {"cores": 0.2, "memory_bytes": 1 << 29}}
RATES = {"twice": 40.0, "write": 1000.0}  # a thread of `twice` fills a slot


class SharedRun(RealRun):
    """A shared controller, and two VMs of two slots."""

    def begin(self, vms: tuple[str, ...] = ("vm1", "vm2")) -> None:
        (self.here / "flows.py").write_text(FLOWS)
        (self.here / "models").mkdir()
        for task, rate_tps in RATES.items():
            points = [{"threads": 1, "rate_tps": rate_tps, "cpu": 0.9, "memory": 0.1}]
            (self.here / "models" / f"{task}.json").write_text(
                json.dumps({**MODEL, "task": task, "points": points})
            )
        self.start_controller("--set", "shared=yes")
        self.control = self.where()["control"]
        self.agents = {vm: self.share(vm) for vm in vms}

    def fails(self, code: int, *words: str) -> str:
        """What a command says that ends with this exit code."""
        done = subprocess.run(
            headgate(*words), cwd=self.here, capture_output=True, text=True, timeout=self.limit_s, check=False
        )
        assert done.returncode == code, done.stderr
        return done.stderr

    def share(self, vm: str) -> subprocess.Popen[bytes]:
        return self.start_agent(
            vm, "--set", "shared=yes", "--workers-as", "agent", "--controller", self.control
        )

    def goes_on(self) -> None:
        """Both get a hundred more rows done, and their controllers answer."""
        before = {name: len(self.out(name)) for name in ("low", "high")}
        self.wait(lambda: all(len(self.out(name)) > many + 100 for name, many in before.items()))
        self.wait(lambda: all(self.at(name) for name in before))

    def start_page(self) -> Callable[[str, str], str]:
        """The list's page. Gives what is at a path there, or at a path of where that one leads to."""
        self.start("dashboard", "run", "--controller", self.state, "--owner", str(os.getpid()))
        log = self.root / "dashboard.log"
        self.wait(lambda: log.read_text().startswith("http"))
        at = log.read_text().partition("#")[0]

        def got(path: str, then: str = "") -> str:
            with urlopen(f"{at}{path}", timeout=self.limit_s) as answer:
                found, where = answer.read().decode(), answer.url
            if not then:
                return found
            with urlopen(f"{where}{then}", timeout=self.limit_s) as answer:
                return answer.read().decode()

        return got

    def rows(self, name: str, count: int) -> None:
        (self.here / f"{name}.csv").write_text("n\n" + "".join(f"{n}\n" for n in range(count)))

    def submit(self, name: str, rate: int, *more: str) -> None:
        where = ("--controller", self.state, "--models", self.here / "models")
        self.headgate("submit", f"flows.py:{name}", "--rates", str(rate), *where, *more)

    def topologies(self) -> dict[str, dict[str, Any]]:
        return {one["topology"]: one for one in self.status()["topologies"]}

    def out(self, name: str) -> list[int]:
        path = self.here / f"{name}.out"
        return sorted(map(int, path.read_text().split())) if path.exists() else []

    def summary(self, name: str) -> dict[str, Any] | None:
        found = list((self.state / "topologies" / name).glob("*/summary.json"))
        return json.loads(found[0].read_bytes()) if found else None

    def at(self, name: str) -> str | None:
        """Where its controller answers."""
        return self.ask("topology", topology=name).data["commands"]

    def ask_one(self, name: str, command: str) -> Any:
        where = self.at(name)
        assert where is not None
        return channels.ask(operator(self.state).to(where), Request(command), self.limit_s).data


@pytest.fixture
def run(tmp_path: Path) -> Iterator[SharedRun]:
    made = SharedRun(tmp_path, "shared", 0.2, tmp_path, limit_s=90.0)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def test_slots_go_by_priority_and_come_back_when_one_is_stopped(run: SharedRun) -> None:
    run.rows("low", 100_000)
    run.rows("high", 100_000)
    run.submit("low", 100)
    run.wait(lambda: len(run.out("low")) > 100)
    run.submit("high", 100, "--set", "priority=5")
    run.wait(lambda: len(run.out("high")) > 100)
    found = run.topologies()
    slots = {name: found[name]["slots"] for name in found}
    assert (
        slots["low"] and len(slots["high"]) > len(slots["low"]) and not set(slots["low"]) & set(slots["high"])
    )
    assert "high has priority 5" in found["low"]["text"]
    many = len(run.out("low"))
    run.wait(lambda: len(run.out("low")) > many + 100)
    pages = run.start_page()
    assert pages("", "").count("data-page") == 2
    for name in ("low", "high"):
        run.wait(lambda name=name: f'"{name}"' in pages(f"topology/{name}", "api/snapshot"))
    run.headgate("stop", "high", "--controller", str(run.state))
    run.wait(lambda: run.topologies()["high"]["stage"] == "over")
    run.wait(lambda: len(run.topologies()["low"]["slots"]) == 4)
    run.headgate("stop", "low", "--controller", str(run.state))
    run.wait(lambda: run.topologies()["low"]["stage"] == "over")
    for name in ("low", "high"):
        summary = run.summary(name)
        assert summary is not None and summary["tuples"]["lost"] == 0
        assert run.out(name) == list(range(summary["tuples"]["acked"])), "each row once, none left out"


def test_what_is_refused_leaves_the_others_and_nothing_behind(tmp_path: Path) -> None:
    """No VM is there: nothing runs, and all that is asked is answered."""
    run = SharedRun(tmp_path, "refused", 0.2, tmp_path, limit_s=90.0)
    try:
        run.begin(vms=())
        run.rows("low", 10)
        run.submit("low", 10)
        where = ("--controller", str(run.state))
        (tmp_path / "broken.py").write_text("import nothing_there\n")
        assert run.fails(3, "submit", "broken.py:flow", "--rates", "5", *where)
        assert "low runs here already" in run.fails(6, "submit", "flows.py:low", "--rates", "5", *where)
        model = tmp_path / "models" / "twice.json"
        model.write_text(model.read_text().replace("40.0", "-1"))
        assert "rate_tps" in run.fails(
            3, "submit", "flows.py:high", "--rates", "5", *where, "--models", "models"
        )
        run.wait(lambda: run.topologies()["high"]["stage"] == "over")
        assert "no topology 'lo'" in run.fails(3, "stop", "lo", *where)
        assert "low" in run.fails(3, "stop", *where), "several may run: it says which"
        low = run.topologies()["low"]
        assert low["stage"] != "over" and "the cluster has 0 slots" in low["text"]
    finally:
        run.end()


def test_whatever_is_killed_each_goes_on_and_loses_nothing(run: SharedRun) -> None:
    """The shared controller, which takes all controllers with it; one controller; a worker; all agents of a VM."""
    many = 2500
    for name in ("low", "high"):
        run.rows(name, many)
        run.submit(name, 60)
    run.wait(lambda: all(len(run.out(name)) > 100 for name in ("low", "high")))
    os.kill(run.controller.pid, signal.SIGKILL)
    run.controller.wait()
    run.start_controller("--set", "shared=yes", "--port", run.control.rpartition(":")[2])
    run.goes_on()
    os.kill(run.ask_one("low", "ping")["pid"], signal.SIGKILL)
    run.goes_on()
    vm = next(
        vm for vm in run.ask_one("high", "status")["vms"] if any(slot["threads"] for slot in vm["slots"])
    )
    os.kill(vm["pid"], signal.SIGKILL)
    run.goes_on()
    run.agents["vm1"].kill()
    run.agents["vm1"].wait()
    run.share("vm1")
    run.wait(lambda: all(one["stage"] == "over" for one in run.topologies().values()))
    for name in ("low", "high"):
        summary = run.summary(name)
        assert summary is not None and summary["tuples"]["lost"] == 0 and summary["tuples"]["acked"] == many
        assert set(run.out(name)) == set(range(many)), "none left out; what was in flight may come twice"
