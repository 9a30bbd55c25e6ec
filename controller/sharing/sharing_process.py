"""`headgate controller run --set shared=yes`: the shell round `SharedCluster`. It starts a controller for each
topology, tells it which slots it may use, tells VMs which runs there are, and clients where each topology is.

One thread; it looks round once a second. Controllers die with it, and go on by their journals when it is back; what
runs on the VMs runs on meanwhile.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.controller.files.audit_log import AuditLog, is_deed
from headgate.controller.files.journal import locked
from headgate.controller.monitor.admission import (
    ASKED_A_SECOND,
    ASKED_AT_ONCE,
    ASKING_COSTS,
    CLIENTS,
    LOOKING,
    Conduct,
    foreign,
    refused_to,
)
from headgate.controller.sharing.shared_cluster import (
    Admitted,
    SharedCluster,
    SharedFile,
    ports_from,
    share_of,
)
from headgate.topology_runtime.errors import BadMessage, Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.keys import audit_lines
from headgate.topology_runtime.keys.key_pairs import KeyGuard, Who
from headgate.topology_runtime.keys.keyring import SHARED, Keyring, Trust
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.child_processes import Child, headgate_command, owner_option, stop_all
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles, sync_directory, write_private, write_whole
from headgate.topology_runtime.platform.run_ids import new_run_id
from headgate.topology_runtime.platform.service_notify import ServiceNotes
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import Reply, Request, refusal
from headgate.topology_runtime.wire.wire_version import VERSION
from headgate.topology_runtime.wording import utc_iso

NS = 1_000_000_000
LOOK_NS = NS
ASK_S = 1.0  # a controller answers in milliseconds
AGAIN_NS = 10 * NS  # before a controller that could not run is started again
PATIENCE_S = 5.0
FILE, TOPOLOGIES, LOG = "shared.json", "topologies", "controller.log"
MESSAGES_A_TURN = 200


@dataclass(frozen=True, slots=True)
class SharedPlace:
    """Where it lives: its state directory, where traces go (None: nowhere), its ports (0: any), its keys and address;
    words: options that all its controllers are started with. topology_port: from which their ports are counted (0:
    any)."""

    state: Path
    traces: Path | None
    control_port: int
    command_port: int
    keys: Keyring
    at: Listening
    words: tuple[str, ...]
    topology_port: int = 0


class SharedController:
    """Until it is ended by a signal, and all topologies have been."""

    def __init__(self, place: SharedPlace) -> None:
        """Raises Conflict when it runs already, InvalidInput, Unreachable when a port cannot be had."""
        self._place, self._undo = place, ExitStack()
        home = place.state / "controller"
        home.mkdir(parents=True, exist_ok=True)
        self._undo.callback(os.close, locked(home / "lock"))
        self._disk = DiskTroubles()
        self._audit = AuditLog(home / audit_lines.FILE, self._disk)
        ring = place.keys
        ring.ensure("operator", SHARED)
        self._trust = Trust(ring)
        own, at, many = ring.controller(), place.at, channels.REQUEST_MAX_BYTES
        agents, clients = (
            KeyGuard(own, self._trust.admits("agent")),
            KeyGuard(own, self._trust.admits(*CLIENTS)),
        )
        self._control: channels.ServerChannel[Reply, Request] = channels.ServerChannel(
            channels.requests, agents, at, place.control_port, many, True, _bounded()
        )
        self._commands: channels.ServerChannel[Reply, Request] = channels.ServerChannel(
            channels.requests, clients, at, place.command_port, many, True, _bounded()
        )
        for channel in (self._control, self._commands):
            self._undo.callback(channel.close, 200)
        self._endpoint = home / "endpoint"
        self._cluster = SharedCluster(self._read(), monotonic_ns())
        self._kept = self._cluster.kept()
        self._children: dict[str, Child] = {}
        self._again_ns: dict[str, int] = {}
        self._signals = 0
        self._look_ns = 0

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        notes = ServiceNotes()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        wake = channels.Waker()
        self._undo.callback(wake.close)
        self._wake: Callable[[], None] = wake.set
        waiter = channels.Waiter([self._control, self._commands], [wake.fd])
        try:
            where = {
                "commands": self._commands.endpoint,
                "control": self._control.endpoint,
                "pid": os.getpid(),
            }
            write_whole(self._endpoint, msgspec.json.encode(where) + b"\n")
            notes.ready()
            while not (self._signals and not any(child.running for child in self._children.values())):
                waiter.wait((self._look_ns - monotonic_ns()) / NS)
                wake.clear()
                self._hear(self._control, self._agent_asks)
                self._hear(self._commands, self._client_asks)
                if monotonic_ns() >= self._look_ns:
                    self._look_ns = monotonic_ns() + LOOK_NS
                    self._look()
                notes.alive(monotonic_ns())
        finally:
            self._endpoint.unlink(missing_ok=True)
            stop_all(self._children.values(), PATIENCE_S)
            self._undo.close()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """The first one ends all topologies as `stop` does, the second at once."""
        self._signals += 1
        for child in self._children.values():
            child.stopping = True
            child.send(signal.SIGTERM if self._signals == 1 else signal.SIGKILL)
        self._wake()

    def _look(self) -> None:
        self._trust.look()
        self._audit.write()
        for one in self._cluster.running:
            self._look_at(one)
        self._hear_shares()
        granted = self._cluster.decide(monotonic_ns())
        if self._keep():
            for name, slots in granted.items():
                self._tell(self._cluster.topologies[name], tuple(map(str, slots)))

    # ── what is kept ────────────────────────────────────────────────────────────────────────────

    def _read(self) -> SharedFile:
        path = self._place.state / FILE
        try:
            return msgspec.json.decode(path.read_bytes(), type=SharedFile)
        except FileNotFoundError:
            return SharedFile()
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidInput(f"{path} cannot be read", cause=str(error)) from error

    def _keep(self) -> bool:
        """On disk before anybody is told. False when the disk does not take it."""
        kept = self._cluster.kept()
        if kept == self._kept:
            return True
        path = self._place.state / FILE
        with self._disk.writing("the shares", path):
            write_private(path, msgspec.json.encode(kept))
            sync_directory(path.parent)
            self._kept = kept
            return True
        return False

    # ── controllers ─────────────────────────────────────────────────────────────────────────────

    def _folder(self, one: Admitted) -> Path:
        return self._place.state / TOPOLOGIES / one.name / one.run

    def _child(self, one: Admitted) -> Child:
        place, folder = self._place, self._folder(one)
        words = [*place.words, "--run", one.run, "--state-dir", str(folder), "--keys", str(place.keys.folder)]
        if place.traces is not None:
            words += ["--trace-dir", str(place.traces / one.name / one.run)]
        for option, port in zip(("--port", "--command-port", "--stream-port"), one.ports, strict=True):
            words += [option, str(port)]
        command = headgate_command("controller", "run", *words, *owner_option())
        return Child(f"the controller of {one.name}", command, folder / LOG)

    def _look_at(self, one: Admitted) -> None:
        """Its controller runs, has ended, or is started (again)."""
        child, now_ns, troubles = self._children.get(one.run), monotonic_ns(), self._cluster.troubles
        try:
            if child is None:
                if not self._signals and now_ns >= self._again_ns.get(one.run, 0):
                    child = self._children[one.run] = self._child(one)
                    child.start()
            elif not child.running and child.exit_code == 0:
                self._over(one, f"it ended {utc_iso(wall_ns())}")
            elif (line := child.look(now_ns)) is not None:
                _say(line)
            elif child.running:
                troubles.pop(one.name, None)
        except HeadgateError as error:
            troubles[one.name] = f"its controller cannot run, and is tried again: {' · '.join(error.lines())}"
            _say(f"{one.name}: {troubles[one.name]}")
            self._children.pop(one.run, None)
            self._again_ns[one.run] = now_ns + AGAIN_NS

    def _over(self, one: Admitted, why: str) -> None:
        self._children.pop(one.run, None)
        self._cluster.put(replace(one, over=why))
        _say(f"{one.name}: {why}")

    def _where(self, one: Admitted) -> str | None:
        """Where its controller takes commands; None while it does not."""
        child = self._children.get(one.run)
        try:
            found = msgspec.json.decode((self._folder(one) / "controller" / "endpoint").read_bytes())
        except (OSError, msgspec.DecodeError):
            return None
        return (
            str(found["commands"])
            if child is not None and child.running and found["pid"] == child.pid
            else None
        )

    def _ask(self, one: Admitted, request: Request) -> None:
        """What its controller answers is what is known of it."""
        endpoint, share = self._where(one), None
        if endpoint is not None:
            try:
                contact = self._place.keys.key("operator", SHARED).contact(endpoint)
                reply = channels.ask(contact, request, ASK_S)
                share = share_of(reply.data) if reply.error is None else None
            except HeadgateError as error:
                _say(f"{one.name}: {error.what}")
        self._cluster.heard_share(one.name, share)

    def _hear_shares(self) -> None:
        for one in self._cluster.running:
            self._ask(one, Request("share"))

    def _tell(self, one: Admitted, slots: tuple[str, ...]) -> None:
        """Its controller is told unless it knows."""
        if self._where(one) is not None and not self._cluster.knows(one.name, slots):
            self._ask(one, Request("grant", {"slots": list(slots)}))

    # ── who asks ────────────────────────────────────────────────────────────────────────────────

    def _hear(
        self, channel: channels.ServerChannel[Reply, Request], answer: Callable[[Who, Request], Reply]
    ) -> None:
        for _ in range(MESSAGES_A_TURN):
            try:
                if (received := channel.receive()) is None:
                    return
                peer, who, request = received
            except BadMessage as error:
                channel.send(error.peer, refusal(error))
                continue
            try:
                reply = answer(who, request)
            except HeadgateError as error:
                reply = refusal(error)
            channel.send(peer, reply)

    def _agent_asks(self, who: Who, request: Request) -> Reply:
        """Which runs shall have an agent on this VM."""
        if request.command != "agents":
            raise InvalidInput(f"agents do not ask for {request.command!r:.40}")
        told = request.arguments
        runs = self._cluster.heard_vm(
            who.name, told.get("slots"), told.get("runs"), monotonic_ns(), told.get("pid")
        )
        host = self._control.endpoint.rpartition(":")[0]
        return Reply([{"topology": o.name, "run": o.run, "controller": f"{host}:{o.ports[0]}"} for o in runs])

    def _client_asks(self, who: Who, request: Request) -> Reply:
        no = foreign(request, VERSION) or refused_to(who, request.command)
        if no is None and request.command == "audit":
            return self._audit.answer(request.arguments.get("last"))
        line = 0
        if is_deed(request.command, request.arguments, LOOKING, no):
            line = self._audit.asked(utc_iso(wall_ns()), who, request.command, request.arguments)
        try:
            if no is not None:
                raise no
            reply = Reply(self._done(request.command, request.arguments))
        except HeadgateError as error:
            reply = refusal(error)
        if line:
            self._audit.answered(utc_iso(wall_ns()), line, reply)
        return reply

    def _done(self, command: str, arguments: Mapping[str, Any]) -> Any:
        match command:
            case "ping":
                return {"pid": os.getpid(), "run": self._place.state.name}
            case "status":
                return self._cluster.document()
            case "topology":
                return self._told(self._cluster.named(arguments.get("topology")))
            case "admit":
                return self._told(self._admit(str(arguments.get("topology", "")), arguments))
            case "dismiss":
                return self._dismiss(self._cluster.named(arguments.get("topology")))
        names = ", ".join(one.name for one in self._cluster.running)
        raise InvalidInput(
            f"several topologies may run here, and {command[:40]!r} is for one of them",
            hint=f"--controller WHERE/TOPOLOGY; {names or 'none runs now'}",
        )

    def _told(self, one: Admitted) -> dict[str, Any]:
        """commands: where it is asked, once it knows its slots."""
        ready = self._cluster.told(one.name) is not None
        return {**self._cluster.row(one), "commands": self._where(one) if ready else None}

    def _admit(self, name: str, arguments: Mapping[str, Any]) -> Admitted:
        before = self._cluster.topologies.get(name)
        if before is not None and not before.over:
            self._ask(before, Request("share"))  # was it submitted since?
        one = self._cluster.admitted(name, arguments)
        if self._signals:
            raise Conflict("this controller ends")
        if not one.run:
            one = replace(one, run=new_run_id(), since=utc_iso(wall_ns()), ports=self._ports())
        self._cluster.put(one)
        if not self._keep():
            self._cluster.put(replace(one, over="the disk did not take it"))
            raise HeadgateError(
                "nothing was changed: the disk takes nothing", cause="; ".join(self._disk.texts())
            )
        self._look_ns = 0
        return one

    def _ports(self) -> tuple[int, int, int]:
        """Of another topology's controller."""
        if first := self._place.topology_port:
            return ports_from(first, self._cluster.topologies.values())
        ports = free_ports(self._place.at.listen, 3)
        return ports[0], ports[1], ports[2]

    def _dismiss(self, one: Admitted) -> dict[str, Any]:
        """End one whose controller cannot run. Raises Conflict."""
        self._cluster.refuse_to_let_be(one)
        if (child := self._children.get(one.run)) is not None:
            stop_all([child], 0.0)
        self._over(one, f"it was ended {utc_iso(wall_ns())} without its controller")
        return {"run": one.run, "stage": "over"}


def _bounded() -> channels.Hears:
    """So many questions of each key are heard, as a controller hears them."""
    conduct = Conduct(ASKED_A_SECOND, ASKED_AT_ONCE, False, ASKING_COSTS)
    return lambda who, link, size: conduct.hears(str(who), link, size, monotonic_ns())


def free_ports(host: str, number: int) -> list[int]:
    """Ports that nobody listens on now. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with ExitStack() as stack:
        found = []
        for _ in range(number):
            one = stack.enter_context(closing(socket.socket(family, socket.SOCK_STREAM)))
            one.bind((host.strip("[]"), 0))
            found.append(int(one.getsockname()[1]))
        return found


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
