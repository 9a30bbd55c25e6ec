"""What a pod of the profile `restricted` may do is enough: no user but 10001, no capability, no new privilege, nothing
to write to but its volume, no control group. A controller and an agent run so, and lose no row."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_run import RealRun, headgate

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        os.geteuid() != 0 or shutil.which("setpriv") is None or shutil.which("unshare") is None,
        reason="root makes the namespaces of a pod",
    ),
]
# the volume is what can be written; then user 10001, which in here is who owns it
POD = """
set -eu
mount --make-rprivate /
mount --bind "$1" "$1"
mount -t tmpfs -o ro none /sys/fs/cgroup
mount -o remount,bind,ro /
shift
exec unshare --user --map-user=10001 --map-group=10001 \
    setpriv --no-new-privs --bounding-set=-all --inh-caps=-all --ambient-caps=-all "$@"
"""
FLOW = """
import os
from headgate import topology
from headgate.tasks import CollectToFile, Counter

def work(row):
    try:
        os.mkdir({elsewhere!r})
    except OSError:
        return row
    raise SystemExit("the root of the pod can be written")

flow = topology("pod")
flow.source("count", Counter) >> flow.task("work", work) >> flow.task("store", CollectToFile, path={path!r})
"""


class Pods(RealRun):
    """Controller and agents, each in a pod of its own with the folder of the run as its volume."""

    def start(self, *words: str | Path, **env: str) -> subprocess.Popen[bytes]:
        with (self.root / f"{words[0]}.log").open("ab") as log:
            command = ["unshare", "--mount", "sh", "-c", POD, "pod", str(self.root), *headgate(*words)]
            process = subprocess.Popen(
                command, cwd=self.here, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.processes.append(process)
        return process


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[Pods]:
    one = Pods(tmp_path, "restricted", 0.3, tmp_path, limit_s=60.0)
    elsewhere = str(tmp_path.parent / "elsewhere")
    flow = FLOW.format(path=str(tmp_path / "rows.jsonl"), elsewhere=elsewhere)
    (tmp_path / "flow.py").write_text(flow)
    try:
        one.start_controller("--vms", "vm1=2")
        one.start_agent("vm1")
        yield one
    finally:
        one.end()


def test_a_restricted_pod_runs_rows_and_says_what_bounds_its_slots(pods: Pods) -> None:
    pods.wait(lambda: pods.vms() == ["vm1"])
    words = headgate("submit", "flow.py:flow", "--rates", "200", "--controller", pods.state)
    subprocess.run(words, cwd=pods.root, check=True, capture_output=True, timeout=120)
    pods.wait(lambda: pods.status()["tuples"]["acked"] > 500)
    [vm] = pods.status()["vms"]
    assert vm["binding"] in ("affinity", "none") and vm["workers_as"] == "agent (10001)"
    assert pods.ask("stop").error is None
    pods.controller.wait(90)
    rows = [int(line) for line in (pods.root / "rows.jsonl").read_text().splitlines()]
    assert sorted(set(rows)) == list(range(max(rows) + 1))
    assert not (pods.root.parent / "elsewhere").exists()
