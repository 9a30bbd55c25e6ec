"""The controller's shell: sockets, clock, journal, signals. It performs instructions and decides nothing.

1. One thread does everything but the trace's files and plans that take long; nothing here waits without a limit.
2. What reaches `step` is recorded, so that a run can be replayed. What the core knows is seen in its views only.
3. When the journal does not take a record, nothing that follows it in that turn is done.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from headgate.controller.controller_ports import ControllerPorts
from headgate.controller.files.audit_log import WHAT, AuditLog
from headgate.controller.files.journal import Journal
from headgate.controller.files.machine_providers import Listing, Machines
from headgate.controller.files.run_state_files import DeadLetterFile, TallyFile
from headgate.controller.knowledge import loop_events as t
from headgate.controller.knowledge.dead_letters import DeadLetterRecord
from headgate.controller.knowledge.journal_records import PhaseEntered, Record, RolloutStarted
from headgate.controller.knowledge.loop_events import (
    LatencyPredicted,
    MakePlan,
    PlanMade,
    PredictLatency,
    Troubled,
)
from headgate.controller.package_shelf import FOLDER
from headgate.controller.recording.early_inputs import EarlyInputs
from headgate.controller.recording.recorder import Recorder
from headgate.controller.viewers import Viewers
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys import audit_lines
from headgate.topology_runtime.keys.keyring import KEYS, Keyring
from headgate.topology_runtime.measuring import model_store
from headgate.topology_runtime.platform import processes
from headgate.topology_runtime.platform.addresses import Listening
from headgate.topology_runtime.platform.clock import HERE, monotonic_ns, wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles, words_of, write_whole
from headgate.topology_runtime.platform.http_options import MetricsAt
from headgate.topology_runtime.platform.planning_time import clocked
from headgate.topology_runtime.platform.processes import orphaned
from headgate.topology_runtime.platform.service_notify import ServiceNotes
from headgate.topology_runtime.traces.trace_tables import DEAD_LETTERS
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import Waker
from headgate.topology_runtime.wire.run_options import Keep
from headgate.topology_runtime.wording import visible

if TYPE_CHECKING:
    from headgate.controller.alarm_posts import AlarmPosts

# ── Plans that take long and predictions of latency, made beside the loop: a thread for each, which gives back
# what came of it as an event
#
# There are one or two at a time: the loop asks for another one only when one is there, or when something
# urgent happened. The solver lets go of the interpreter while it searches, and what is Python in it gives way
# every few milliseconds.

NS = 1_000_000_000


Made = PlanMade | LatencyPredicted | Troubled


class BackgroundPlans:
    """wake: what wakes the controller when one is made."""

    def __init__(self, wake: Waker) -> None:
        self._wake = wake
        self._made: SimpleQueue[Made] = SimpleQueue()

    def make(self, order: MakePlan | PredictLatency) -> None:
        """What comes of it will be among those `made`."""
        name = f"plan {order.number}"
        threading.Thread(target=self._make, args=(order,), name=name, daemon=True).start()

    def made(self) -> Iterator[Made]:
        """Those made since."""
        while True:
            try:
                yield self._made.get_nowait()
            except Empty:
                return

    def _make(self, order: MakePlan | PredictLatency) -> None:
        began_ns = monotonic_ns()
        with clocked(lambda: monotonic_ns() / NS):
            made: Made = order.made()
        if not isinstance(made, Troubled):
            made = replace(made, seconds=(monotonic_ns() - began_ns) / NS)
        self._made.put(made)
        self._wake.set()


TICK_NS = NS // 4
MACHINES_EVERY_NS = NS
IMPORT_AHEAD_S = 3.0  # then what a re-plan needs and a first plan does not is imported (0.7 s)
JOURNAL = "the journal"


def _alarm_posts(url: str | None, home: Path) -> AlarmPosts | None:
    if url is None:
        return None
    from headgate.controller.alarm_posts import AlarmPosts

    return AlarmPosts(url, home)


Step = Callable[[t.Event, t.Now], Sequence[t.Instruction]]


@dataclass(frozen=True, slots=True)
class ControllerPlace:
    """Where a controller lives: its state directory, its trace (None: none), its ports (0: any), the
    process it dies with (0: none), which older traces stay, where its metrics are served (None: nowhere), the
    port of its picture's changes (0: any), its keys, its address, where alarms are posted, where
    metrics are sent."""

    state: Path
    trace: Path | None = None
    control_port: int = 0
    command_port: int = 0
    owner: int = 0
    keep: Keep = Keep()
    metrics: MetricsAt | None = None
    stream_port: int = 0
    keys: Keyring | None = None  # none: those in its state directory
    at: Listening = channels.HERE
    alarms_to: str | None = None
    otlp_to: str | None = None


class Controller:
    """A controller, until its run is over. `step`: its core (`Loop.step`)."""

    def __init__(self, step: Step, place: ControllerPlace, machines: Machines) -> None:
        self._core, self._place, self._machines = step, place, machines
        home = place.state / "controller"
        self._journal = Journal(home)
        self._store = TallyFile(home / "tallies.bin")
        self._letters = DeadLetterFile(home / DEAD_LETTERS)
        self._disk = DiskTroubles()
        self._audit = AuditLog(home / audit_lines.FILE, self._disk)
        self._endpoint, self._clock = home / "endpoint", home / "clock"
        self._wake = channels.Waker()
        ring = place.keys or Keyring.at(place.state / KEYS)
        ports = place.control_port, place.command_port
        self._ports = ControllerPorts(ring, place.at, *ports, place.state / FOLDER, self._do, self._audit)
        self._viewers = Viewers(self._wake, self._ports.clients, place.stream_port, place.metrics, place.at)
        if place.otlp_to is not None:
            self._viewers.push(place.otlp_to, place.state.name)
        self._alarms = _alarm_posts(place.alarms_to, home)
        self._plans = BackgroundPlans(self._wake)
        self._waiter = channels.Waiter(self._ports.channels, [self._wake.fd])
        self._signals = self._signals_told = 0
        self._events: deque[t.Event] = deque()
        self._recorder: Recorder | None = None
        self._early = EarlyInputs()
        self._machines_seen: Listing | None = None
        self._next_tick_ns = self._next_machines_ns = 0
        self._finish: t.Finish | None = None
        self._notes = ServiceNotes()
        self._disk_told: t.DiskSeen = t.DiskSeen(())
        self._peers_told = t.PeersSeen(())
        self._endpoint_told = False
        self._run: dict[str, Any] | None = None  # a trace to be started

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> dict[str, Any] | None:
        """The run's summary; raises the error that ended it."""
        try:
            self.startup()
            self._notes.ready()
            while self._finish is None:
                self.turn()
                self._notes.alive(monotonic_ns())
            return self.result(self._finish)
        finally:
            self.shutdown()

    def startup(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        records, tallies = self._journal.records, self._store.read()
        with self._disk.writing("what time it is", self._clock):
            HERE.carry_on(self._clock, fresh=not records)
        HERE.not_before(tallies.wall_ns if tallies is not None else 0)
        self._do(t.Started(records, tallies, os.getpid(), self._letters.read()))
        if self._audit.fault:
            self._do(t.Troubled(WHAT, f"{self._audit.path}: {self._audit.fault}"))
        self._write_endpoint()
        self._machines.start()
        ahead = threading.Timer(IMPORT_AHEAD_S, importlib.import_module, ["scipy.optimize"])
        ahead.daemon = True
        ahead.start()

    def turn(self) -> None:
        """One look around."""
        self._waiter.wait((self._next_tick_ns - monotonic_ns()) / NS)
        self._wake.clear()
        self._ports.hear_agents(self._viewers.view)
        self._ports.hear_clients(self._viewers.snapshot)
        self._look_at_signals()
        if monotonic_ns() >= self._next_machines_ns:
            self._look_at_machines()
            self._look_at_disk()
            self._look_at_peers()
        if monotonic_ns() >= self._next_tick_ns:
            if self._ports.look_at_keys():
                self._viewers.ask_again()
            self._ports.offer_packages()
            self._next_tick_ns = max(self._next_tick_ns + TICK_NS, monotonic_ns() + TICK_NS // 2)
            self._do(t.Tick())
        for made in self._plans.made():
            self._do(made)
        for number, reply in self._viewers.answers():
            self._ports.answer(number, reply)

    def result(self, finish: t.Finish) -> dict[str, Any] | None:
        """Write the summary for `up`; raise what ended the run."""
        if finish.summary is not None:
            self._leave(msgspec.json.format(msgspec.json.encode(finish.summary)))
        if finish.error is not None:
            raise finish.error
        return finish.summary

    def _leave(self, summary: bytes) -> None:
        """On a full disk, in the room of the tallies: nobody needs them any more."""
        path = self._place.state / "summary.json"
        try:
            write_whole(path, summary)
        except OSError:
            self._store.remove()
            write_whole(path, summary)

    def shutdown(self) -> None:
        self._ports.close()
        self._viewers.close(over=self._finish is not None)
        if self._alarms is not None:
            self._alarms.close(over=self._finish is not None)
        if left := self._machines.close():
            hint = "a controller that is started on this state directory does it"
            _say("error", f"machines that are not given back yet: {', '.join(left)} ({hint})")
        with self._disk.writing("the endpoint", self._endpoint):
            self._endpoint.unlink(missing_ok=True)
        self._wake.close()
        if self._recorder is not None:
            recorded = self._recorder.close()
            if recorded.trouble:
                _say("warning", f"the trace is not complete: {recorded.trouble}")
        self._journal.close()

    def _where(self) -> dict[str, Any]:
        return {
            **self._ports.endpoints,
            "pid": os.getpid(),
            "metrics": self._viewers.metrics_address,
        }

    # ── what comes in ───────────────────────────────────────────────────────────────────────────

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signals += 1
        self._wake.set()

    def _look_at_signals(self) -> None:
        if self._place.owner and self._signals < 2 and orphaned(self._place.owner):
            self._signals = 2  # nobody restarts us or reads the summary: end at once
        while self._signals_told < min(self._signals, 2):
            self._signals_told += 1
            self._do(t.Stopping("asked by a signal"))

    def _look_at_machines(self) -> None:
        self._next_machines_ns = monotonic_ns() + MACHINES_EVERY_NS
        with self._troubles("machines"):
            seen = self._machines.list()
            if seen != self._machines_seen:
                self._machines_seen = seen
                self._do(t.MachinesSeen(seen.desired, seen.running, seen.trouble))

    def _write_endpoint(self) -> None:
        """Where clients find this controller; tried again until the disk takes it."""
        if not self._endpoint_told:
            with self._disk.writing("the endpoint", self._endpoint):
                write_whole(self._endpoint, msgspec.json.encode(self._where()) + b"\n")
                self._endpoint_told = True

    def _look_at_disk(self) -> None:
        """What it did not take is tried again; whoever decides hears what it still does not take."""
        self._write_endpoint()
        if self._disk.has(JOURNAL):
            with self._disk.writing(JOURNAL, self._journal.path):
                self._journal.append(())
        with self._disk.writing("the journal, shortened,", self._journal.path):
            self._journal.shorten_if_long()
        self._audit.write()
        if self._disk.has("dead letters"):
            self._keep_dead_letters(())
        if self._run is not None:
            self._begin_trace(self._run)
        found = self._disk.texts()
        if self._recorder is not None and (trouble := self._recorder.state().trouble):
            found += (f"the trace is not complete: {trouble} ({self._place.trace})",)
        seen = t.DiskSeen(found, not self._disk.has(JOURNAL))
        if seen != self._disk_told:
            self._disk_told = seen
            self._do(seen)

    def _look_at_peers(self) -> None:
        seen = t.PeersSeen(self._ports.troubles())
        if seen != self._peers_told:
            self._peers_told = seen
            self._do(seen)

    # ── a step, and what it asks for ────────────────────────────────────────────────────────────

    def _do(self, event: t.Event) -> None:
        """Take this event, and those that performing it gives rise to."""
        self._events.append(event)
        while self._events:
            self._step(self._events.popleft())

    def _step(self, event: t.Event) -> None:
        now = _now()
        self._record_input(now, event)
        instructions = self._core(event, now)
        for instruction in instructions:
            if isinstance(instruction, t.Persist):
                if not self._persist(instruction.records, now):
                    self._only_say(instructions)
                    return
            else:
                self._perform(instruction)

    def _persist(self, records: tuple[Record, ...], now: t.Now) -> bool:
        """False when the journal did not take the records."""
        _reach(records, "unwritten")
        try:
            self._journal.append(records)
        except OSError as error:
            self._disk.failed(JOURNAL, self._journal.path, error)
            self._events.appendleft(t.JournalFailed(words_of(JOURNAL, self._journal.path, error)))
            return False
        self._disk.works(JOURNAL)
        _reach(records, "written")
        for record in records:
            if isinstance(record, RolloutStarted):
                self._events.append(t.Measured(record.epoch, (monotonic_ns() - now.mono_ns) / NS))
        return True

    def _only_say(self, instructions: Sequence[t.Instruction]) -> None:
        """Of a turn that could not be journaled nothing is done but what was said of it."""
        for instruction in instructions:
            if isinstance(instruction, t.Say):
                _say("not done", instruction.text)

    def _perform(self, instruction: t.Instruction) -> None:
        with self._troubles(type(instruction).__name__.lower()):
            match instruction:
                case t.Send(vm, message):
                    self._ports.send(vm, message)
                case t.Answer(number, reply):
                    self._ports.answer(number, reply)
                case t.AnswerLater(number, work):
                    self._viewers.think(number, work)
                case t.MakePlan() | t.PredictLatency():
                    self._plans.make(instruction)
                case t.Show(view):
                    self._ports.know(view)
                    self._viewers.show(view)
                    if self._alarms is not None:
                        self._alarms.show(view.run, view.alarms)
                case t.Finish():
                    self._finish = instruction
                case t.KeepTallies():
                    self._keep_tallies(instruction)
                case t.KeepDeadLetters(records):
                    self._keep_dead_letters(records)
                case t.KeepModel(model, folder):
                    model_store.save((self._place.trace or self._place.state) / folder, model)
                case t.RequestMachine(vm):
                    self._machines.request(vm)
                case t.ReleaseMachine(name):
                    self._machines.release(name)
                case t.Distrust(vm, why):
                    self._ports.distrust(vm, why, self._viewers.view)
                case t.Say(level, text):
                    _say(level, text)
                case _:
                    self._trace(instruction)

    @contextmanager
    def _troubles(self, what: str) -> Iterator[None]:
        """A best-effort thing that fails is said, not fatal."""
        try:
            yield
        except (OSError, HeadgateError) as error:
            self._events.append(t.Troubled(what, str(error)))

    def _keep_tallies(self, order: t.KeepTallies) -> None:
        with self._disk.writing("the tallies", self._store.path):
            self._store.keep(order.tallies)
            for send in order.told:
                self._ports.send(send.vm, send.message)

    def _keep_dead_letters(self, records: tuple[DeadLetterRecord, ...]) -> None:
        with self._disk.writing("dead letters", self._letters.path):
            self._letters.append(records)
        if self._recorder is not None:
            self._recorder.letters(records)

    # ── the trace ───────────────────────────────────────────────────────────────────────────────

    def _trace(self, instruction: t.Instruction) -> None:
        if isinstance(instruction, t.Begin):
            self._begin_trace(instruction.run)
        elif self._recorder is not None:
            match instruction:
                case t.Trace("decision", data, plan):
                    self._recorder.decision(data, plan)
                case t.Trace("rates", data):
                    self._recorder.rates(data)
                case t.Trace("latency", data):
                    self._recorder.latency(data)
                case t.Trace("prediction", data):
                    self._recorder.prediction(data["entry"])
                case t.Block(block, vm, predicted):
                    self._recorder.block(block, vm, predicted)

    def _begin_trace(self, run: dict[str, Any]) -> None:
        if self._place.trace is None or self._recorder is not None:
            return
        self._run = run
        with self._disk.writing("the trace", self._place.trace):
            letters = self._letters.whole()
            self._recorder = Recorder(self._place.trace, run, self._place.keep, partial(_say, "info"))
            self._recorder.letters(letters)
            self._viewers.record(self._recorder.view)
            self._ports.output.record(self._recorder.output)
            self._run = None
            for now, event in self._early.take():
                self._recorder.input(now, kind_of(event), event)

    def _record_input(self, now: t.Now, event: t.Event) -> None:
        if self._recorder is not None:
            self._recorder.input(now, kind_of(event), event)
        elif self._place.trace is not None:
            self._early.add(now, event)


def _now() -> t.Now:
    return t.Now(monotonic_ns(), wall_ns())


def _reach(records: tuple[Record, ...], moment: str) -> None:
    """Failpoints of an enactment that enters a phase."""
    for record in records:
        if isinstance(record, RolloutStarted | PhaseEntered):
            phase = record.phase if isinstance(record, PhaseEntered) else "prepared"
            processes.reach(f"controller.{phase}-{moment}", record.epoch)


def kind_of(event: t.Event) -> str:
    """The tag by which an event is known in the trace."""
    return str(type(event).__struct_config__.tag)


def _say(level: str, text: str) -> None:
    if level != "debug":
        text = visible(text)
        print("controller:", text if level == "info" else f"{level}: {text}", file=sys.stderr, flush=True)
