"""One run of `up`: starts controller, agents and services, keeps them running, shows what happens, ends all.

    startup → main_loop (turn after turn) → shutdown

The main thread does everything; signal handlers only count.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from headgate.dashboards.runs.live_view import Screen, at
from headgate.dashboards.runs.run_places import HOST, Places, free_ports
from headgate.dashboards.runs.task_lines import ConsoleLines, Line, lines_of
from headgate.dashboards.runs.up_settings import UpSettings
from headgate.dashboards.up.demo_kill import DemoKill
from headgate.dashboards.up.local_machines import LocalMachines, want
from headgate.topology_runtime.api.cluster import Vm
from headgate.topology_runtime.commands.rare_settings import setting_words
from headgate.topology_runtime.errors import HeadgateError, Unreachable
from headgate.topology_runtime.keys.key_pairs import Contact
from headgate.topology_runtime.keys.keyring import LOCAL, Keyring
from headgate.topology_runtime.platform.cgroups import remove_run
from headgate.topology_runtime.platform.child_processes import (
    NS,
    Child,
    ChildRefused,
    GaveUp,
    Prestarted,
    headgate_command,
    owner_option,
    stop_all,
)
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Reply, Request, from_here

# ── Status and events of a controller without ever waiting for them: asked now, read when they come ─────

NS_PER_S = 1_000_000_000
EVERY_NS = NS_PER_S // 2  # people read no faster
EAGER_NS = NS_PER_S // 10  # until the first tuple is through: its time is told
PATIENCE_NS = 2 * NS_PER_S  # then the answer is not coming: the controller was restarted, or is busy


class StatusFeed:
    """`latest`: the newest status. `take_events`, `take_lines`: events, and lines that tasks printed, not taken yet,
    each once."""

    def __init__(self, contact: Contact) -> None:
        self.latest: dict[str, Any] | None = None
        self.fresh = False
        self._events: list[dict[str, Any]] = []
        self._last_event = 0
        self._lines: list[Line] = []
        self.last_line = 0
        self._boot = 0
        self._asked_ns = self.heard_ns = 0
        self._answers_due = 0
        self._channel: channels.ClientChannel[Request, Reply] = channels.ClientChannel(
            channels.replies, contact
        )
        self._waiter = channels.Waiter([self._channel])

    def wait(self, timeout_s: float) -> None:
        """Until an answer comes, at most so long."""
        self._waiter.wait(timeout_s)

    def turn(self, now_ns: int, eager: bool) -> None:
        while (reply := self._channel.receive()) is not None:
            self._take(reply)
        waited_ns = now_ns - self._asked_ns
        if waited_ns >= PATIENCE_NS:
            self._answers_due = 0
        if self._answers_due == 0 and waited_ns >= (EAGER_NS if eager else EVERY_NS):
            self._asked_ns, self._answers_due = now_ns, 3
            self._channel.send(from_here(Request("status")))
            self._channel.send(from_here(Request("events", {"since": self._last_event})))
            self._channel.send(from_here(Request("logs", {"after": self.last_line})))

    def send(self, command: str) -> None:
        """An order whose answer shows in the next status."""
        self._channel.send(from_here(Request(command)))

    def take_events(self) -> list[dict[str, Any]]:
        events, self._events = self._events, []
        return events

    def take_lines(self) -> list[Line]:
        lines, self._lines = self._lines, []
        return lines

    def take_status(self) -> dict[str, Any] | None:
        """The latest status if it is a new one."""
        fresh, self.fresh = self.fresh, False
        return self.latest if fresh else None

    def _take(self, reply: Reply) -> None:
        data = reply.data
        if not isinstance(data, dict):
            return  # a refusal: what was asked does not hold any more
        if data.get("schema") == "headgate/status/v1":
            self._answers_due = max(0, self._answers_due - 1)
            self.latest, self.fresh, self.heard_ns = data, True, monotonic_ns()
            if data["boot"] != self._boot:  # a new life of the controller counts its events anew
                self._boot, self._last_event = data["boot"], 0
        elif data.get("schema") == "headgate/events/v1":
            self._answers_due = max(0, self._answers_due - 1)
            self._events += [event for event in data["events"] if event["number"] > self._last_event]
            self._last_event = max(self._last_event, data["last"])
        elif data.get("schema") == "headgate/logs/v1":
            self._answers_due = max(0, self._answers_due - 1)
            self._lines += [line for line in data["lines"] if line["number"] > self.last_line]
            self.last_line = max(self.last_line, data["last"])

    def close(self) -> None:
        self._channel.close(linger_ms=200)


# ── Where the metrics of a run of `up` are: ports, and the file from which Prometheus learns them ───────
#
# The controller tells on the port that was asked for, vm1 on the next one, vm2 on the one after, however
# often they are started again. Beside the run's state directory lies a list for Prometheus's
# `file_sd_configs`; it changes when VMs come and go, and goes with the run.

SUFFIX = ".targets.json"


def port_of(port: int, vm: str) -> int | None:
    """The port of a VM's agent; None for a name without a number."""
    number = re.search(r"(\d{1,4})$", vm)
    found = port + int(number[1]) if number else port
    return found if port < found < 65536 else None


