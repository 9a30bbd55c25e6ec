"""`headgate submit` of tasks that have no model: measured on the hosts first, and it is told how far that is."""

from __future__ import annotations

import getpass
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headgate.dashboards.up.preparation import say_effects
from headgate.topology_runtime.calibrate import unsampled_models
from headgate.topology_runtime.calibration import store
from headgate.topology_runtime.errors import HeadgateError, Unreachable
from headgate.topology_runtime.faults.words import counted
from headgate.topology_runtime.output import console
from headgate.topology_runtime.topology import Topology

KIND = re.compile(r"[a-z0-9][a-z0-9.-]{0,99}")  # as `store.machine` names one
LOOK_EVERY_S = 0.25
FIRST_PLAN_S = 5.0
SILENT_S = 30.0  # a controller that is started again answers by then

Ask = Callable[[str, dict[str, Any]], Any]
Say = Callable[[str], None]


def whoever() -> str:
    """Who submits, for whoever comes second."""
    try:
        return f"{getpass.getuser()}@{socket.gethostname()}"
    except (OSError, KeyError):  # no name for this user id
        return socket.gethostname()


class Kept:
    """Models of this topology on this disk, where `up` keeps them too: by kind of machine and size of slot."""

    def __init__(self, topology: Topology, user_paths: Sequence[str]) -> None:
        self._topology, self._user_paths = topology, user_paths

    def models(self, vms: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Those of the kinds of these VMs (of `status`)."""
        sizes = {(vm["machine"] or "", vm["slot_cores"], vm["slot_memory_bytes"]) for vm in vms}
        sizes = {size for size in sizes if KIND.fullmatch(size[0])}
        return [model for size in sorted(sizes) for model in store.read(self._folder(*size))]

    def keep(self, models: Sequence[Mapping[str, Any]]) -> None:
        """Under names that are sound, whatever hosts and controller call themselves."""
        for model in models:
            slot = model["slot"]
            if KIND.fullmatch(slot["machine"]) and model["task"] in store.modelled(self._topology):
                store.save(self._folder(slot["machine"], slot["cores"], slot["memory_bytes"]), dict(model))

    def _folder(self, machine: str, cores: float, memory_bytes: int) -> Path:
        return store.folder(self._topology, self._user_paths, cores, memory_bytes, kind=machine)


def lacking(topology: Topology, models: Sequence[Mapping[str, Any]]) -> list[str]:
    """Models that are not among these."""
    there = {model.get("task") for model in models}
    return [name for name in store.modelled(topology) if name not in there]


def stand_ins(
    topology: Topology, names: Sequence[str], measure_effects: bool, say: Say
) -> list[dict[str, Any]]:
    """For those of these models of which no task may be run on sample rows, as `up` has them; it is said."""
    say_effects(measure_effects, topology, say, names)
    spared = () if measure_effects else unsampled_models(topology)
    return [store.stand_in(name, {}) for name in names if name in spared]


def measured(ask: Ask, number: int, say: Say) -> list[dict[str, Any]]:
    """Wait until the submission is run; what was measured for it. Ctrl-C withdraws it. Raises HeadgateError when it is
    not run."""
    try:
        with Progress(say) as progress:
            while (found := _look(ask, number))["state"] == "measuring":
                progress.show(found["measuring"])
                time.sleep(LOOK_EVERY_S)
    except KeyboardInterrupt:
        ask("withdraw", {"number": number})
        say("the submission is withdrawn; what was being measured has ended")
        raise
    if found["state"] == "accepted":
        models: list[dict[str, Any]] = found["models"]
        return models
    if found["state"] == "dropped":
        error = found["error"]
        raise HeadgateError(error["what"], cause=error["cause"], hint=error["hint"])
    raise HeadgateError(
        "the controller knows nothing of the submission any more",
        cause="it was stopped, or started anew in another folder",
        hint="submit again; what was measured on a host is known there still",
    )


def say_first_plan(ask: Ask, say: Say) -> None:
    """Whether one is made: by what was measured it may not fit, and then the controller waits for more VMs."""
    end_s = time.monotonic() + FIRST_PLAN_S
    while time.monotonic() < end_s:
        now = ask("status", {})
        if now["plan"] is not None or now["stage"] not in ("gathering", "measuring"):
            return
        for alarm in now["alarms"]:
            if alarm["what"] == "plan":
                say(f"{alarm['text']}. It waits for more VMs; `headgate stop` ends it")
                return
        time.sleep(LOOK_EVERY_S)


def _look(ask: Ask, number: int) -> Any:
    """A controller that is being started again is waited for. Raises Unreachable."""
    end_s = time.monotonic() + SILENT_S
    while True:
        try:
            return ask("submission", {"number": number})
        except Unreachable:
            if time.monotonic() >= end_s:
                raise
            time.sleep(LOOK_EVERY_S)


class Progress:
    """How far it is: a bar on a terminal, elsewhere a line for each task that begins or is done."""

    def __init__(self, say: Say) -> None:
        self._say, self._screen = say, console(sys.stderr)
        self._states: dict[tuple[str, str], str] = {}
        self._bar: Any = None
        self._began = False

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, now: Mapping[str, Any]) -> None:
        if not self._began:
            self._say(_first_words(now))
            self._began = True
        if self._screen.is_terminal:
            self._draw(now)
            return
        for task in now["tasks"]:
            key = task["task"], task["machine"] or ""
            if task["state"] != self._states.get(key, "waiting"):
                self._say(_line(task, now))
            self._states[key] = task["state"]

    def _draw(self, now: Mapping[str, Any]) -> None:
        from rich import progress

        if self._bar is None:
            what, left = progress.TextColumn("{task.description}"), progress.TextColumn("{task.fields[left]}")
            self._bar = progress.Progress(
                what, progress.BarColumn(), left, console=self._screen, transient=True
            )
            self._bar.add_task("", total=1.0, left="")
            self._bar.start()
        shares = [_share(task) for task in now["tasks"]]
        self._bar.update(
            self._bar.task_ids[0],
            description=_at_work(now),
            completed=sum(shares),
            total=len(shares),
            left=_left(now),
        )


def _first_words(now: Mapping[str, Any]) -> str:
    hosts = sorted({task["machine"] or "" for task in now["tasks"]})
    kinds = f" on {counted(len(hosts), 'kind')} of machine" if len(hosts) > 1 else ""
    tasks = counted(len({task["model"] for task in now["tasks"]}), "task")
    return (
        f"{tasks} without a model: measured{kinds} in free slots of the hosts first{_left(now, ', ')} (they really run "
        "there, with sample rows). Ctrl-C withdraws the submission"
    )


def _line(task: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    if task["state"] == "measuring":
        return f"measuring {task['task']} in {task['slot']}"
    done = f", {now['done']} of {now['of']}{_left(now, ', ')}" if task["state"] == "measured" else ""
    return f"{task['task']} is {task['state']}{done}"


def _at_work(now: Mapping[str, Any]) -> str:
    at = [f"{task['task']} in {task['slot']}" for task in now["tasks"] if task["state"] == "measuring"]
    return f"measuring {', '.join(at)}" if at else "waiting for a host with a free slot"


def _share(task: Mapping[str, Any]) -> float:
    if task["state"] == "measured":
        return 1.0
    return float(task["points"]) / task["points_of"] if task["points_of"] else 0.0


def _left(now: Mapping[str, Any], before: str = "") -> str:
    return f"{before}about {now['left_s']:.0f} s" if now["left_s"] else ""
