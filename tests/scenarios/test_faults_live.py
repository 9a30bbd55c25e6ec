"""The whole of headgate as separate processes: kill anything under load, lose nothing, leave nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import psutil
import pytest

from watched_runs.trials import Trial, trial

pytestmark = pytest.mark.live
RECOVERED = 200  # so many rows more at the sink: the run goes on


def assert_whole(running: Trial, everyone: list[int]) -> dict[str, object]:
    """The run's summary, once it is certain that nothing is lost, miscounted or left behind."""
    summary = running.finish()
    tuples = summary["tuples"]
    assert running.missing(tuples["emitted"]) == []
    assert (tuples["lost"], tuples["in_flight"], tuples["dead_lettered"]) == (0, 0, 0)
    assert tuples["acked"] == tuples["emitted"] > 0
    assert not running.miscounted(tuples)
    assert running.leftovers(summary["run"], everyone) == []
    return summary


def test_killing_worker_agent_and_controller_loses_nothing(tmp_path: Path) -> None:
    with trial(tmp_path, "100", 18, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        everyone: set[int] = set()
        for role in ("worker", "agent", "controller"):
            running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
            everyone |= set(running.everyone())
            running.kill(role)
        running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
        everyone |= set(running.everyone())
        assert_whole(running, sorted(everyone))


def test_a_slot_whose_worker_dies_again_and_again_is_planned_round(tmp_path: Path) -> None:
    with trial(tmp_path, "60", 24, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        everyone = set(running.everyone())
        slot = slot_of(running.pids("worker")[0])
        for _ in range(4):
            time.sleep(2.0)
            for pid in running.pids("worker"):
                if slot_of(pid) == slot:
                    os.kill(pid, signal.SIGKILL)
            everyone |= set(running.everyone())
        time.sleep(6.0)
        everyone |= set(running.everyone())
        assert slot not in {slot_of(pid) for pid in running.pids("worker")}
        summary = assert_whole(running, sorted(everyone))
    reasons = [plan["reason"] for plan in summary["plans"]]  # type: ignore[attr-defined]
    assert "slot_quarantined" in reasons


def slot_of(pid: int) -> str:
    """`vm/number` of a worker, from its command line."""
    try:
        words = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
    found = re.search(r"--vm (\S+) --slot (\d+)", words)
    return f"{found[1]}/{found[2]}" if found else ""


def test_rate_steps_are_followed_without_loss(tmp_path: Path) -> None:
    """1 → 3 → 1: planned up and down, in force within two seconds of the decision."""
    (tmp_path / "steps.txt").write_text("0,30\n5,90\n17,30\n")
    with trial(tmp_path, "steps.txt", 34, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        summary = assert_whole(running, running.everyone())
    plans = summary["plans"]
    up, down = plans[1], plans[-1]  # type: ignore[index]
    assert up["rate_tps"] >= 90 and 5.0 <= up["at_s"] <= 20.0
    assert down["rate_tps"] < 60 and 17.0 <= down["at_s"] <= 32.0
    assert not any(plan["rolled_back"] for plan in plans)  # type: ignore[attr-defined]


@pytest.mark.alone  # it is timed
def test_the_end_of_up_is_the_end_of_everything(tmp_path: Path) -> None:
    """`kill -9` of `up` itself: within a second or so no process and no cgroup of the run is left."""
    with trial(tmp_path, "50", 60, ["--vms", "4"]) as running:
        running.wait_for_tuples()
        everyone = running.everyone()
        (run,) = {path.name for path in (tmp_path / "traces" / "trial").iterdir()}
        running.process.kill()
        running.process.wait()
        deadline = time.monotonic() + 3.0
        while (left := running.leftovers(run, everyone)) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left == []


def test_ctrl_c_ends_the_run_with_its_summary(tmp_path: Path) -> None:
    with trial(tmp_path, "50", 60, ["--vms", "4"]) as running:
        running.wait_for_tuples()
        everyone = running.everyone()
        running.process.send_signal(signal.SIGINT)
        assert_whole(running, everyone)