def metrics_option(port: int | None, vm: str) -> list[str]:
    found = None if port is None else port_of(port, vm)
    return [] if found is None else ["--metrics-port", str(found)]


def targets(port: int, vms: Iterable[str]) -> list[dict[str, object]]:
    agents = sorted(found for vm in vms if (found := port_of(port, vm)) is not None)
    groups = {"controller": [port], "agent": agents}
    return [
        {"targets": [f"{HOST}:{n}" for n in ports], "labels": {"role": role}}
        for role, ports in groups.items()
    ]


def file_of(state: Path) -> Path:
    """`.headgate/RUN.targets.json`."""
    return state.with_name(state.name + SUFFIX)


def write_targets(state: Path, port: int, vms: Iterable[str]) -> None:
    """By rename, so that nobody reads half a file."""
    new = file_of(state).with_suffix(".new")
    new.write_text(json.dumps(targets(port, vms), indent=2) + "\n", "utf-8")
    os.replace(new, file_of(state))


# ── The live page beside a run of `up`: a child like the others, but a run goes on without it ───────────


class LivePage:
    """`headgate dashboard run` on a port of its own. Its token is in a file that only its owner reads."""

    def __init__(self, places: Places, port: int) -> None:
        from headgate.dashboards.web.dashboard_command import check_installed

        check_installed()
        self._port = port or free_ports(1)[0]
        self._token_file = places.state / "page-token"
        key = Keyring.at(places.keys).path("operator", LOCAL)
        words = ["--controller", places.commands, "--key", str(key), "--port", str(self._port)]
        words += [*setting_words({"token-file": self._token_file}), *owner_option()]
        self.child = Child("the page", headgate_command("dashboard", "run", *words), places.log("page"))

    def start(self) -> str:
        """The line that says where it is; this is the only time that its token is shown."""
        from headgate.dashboards.web.dashboard_command import token_of

        token = token_of(self._token_file)
        self.child.start()
        return f"the live page: http://{HOST}:{self._port}/#token={token}"

    def look(self, now_ns: int) -> str | None:
        """Start it again if it died; the line to show then. When it cannot run the run goes on without it."""
        try:
            return self.child.look(now_ns)
        except (ChildRefused, GaveUp) as error:
            self.child.stopping = True
            return "there is no live page any more: " + " ".join(error.lines()).removeprefix("error")


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

