"""The agent of one VM: a shell round `AgentState`.

One thread, one loop: it waits for the controller, the workers, the ends of workers (pidfds) and signals,
turns what comes into events, and performs the instructions. Signal handlers only record.

    startup     folder, descriptors, slots, channels
    main_loop   wait, hear, reap, tick
    on_tick     time: reports, hung workers, samples
    shutdown    whatever happened: no worker and no control group stays behind
"""

from __future__ import annotations

import logging
import os
import signal
from collections import deque
from contextlib import ExitStack
from types import FrameType

from msgspec import structs

from headgate.agent.core import agent_events as e
from headgate.agent.core.agent_state import AgentState
from headgate.agent.core.package_state import paths_on, variables_on, with_code
from headgate.agent.process import agent_files, agent_startup
from headgate.agent.process.agent_config import AgentConfig
from headgate.agent.reports.agent_metrics import AgentMetricsPort
from headgate.agent.reports.loop_speed import LoopSpeed
from headgate.agent.reports.sampler import Sampler
from headgate.agent.reports.uplink import Uplink
from headgate.agent.slots.agent_packages import Packages
from headgate.agent.slots.profile_slots import ProfileSlots
from headgate.agent.slots.slot_output import SlotOutput
from headgate.agent.slots.worker_port import WorkerPort
from headgate.agent.slots.worker_supervisor import Supervisor, WorkerEnd, WorkerProcess
from headgate.topology_runtime.errors import Conflict, HeadgateError
from headgate.topology_runtime.keys import curve
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.keys.worker_keys import WorkerKeys
from headgate.topology_runtime.platform import clock, processes
from headgate.topology_runtime.platform.clock import monotonic_ns, wall_ns
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.platform.service_notify import ServiceNotes
from headgate.topology_runtime.wire import channels
from headgate.topology_runtime.wire.channels import Waiter, Waker
from headgate.topology_runtime.wire.dead_letter_spool import left_before, left_by
from headgate.topology_runtime.wire.messages import (
    ClockOff,
    DeadLetters,
    DesiredState,
    FinishedKept,
    FromAgentToWorker,
    FromWorker,
    Goodbye,
    Hello,
    PackageOffer,
    PackagePart,
    Report,
    WorkerHello,
    WorkerReport,
)
from headgate.topology_runtime.wire.report_messages import Profiled
from headgate.topology_runtime.wire.state_questions import StateAnswer, StateQuestion
from headgate.topology_runtime.wire.wire_version import WIRE

NS = 1_000_000_000
TURN_NS = NS // 4  # the loop looks around at least this often
HANG_EVERY_NS = NS // 2
KEY_EVERY_NS = NS
SAMPLE_EVERY_NS, SAMPLE_RARELY_NS, SAMPLE_SOON_NS = NS, 5 * NS, NS // 4
SAMPLE_BUDGET = 0.01  # of a core; a costlier block makes the next one later
LAST_BLOCKS_MOST = 64  # at the end, so much of what is not sent yet is
KILL_TIMEOUT_S = 2.0
SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

log = logging.getLogger("headgate.agent")


