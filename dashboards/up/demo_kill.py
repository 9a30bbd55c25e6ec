"""The demo kills one of its own workers once, in the middle of the run: no row is lost, and one can watch that."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Mapping
from typing import Any

import psutil

from headgate.dashboards.runs.up_settings import DEMO_SECONDS, UpSettings
from headgate.topology_runtime.platform.child_processes import Child

WHEN = 0.5  # of the run
QUIET = ("committed", "probation")


class DemoKill:
    """`due` says when, `kill` does it. `killed`: which worker it was; empty before."""

    def __init__(self, settings: UpSettings) -> None:
        self._at_s = WHEN * (settings.ends_after_s or DEMO_SECONDS)
        self.killed = ""

    def due(self, status: Mapping[str, Any]) -> bool:
        """Is it time, and is no plan just being put in force?"""
        seconds = status.get("seconds") or 0.0
        return not self.killed and seconds >= self._at_s and status.get("stage") in QUIET

    def kill(self, status: Mapping[str, Any], agents: Iterable[Child]) -> str:
        """The line that says what was killed; empty when there is nobody to kill just now."""
        found = slot_of(status)
        agent = next((agent for agent in agents if found and agent.name == found[0]), None)
        pid = worker_of(agent.pid, found[1]) if agent and found else None
        if pid is None or found is None:
            return ""
        self.killed = f"the worker of {found[0]}/{found[1]}"
        os.kill(pid, signal.SIGKILL)
        return (
            f"the demo kills {self.killed} now (process {pid}, SIGKILL), to show that no row is lost "
            "(--set demo-kill=no: not)"
        )


def slot_of(status: Mapping[str, Any]) -> tuple[str, int] | None:
    """(VM, slot) of the running worker that has the fewest rows to do: fewest wait until it is back."""
    each = {
        task["task"]: (task.get("rate_in_tps") or task.get("rate_out_tps") or 0.0)
        / (task.get("threads") or 1)
        for task in status.get("tasks") or ()
    }
    found = [
        (sum(each.get(task, 0.0) * count for task, count in slot["threads"].items()), vm["vm"], slot["slot"])
        for vm in status.get("vms") or ()
        for slot in vm.get("slots") or ()
        if slot.get("state") == "running" and slot.get("threads")
    ]
    return min(found)[1:] if found else None


def worker_of(agent: int, slot: int) -> int | None:
    """The process of this agent's worker in a slot; None when it is not there."""
    try:
        children = psutil.Process(agent).children()
    except psutil.NoSuchProcess:
        return None
    for child in children:
        try:
            words = child.cmdline()
        except psutil.NoSuchProcess:
            continue
        if "--slot" in words and words[words.index("--slot") + 1] == str(slot):
            return child.pid
    return None
