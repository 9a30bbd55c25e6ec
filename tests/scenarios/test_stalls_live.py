"""Processes that are stopped (SIGSTOP) for less than the limits and for more: no false death, and no loss."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from watched_runs.trials import Trial, trial

pytestmark = pytest.mark.live
RECOVERED = 100


def stopped_for(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def ended_whole(running: Trial, everyone: set[int]) -> list[str]:
    """The reasons of the run's plans, once it is certain that nothing was lost or left behind."""
    running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
    everyone |= set(running.everyone())
    running.end()
    summary = running.finish()
    tuples = summary["tuples"]
    assert running.missing(tuples["emitted"]) == []
    assert (tuples["lost"], tuples["in_flight"], tuples["acked"]) == (0, 0, tuples["emitted"])
    assert running.leftovers(summary["run"], sorted(everyone)) == []
    return [plan["reason"] for plan in summary["plans"]]


def test_a_controller_that_stalls_for_three_seconds_declares_nobody_dead(tmp_path: Path) -> None:
    """Nor is an agent dead that says nothing for a second and a half (on a slow machine: well over two)."""
    with trial(tmp_path, "60", 120, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED)
        everyone = set(running.everyone())
        before = running.pids("worker")
        stopped_for(running.pids("controller")[0], 3.0)
        running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
        stopped_for(running.pids("agent")[0], 1.5)
        reasons = ended_whole(running, everyone)
        assert "it is lost" not in running.log(), running.log()[-2000:]
        assert "vm_lost" not in reasons
        assert set(before) <= everyone


def test_a_stopped_worker_is_killed_and_replaced(tmp_path: Path) -> None:
    with trial(tmp_path, "60", 120, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED)
        everyone = set(running.everyone())
        worker = running.pids("worker")[0]
        os.kill(worker, signal.SIGSTOP)
        until_s = time.monotonic() + 20.0
        while worker in running.pids("worker"):
            assert time.monotonic() < until_s, running.log()[-2000:]
            time.sleep(0.05)
        ended_whole(running, everyone)


def test_a_vm_that_is_silent_for_long_is_planned_round_and_taken_back(tmp_path: Path) -> None:
    """Its workers live on meanwhile, and believe in the old plan: what they still send is of no consequence."""
    with trial(tmp_path, "60", 120, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED)
        everyone = set(running.everyone())
        silent = running.pids("agent")[0]
        os.kill(silent, signal.SIGSTOP)
        try:
            until_s = time.monotonic() + 30.0
            while "(vm_lost)" not in running.log():
                assert time.monotonic() < until_s, running.log()[-2000:]
                time.sleep(0.05)
            assert "it is lost" in running.log(), running.log()[-2000:]
            running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
        finally:
            os.kill(silent, signal.SIGCONT)
        assert "vm_lost" in ended_whole(running, everyone)
