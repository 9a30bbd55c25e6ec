"""`headgate agent run --set shared=yes`: the agents of a VM that several topologies share, one for each run. Which runs
there are it asks the shared controller; while that is away, all goes on as it is."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.process.agent_startup import contacts, lock
from headgate.topology_runtime.errors import BadMessage, HeadgateError, Unreachable
from headgate.topology_runtime.platform.child_processes import Child, headgate_command, owner_option, stop_all
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.processes import die_with
from headgate.topology_runtime.platform.service_notify import ServiceNotes
from headgate.topology_runtime.wire.channels import ask
from headgate.topology_runtime.wire.messages import Request
from headgate.topology_runtime.wording import NAME

NS = 1_000_000_000
LOOK_S, ASK_S = 1.0, 2.0
AGAIN_NS = 10 * NS  # before an agent that could not run is started again
PATIENCE_S = 5.0  # an agent ends its workers first


class RunHere(msgspec.Struct, frozen=True):
    """A run that is to have an agent on this VM; controller: where that agent finds its controller."""

    topology: str
    run: str
    controller: str


def runs_told(data: Any) -> list[RunHere]:
    """What a shared controller answers; each run has a folder of its name. Raises BadMessage."""
    try:
        found = msgspec.convert(data, list[RunHere])
    except msgspec.ValidationError as error:
        raise BadMessage("the shared controller says of its runs what is none", cause=str(error)) from error
    wrong = [one.run for one in found if not NAME.fullmatch(one.run) or one.run in (".", "..")]
    if wrong:
        raise BadMessage(f"the shared controller names runs {', '.join(f'{run!r:.40}' for run in wrong[:4])}")
    return found


class SharedAgents:
    """Until a signal ends it, with all its agents. words: options that they are started with."""

    def __init__(self, config: AgentConfig, words: Sequence[str]) -> None:
        self._config, self._words = config, tuple(words)
        self._children: dict[str, Child] = {}
        self._again_ns: dict[str, int] = {}
        self._stopping = False
        self._said = ""

    def run(self) -> None:
        """Raises Conflict when it runs already, InvalidInput without its key."""
        if self._config.owner:
            die_with(self._config.owner)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        notes = ServiceNotes()
        with ExitStack() as undo:
            undo.callback(os.close, lock(self._config.directory, self._config.vm))
            undo.callback(lambda: stop_all(self._children.values(), PATIENCE_S))
            contacts(self._config)
            notes.ready()
            while not self._stopping:
                self._look()
                notes.alive(monotonic_ns())
                time.sleep(LOOK_S)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._stopping = True

    def _look(self) -> None:
        for run in list(self._children):
            self._look_at(run)
        shall = self._asked()
        if shall is None or self._stopping:
            return
        for run in self._children.keys() - {one.run for one in shall}:
            stop_all([self._children.pop(run)], PATIENCE_S)
        for one in shall:
            if one.run not in self._children and monotonic_ns() >= self._again_ns.get(one.run, 0):
                self._children[one.run] = self._child(one)
                self._children[one.run].start()

    def _look_at(self, run: str) -> None:
        """An agent that died is started again; one that ended because its run did is not, as long as there are
        others."""
        child = self._children[run]
        try:
            if not child.running and child.exit_code == 0:
                del self._children[run]
                self._again_ns[run] = monotonic_ns() + AGAIN_NS
            elif line := child.look(monotonic_ns()):
                _say(line)
        except HeadgateError as error:
            _say(f"the agent of run {run} cannot run, and is tried again: {' · '.join(error.lines())}")
            del self._children[run]
            self._again_ns[run] = monotonic_ns() + AGAIN_NS

    def _child(self, one: RunHere) -> Child:
        folder = Path(self._config.directory) / one.run
        own = ["--controller", one.controller, "--run", one.run, "--state-dir", str(folder)]
        command = headgate_command("agent", "run", *self._words, *own, *owner_option())
        return Child(f"the agent of {one.topology}", command, folder / "agent.log")

    def _asked(self) -> list[RunHere] | None:
        """None when nobody says."""
        runs = [run for run, child in self._children.items() if child.running]
        told = Request("agents", {"slots": self._config.slots, "runs": runs, "pid": os.getpid()})
        fault = ""
        for contact in contacts(self._config):
            try:
                reply = ask(contact, told, ASK_S)
                if reply.error is None:
                    found, self._said = runs_told(reply.data), ""
                    return found
                fault = reply.error[2]
            except (Unreachable, BadMessage) as error:
                fault = error.what
        if fault != self._said:
            self._said = fault
            _say(f"{fault}; what runs goes on")
        return None


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
