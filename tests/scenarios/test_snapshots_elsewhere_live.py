"""Keyed state whose snapshots are in a folder or an object store: a VM lost with its disk takes none along."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_keyed_state_live import RATE_TPS, holders, place, settled

from real_services.s3 import S3
from watched_runs.counted_run import CountedRun

pytestmark = pytest.mark.live


@pytest.fixture(params=["folder", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    if request.param == "folder":
        yield str(tmp_path / "far")
        return
    with S3(tmp_path / "s3") as service:
        monkeypatch.setenv("AWS_ENDPOINT_URL", service.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        import s3fs

        s3fs.S3FileSystem(skip_instance_cache=True).mkdir("states")
        yield "s3://states/of-tests"


def lose_vm(run: CountedRun, vm: str, status: dict[str, Any]) -> None:
    """It stands still until others have what it had, then it is gone, and its disk with it."""
    (agent,) = (v["pid"] for v in status["vms"] if v["vm"] == vm)
    stopped = [agent, *(pid for pid in run.pids("worker") if place(pid)[0] == vm)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    shutil.rmtree(run.folder / "state" / "agents" / vm, ignore_errors=True)
    before = status["plan"]["epoch"]
    until(lambda: run.command("status")["plan"]["epoch"] != before, run.log, run.process)
    for pid in stopped:
        os.kill(pid, signal.SIGKILL)


def test_a_vm_lost_with_its_disk_takes_no_state_along(tmp_path: Path, url: str) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600, more=["--state-to", url])
    try:
        run.wait_for_rows(more=300)
        status = settled(run)
        (owner,) = holders(run, leaving=False)[:1]
        lose_vm(run, place(owner)[0], status)
        settled(run)
        run.wait_for_rows(more=300)
        run.end()
        summary = run.finish()
        found = run.verdict(summary)
    finally:
        run.end()
    assert found["whole"], found
    assert summary["state"]["lost_ranges"] == 0
    assert found["applied_again"] <= summary["state"]["applied_again_at_most"], found


def test_a_vm_killed_at_once_and_started_again_on_an_empty_disk_has_its_state(tmp_path: Path) -> None:
    run = CountedRun(tmp_path, RATE_TPS, 600, more=["--state-to", str(tmp_path / "far")])
    try:
        run.wait_for_rows(more=300)
        status = settled(run)
        vm = place(holders(run, leaving=False)[0])[0]
        (agent,) = (v["pid"] for v in status["vms"] if v["vm"] == vm)
        for pid in [agent, *(pid for pid in run.pids("worker") if place(pid)[0] == vm)]:
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(tmp_path / "state" / "agents" / vm, ignore_errors=True)
        run.wait_for_rows(more=600)
        run.end()
        summary = run.finish()
        found = run.verdict(summary)
    finally:
        run.end()
    assert found["whole"], found
    assert summary["state"]["lost_ranges"] == 0
