"""Failpoints: off unless asked for, at the right epoch, and for one process only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from watched_runs.failpoint_runs import MOMENTS, PHASES, POINTS, share_of

ROOT = Path(__file__).resolve().parents[2]
POINT = "worker.switched-heard"
SHELLS = {
    "controller": ("controller/controller_process.py", "controller/controller_ports.py"),
    "agent": ("agent/agent_process.py",),
}
SHELLS |= {"worker": ("topology_runtime/worker/process/worker_process.py",)}


def reach(epoch: int, folder: Path | None) -> int:
    """How a process ended that came to the point in this epoch."""
    given = {"HEADGATE_FAILPOINTS": str(folder)} if folder else {}
    code = f"from headgate.topology_runtime.platform.processes import reach; reach({POINT!r}, {epoch})"
    environment = {k: v for k, v in os.environ.items() if k != "HEADGATE_FAILPOINTS"} | given
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, check=False)
    return done.returncode


def test_the_first_that_reaches_an_armed_point_dies_and_no_other(tmp_path: Path) -> None:
    (tmp_path / POINT).write_text("7")
    assert reach(6, tmp_path) == 0  # an enactment before
    assert reach(7, None) == 0  # switched off
    assert reach(7, tmp_path) == -signal.SIGKILL
    assert [path.name for path in tmp_path.iterdir()] == [f"{POINT}.hit"]
    assert reach(8, tmp_path) == 0


def test_every_point_of_the_list_is_one_that_a_shell_reaches() -> None:
    """Its moment is a word of that role's shell; its phase comes with the desired state or the record."""
    for role, moments in MOMENTS.items():
        text = "".join((ROOT / file).read_text() for file in SHELLS[role])
        assert all(moment in text for moment in moments), role
    assert len(POINTS) == len(set(POINTS)) == 36


@pytest.mark.parametrize("parts", [3, 5])
def test_all_parts_together_are_every_point_and_each_has_every_kind(parts: int) -> None:
    shares = [share_of(738_000 + day, parts) for day in range(parts)]
    assert sorted(map(str, sum(shares, ()))) == sorted(map(str, POINTS))
    for share in shares:
        assert {point.phase for point in share} == set(PHASES)
        assert len({point.victim for point in share}) == 4