class Agent:
    """See the module's text. `config` has been checked."""

    def __init__(self, config: AgentConfig) -> None:
        self.config = config
        self.signals: deque[int] = deque()
        self.peers: dict[int, bytes] = {}
        self.ended: e.Exit | None = None
        self._undo = ExitStack()
        self._max_call_ns: dict[int, int] = {}
        self._names: tuple[str, ...] = ()
        self._sources: tuple[str, ...] = ()
        self._hang_due_ns = self._sample_due_ns = self._output_due_ns = self._key_due_ns = 0
        self._key_fault = ""
        self.metrics: AgentMetricsPort | None = None
        self.disk = DiskTroubles()
        self.notes = ServiceNotes()
        self._disk_told = e.DiskSeen(())
        self._taken_up = False

    # ── outline ─────────────────────────────────────────────────────────────────────────────────

    def run(self) -> None:
        """The agent's life. Raises HeadgateError when it cannot begin, or is refused."""
        try:
            self.startup()
            self.notes.ready()
            self.main_loop()
        finally:
            self.shutdown()
        assert self.ended is not None
        log.info("ended: %s", self.ended.reason)
        if any(bad := (self.uplink.bad, self.workers_port.dropped)):
            log.warning("unreadable messages: %d of the controller, %d of workers", *bad)
        if self.ended.error:
            raise Conflict(f"the controller refuses the agent of {self.config.vm}", cause=self.ended.error)

    def startup(self) -> None:
        """Acquire what the agent needs; `shutdown` gives back what was acquired, last things first."""
        config, undo = self.config, self._undo
        self.wake = Waker()
        undo.callback(self.wake.close)
        undo.callback(self._ignore_signals)
        self._catch_signals()
        if config.owner:
            agent_startup.end_with(config.owner)
        undo.callback(os.close, agent_startup.lock(config.directory, config.vm))
        boot = agent_startup.next_boot(config.directory, self.disk)
        agent_startup.raise_file_limit()
        self.binding, why = agent_startup.bind_slots(config)
        undo.callback(self._give_back)
        self.worker_user = agent_startup.contain(config, undo)
        undo.callback(channels.context().term)  # waits for the last words to leave
        self.loop_speed = LoopSpeed()
        now_ns = monotonic_ns()
        keys = WorkerKeys()
        self.workers_port = WorkerPort(keys, config.at.advertise)
        undo.callback(self.workers_port.channel.close, 0)
        self.uplink = Uplink(agent_startup.contacts(config), now_ns)
        undo.callback(self.uplink.close)
        self.packages = Packages(config, boot, self.uplink.send)
        undo.callback(self.packages.close)
        self.sampler = Sampler(config.vm, boot, self.binding, config.work, now_ns)
        undo.callback(self.sampler.close)
        endpoint = self.workers_port.channel.endpoint
        self.supervisor = Supervisor(config, self.binding, endpoint, keys, self.worker_user)
        undo.callback(self._end_workers)
        self.output = SlotOutput(config.vm, boot, config.slots, self.supervisor.log_path, self.disk)
        undo.callback(self.output.close)
        self.spare = ProfileSlots(config, self.binding, self.worker_user)
        undo.callback(self.spare.close)
        hello = agent_startup.hello(config, boot, self.binding, self.packages.only_signed, self.worker_user)
        self.state = AgentState(structs.replace(hello, loop=self.loop_speed.seen), now_ns)
        if config.metrics is not None:
            self.metrics = AgentMetricsPort(config.vm, config.metrics)
            undo.callback(self.metrics.close)
            log.info("metrics are served on %s", self.metrics.address)
        self._watch_all()
        log.info("agent of %s, %d slots of %g cores; %s", config.vm, config.slots, config.slot_cores, why)
        self.do(e.Tick())

    def main_loop(self) -> None:
        while self.ended is None:
            ready = self.waiter.wait(max(0, self._due_ns() - monotonic_ns()) / NS)
            self.wake.clear()
            self._hear_signals()
            self._hear_controller()
            self.workers_port.hear(self._on_worker)
            self._reap({fd for fd in ready if isinstance(fd, int)})
            self.on_tick(monotonic_ns())
            self.notes.alive(monotonic_ns())

    def on_tick(self, now_ns: int) -> None:
        """What is done because time has passed."""
        if self.config.owner and os.getppid() != self.config.owner and not self.state.stopping:
            self.do(e.OwnerGone())
        if now_ns >= self._hang_due_ns:
            self._hang_due_ns = now_ns + HANG_EVERY_NS
            self._look_for_hung(now_ns)
        if now_ns >= self._sample_due_ns:
            self._sample(now_ns)
        if now_ns >= self._output_due_ns and self.uplink.wire >= WIRE and self.uplink.hears(now_ns):
            self._output_due_ns = now_ns + (TURN_NS if not self._send_output(now_ns) else TURN_NS // 4)
        if now_ns >= self.state.wake_ns:
            self._read_sources()
            self.do(e.Tick())
        self.packages.tick(now_ns)
        self.loop_speed.look(now_ns, idle=not self.supervisor.workers and not self.spare.pidfds)
        self._look_at_key(now_ns)
        if self.uplink.refresh(now_ns):
            self._watch_all()
        for slot in self.peers if self.uplink.correct_clock() else ():
            self._send_worker(slot, ClockOff(self.uplink.told_ns, clock.HERE.ahead_ns))

    def _look_at_key(self, now_ns: int) -> None:
        """Is there another key in its file? Then it changes to that; what cannot be read is said, once."""
        if now_ns < self._key_due_ns:
            return
        self._key_due_ns = now_ns + KEY_EVERY_NS
        try:
            self.uplink.change_key(agent_startup.contacts(self.config))
            self._key_fault = ""
        except HeadgateError as error:
            if str(error) != self._key_fault:
                log.error("the key in use stays: %s", error)
            self._key_fault = str(error)

    def shutdown(self) -> None:
        """Undo what startup did, as far as it came."""
        self._undo.close()

    def _end_workers(self) -> None:
        for worker in self.supervisor.end_all(KILL_TIMEOUT_S):
            log.warning("the worker of slot %d was killed", worker.slot)

    # ── startup ─────────────────────────────────────────────────────────────────────────────────

    def _watch_all(self) -> None:
        fds = [self.wake.fd, *self.spare.pidfds, *(w.pidfd for w in self.supervisor.workers.values())]
        self.waiter = Waiter([self.uplink.channel, self.workers_port.channel], fds)

    def _catch_signals(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # an ignored one would lose exit codes
        for number in SIGNALS:
            signal.signal(number, self._on_signal)

    def _ignore_signals(self) -> None:
        """The end is near anyway, and nobody listens any more."""
        for number in SIGNALS:
            signal.signal(number, signal.SIG_IGN)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.signals.append(number)
        self.wake.set()

    # ── hearing ─────────────────────────────────────────────────────────────────────────────────

    def _due_ns(self) -> int:
        due_ns = min(self.state.wake_ns, self._sample_due_ns, self._hang_due_ns)
        return min(due_ns, monotonic_ns() + TURN_NS)

    def _hear_signals(self) -> None:
        while self.signals:
            self.do(e.StopAsked(f"signal {signal.Signals(self.signals.popleft()).name}"))

    def _hear_controller(self) -> None:
        for message, data in self.uplink.receive():
            since_ns = self.uplink.heard(monotonic_ns())
            if since_ns is not None:
                self.sampler.finished.rewind(since_ns)
            if isinstance(message, PackageOffer | PackagePart):
                self.packages.hear(message, monotonic_ns())
            elif isinstance(message, DesiredState):
                if (here := self.packages.local(message, data, monotonic_ns())) is not None:
                    self._obey(*here)
            elif isinstance(message, StateQuestion):
                self._send_worker(message.slot.number, message)
            elif isinstance(message, FinishedKept):
                with self.disk.writing("the logs of finished rows", self.config.work):
                    self.sampler.trim(message)
            else:
                self.do(message)

    def _obey(self, desired: DesiredState, data: bytes) -> None:
        """First what the topology says about names and limits."""
        if self.state.run not in ("", desired.run):
            return self.do(e.WantedArrived(desired, data, {}))  # which ends this life
        self._take_up(desired.run)
        self.supervisor.code = paths_on(desired, self.config.vm)
        self.supervisor.variables = variables_on(desired, self.config.vm)
        processes.hide_variables(self.supervisor.variables)
        self.sampler.obey(desired)
        with self.disk.writing("the note of the run", self.config.work):
            self.sampler.finished.begin(desired.run)  # tried again with the next state
        tasks = desired.topology.tasks
        self._names = tuple(task.name for task in tasks)
        self._sources = tuple(task.name for task in desired.topology.sources)
        self._max_call_ns = {number: int(task.max_call_s * NS) for number, task in enumerate(tasks)}
        self._reach(desired, "heard")
        older = {code.number: channels.encode(with_code(desired, code)) for code in desired.older}
        self.do(e.WantedArrived(desired, data, older))
        self._reach(desired, "obeyed")

    def _take_up(self, run: str) -> None:
        """What an earlier life left of this run; what is of another one goes. Once."""
        if self._taken_up:
            return
        self._taken_up = True
        struck = agent_files.load_failures(self.config.directory, run)
        with self.disk.writing("the note of the run", self.config.work):
            agent_files.keep_states_of(self.config.work, run)
        self.state.take_up(struck, left_before(self.config.work, run))

    def _on_worker(self, peer: bytes, who: Who, message: FromWorker) -> None:
        worker = self.supervisor.speaking(who, message)
        if worker is None:
            return
        if isinstance(message, StateAnswer):
            return self.uplink.send(structs.replace(message, vm=self.config.vm))
        if isinstance(message, WorkerReport):
            self.sampler.user.add(message.metrics)
        if worker.slot in self.peers or isinstance(message, WorkerHello):
            self.peers[worker.slot] = peer  # its link may be a new one
        if isinstance(message, WorkerHello):
            self._send_worker(worker.slot, ClockOff(self.uplink.told_ns, clock.HERE.ahead_ns))
            try:
                self.supervisor.bind(worker)
            except OSError as error:
                log.error("slot %d cannot be bound: %s", worker.slot, error)
                self.supervisor.kill(worker, f"its slot cannot be bound: {error}")
                return
        self.do(message)

    def _reap(self, ready: set[int]) -> None:
        for over in filter(None, map(self._end_profile, self.spare.ended(ready))):
            self.do(over)
        for worker in [w for w in self.supervisor.workers.values() if w.pidfd in ready]:
            end = self.supervisor.reap(worker)
            if end is not None:
                self.waiter.remove(worker.pidfd)
                self._on_exit(worker, end)

    def _on_exit(self, worker: WorkerProcess, end: WorkerEnd) -> None:
        (log.info if end.clean else log.warning)("the worker of slot %d ended: %s", worker.slot, end.how)
        self.peers.pop(worker.slot, None)
        self._read_sources_of(worker)
        self.sampler.over(worker.slot, worker.incarnation)
        calls = self.supervisor.under_way(worker, self._names, self._sources)
        state, left = self.state.slots[worker.slot], (calls, worker.reader.unlogged)
        rest = (
            left_by(self.config.work, worker.slot, worker.incarnation, state.letters),
            agent_files.left_over(self.config.work),
        )
        self.do(e.WorkerExited(state.slot, worker.incarnation, *end, *left, *rest))

    # ── time ────────────────────────────────────────────────────────────────────────────────────

    def _read_sources(self) -> None:
        for worker in list(self.supervisor.workers.values()):
            self._read_sources_of(worker)

    def _read_sources_of(self, worker: WorkerProcess) -> None:
        sources = worker.reader.sources(self._names) if self._names else ()
        if sources:
            self.do(e.SourcesRead(self.state.slots[worker.slot].slot, worker.incarnation, sources))

    def _look_for_hung(self, now_ns: int) -> None:
        self.supervisor.trim_logs(self.disk)
        left = agent_files.left_over(self.config.work) if self.state.spools_left else None
        troubles = self.disk.texts() + self.packages.troubles() + curve.troubles()
        seen = e.DiskSeen(troubles, left)
        if seen != self._disk_told or left is not None:
            self._disk_told = seen
            self.do(seen)
        for stands in self.spare.stands():
            self.do(stands)
        for worker in self.supervisor.workers.values():
            worker.reader.be_careful(self.state.failures.careful(worker.slot, now_ns))
        for worker in self.supervisor.end_beyond(now_ns):
            log.warning("the worker of slot %d is ended: %s", worker.slot, worker.beyond)
        for worker, hang in self.supervisor.hung(now_ns, self._max_call_ns):
            log.warning("the worker of slot %d hangs: %s", worker.slot, hang.why)
            self.do(e.WorkerHung(self.state.slots[worker.slot].slot, worker.incarnation, *hang))

    def _sample(self, now_ns: int) -> None:
        """Send a block. The next one is due in a second: earlier while finished rows wait, later if this
        one was beyond its budget."""
        block = self.sampler.block(now_ns, wall_ns(), self.state.token.epoch)
        every_ns = SAMPLE_EVERY_NS
        if block is not None:
            self.uplink.send(block)
            every_ns = max(every_ns, min(SAMPLE_RARELY_NS, int(block.cost_ns / SAMPLE_BUDGET)))
        if self.metrics is not None:
            bad = self.uplink.bad, self.workers_port.dropped
            self.metrics.look(self.state.slots.values(), bad, block.cost_ns if block is not None else 0)
        if self.sampler.behind():
            every_ns = SAMPLE_SOON_NS
        late = now_ns - self._sample_due_ns >= every_ns
        self._sample_due_ns = now_ns + every_ns if late else self._sample_due_ns + every_ns

    def _send_output(self, now_ns: int) -> bool:
        """What slots say; True when there was something."""
        lines = self.output.take(now_ns, wall_ns(), self.supervisor.workers)
        if lines is not None:
            self.uplink.send(lines)
        return lines is not None

    # ── doing ───────────────────────────────────────────────────────────────────────────────────

    def do(self, event: e.Event) -> None:
        """One event, and what follows from it."""
        events = deque([event])
        while events:
            for instruction in self.state.step(events.popleft(), monotonic_ns()):
                follows = self._perform(instruction)
                if follows is not None:
                    events.append(follows)

    def _perform(self, instruction: e.Instruction) -> e.Event | None:
        match instruction:
            case e.SpawnWorker():
                return self._spawn(instruction)
            case e.ToWorker(slot, _, message):
                self._send_worker(slot.number, message)
            case e.SaveFailures(struck):
                with self.disk.writing("what failed", self.config.directory):
                    agent_files.save_failures(self.config.directory, self.state.run, struck)
            case e.DumpWorker() | e.KillWorker():
                self._signal(instruction)
            case e.StartProfile():
                return self._start_profile(instruction)
            case e.EndProfile(number):
                return self._end_profile(number)
            case Report():
                seen = {"clock": self.uplink.offset_ns(), "loop": self.loop_speed.seen}
                self.uplink.send(structs.replace(instruction, **seen))
                if self.state.desired is not None:
                    self._reach(self.state.desired, "reported")
            case Hello() | DeadLetters() | Profiled():
                self.uplink.send(instruction)
            case e.DropDeadLetters():
                with self.disk.writing("dead letters that are reported", self.config.work):
                    self.supervisor.drop_dead_letters()
            case Goodbye():
                self._send_rest()
                self._give_back()
                self.uplink.send(instruction)
            case e.ControllerChanged():
                self.sampler.finished.rewind()
            case e.Note(text):
                log.warning("%s", text)
            case e.Exit():
                self.ended = instruction
        return None

    def _reach(self, desired: DesiredState, moment: str) -> None:
        """A failpoint: this agent and the newest desired state it heard of."""
        processes.reach(f"agent.{self.config.vm}.{desired.phase}-{moment}", desired.token.epoch)

    def _spawn(self, order: e.SpawnWorker) -> e.Event | None:
        slot = order.slot.number
        try:
            worker = self.supervisor.spawn(slot, order.incarnation)
        except OSError as error:
            log.error("the worker of slot %d cannot be started: %s", slot, error)
            return e.WorkerExited(order.slot, order.incarnation, f"it cannot be started: {error}")
        self.waiter.add(worker.pidfd)
        worker.reader.be_careful(self.state.failures.careful(slot, monotonic_ns()))
        self.sampler.watch(slot, order.incarnation, worker.pid, worker.reader)
        return None

    def _start_profile(self, order: e.StartProfile) -> e.Event | None:
        failed = self.spare.start(order)
        self._watch_all()
        return failed

    def _end_profile(self, number: int) -> e.ProfileEnded | None:
        ended = self.spare.end(number)
        self._watch_all()
        return ended

    def _send_worker(self, slot: int, message: FromAgentToWorker | bytes) -> None:
        """To the slot's worker, if it has said hello (else it gets it when it does)."""
        if slot in self.peers:
            self.workers_port.channel.send(self.peers[slot], message)

    def _signal(self, order: e.DumpWorker | e.KillWorker) -> None:
        worker = self.supervisor.present(order.slot.number, order.incarnation)
        if worker is None:
            return  # it ended by itself meanwhile
        if isinstance(order, e.DumpWorker):
            self.supervisor.dump(worker)
        else:
            log.warning("the worker of slot %d is killed: %s", worker.slot, order.why)
            self.supervisor.kill(worker, order.why)

    def _send_rest(self) -> None:
        """The last samples, and finished rows as far as there are any; what slots said last."""
        for _ in range(LAST_BLOCKS_MOST if self.uplink.wire >= WIRE else 0):
            if not self._send_output(monotonic_ns()):
                break
        for _ in range(LAST_BLOCKS_MOST):
            block = self.sampler.block(monotonic_ns(), wall_ns(), self.state.token.epoch)
            if block is not None:
                self.uplink.send(block)
            if not self.sampler.behind():
                return

    def _give_back(self) -> None:
        for name in self.binding.cleanup():
            log.error("%s cannot be removed", name)
