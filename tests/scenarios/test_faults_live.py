"""The whole of headgate as separate processes: kill anything under load, lose nothing, leave nothing."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from patience import until

from watched_runs.failpoint_runs import Enactments, share_of, told
from watched_runs.trials import Trial, trial

pytestmark = pytest.mark.live
RECOVERED = 200  # so many rows more at the sink: the run goes on
LONG_S = 600.0  # longer than any of them takes: they are ended


def assert_whole(running: Trial, everyone: list[int]) -> dict[str, Any]:
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
    with trial(tmp_path, "100", LONG_S, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        everyone: set[int] = set()
        for role in ("worker", "agent", "controller"):
            running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
            everyone |= set(running.everyone())
            running.kill(role)
        running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED)
        everyone |= set(running.everyone())
        running.end()
        assert_whole(running, sorted(everyone))


def test_a_slot_whose_worker_dies_again_and_again_is_planned_round(tmp_path: Path) -> None:
    with trial(tmp_path, "60", LONG_S, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        everyone = set(running.everyone())
        slot = slot_of(running.pids("worker")[0])

        def planned_round() -> bool:
            for pid in running.pids("worker"):
                if slot_of(pid) == slot:
                    os.kill(pid, signal.SIGKILL)
            everyone.update(running.everyone())
            return "(slot_quarantined)" in running.log()

        until(planned_round, running.log, running.process, every_s=1.0)
        until(lambda: slot not in map(slot_of, running.pids("worker")), running.log, running.process)
        assert "slot_quarantined" in ended_whole(running, everyone)


def slot_of(pid: int) -> str:
    """`vm/number` of a worker, from its command line."""
    try:
        words = " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""
    found = re.search(r"--vm (\S+) --slot (\d+)", words)
    return f"{found[1]}/{found[2]}" if found else ""


@pytest.mark.full  # it is timed
@pytest.mark.alone
def test_rate_steps_are_followed_without_loss(tmp_path: Path) -> None:
    """1 → 3 → 1: planned up and down, in force within two seconds of the decision."""
    (tmp_path / "steps.txt").write_text("0,30\n5,90\n17,30\n")
    with trial(tmp_path, "steps.txt", 34, ["--vms", "4,4"]) as running:
        running.wait_for_tuples()
        summary = assert_whole(running, running.everyone())
    plans = summary["plans"]
    up, down = plans[1], plans[-1]
    assert up["rate_tps"] >= 90 and 5.0 <= up["at_s"] <= 20.0
    assert down["rate_tps"] < 60 and 17.0 <= down["at_s"] <= 32.0
    assert not any(plan["rolled_back"] for plan in plans)


@pytest.mark.alone  # it is timed
def test_the_end_of_up_is_the_end_of_everything(tmp_path: Path) -> None:
    """`kill -9` of `up` itself: within a second or so no process and no cgroup of the run is left."""
    with trial(tmp_path, "50", LONG_S, ["--vms", "4"]) as running:
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
    with trial(tmp_path, "50", LONG_S, ["--vms", "4"]) as running:
        running.wait_for_tuples()
        everyone = running.everyone()
        running.process.send_signal(signal.SIGINT)
        assert_whole(running, everyone)


# ── A process dies at points of an enactment: ten seconds later the plan is the old or the new one, no
# third
#
# Two of the 36 points; `scripts/test full` and `scripts/bench failpoints` have them all.

PARTS = 18
GATE = 7  # the part that every run has


@pytest.mark.parametrize(
    "part", [pytest.param(n, marks=() if n == GATE else pytest.mark.full) for n in range(PARTS)]
)
def test_a_death_at_a_point_of_an_enactment_leaves_the_old_plan_or_the_new_one(
    tmp_path: Path, part: int
) -> None:
    points = share_of(part, PARTS)
    enactments = Enactments(tmp_path, 600)
    try:
        enactments.begin()
        outcomes = [enactments.die_at(point) for point in points]
        found = enactments.finish()
    finally:
        enactments.running.end()
    timed = part != GATE
    assert all(one.good if timed else one.whole for one in outcomes), f"\n{told(outcomes)}"
    assert found["whole"], found
    assert found["left_behind"] == []


# ── Processes that are stopped (SIGSTOP) for less than the limits and for more: no false death, and no loss

RECOVERED_AFTER_STALL = 100


def stopped_for(pid: int, seconds: float) -> None:
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        os.kill(pid, signal.SIGCONT)


def ended_whole(running: Trial, everyone: set[int]) -> list[str]:
    """The reasons of the run's plans, once it is certain that nothing was lost or left behind."""
    running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED_AFTER_STALL)
    everyone |= set(running.everyone())
    running.end()
    summary = assert_whole(running, sorted(everyone))
    return [plan["reason"] for plan in summary["plans"]]


@pytest.mark.full  # a stall of the machine counts as one of the agent
@pytest.mark.alone
def test_a_controller_that_stalls_for_three_seconds_declares_nobody_dead(tmp_path: Path) -> None:
    """Nor is an agent dead that says nothing for a second and a half (on a slow machine: well over two)."""
    with trial(tmp_path, "60", LONG_S, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED_AFTER_STALL)
        everyone = set(running.everyone())
        before = running.pids("worker")
        stopped_for(running.pids("controller")[0], 3.0)
        running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED_AFTER_STALL)
        stopped_for(running.pids("agent")[0], 1.5)
        reasons = ended_whole(running, everyone)
        assert "it is lost" not in running.log(), running.log()[-2000:]
        assert "vm_lost" not in reasons
        assert set(before) <= everyone


def test_a_stopped_worker_is_killed_and_replaced(tmp_path: Path) -> None:
    with trial(tmp_path, "60", LONG_S, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED_AFTER_STALL)
        everyone = set(running.everyone())
        worker = running.pids("worker")[0]
        os.kill(worker, signal.SIGSTOP)
        until(lambda: worker not in running.pids("worker"), running.log, running.process)
        ended_whole(running, everyone)


def test_a_vm_that_is_silent_for_long_is_planned_round_and_taken_back(tmp_path: Path) -> None:
    """Its workers live on meanwhile, and believe in the old plan: what they still send is of no consequence."""
    with trial(tmp_path, "60", LONG_S, ["--vms", "4,4"]) as running:
        running.wait_for_tuples(more_than=RECOVERED_AFTER_STALL)
        everyone = set(running.everyone())
        silent = running.pids("agent")[0]
        os.kill(silent, signal.SIGSTOP)
        try:
            until(lambda: "(vm_lost)" in running.log(), running.log, running.process)
            assert "it is lost" in running.log(), running.log()[-2000:]
            running.wait_for_tuples(more_than=len(running.stored()) + RECOVERED_AFTER_STALL)
        finally:
            os.kill(silent, signal.SIGCONT)
        assert "vm_lost" in ended_whole(running, everyone)
