"""A spare slot profiles a task of a running topology on mirrored rows, and is free the moment it is needed."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest
from keys_made import operator

from headgate.topology_runtime.platform import cgroups as cgroup1
from headgate.topology_runtime.platform import cgroups as cgroup2
from headgate.topology_runtime.platform.slot_size import SlotSize
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Request
from watched_runs.trials import Trial, trial

SIZE = SlotSize("spare-probe", "vm1", 1, 0.12, 1 << 28)
pytestmark = pytest.mark.live


def bound() -> bool:
    """Can slots be bound by control groups here? Nothing is profiled where they cannot."""
    for probe in (cgroup2.probe_cgroup2, cgroup1.probe_cgroup1):
        binding, _ = probe(SIZE)
        if binding is not None:
            binding.cleanup()
            return True
    return False


def ask(running: Trial, command: str, **arguments: object) -> Any:
    reply = channels.ask(operator(running.folder / "state"), Request(command, dict(arguments)))
    assert reply.error is None, reply.error
    return reply.data


def until(condition: Callable[[], Any], seconds: float, log: Callable[[], str]) -> None:
    end_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end_s, log()[-3000:]
        time.sleep(0.02)


def profiling(running: Trial) -> list[psutil.Process]:
    """The profile's first process and all that it started."""
    found = []
    for child in psutil.Process(running.process.pid).children(recursive=True):
        try:
            if "measuring.background_profile" in " ".join(child.cmdline()):
                found += [child, *child.children(recursive=True)]
        except psutil.NoSuchProcess:
            continue
    return found


@pytest.mark.skipif(not bound(), reason="no control groups: no slot is bound, so none is profiled in")
@pytest.mark.parametrize("workers_as", ["agent", "own"])
def test_a_spare_slot_profiles_and_is_given_back_at_once(tmp_path: Path, workers_as: str) -> None:
    if workers_as == "own" and os.geteuid() != 0:
        pytest.skip("only root can start workers as another user")
    tmp_path.chmod(0o777)  # its sink writes there, whoever it runs as
    options = ["--vms", "2", "--set", "profile-spare=10", "--set", f"workers-as={workers_as}"]
    with trial(tmp_path, "30", 120, options) as running:
        running.wait_for_tuples()
        until(lambda: "was profiled in vm1/" in running.log(), 80.0, running.log)
        until(lambda: len(profiling(running)) >= 3, 20.0, running.log)  # the next task's
        everyone = {*running.everyone(), *(process.pid for process in profiling(running))}
        slot = ask(running, "status")["profile"]["slot"]

        ask(running, "rate_set", rate_tps=90.0)
        until(lambda: "was stopped after" in running.log(), 20.0, running.log)
        until(lambda: not profiling(running), 10.0, running.log)  # its agent hears of it within a tick
        until(lambda: slot_state(running, slot) == "running", 10.0, running.log)
        assert f"in {slot} was stopped after" in running.log()
        assert "its slot is needed" in running.log()
        assert ask(running, "status")["profile"] is None
        everyone |= set(running.everyone())

        time.sleep(2.0)
        ask(running, "stop")
        summary = running.finish()
    tuples = summary["tuples"]
    assert (tuples["lost"], tuples["in_flight"], tuples["dead_lettered"]) == (0, 0, 0)
    assert running.missing(tuples["emitted"]) == []
    assert running.leftovers(summary["run"], sorted(everyone)) == []
    (file, *_) = (tmp_path / "traces" / "trial" / summary["run"] / "profiled").glob("*.json")
    model = json.loads(file.read_text())
    assert model["provenance"] == "background" and model["complete"]
    assert 20 < max(point["rate_tps"] for point in model["points"]) < 400


def slot_state(running: Trial, slot: str) -> str:
    vm, _, number = slot.partition("/")
    (found,) = [one for one in ask(running, "status")["vms"] if one["vm"] == vm]
    return str(found["slots"][int(number)]["state"])
