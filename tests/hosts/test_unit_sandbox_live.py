"""What a unit forbids is tried on what it runs: a contained Python starts, makes its slots, and computes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from patience import PATIENCE_S

from headgate.dashboards.cluster.host_changes import agent_service, controller_service
from headgate.dashboards.cluster.hosts_file import parse
from watched_runs import unit_sandbox

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(unit_sandbox.missing() is not None, reason=str(unit_sandbox.missing())),
]
HEADGATE = [sys.executable, "-P", "-m", "headgate"]
HOSTS = """\
schema = "headgate/hosts/v1"
[controller]
host = "10.0.0.1"
[[vm]]
name = "vm1"
host = "10.0.0.11"
"""
FLOW = """
import ctypes
import numpy
from headgate import topology
from headgate.tasks import CollectToFile, Counter

COMPARED = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)(lambda value: value + 1)  # code made while it runs

def double(row):
    square = numpy.linalg.solve(numpy.eye(8) * 0.5, numpy.full(8, float(row)))
    return int(square[0]) + COMPARED(-1)

flow = topology("doubles")
flow.source("numbers", Counter) >> flow.task("double", double) >> flow.task("store", CollectToFile, path={path!r})
"""


def under(kind: str, home: Path) -> list[str]:
    """Before a command: the sandbox of this service's unit."""
    hosts, faults = parse(HOSTS, "plant")
    assert hosts is not None, faults
    wanted = (
        controller_service(hosts, str(home), "v", "k", True)
        if kind == "controller"
        else agent_service(hosts, hosts.vms[0], str(home), "v", "k", True)
    )
    unit = home / f"{kind}.service"
    unit.write_text(wanted.unit)
    return [sys.executable, "-P", unit_sandbox.__file__, str(unit)]


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """That tasks of any user may enter."""
    with TemporaryDirectory(prefix="headgate-sandbox-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_tasks_of_a_user_of_their_own_run_under_what_an_agents_unit_allows(open_folder: Path) -> None:
    tmp_path = open_folder
    rows, run = tmp_path / "rows.jsonl", tmp_path / "run"
    run.mkdir()
    rows.touch()
    rows.chmod(0o666)
    (run / "flow.py").write_text(FLOW.format(path=str(rows)))
    words = ["up", "flow.py:flow", "--rates", "50", "--seconds", "4", "--set", "workers-as=own", "-o", "json"]
    ran = subprocess.run(
        [*under("agent", tmp_path), *HEADGATE, *words], cwd=run, capture_output=True, text=True, timeout=PATIENCE_S,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    told = json.loads(ran.stdout)["tuples"]
    assert told["acked"] == told["emitted"] > 100 and told["lost"] == told["dead_lettered"] == 0
    assert [int(line) for line in sorted(rows.read_text().split(), key=int)] == [
        2 * n for n in range(told["acked"])
    ]


def test_a_controller_is_ready_under_what_its_unit_allows_and_writes_to_its_folder_alone(
    tmp_path: Path,
) -> None:
    home, outside = tmp_path / "home", tmp_path / "outside"
    home.mkdir()
    before = under("controller", home)
    tried = subprocess.run([*before, "touch", str(outside)], capture_output=True, text=True)
    assert tried.returncode and "Read-only file system" in tried.stderr
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(str(tmp_path / "notify"))
        heard.settimeout(PATIENCE_S)
        own = ["controller", "run", "--state-dir", str(home / "state"), "--run", f"sandbox-{os.getpid()}"]
        process = subprocess.Popen(
            [*before, *HEADGATE, *own], cwd=home, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
            env={**os.environ, "NOTIFY_SOCKET": str(tmp_path / "notify"), "HOME": str(home)},
        )  # fmt: skip
        try:
            assert heard.recv(100) == b"READY=1"
        finally:
            process.send_signal(signal.SIGTERM)
            _, said = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0 and "Operation not permitted" not in said, said[-2000:]
