"""The agent's mind: which workers there are, which are desired, what the controller is told.

Pure: `step(event, now_ns) → [instruction]`, with `now_ns` monotonic; agent.py performs the instructions,
the simulator too. Rules:
 1. Only the highest token counts (boot, epoch, counter). An equal one is forwarded again: barriers are states.
 2. A slot with desired threads has a worker. One that dies is replaced at once under a higher incarnation; after the
    fourth crash within 60 s the slot is quarantined until a later epoch puts threads into it, or for a minute while its
    own are still desired there. A loss that is some row's doing is counted for the row (strikes.py), not for the slot.
 3. A worker leaves by itself when none of its threads is desired; that is no crash.
 4. A report goes out on every change, and every 0.5 s; HELLO until welcomed, when the controller's boot
    changes, and while the controller is not heard.
 5. A controller of a lower boot than one already heard is not obeyed.
 6. The end: workers are told to quit, killed 1 s later, and the last words are report and goodbye.
 7. The controller's answers to reports grant a lease (lease.py); workers with exclusive threads are told of
    it after the desired state for which it was granted.
 8. A worker runs one code: where its slot is to run another, it is told to quit and a new one is started.
 9. A profile runs in a slot without threads and without a worker, and ends before one starts there.
"""

from __future__ import annotations

from collections.abc import Mapping

from headgate.agent import events as e
from headgate.agent.lease import VmLease
from headgate.agent.letters import LetterBox
from headgate.agent.profile_state import ProfileState
from headgate.agent.slot_state import NS, SlotState
from headgate.agent.source_positions import SourcePositions
from headgate.agent.strikes import Strikes, UnderWay, described
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import (
    DeadLetter,
    DesiredState,
    Goodbye,
    Hello,
    LettersTaken,
    Report,
    SendAgain,
    Shutdown,
    Token,
    Welcome,
    WorkerHello,
    WorkerReport,
)
from headgate.topology_runtime.struck import Poisoned
from headgate.topology_runtime.wire_version import controller_fault

REPORT_EVERY_NS = NS // 2
REPORT_GAP_NS = NS // 200  # changes closer together than this share a report
HELLO_EVERY_NS = NS // 2
SILENT_NS = 3 * NS // 2  # a controller not heard for so long is told again who is here
QUIT_LIMIT_NS = NS  # from "quit" to the kill
LEAVE_LIMIT_NS = 5 * NS  # a worker that leaves by itself may have user objects to close
DUMP_NS = NS // 5  # from the order to write stacks to the kill
STOP_LIMIT_NS = 5 * NS  # a process that a kill does not end (uninterruptible I/O) is left behind, loudly
TROUBLES_MOST = 16  # told of a disk


