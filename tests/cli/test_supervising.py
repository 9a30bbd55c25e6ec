"""Restarts, their limit, and what a child that refuses says."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import psutil
import pytest
from patience import PATIENCE_S, until

from headgate.dashboards.runs.run_places import remove_state
from headgate.dashboards.up.local_machines import LocalMachines, want
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.platform.cgroups import parents_of, remove_run
from headgate.topology_runtime.platform.child_processes import (
    NS,
    Child,
    ChildRefused,
    GaveUp,
    Prestarted,
    RestartLimit,
    stop_all,
)
from headgate.topology_runtime.platform.clock import monotonic_ns


def child(tmp_path, script: str, name: str = "child") -> Child:
    return Child(name, [sys.executable, "-c", script], tmp_path / f"{name}.log")


def test_five_restarts_in_a_minute_are_allowed_and_the_sixth_is_not():
    limit = RestartLimit()
    assert [limit.allows(i * NS) for i in range(6)] == [True] * 5 + [False]
    limit = RestartLimit()
    assert all(limit.allows(i * 13 * NS) for i in range(100)), "60 s hold at most five of them"


@pytest.mark.live
def test_a_killed_child_is_started_again_with_the_same_command(tmp_path):
    one = child(tmp_path, "import time; time.sleep(60)")
    one.start()
    first = one.pid
    os.kill(first, signal.SIGKILL)
    until(lambda: not one.running)
    line = one.look(monotonic_ns())
    assert "was killed by SIGKILL" in line and one.running and one.pid != first and one.restarts == 1
    assert stop_all([one], PATIENCE_S) == []
    assert not one.running


ECHO = "import json, sys; print(sys.argv[1:], json.load(sys.stdin), flush=True); sys.stdin.read(); input()"


@dataclass
class Begun:
    """One begun ahead, its process, and the child that it is to be."""

    ahead: Prestarted
    process: psutil.Process
    child: Child


@pytest.fixture
def begun(tmp_path) -> Iterator[Begun]:
    command = [sys.executable, "-c", ECHO]
    before = set(psutil.Process().children())  # other tests' Spark and services may be among them
    ahead = Prestarted(command, ["--run", "r"], tmp_path / "child.log")
    (process,) = set(psutil.Process().children()) - before
    yield Begun(ahead, process, Child("child", [*command, "--all", "words"], tmp_path / "child.log", ahead))
    ahead.end()
    assert not process.is_running()


@pytest.mark.live
def test_what_was_begun_ahead_is_a_childs_first_process_and_no_other_one(begun):
    one, first = begun.child, begun.process
    one.start()
    assert one.pid == first.pid
    until(lambda: not one.running)
    here = f"['--set', 'begin-ahead=yes', '--run', 'r', '--owner', '{os.getpid()}'] ['--all', 'words']"
    assert one.last_lines()[0] == here and one.last_lines()[-1].startswith("EOFError")
    assert one.look(monotonic_ns()).endswith(f"started again as process {one.pid}") and one.pid != first.pid
    until(lambda: not one.running)
    assert stop_all([one], PATIENCE_S) == []


@pytest.mark.live
def test_one_that_was_begun_ahead_and_is_gone_is_started_as_any_other(begun):
    one, first = begun.child, begun.process
    first.kill()
    until(lambda: first.status() == psutil.STATUS_ZOMBIE)
    one.start()
    assert one.pid != first.pid and not first.is_running()
    assert stop_all([one], PATIENCE_S) == []


@pytest.mark.live
def test_a_child_that_says_why_is_not_started_again(tmp_path):
    words = "error[HG-INFEASIBLE]: no plan fits\ncause: 3 slots\ntry: --max-vms 4"
    one = child(tmp_path, f"import sys; print('before'); sys.stderr.write({words!r}); sys.exit(4)")
    one.start()
    until(lambda: not one.running)
    with pytest.raises(ChildRefused) as refused:
        one.look(monotonic_ns())
    assert refused.value.exit_code == 4
    assert refused.value.lines() == words.splitlines()
    assert one.restarts == 0


@pytest.mark.live
def test_a_child_that_dies_again_and_again_is_given_up_with_its_last_lines(tmp_path):
    one = child(tmp_path, "import sys; print('no luck', flush=True); sys.exit(1)")
    one.start()
    with pytest.raises(GaveUp) as gave_up:
        for _ in range(7):
            until(lambda: not one.running)
            one.look(0)
    assert one.restarts == 5
    assert "no luck" in "\n".join(gave_up.value.lines())
    assert gave_up.value.exit_code == 1


@pytest.mark.live
def test_a_child_deaf_to_sigterm_is_killed(tmp_path):
    script = (
        "import signal,time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)"
    )
    one = child(tmp_path, script, "deaf")
    one.start()
    until(lambda: "deaf" in one.last_lines())
    assert stop_all([one], 0.05) == ["deaf"]
    assert not one.running


@pytest.mark.live
def test_agents_follow_the_files(tmp_path):
    machines = LocalMachines(tmp_path / "m", lambda vm: child(tmp_path, "import time; time.sleep(60)", vm.vm))
    want(tmp_path / "m", Vm("vm1", 4))
    machines.reconcile(0)
    (agent,) = machines.agents
    assert (tmp_path / "m" / "vm1.running").read_text() == f"{agent.pid}\n"
    os.kill(agent.pid, signal.SIGKILL)
    until(lambda: not agent.running)
    assert machines.reconcile(0)[0].startswith("vm1 was killed by SIGKILL")
    assert (tmp_path / "m" / "vm1.running").read_text() == f"{agent.pid}\n"
    (tmp_path / "m" / "vm1.desired").unlink()
    machines.reconcile(0)
    until(lambda: not agent.running)
    assert machines.reconcile(0) == ["vm1: given back"]
    assert machines.agents == [] and not (tmp_path / "m" / "vm1.running").exists()


def test_cgroups_of_a_run_are_found_under_every_hierarchy_and_removed(tmp_path):
    for place in ("", "cpu", "memory"):
        (tmp_path / place / "headgate-r1" / "vm1-0").mkdir(parents=True)
    (tmp_path / "cpu" / "headgate-r2").mkdir()
    assert len(parents_of("r1", tmp_path)) == 3
    assert remove_run("r1", tmp_path) == []
    assert parents_of("r1", tmp_path) == [] and len(parents_of("r2", tmp_path)) == 1


def test_state_goes_with_its_folder_when_it_was_the_last_run(tmp_path):
    for run in ("a", "b"):
        (tmp_path / ".headgate" / run / "logs").mkdir(parents=True)
    remove_state(tmp_path / ".headgate" / "a")
    assert (tmp_path / ".headgate" / "b").is_dir()
    remove_state(tmp_path / ".headgate" / "b")
    assert not (tmp_path / ".headgate").exists()