TURN_S = 0.05  # machines are reconciled, children looked at so often
SILENT_S = 60.0  # a controller that is asked to end and says nothing for so long; it is restarted in a second
AGENTS_END_S = 3.0  # agents that were told to go
AT_ONCE_S = 0.5  # after a second Ctrl-C: time for agents to remove their cgroups
QUIET_KINDS = frozenset({"prepared", "switched"})  # steps of a plan: `events` shows them
LETTERS_SHOWN = 5
CONTROLLER = headgate_command("controller", "run")


class Interrupts:
    """Counts SIGINT, SIGTERM and SIGHUP: once is a clean stop, twice at once. While `at_once`, and that is
    until there is something to stop cleanly, the first one is a KeyboardInterrupt."""

    def __init__(self) -> None:
        self.count = 0
        self.at_once = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:  # else: nohup
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.at_once:
            raise KeyboardInterrupt


def alive_s() -> float:
    started_ticks = int(Path("/proc/self/stat").read_text("ascii").rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started_ticks / os.sysconf("SC_CLK_TCK")


@dataclass
class Session:
    """The processes of one run. `controller_options`: what the controller runs."""

    settings: UpSettings
    places: Places
    controller_options: Sequence[str]
    services: Sequence[Child]
    screen: Screen
    interrupts: Interrupts
    begun: Prestarted  # the controller's first process
    first_tuple_ns: int = 0
    _told_ns: int = 0  # when the controller was asked to end
    disk: DiskTroubles = field(default_factory=DiskTroubles)
    _letters: int = 0
    _console: ConsoleLines = field(default_factory=ConsoleLines)
    _untold: bool = False  # VMs have come or gone, and the list of them is not written yet

    def __post_init__(self) -> None:
        command = [*CONTROLLER, *self.controller_options, *owner_option()]
        self.controller = Child("the controller", command, self.places.log("controller"), self.begun)
        self.machines = LocalMachines(self.places.machines, self.agent_for)
        settings = self.settings
        self.page = LivePage(self.places, settings.dashboard_port) if settings.dashboard else None
        self.demo_kill = DemoKill(settings) if settings.topology is None and settings.kill else None
        self.keys = Keyring.at(self.places.keys)
        self.feed = StatusFeed(self.keys.key("operator", LOCAL).contact(self.places.commands))

    def agent_for(self, vm: Vm) -> Child:
        """The agent of a VM, not started."""
        options = [
            *("--controller", self.places.control),
            *("--key", str(self.keys.ensure("agent", vm.vm))),
            *("--vm", vm.vm, "--slots", str(vm.slots), "--slot-cores", str(vm.slot_cores)),
            *("--slot-memory", str(vm.slot_memory_bytes)),
            *("--state-dir", str(self.places.state / "agents" / vm.vm)),
            *("--run", self.places.run, "--workers-as", self.settings.workers_as, *owner_option()),
            *metrics_option(self.settings.metrics_port, vm.vm),
        ]
        return Child(vm.vm, headgate_command("agent", "run", *options), self.places.log(vm.vm))

    def run(self) -> None:
        """The whole life. Raises what ended it early; nothing runs afterwards in any case."""
        try:
            self.startup()
            self.main_loop()
        finally:
            self.shutdown()

    def startup(self) -> None:
        """Controller and agents at once: agents look for their controller until it is there."""
        self.controller.start()
        if not self.places.wanted_before:
            for vm in self.settings.vms:
                want(self.places.machines, vm)
        self.reconcile(monotonic_ns())
        if self.page is not None:
            self.screen.say(self.page.start())
        self.interrupts.at_once = False

    def reconcile(self, now_ns: int) -> list[str]:
        """Agents as machines are desired; whoever reads metrics is told where they are."""
        lines = self.machines.reconcile(now_ns)
        self._untold = self._untold or bool(lines)
        if self._untold and self.settings.metrics_port is not None:
            names = [agent.name for agent in self.machines.agents]
            with self.disk.writing("the list for Prometheus", self.places.state):
                write_targets(self.places.state, self.settings.metrics_port, names)
                self._untold = False
        return lines

    def main_loop(self) -> None:
        while self.controller.exit_code != 0:
            self.turn(monotonic_ns())
            self.feed.wait(TURN_S)
        self.show_what_is_new()
        self.show_last_lines()

    def turn(self, now_ns: int) -> None:
        lines = [line for child in (self.controller, *self.services) if (line := child.look(now_ns))]
        lines += self.reconcile(now_ns)
        if self.page is not None and (said := self.page.look(now_ns)):
            lines.append(said)
        for line in lines:
            self.screen.say(self.stamped(line))
        self.feed.turn(now_ns, eager=self.first_tuple_ns == 0)
        self.show_what_is_new()
        self.obey_interrupts(now_ns)

    def show_lines(self, lines: Sequence[Line], last: bool = False) -> None:
        """What tasks print."""
        if not self.settings.quiet_tasks:
            for line in self._console.shown(lines, monotonic_ns(), last):
                self.screen.say(line)

    def show_last_lines(self) -> None:
        """What the controller was told after it was asked last, from its trace."""
        topology = (self.feed.latest or {}).get("topology")
        if topology is not None and not self.settings.quiet_tasks:
            there = lines_of(self.places.trace(topology))
            self.show_lines([line for line in there if line["number"] > self.feed.last_line], last=True)

    def show_what_is_new(self) -> None:
        self.show_lines(self.feed.take_lines())
        for event in self.feed.take_events():
            self.say_event(event)
        status = self.feed.take_status()
        if status is None:
            return
        if self.first_tuple_ns == 0 and status["tuples"]["acked"] > 0:
            self.first_tuple_ns = monotonic_ns()
            self.screen.say(self.stamped(f"the first rows are through, {alive_s():.1f} s after the start"))
        self.screen.show(status)
        kill = self.demo_kill
        if kill is not None and kill.due(status) and (said := kill.kill(status, self.machines.agents)):
            self.screen.say(self.stamped(said))

    def say_event(self, event: dict[str, Any]) -> None:
        if event["kind"] in QUIET_KINDS:
            return
        if event["kind"] == "dead_letter":
            self._letters += 1
            if self._letters > LETTERS_SHOWN or not self.settings.quiet_tasks:
                return  # the picture counts them; its thread says it too, with the traceback
        self.screen.say(self.stamped(event["text"]))

    def stamped(self, text: str) -> str:
        return at((self.feed.latest or {}).get("seconds") or 0.0, text)

    def obey_interrupts(self, now_ns: int) -> None:
        """The first asks the controller to drain and end, however long that takes; the second ends everything at
        once."""
        if self.interrupts.count >= 2:
            raise KeyboardInterrupt
        if self.interrupts.count == 1 and not self._told_ns:
            self._told_ns = now_ns
            self.screen.say(self.stamped("stopping: what is in flight is finished (Ctrl-C again: at once)"))
            self.feed.send("stop")
        if self._told_ns and now_ns - max(self._told_ns, self.feed.heard_ns) >= SILENT_S * NS:
            raise Unreachable(
                f"the controller has said nothing for {SILENT_S:g} s, and the run has not ended",
                cause="\n  ".join(["the controller's last lines:", *self.controller.last_lines()]),
            )

    def shutdown(self) -> None:
        self.screen.close()
        self.feed.close()
        with self.disk.writing("the list for Prometheus", self.places.state):
            file_of(self.places.state).unlink(missing_ok=True)
        agents = self.machines.agents
        if self.controller.exit_code == 0:
            deadline_ns = monotonic_ns() + int(AGENTS_END_S * NS)
            for agent in agents:
                agent.ended_by(deadline_ns)
        pages = [self.page.child] if self.page is not None else []
        stop_all([*agents, self.controller, *self.services, *pages], AT_ONCE_S)
        left = remove_run(self.places.run)
        if left:
            raise HeadgateError(
                "cgroups of the run could not be removed", faults=[str(path) for path in left]
            )