class AgentState:
    """One agent's life. `hello` is who it is; its `boot` is the UTC time in ns at `now_ns`. letters: those that
    workers of an earlier life left on this VM's disk."""

    def __init__(self, hello: Hello, now_ns: int, letters: tuple[DeadLetter, ...] = ()) -> None:
        self.hello = hello
        self.slots = {number: SlotState(Slot(hello.vm, number)) for number in range(hello.slots)}
        self.desired: DesiredState | None = None
        self.profile = ProfileState(hello.vm)
        self.strikes = Strikes()
        self.token = Token()
        self.lease = VmLease()
        self.controller_boot = 0
        self.sequence = 0
        self.stopping = ""
        self.refused = ""
        self._data: Mapping[int, bytes] = {}  # desired, by the number of the code
        self._troubles: tuple[str, ...] = ()
        self.spools_left = hello.spools
        self.positions = SourcePositions()
        self._letters = LetterBox(hello.vm, hello.boot, letters)
        self._started_ns = now_ns
        self._heard_ns = self._hello_ns = self._report_ns = self._stop_ns = -1
        self._told: object = None
        self._changed = False  # is there news that no report has told?
        self._asked_to_stop = False
        self._exiting = False

    # ── the step ────────────────────────────────────────────────────────────────────────────────

    def step(self, event: e.Event, now_ns: int) -> list[e.Instruction]:
        """What to do about one event."""
        if self._exiting:
            return []
        out = self._hear(event, now_ns)
        out += self.profile.due(now_ns)
        out += self._spawn_desired(now_ns)
        out += self._kill_overdue(now_ns)
        out += [e.ForgetLetters()] if self._letters.over() else []
        ending = self._end(now_ns)
        return out + (ending or self._speak(now_ns))

    @property
    def wake_ns(self) -> int:
        """When the next Tick is due (monotonic; in the past: now)."""
        due = [self._next_word_ns()]
        due += [s.kill_at_ns for s in self.slots.values() if s.kill_at_ns is not None and s.live]
        if self.stopping:
            due.append(self._stop_ns + STOP_LIMIT_NS)
        due += self.profile.ends_ns
        return min(due)

    def validate(self) -> None:
        """Raises AssertionError when the state contradicts itself (called in every test)."""
        for state in self.slots.values():
            live = state.live
            assert state.incarnation > 0 or state.status == "empty"
            assert live or not state.endpoint, f"{state.slot}: an endpoint without a worker"
            assert live or state.kill_at_ns is None, f"{state.slot}: a kill without a worker"
            for thread in state.desired:
                assert thread.slot == state.slot
            assert not state.ended or set(state.ended) <= {t.thread for t in state.desired}
            assert not (live and self.profile.uses(state.slot)), f"{state.slot}: a worker and a profile"
        assert self.desired is None or self.desired.token == self.token

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def _hear(self, event: e.Event, now_ns: int) -> list[e.Instruction]:
        match event:
            case e.WantedArrived(desired, data):
                return self._on_desired(desired, {desired.code: data, **event.older}, now_ns)
            case Welcome():
                return self._on_welcome(event, now_ns)
            case LettersTaken():
                self._letters.taken(event)
            case SendAgain(boot, slot, incarnation) if boot == self.controller_boot:
                return [e.PassOn(slot, incarnation, event)] if self._present(slot, incarnation) else []
            case Shutdown(token, reason):
                return self._on_shutdown(token, reason, now_ns)
            case WorkerHello():
                return self._on_worker_hello(event)
            case WorkerReport():
                return self._on_worker_report(event, now_ns)
            case e.SourcesRead(_, incarnation, sources):
                self.positions.note(incarnation, sources)
            case e.WorkerExited():
                return self._on_exit(event, now_ns)
            case e.WorkerHung():
                return self._on_hung(event, now_ns)
            case e.ProfileEnded():
                return self.profile.ended(event)
            case e.ProfileStands():
                self.profile.stands(event)
            case e.DiskSeen(troubles, spools):
                self._troubles, self.spools_left = troubles, self.spools_left if spools is None else spools
            case e.StopAsked(reason):
                return self._on_stop_asked(reason, now_ns)
            case e.OwnerGone():
                return self._stop("its owner is gone", now_ns)
        return []

    def _on_desired(
        self, desired: DesiredState, data: Mapping[int, bytes], now_ns: int
    ) -> list[e.Instruction]:
        if desired.token.boot < self.controller_boot:
            return []
        self._heard_ns = now_ns
        if desired.token < self.token or self.stopping:
            return []
        notes = self._note_strangers(desired) if desired.token > self.token else []
        self.desired, self._data, self.token = desired, data, desired.token
        for number, state in self.slots.items():
            slot = Slot(self.hello.vm, number)
            state.want(tuple(t for t in desired.threads if t.slot == slot), desired.token.epoch)
        here = {t.thread for state in self.slots.values() for t in state.desired}
        self.positions.want(here, {t.thread for t in desired.threads})
        free = {state.slot for state in self.slots.values() if not state.desired and not state.live}
        notes += self.profile.want(desired, free, now_ns)
        heard = self.strikes.hear(tuple(n for vm, n in desired.strikes if vm != self.hello.vm), now_ns)
        for state in [
            s for s in self.slots.values() if s.live and (s.code != s.code_desired or s.code not in data)
        ]:
            notes += self._quit(state, "its slot is to run other code", now_ns)
        for state in [s for s in self.slots.values() if s.status == "running"]:
            notes += self._poisoned(state) if heard else []
            notes += self._forward(state)
        return notes

    def _forward(self, state: SlotState) -> list[e.Instruction]:
        """The desired state, with the code of the slot's worker; nothing when its threads there are of another code."""
        data = self._data.get(state.code)
        if data is None or state.code != state.code_desired:
            return []
        return [e.ForwardWanted(state.slot, state.incarnation, data), *self._lease_of(state)]

    def _note_strangers(self, desired: DesiredState) -> list[e.Instruction]:
        """Slots that the controller wants used and that this VM does not have."""
        vm = self.hello.vm
        odd = {t.slot for t in desired.threads if t.slot.vm == vm and t.slot.number not in self.slots}
        return [e.Note(f"threads are desired in slot {s}, which this VM does not have") for s in sorted(odd)]

    def _on_welcome(self, welcome: Welcome, now_ns: int) -> list[e.Instruction]:
        if welcome.boot < self.controller_boot:
            return []
        self._heard_ns = now_ns
        fault = controller_fault(welcome.protocol, welcome.version, self.hello.version)
        if welcome.refused or fault:
            self.refused = welcome.refused or fault
            return self._stop(f"refused: {self.refused}", now_ns)
        leased = self._on_lease(welcome)
        if welcome.boot == self.controller_boot:
            return leased
        first, self.controller_boot = self.controller_boot == 0, welcome.boot
        self._told = None
        self._report_ns = -1
        if first:
            return [*leased, *self._letters_again(now_ns)]
        self._hello_ns = now_ns
        said = e.SendHello(self.hello), e.ControllerChanged(welcome.boot)
        return [*leased, *said, *self.profile.stop(), *self._letters_again(now_ns)]

    def _on_lease(self, welcome: Welcome) -> list[e.Instruction]:
        """Rule 7. (An answer to another life of this agent grants nothing.)"""
        boot, sequence = welcome.leased
        if boot != self.hello.boot or not self.lease.answered(sequence):
            return []
        running = [state for state in self.slots.values() if state.status == "running"]
        return [told for state in running for told in self._lease_of(state)]

    def _lease_of(self, state: SlotState) -> list[e.Instruction]:
        """What a worker is told of the lease; nothing when no exclusive thread is desired there."""
        tasks = self.desired.topology.by_name if self.desired is not None else {}
        if not any(tasks[t.task].exclusive for t in state.desired) or not self.lease.until_ns:
            return []
        return [e.SendLease(state.slot, state.incarnation, self.lease.until_ns)]

    def _letters_again(self, now_ns: int) -> list[e.Instruction]:
        return [e.SendDeadLetters(letters) for letters in self._letters.again(now_ns)]

    def _on_shutdown(self, token: Token, reason: str, now_ns: int) -> list[e.Instruction]:
        if token < self.token or token.boot < self.controller_boot:
            return []
        self._heard_ns = now_ns
        return self._stop(reason or "the run is over", now_ns)

    def _on_stop_asked(self, reason: str, now_ns: int) -> list[e.Instruction]:
        if self._asked_to_stop:
            for state in self.slots.values():
                if state.live:
                    state.kill_at(now_ns, "the agent was asked twice to end")
        self._asked_to_stop = True
        return self._stop(reason, now_ns)

    def _stop(self, reason: str, now_ns: int) -> list[e.Instruction]:
        """Begin the end (rule 6)."""
        if self.stopping:
            return []
        self.stopping, self._stop_ns = reason, now_ns
        out = self.profile.stop()
        for state in self.slots.values():
            out += self._quit(state, reason, now_ns) if state.live else []
        return out

    def _quit(self, state: SlotState, reason: str, now_ns: int) -> list[e.Instruction]:
        if state.quitting:
            return []
        state.quitting = True
        state.kill_at(now_ns + QUIT_LIMIT_NS, "it did not quit in time")
        return [e.SendQuit(state.slot, state.incarnation, reason)]

    # ── workers ─────────────────────────────────────────────────────────────────────────────────

    def _present(self, slot: Slot, incarnation: int) -> SlotState | None:
        """The slot's state if this is its worker of now."""
        state = self.slots.get(slot.number) if slot.vm == self.hello.vm else None
        return state if state is not None and state.live and state.incarnation == incarnation else None

    def _on_worker_hello(self, hello: WorkerHello) -> list[e.Instruction]:
        state = self._present(hello.slot, hello.incarnation)
        if state is None:
            return []
        state.running(hello.endpoint)
        if state.quitting:
            return [
                e.SendQuit(state.slot, state.incarnation, self.stopping or "its slot is to run other code")
            ]
        out: list[e.Instruction] = list(self._poisoned(state))
        return out + self._forward(state)

    def _on_worker_report(self, report: WorkerReport, now_ns: int) -> list[e.Instruction]:
        state = self._present(report.slot, report.incarnation)
        if state is None:
            return []
        state.report(report)
        self.positions.note(report.incarnation, report.sources)
        if report.leaving:
            state.kill_at(now_ns + LEAVE_LIMIT_NS, "it said that it leaves and did not")
        return [e.SendDeadLetters(letters) for letters in self._letters.add(report.letters, now_ns)]

    def _on_exit(self, event: e.WorkerExited, now_ns: int) -> list[e.Instruction]:
        state = self._present(event.slot, event.incarnation)
        if state is None:
            return []
        blamed, out = self._blame(state, event, now_ns)
        state.unlogged += event.unlogged
        out += [e.SendDeadLetters(said) for said in self._letters.add(event.letters, now_ns, left=True)]
        self.spools_left = self.spools_left if event.spools is None else event.spools
        before = state.given_up
        state.exited(event.how, event.clean, now_ns, self.token.epoch, blamed)
        if state.given_up and not before:
            why = f"after {len(state.crashed_ns)} crashes, the last: {event.how}"
            out.append(e.Note(f"slot {state.slot} is quarantined {why}"))
        return out

    def _blame(
        self, state: SlotState, event: e.WorkerExited, now_ns: int
    ) -> tuple[bool, list[e.Instruction]]:
        """Was the worker lost in user code, and in which call? True when that is known."""
        if state.quitting or not (event.by_itself or state.hung >= 0):
            return False, []
        why = self._no_answer(event.calls, state.hung) if state.hung >= 0 else f"its worker died: {event.how}"
        struck = self.strikes.lost(state.slot.number, event.calls, state.hung, why, now_ns)
        if struck is None:
            return False, []
        out: list[e.Instruction] = [
            e.Note(described(struck)),
            e.SaveStruck(tuple(self.strikes.struck.values())),
        ]
        for other in self.slots.values():
            if other.status == "running" and other is not state:
                out += self._poisoned(other)
        return True, out

    def _no_answer(self, calls: tuple[UnderWay, ...], hung: int) -> str:
        tasks = self.desired.topology.by_name if self.desired is not None else {}
        limits = [tasks[call.task].max_call_s for call in calls if call.thread == hung and call.task in tasks]
        return f"hung: no answer within max_call_s={limits[0]:g}" if limits else "hung: no answer in time"

    def _poisoned(self, state: SlotState) -> list[e.SendPoisoned]:
        poison = self.strikes.poison
        return [e.SendPoisoned(state.slot, state.incarnation, Poisoned(poison))] if poison else []

    def _on_hung(self, event: e.WorkerHung, now_ns: int) -> list[e.Instruction]:
        state = self._present(event.slot, event.incarnation)
        if state is None or state.kill_at_ns is not None:
            return []
        state.kill_at(now_ns + DUMP_NS, f"hung, {event.why}")
        state.hung = event.thread
        return [e.DumpWorker(state.slot, state.incarnation)]

    def _spawn_desired(self, now_ns: int) -> list[e.Instruction]:
        """Rule 2."""
        if self.stopping:
            return []
        out: list[e.Instruction] = []
        for state in self.slots.values():
            if state.try_again(now_ns):
                out.append(e.Note(f"slot {state.slot} is tried again: nothing took its threads"))
            if state.lacks_worker(now_ns):
                state.spawned(self._incarnation(state, now_ns), now_ns)
                out.append(e.SpawnWorker(state.slot, state.incarnation))
        return out

    def _incarnation(self, state: SlotState, now_ns: int) -> int:
        """UTC ns by this agent's own clock, and in any case higher than every one heard of."""
        named = (w.incarnation for w in self.desired.workers if w.slot == state.slot) if self.desired else ()
        wall_ns = self.hello.boot + now_ns - self._started_ns
        return max(wall_ns, state.incarnation + 1, *(n + 1 for n in named))

    def _kill_overdue(self, now_ns: int) -> list[e.Instruction]:
        due = [state for state in self.slots.values() if state.kill_due(now_ns)]
        return [e.KillWorker(state.slot, state.incarnation, state.kill_why) for state in due]

    # ── words ───────────────────────────────────────────────────────────────────────────────────

    def _next_word_ns(self) -> int:
        """When the next HELLO or report is due."""
        hello_ns = self._hello_ns + HELLO_EVERY_NS
        if self.controller_boot == 0:
            return hello_ns
        heartbeat_ns = self._report_ns + (REPORT_GAP_NS if self._changed else REPORT_EVERY_NS)
        return min(heartbeat_ns, max(hello_ns, self._heard_ns + SILENT_NS))

    def _speak(self, now_ns: int) -> list[e.Instruction]:
        """Rule 4."""
        out: list[e.Instruction] = []
        silent = self.controller_boot == 0 or now_ns - self._heard_ns >= SILENT_NS
        if silent and (self._hello_ns < 0 or now_ns - self._hello_ns >= HELLO_EVERY_NS):
            self._hello_ns = now_ns
            out.append(e.SendHello(self.hello))
        if self.controller_boot == 0:
            return out
        if self._letters.overdue(now_ns):
            out += self._letters_again(now_ns)
        quiet_ns = now_ns - self._report_ns
        news = self._news()
        self._changed = news != self._told
        if self._report_ns < 0 or quiet_ns >= (REPORT_GAP_NS if self._changed else REPORT_EVERY_NS):
            out.append(self._report(news, now_ns))
        return out

    def _report(self, news: object, now_ns: int) -> e.SendReport:
        self._told, self._changed, self._report_ns = news, False, now_ns
        self.sequence += 1
        self.lease.sent(self.sequence, now_ns)
        workers = tuple(now for state in self.slots.values() if (now := state.now()) is not None)
        unlogged = sum(state.unlogged + state.unlogged_before for state in self.slots.values())
        report = Report(
            self.hello.vm, self.hello.boot, self.sequence, self.token, workers, self.positions.now(),
            self._disk(), unlogged, self.spools_left, self.strikes.told, profiles=self.profile.at(),
            keys=tuple(seen for state in self.slots.values() for seen in state.keys),
        )  # fmt: skip
        return e.SendReport(report)

    def _disk(self) -> tuple[str, ...]:
        """What this VM's disk does not take now."""
        found = dict.fromkeys(self._troubles)
        for state in self.slots.values():
            found.update(dict.fromkeys(state.troubles))
        return tuple(found)[:TROUBLES_MOST]

    def _news(self) -> object:
        """What of a report is worth telling at once (counts are not)."""
        workers = tuple(state.now() for state in self.slots.values())
        standing = tuple((s.thread, s.stopped, s.exhausted) for s in self.positions.now())
        return self.token, workers, standing, self._disk(), self.strikes.told

    def _end(self, now_ns: int) -> list[e.Instruction]:
        """The last words, once no worker lives (or cannot be ended)."""
        if not self.stopping:
            return []
        alive = [str(state.slot) for state in self.slots.values() if state.live]
        if alive and now_ns - self._stop_ns < STOP_LIMIT_NS:
            return []
        text = "the worker of {} does not end even when killed"
        out: list[e.Instruction] = [e.Note(text.format(slot)) for slot in alive]
        if self.controller_boot and not self.refused:
            out += self._letters_again(now_ns)
            last = self._report(self._news(), now_ns)
            out += [last, e.SendGoodbye(Goodbye(self.hello.vm, self.hello.boot))]
        self._exiting = True
        return [*out, e.Exit(self.stopping, self.refused)]
