"""Where agents and clients reach a controller: two sockets, who may come in by which, and who is at the other end.

What comes in is checked here, as far as one message alone can be: by whose key, of what size and sense, how often.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headgate.controller.files.audit_log import AuditLog, TurnedAway, is_deed
from headgate.controller.files.output_log import OutputLog
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.run_view import RunView
from headgate.controller.monitor.admission import (
    ASKED_A_SECOND,
    ASKED_AT_ONCE,
    ASKING_COSTS,
    CLIENTS,
    LOOKING,
    AdmissionGate,
    Conduct,
    check,
    check_name,
    foreign,
    refused_to,
)
from headgate.controller.monitor.state_questions import StateQuestions
from headgate.controller.package_shelf import PackageShelf
from headgate.topology_runtime.errors import BadMessage, HeadgateError
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import KeyGuard
from headgate.topology_runtime.keys.keyring import Keyring, Trust
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    FromAgent,
    FromController,
    PackageAt,
    Reply,
    Request,
    Welcome,
    refusal,
)
from headgate.topology_runtime.wire.output_messages import OutputLines
from headgate.topology_runtime.wire.state_questions import StateAnswer
from headgate.topology_runtime.wire.wire_version import VERSION, WIRE
from headgate.topology_runtime.wording import utc_iso

MESSAGES_A_TURN = 200  # then the clock and the clients have their turn
CONNECTED_NS = 3 * 1_000_000_000
LINGER_MS = 200  # last words to agents and clients are given this long to leave


class ControllerPorts:
    """Lives in the controller's thread. do: takes an event. clients: who may ask and look.

    Raises InvalidInput without keys, Unreachable when a port cannot be had."""

    def __init__(
        self,
        ring: Keyring,
        at: Listening,
        control: int,
        commands: int,
        packages: Path,
        do: Callable[[t.Event], None],
        audit: AuditLog,
    ) -> None:
        self._trust, self._do, own = Trust(ring), do, ring.controller()
        self._conduct, self._gate = Conduct(), AdmissionGate()
        self._asking = Conduct(ASKED_A_SECOND, ASKED_AT_ONCE, False, ASKING_COSTS)
        self._audit, self._turned_away = audit, TurnedAway()
        agents = KeyGuard(own, self._trust.admits("agent"))
        self.clients = KeyGuard(own, self._trust.admits(*CLIENTS, others=self._turned_away.again))
        self._control: channels.ServerChannel[FromController, FromAgent] = channels.ServerChannel(
            channels.from_agent, agents, at, control, channels.FROM_AGENT_MAX_BYTES, hears=_by(self._conduct)
        )
        self._commands: channels.ServerChannel[Reply, Request] = channels.ServerChannel(
            channels.requests, self.clients, at, commands, channels.REQUEST_MAX_BYTES, True, _by(self._asking)
        )
        self.channels = self._control, self._commands
        self.endpoints = {"commands": self._commands.endpoint, "control": self._control.endpoint}
        self._peers: dict[str, bytes] = {}
        self._asked_by: dict[int, tuple[bytes, int]] = {}
        self._asked = 0
        self._told = ""
        self._shelf, self._heard_ns = PackageShelf(packages, not at.off_loopback, self.send), dict[str, int]()
        self.output = OutputLog()
        self._states = StateQuestions(wall_ns() // 1000)
        self._encoded: tuple[DesiredState | None, bytes] = (None, b"")

    def hear_agents(self, view: RunView | None) -> None:
        for _ in range(MESSAGES_A_TURN):
            peer, whose = b"", ""
            try:
                received = self._control.receive()
                if received is None:
                    return
                peer, who, message = received
                whose = str(who)
                check(message)
                check_name(message, who)
                if not self._gate.admits(message, monotonic_ns()):
                    continue
            except BadMessage as error:
                self._blame(error.who or whose, error.peer or peer, error, view)
                continue
            self._peers[message.vm], self._heard_ns[message.vm] = peer, monotonic_ns()
            if isinstance(message, OutputLines):
                self.output.take(message)
            elif isinstance(message, StateAnswer):
                if (known := self._states.hear(message)) is not None:
                    self.answer(*known)
            elif not isinstance(message, PackageAt):
                self._do(t.FromVm(message))
            elif trouble := self._shelf.heard(message):
                self._do(t.Troubled("packages", trouble))

    def hear_clients(self, snapshot: Callable[[], Reply]) -> None:
        """snapshot: the picture whole; it is no matter of the core."""
        for number, told in self._states.over(monotonic_ns()):
            self.answer(number, told)
        for _ in range(MESSAGES_A_TURN):
            try:
                received = self._commands.receive()
            except BadMessage as error:
                self._commands.send(error.peer, refusal(error))
                continue
            if received is None:
                return
            client, who, request = received
            no = foreign(request, VERSION) or refused_to(who, request.command)
            line = 0
            if is_deed(request.command, request.arguments, LOOKING, no):
                line = self._audit.asked(utc_iso(wall_ns()), who, request.command, request.arguments)
            if no is not None:
                self._reply(client, line, refusal(no))
            elif request.command == "snapshot":
                self._commands.send(client, snapshot())
            elif request.command == "audit":
                self._commands.send(client, self._audit.answer(request.arguments.get("last")))
            elif (
                reply := self._shelf.answer(request, self._connected()) or self.output.answer(request)
            ) is not None:
                self._reply(client, line, reply)
            else:
                self._asked += 1
                self._asked_by[self._asked] = client, line
                if request.command == "state":
                    self._ask_for_state(self._asked, request)
                else:
                    self._do(t.Command(self._asked, request))

    def _ask_for_state(self, number: int, request: Request) -> None:
        try:
            for vm, question in self._states.ask(number, request.arguments, monotonic_ns()):
                self.send(vm, question)
        except HeadgateError as error:
            self.answer(number, refusal(error))

    def look_at_keys(self) -> bool:
        """True when somebody may come in no more: he is heard no more from here on, nor sent anything."""
        gone = self._trust.look()
        if gone:
            self._peers.clear()  # who may come in still is known again with his next message
        self._record_keys()
        if self._trust.trouble != self._told:
            self._told = self._trust.trouble
            self._do(t.Troubled("keys", self._told or "they can be read again"))
        return gone

    def _record_keys(self) -> None:
        """Who may come in since, or no more; and who tried to and may not."""
        now = utc_iso(wall_ns())
        while self._trust.changes:
            self._audit.noted(now, "the keys", "", "keys", self._trust.changes.pop(0), {})
        for key, times in self._turned_away.due(monotonic_ns()):
            whose = self._trust.whose(key) or "an unknown key"
            self._audit.noted(now, whose, key, "come in", "HG-REFUSED: this key may not", {"times": times})

    def offer_packages(self) -> None:
        self._shelf.tick(self._connected())

    def _connected(self) -> list[str]:
        """VMs that were heard lately: agents say something twice a second."""
        since_ns = monotonic_ns() - CONNECTED_NS
        return [vm for vm in self._peers if self._heard_ns[vm] >= since_ns]

    def know(self, view: RunView) -> None:
        """Which VMs are known now."""
        self._gate.know(view.known, len(view.vms), view.run)

    def distrust(self, vm: str, why: str, view: RunView | None) -> None:
        """What this VM said cannot be."""
        self._blame(f"agent {vm}", self._peers.get(vm, b""), BadMessage(why), view)

    def send(self, vm: str, message: FromController) -> None:
        """To a VM that is not connected: nothing; it gets the newest state when it is back."""
        if isinstance(message, DesiredState):
            self._states.desired = message
        peer = self._peers.get(vm)
        if peer is None:
            return
        if not isinstance(message, DesiredState):
            self._control.send(peer, message)
            return
        self._shelf.runs(message.package)
        if self._encoded[0] is not message:
            self._encoded = message, channels.encode(message)
        self._control.send(peer, self._encoded[1])
        processes.reach(f"controller.{message.phase}-told-one", message.token.epoch)

    def answer(self, number: int, reply: Reply) -> None:
        client, line = self._asked_by.pop(number, (None, 0))
        if client is not None:
            self._reply(client, line, reply)

    def _reply(self, client: bytes, line: int, reply: Reply) -> None:
        """line: of the audit log, 0 when it is no deed."""
        if line:
            self._audit.answered(utc_iso(wall_ns()), line, reply)
        self._commands.send(client, reply)

    def close(self) -> None:
        self._shelf.close()
        self._control.close(LINGER_MS)
        self._commands.close(LINGER_MS)

    def _blame(self, who: str, peer: bytes, error: BadMessage, view: RunView | None) -> None:
        """A bad message is dropped and counted; too many: its sender is told the reason and not heard for a while."""
        why = error.what + (f" ({error.cause})" if error.cause else "")
        if self._conduct.blame(who, why, monotonic_ns()):
            boot, run = (view.boot, view.run) if view is not None else (0, "")
            words = f"too many bad messages ({why}): not heard for a minute"
            said = Welcome(boot, run, wall_ns(), words, protocol=WIRE, version=VERSION)
            self._control.send(peer, said)

    def troubles(self) -> tuple[str, ...]:
        """What holders of keys did lately that they should not, and what became of it."""
        now_ns = monotonic_ns()
        return (*curve.troubles(), *self._conduct.troubles(now_ns), *self._asking.troubles(now_ns))


def _by(conduct: Conduct) -> channels.Hears:
    return lambda who, link, size: conduct.hears(str(who), link, size, monotonic_ns())
