"""The controller's shell: sockets, clock, journal, signals. It performs instructions and decides nothing.

1. One thread does everything but the trace's files; nothing here waits without a limit.
2. What reaches `step` is recorded first, so that a run can be replayed.
3. When the journal does not take a record, nothing that follows it in that turn is done.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec

from controller.execute.machines import Listing, Machines
from controller.knowledge import turns as t
from controller.knowledge.journal import Journal
from controller.knowledge.records import Planned, Submitted
from controller.knowledge.store import Store
from controller.loop import Loop
from controller.monitor.border import Conduct, check
from controller.monitor.recorder import Recorder
from topology_runtime import channels
from topology_runtime.clock import monotonic_ns, wall_ns
from topology_runtime.errors import BadMessage, HeadgateError
from topology_runtime.messages import FromAgent, FromController, Reply, Request, Wanted, Welcome
from topology_runtime.owner import orphaned

NS = 1_000_000_000
TICK_NS = NS // 4
MESSAGES_A_TURN = 200  # then the clock and the clients have their turn
MACHINES_EVERY_NS = NS
LINGER_NS = NS // 5  # last words to agents and clients are given this long to leave


class Controller:
    """A controller on `state` (its directory), until its run is over."""

    def __init__(
        self,
        loop: Loop,
        state: Path,
        machines: Machines,
        recorder: Recorder | None,
        ports: tuple[int, int],
        owner: int,
    ) -> None:
        self._loop, self._state, self._machines, self._recorder, self._owner = (
            loop,
            state,
            machines,
            recorder,
            owner,
        )
        home = state / "controller"
        self._journal = Journal(home)
        self._store = Store(home / "tallies.bin")
        self._endpoint = home / "endpoint"
        self._control: channels.ServerChannel[FromController, FromAgent] = channels.ServerChannel(
            channels.from_agent, port=ports[0]
        )
        self._commands: channels.ServerChannel[Reply, Request] = channels.ServerChannel(
            channels.requests, port=ports[1]
        )
        self._wake = channels.Wake()
        self._waiter = channels.Waiter([self._control, self._commands], [self._wake.fd])
        self._signals = 0
        self._signals_told = 0
        self._peers: dict[str, bytes] = {}
        self._clients: dict[int, bytes] = {}
        self._asked = 0
        self._conduct = Conduct()
        self._events: deque[t.Event] = deque()
        self._machines_seen: Listing | None = None
        self._next_tick_ns = self._next_machines_ns = 0
        self._encoded: tuple[Wanted | None, bytes] = (None, b"")
        self._finish: t.Finish | None = None

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> dict[str, Any] | None:
        """The run's summary; raises the error that ended it."""
        try:
            self.startup()
            while self._finish is None:
                self.turn()
            return self.result(self._finish)
        finally:
            self.shutdown()

    def startup(self) -> None:
        started = t.Started(self._journal.records, self._store.read(), os.getpid())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._do(started)
        self._write_endpoint()

    def turn(self) -> None:
        """One look round."""
        self._waiter.wait((self._next_tick_ns - monotonic_ns()) / NS)
        self._wake.clear()
        self._hear_agents()
        self._hear_clients()
        self._look_at_signals()
        if monotonic_ns() >= self._next_machines_ns:
            self._look_at_machines()
        if monotonic_ns() >= self._next_tick_ns:
            self._next_tick_ns = max(self._next_tick_ns + TICK_NS, monotonic_ns() + TICK_NS // 2)
            self._do(t.Tick())

    def result(self, finish: t.Finish) -> dict[str, Any] | None:
        """Write the summary for `up` and raise what ended the run."""
        if finish.summary is not None:
            data = msgspec.json.format(msgspec.json.encode(finish.summary))
            _write_whole(self._state / "summary.json", data)
        if finish.error is not None:
            raise finish.error
        return finish.summary

    def shutdown(self) -> None:
        self._endpoint.unlink(missing_ok=True)
        linger_ms = LINGER_NS // 1_000_000
        self._control.close(linger_ms)
        self._commands.close(linger_ms)
        self._wake.close()
        if self._recorder is not None:
            self._recorder.close()
        self._journal.close()

    def _write_endpoint(self) -> None:
        data = {"commands": self._commands.endpoint, "control": self._control.endpoint, "pid": os.getpid()}
        _write_whole(self._endpoint, msgspec.json.encode(data) + b"\n")

    # ── what comes in ───────────────────────────────────────────────────────────────────────────

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._wake.set()

    def _look_at_signals(self) -> None:
        if self._owner and orphaned(self._owner) and not self._signals:
            self._signals = 2  # nobody restarts us or reads the summary: end at once
        while self._signals_told < self._signals:
            self._signals_told += 1
            self._do(t.Stopping("asked by a signal"))

    def _hear_agents(self) -> None:
        for _ in range(MESSAGES_A_TURN):
            try:
                received = self._control.receive()
                if received is None:
                    return
                peer, message = received
                if self._conduct.banned(peer, monotonic_ns()):
                    continue
                check(message)
            except BadMessage as error:
                self._blame(error.peer or peer, error.what)
                continue
            self._peers[message.vm] = peer
            self._do(t.FromVm(message))

    def _blame(self, peer: bytes, why: str) -> None:
        """A bad message is dropped and counted; too many: its peer hears why and is not heard for a while."""
        if self._conduct.blame(peer, why, monotonic_ns()):
            boot = self._loop.knowledge.durable.boot
            words = f"too many bad messages ({why}): not heard for a minute"
            self._control.send(peer, Welcome(boot, self._loop.knowledge.settings.run, wall_ns(), words))
            _say("warning", f"peer {peer!r}: {words}")

    def _hear_clients(self) -> None:
        for _ in range(MESSAGES_A_TURN):
            try:
                received = self._commands.receive()
            except BadMessage as error:
                self._commands.send(error.peer, Reply(error=_words(error)))
                continue
            if received is None:
                return
            self._asked += 1
            self._clients[self._asked] = received[0]
            self._do(t.Command(self._asked, received[1]))

    def _look_at_machines(self) -> None:
        self._next_machines_ns = monotonic_ns() + MACHINES_EVERY_NS
        try:
            seen = self._machines.list()
        except OSError as error:
            self._do(t.Troubled("machines", str(error)))
            return
        if seen != self._machines_seen:
            self._machines_seen = seen
            self._do(t.MachinesSeen(seen.wanted, seen.running))

    # ── a step, and what it asks for ────────────────────────────────────────────────────────────

    def _do(self, event: t.Event) -> None:
        """Take this event, and those that performing it gives rise to."""
        self._events.append(event)
        while self._events:
            self._step(self._events.popleft())

    def _step(self, event: t.Event) -> None:
        now = t.Now(monotonic_ns(), wall_ns())
        if self._recorder is not None:
            self._recorder.input(now.mono_ns, msgspec.json.encode(t.Input(now, event)))
        instructions = self._loop.step(event, now)
        for at, instruction in enumerate(instructions):
            if not self._perform(instruction, now):
                for left in instructions[at + 1 :]:
                    self._perform_anyway(left, now)
                return

    def _perform(self, instruction: t.Instruction, now: t.Now) -> bool:
        """False when the journal did not take its records."""
        match instruction:
            case t.Persist(records):
                return self._persist(records, now)
            case t.Send(vm, message):
                self._send(vm, message)
            case t.Answer(number, reply):
                client = self._clients.pop(number, None)
                if client is not None:
                    self._commands.send(client, reply)
            case t.Finish():
                self._finish = instruction
            case t.Distrust(vm, why):
                self._blame(self._peers.get(vm, vm.encode()), why)
            case _:
                self._perform_anyway(instruction, now)
        return True

    def _perform_anyway(self, instruction: t.Instruction, now: t.Now) -> None:
        """What is done best effort; of these, words to people are said even when the journal fails."""
        with self._troubles(type(instruction).__name__):
            match instruction:
                case t.Say(level, text):
                    _say(level, text)
                case t.Keep(tallies):
                    self._store.keep(tallies)
                case t.RequestMachine(vm):
                    self._machines.request(vm)
                case t.ReleaseMachine(name):
                    self._machines.release(name)
                case t.Trace(kind, data) if self._recorder is not None:
                    self._record(kind, data)
                case t.Block(block, epoch) if self._recorder is not None:
                    self._recorder.samples(block, epoch)

    def _persist(self, records: tuple[Any, ...], now: t.Now) -> bool:
        try:
            self._journal.append(records)
        except OSError as error:
            self._events.appendleft(t.JournalFailed(str(error)))
            return False
        for record in records:
            if isinstance(record, Planned):
                self._events.append(t.Measured(record.epoch, (monotonic_ns() - now.mono_ns) / NS))
            if isinstance(record, Submitted):
                self._loop_runs(record)
        return True

    @contextmanager
    def _troubles(self, what: str) -> Iterator[None]:
        """A best-effort thing that fails is said, not fatal."""
        try:
            yield
        except (OSError, HeadgateError) as error:
            self._events.append(t.Troubled(what, str(error)))

    def _send(self, vm: str, message: FromController) -> None:
        peer = self._peers.get(vm, vm.encode())
        if not isinstance(message, Wanted):
            self._control.send(peer, message)
            return
        if self._encoded[0] is not message:
            self._encoded = message, channels.encode(message)
        self._control.send(peer, self._encoded[1])


def _write_whole(path: Path, data: bytes) -> None:
    """By rename, so that nobody reads half of it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)


def _say(level: str, text: str) -> None:
    if level != "debug":
        sys.stderr.write(f"controller: {text}\n" if level == "info" else f"controller: {level}: {text}\n")
        sys.stderr.flush()


def _words(error: HeadgateError) -> tuple[str, int, str, str | None, str | None, tuple[str, ...]]:
    return error.code, error.exit_code, error.what, error.cause, error.hint, error.faults
