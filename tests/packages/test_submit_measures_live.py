"""`headgate submit` without models: what lacks is measured on the hosts, really, and then every row comes once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from package_made import folder
from shipped_hosts import Hosts, headgate

pytestmark = pytest.mark.live

WAIT_S = 0.005
FLOW = f"""
import time

from headgate.topology_runtime.api.builder import topology
from headgate.topology_runtime.tasks.sinks import CollectToFile
from headgate.topology_runtime.tasks.row_sources import Counter


def halve(number):
    time.sleep({WAIT_S})
    return number * 0.5


def add(number):
    return number + 1


def broken(number):
    raise ValueError(f"no {{number}} here")


def flow_of(*tasks):
    made = topology("halves")
    path = made.source("numbers", Counter)
    for task in tasks:
        path = path >> made.task(task.__name__, task)
    path >> made.task("store", CollectToFile, path=ROWS)
    return made


flow, bad = flow_of(halve, add), flow_of(halve, broken)
"""


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    made = Hosts(tmp_path)
    shutil.copy(made.root / "ann" / "signing.pub", made.state / "keys")
    source = f"ROWS = {str(made.rows / 'rows')!r}\n{FLOW}"
    folder(tmp_path / "own", {"halves.py": source.encode()})
    for vm in ("vm1", "vm2"):
        made.start_agent(vm)
    made.wait(lambda: set(made.vms()) == {"vm1", "vm2"})
    yield made
    made.close()


def submitting(hosts: Hosts, flow: str, *options: str | Path) -> subprocess.Popen[str]:
    """The code is shipped; no models are given."""
    words = headgate(
        "submit", hosts.root / "own" / f"halves.py:{flow}", "--rates", "40", "--ship",
        "--controller", hosts.state, "--set", f"sign={hosts.root / 'ann' / 'signing.key'}",
        "--measure", "first", *options,
    )  # fmt: skip
    (hosts.root / "own-tmp").mkdir(exist_ok=True)  # one that is killed leaves its folder there
    env = {**os.environ, "XDG_CACHE_HOME": str(hosts.root / "cache"), "TMPDIR": str(hosts.root / "own-tmp")}
    pipe = subprocess.PIPE
    return subprocess.Popen(words, cwd=hosts.elsewhere, stdout=pipe, stderr=pipe, text=True, env=env)


def ended(client: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit code, and what it said."""
    out, said = client.communicate(timeout=120)
    return client.returncode, out + said


def profiling(hosts: Hosts) -> list[psutil.Process]:
    """What measures, and all that it started."""
    found: list[psutil.Process] = []
    for process in hosts.processes:
        for child in psutil.Process(process.pid).children(recursive=True) if process.poll() is None else ():
            try:
                found += [child] if "headgate.topology_runtime.measuring" in " ".join(child.cmdline()) else []
            except psutil.NoSuchProcess:
                continue
    return found


def nothing_left(hosts: Hosts) -> bool:
    own = [path for vm in ("vm1", "vm2") for path in (hosts.root / vm / "profile").glob("*")]
    return not profiling(hosts) and not own


def test_what_lacks_a_model_is_measured_and_every_row_comes_once(hosts: Hosts) -> None:
    saved = hosts.root / "saved"
    code, said = ended(submitting(hosts, "flow", "--set", f"save-models={saved}"))
    assert code == 0, said
    assert "2 tasks without a model" in said and "measuring halve in vm1/0" in said and "add in vm2/0" in said
    assert "not run on sample rows, since they may have side effects: store" in said
    hosts.wait(lambda: len(hosts.noted()) >= 150)
    hosts.ask("stop")
    hosts.wait(lambda: hosts.controller.poll() is not None)
    rows = Counter(float(line) for line in hosts.noted())
    assert rows == Counter(number * 0.5 + 1 for number in range(len(rows)))

    print("".join(line for line in hosts.log("controller") if "was measured in" in line))
    assert sorted(path.stem for path in saved.glob("*.json")) == ["add", "halve"]
    model = json.loads((saved / "halve.json").read_text())
    alone = next(point["rate_tps"] for point in model["points"] if point["threads"] == 1)
    assert 0.5 / WAIT_S < alone < 1.05 / WAIT_S, "one thread that waits, as a loop over the function would"
    assert model["complete"] and model["slot"]["machine"] and model["slot"]["cores"] == 0.4
    for vm in ("vm1", "vm2"):
        assert list((hosts.root / vm / "profile").glob("*")) == []

    again_at_once(hosts)


def again_at_once(hosts: Hosts) -> None:
    """Another controller, the same code."""
    shutil.rmtree(hosts.state / "controller")
    (hosts.rows / "rows").unlink()
    hosts.start_controller()
    hosts.start_agent("vm1")
    hosts.wait(lambda: "vm1" in hosts.vms())
    began = time.monotonic()
    code, said = ended(submitting(hosts, "flow"))
    assert code == 0 and "measuring" not in said, said
    print(f"submitted again in {time.monotonic() - began:.1f} s")
    assert time.monotonic() - began < 8.0, "packing and sending takes a second"
    hosts.wait(lambda: len(hosts.noted()) >= 40)


def test_a_task_that_raises_is_named_and_nothing_is_left(hosts: Hosts) -> None:
    code, said = ended(submitting(hosts, "bad"))
    assert code == 1, said
    assert "task 'broken' could not be measured in vm" in said and "ValueError: no" in said
    hosts.wait(lambda: nothing_left(hosts))
    assert hosts.ask("status").data["stage"] == "idle" and hosts.noted() == []


def test_ctrl_c_withdraws_it_and_who_comes_second_is_told_who_is_first(hosts: Hosts) -> None:
    client = submitting(hosts, "flow")
    hosts.wait(lambda: hosts.ask("status").data["stage"] == "measuring")
    hosts.wait(lambda: len(profiling(hosts)) >= 2)
    code, said = ended(submitting(hosts, "flow"))
    assert code == 6 and "was submitted first" in said and "@" in said
    client.send_signal(signal.SIGINT)
    code, said = ended(client)
    assert code == 130 and "the submission is withdrawn" in said, said
    assert hosts.ask("status").data["stage"] == "idle"
    hosts.wait(lambda: nothing_left(hosts))


def test_what_was_submitted_runs_though_its_client_is_killed(hosts: Hosts) -> None:
    client = submitting(hosts, "flow")
    hosts.wait(lambda: hosts.ask("status").data["stage"] == "measuring")
    client.kill()
    client.communicate()
    hosts.wait(lambda: len(hosts.noted()) >= 40, 120.0)  # two tasks are measured before


def test_a_killed_controller_and_a_killed_agent_end_nothing(hosts: Hosts) -> None:
    client = submitting(hosts, "flow")
    hosts.wait(lambda: len(profiling(hosts)) >= 2)
    port = str(hosts.where()["control"]).rpartition(":")[2]
    agent = hosts.processes[1]
    for process in (hosts.controller, agent):
        process.kill()
        process.wait()
    hosts.start_controller("--port", port)
    code, said = ended(client)
    assert code == 0, said
    hosts.wait(lambda: len(hosts.noted()) >= 40)
    assert len(set(hosts.noted())) == len(hosts.noted())
