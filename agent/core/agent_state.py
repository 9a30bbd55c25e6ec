"""The agent's state machine: which workers there are, which are desired, what is reported.

Pure: `step(event, now_ns) → [instruction]`, with `now_ns` monotonic; agent_process.py performs the instructions,
the simulator too. Rules:
 1. Only the highest token counts (boot, epoch, counter). An equal one is forwarded again: barriers are states.
 2. A slot with desired threads has a worker. One that dies is replaced at once under a higher incarnation; after the
    fourth crash within 60 s the slot is quarantined until a later epoch puts threads into it, or for a minute while its
    own are still desired there; without threads, for two minutes, twice as long each time. A loss that is some
    row's doing is counted for the row, not for the slot.
 3. A worker leaves by itself when none of its threads is desired; that is no crash.
 4. A report goes out on every change, and every 0.5 s; HELLO until welcomed, when the controller's boot
    changes, and while the controller is not heard.
 5. A controller of a lower boot than one already heard is not obeyed.
 6. The end: workers are ordered to quit, killed 1 s later, and the last words are report and goodbye.
 7. The controller's answers to reports grant a lease (VmLease); workers with exclusive threads hear of
    it after the desired state for which it was granted. Without answers all workers rest (VmContact), unless other
    VMs are without them, too.
 8. A worker runs one code: where its slot is to run another, it is ordered to quit and a new one is started.
 9. A profile runs in a slot without threads and without a worker, and ends before one starts there.
10. An agent's life is of one run. When its controller runs another, it ends at once, without last words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from itertools import islice

from msgspec.structs import replace

from headgate.agent.core import agent_events as e
from headgate.agent.core.slot_state import MS, NS, SlotState
from headgate.agent.core.worker_failures import UnderWay, WorkerFailures, described
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire.dead_letter_messages import (
    DeadLetter,
    DeadLetters,
    LettersTaken,
    Poisoned,
    Struck,
    weighed,
)
from headgate.topology_runtime.wire.messages import (
    CONTACT_NS,
    FRESH_NS,
    LEASE_NS,
    NEWER_NS,
    VOUCHED_NS,
    DesiredState,
    Goodbye,
    Hello,
    Lease,
    OffsetsKept,
    Quit,
    Report,
    SendAgain,
    Shutdown,
    SourceStatus,
    Token,
    VmHeard,
    Welcome,
    WorkerHello,
    WorkerReport,
)
from headgate.topology_runtime.wire.report_messages import ProfileAt, Profiled, ProfileSpec
from headgate.topology_runtime.wire.wire_version import controller_fault

# ── The lease of this VM: how long its exclusive threads may work. Pure; times are monotonic ns ─────────


class VmLease:
    """It lasts until `until_ns`: `LEASE_NS` from when the newest report was sent that the controller answered."""

    def __init__(self) -> None:
        self.until_ns = 0
        self.unanswered: deque[tuple[int, int]] = deque()  # (sequence, when) of reports not answered yet

    def sent(self, sequence: int, now_ns: int) -> None:
        """A report leaves. Those older than a lease are forgotten: their answer would grant nothing."""
        self.unanswered.append((sequence, now_ns))
        while self.unanswered[0][1] <= now_ns - LEASE_NS:
            self.unanswered.popleft()

    def answered(self, sequence: int, leased: bool) -> int:
        """The controller has answered this report, `leased`: with a lease; when it was sent, 0: not known any more."""
        while self.unanswered and self.unanswered[0][0] <= sequence:
            number, sent_ns = self.unanswered.popleft()
            if number == sequence:
                self.until_ns = max(self.until_ns, sent_ns + LEASE_NS) if leased else self.until_ns
                return sent_ns
        return 0


# ── The contact of this VM with the controller: how long its threads may work. Pure; times are monotonic ns ─
#
# What it goes by, and why nothing runs in two places: topology_runtime/wire/messages.py.

TOLD_LEAST_NS = 2 * NS // 5  # between two words to workers
PEERS_MOST = 4096  # VMs


class VmContact:
    """last_ns: when the newest report was sent that the controller answered."""

    def __init__(self) -> None:
        self.last_ns = self.until_ns = 0
        self.fenced = False
        self._told = -1, False
        self._peers: dict[str, tuple[int, int]] = {}  # VM → when it was heard, its newest contact

    def answered(self, sent_ns: int, fenced: bool) -> None:
        """The controller has answered a report that was sent then."""
        self.last_ns, self.fenced = max(self.last_ns, sent_ns), fenced
        self.until_ns = 0 if fenced else max(self.until_ns, sent_ns + CONTACT_NS)

    def hear(self, heard: Iterable[VmHeard], now_ns: int) -> None:
        """What a worker says of the VMs to which it has links."""
        for vm in heard:
            heard_ns, contact_ns = self._peers.pop(vm.vm, (0, 0))
            newest_ns = now_ns - vm.contact_ms * MS if vm.contact_ms is not None else 0
            self._peers[vm.vm] = max(heard_ns, now_ns - vm.silent_ms * MS), max(contact_ns, newest_ns)
        while len(self._peers) > PEERS_MOST:
            del self._peers[next(iter(self._peers))]  # that was spoken of longest ago

    def vouched(self, linked: Set[str], now_ns: int) -> bool:
        """Is nobody nearer to the controller, of all VMs to which there are links?"""
        known = [self._peers.get(vm, (0, 0)) for vm in linked]
        return all(
            now_ns - heard_ns < FRESH_NS and contact_ns <= self.last_ns + NEWER_NS
            for heard_ns, contact_ns in known
        )

    def look(self, linked: Set[str], now_ns: int) -> bool:
        """True when workers are to hear of it again. linked: VMs whose workers its own have links to."""
        if not self.last_ns:
            return False
        if not self.fenced and now_ns >= self.until_ns - VOUCHED_NS // 2 and self.vouched(linked, now_ns):
            heard_ns = [self._peers[vm][0] for vm in linked]
            self.until_ns = max(
                self.until_ns, min([now_ns + VOUCHED_NS, *(at + FRESH_NS for at in heard_ns)])
            )
        news = self.until_ns, self.fenced
        if news == self._told or (
            self.fenced == self._told[1] and self.until_ns - self._told[0] < TOLD_LEAST_NS
        ):
            return False
        self._told = news
        return True


# ── How far the source threads of a VM have read, as its workers report it. Pure ──────────────────────────


class SourcePositions:
    """The newest of each source thread, and up to where an earlier worker had it all acked."""

    def __init__(self) -> None:
        self._here: AbstractSet[int] = frozenset()
        self._listed: Collection[int] = ()
        self._known: dict[int, tuple[int, SourceStatus, int, int]] = {}

    def want(self, here: AbstractSet[int], listed: Collection[int]) -> None:
        """Threads that are desired on this VM, and anywhere."""
        self._here, self._listed = here, listed
        self._known = {thread: known for thread, known in self._known.items() if thread in listed}

    def note(self, incarnation: int, sources: tuple[SourceStatus, ...], now_ns: int) -> None:
        """A worker's word, or its meter's, of now. Of threads that nobody desires nothing is kept."""
        for now in sources:
            if now.thread not in self._listed:
                continue
            before = self._known.get(now.thread)
            floor = 0
            if before is not None:
                known, last, floor, _ = before
                if incarnation < known or (incarnation == known and now.emitted < last.emitted):
                    continue  # an older word that came later
                if incarnation > known:
                    floor = max(floor, last.acked)
            self._known[now.thread] = (incarnation, now, floor, now_ns)

    def now(self, now_ns: int) -> tuple[SourceStatus, ...]:
        """The source threads that are desired here, lowest thread first, and how old that is.

        One that was started again has nothing emitted until it hears from where: until then it has
        acked what its dead predecessor had."""
        return tuple(
            replace(
                now,
                acked=max(now.acked, floor) if now.emitted == 0 else now.acked,
                age_ms=max(0, now_ns - at_ns) // 1_000_000,
            )
            for thread, (_, now, floor, at_ns) in sorted(self._known.items())
            if thread in self._here
        )


# ── Dead letters of a VM on their way to the controller: kept until it has them on its disk. Pure ───────

A_MESSAGE, AGAIN_MOST = 30, 2000  # dead letters of 7,000 characters each, which may be 28,000 bytes
WHOLE_MOST = 2000  # dead letters that wait whole; of more (the controller is away) only what they are of
KEPT_MOST = 1_000_000  # … and so many at all, a few hundred bytes each: the first ones
AGAIN_NS = 5_000_000_000  # not taken for so long: said again


class DeadLetterBox:
    """Dead letters are numbered from 0 on in an agent's life (`boot`). What workers that are no more have `left` on the
    VM's disk may go once the controller has it. dropped: those for which there was no room."""

    def __init__(self, vm: str, boot: int) -> None:
        self._vm, self._boot = vm, boot
        self._first = 0  # number of the first that waits
        self._waiting: deque[DeadLetter] = deque()
        self.run = ""
        self._said_ns = 0  # when the first that waits was said last; −1: it has only now become the first
        self._left = -1  # those below this number are on the disk; −1: none is
        self.dropped = 0

    def add(self, letters: Iterable[DeadLetter], now_ns: int, left: bool = False) -> list[DeadLetters]:
        """New ones; what to say of them. left: a worker has ended, these were the last of it."""
        begin, fresh = len(self._waiting), list(letters)
        room = max(0, KEPT_MOST - begin)
        self.dropped += len(fresh[room:])
        whole = max(0, WHOLE_MOST - begin)
        fresh = [*fresh[:whole], *(letter.bare() for letter in fresh[whole:room])]
        self._waiting += fresh
        self._left = self._first + len(self._waiting) if left else self._left
        return self._say(begin, fresh, now_ns)

    def trouble(self) -> tuple[str, ...]:
        """What is lost because the controller takes too little."""
        return (f"{self.dropped:,} dead letters were not kept: too many wait for the controller",) * bool(
            self.dropped
        )

    def over(self) -> bool:
        """True once, when the controller has all that is on the disk of workers that are no more."""
        over = 0 <= self._left <= self._first
        self._left = -1 if over else self._left
        return over

    def taken(self, word: LettersTaken) -> None:
        """The controller has those below this number."""
        while word.boot == self._boot and self._waiting and self._first < word.below:
            self._waiting.popleft()
            self._first += 1
            self._said_ns = -1

    def again(self, now_ns: int) -> list[DeadLetters]:
        """What waits, once more: bounded, the others follow when these are taken."""
        return self._say(0, list(islice(self._waiting, AGAIN_MOST)), now_ns)

    def overdue(self, now_ns: int) -> bool:
        self._said_ns = now_ns if self._said_ns < 0 else self._said_ns
        return bool(self._waiting) and now_ns - self._said_ns >= AGAIN_NS

    def _say(self, begin: int, letters: list[DeadLetter], now_ns: int) -> list[DeadLetters]:
        self._said_ns = now_ns if begin == 0 else self._said_ns
        said = list[DeadLetters]()
        while letters:
            count = weighed(letters, A_MESSAGE)
            part, letters = tuple(letters[:count]), letters[count:]
            at = self._first + begin, self._first
            said.append(DeadLetters(self._vm, part, self._boot, *at, run=self.run))
            begin += count
        return said


# ── What an agent knows of the profiles in free slots of its VM (profiles.ProfileSpec). Pure ───
#
# One runs while the newest desired state names it and no thread is desired in its slot, within its budget; a
# new life of the controller names it again, if at all. How it ended is said again with every desired state
# that still names it.


@dataclass(slots=True)
class RunningProfile:
    """Its processes may be there until then. done, of: points, as far as it has reported."""

    spec: ProfileSpec
    end_at_ns: int
    done: int = 0
    of: int = 0


@dataclass(slots=True)
class ProfileState:
    """Of VM `vm`. running: by number. results: how those ended that are still named."""

    vm: str
    running: dict[int, RunningProfile] = field(default_factory=dict)
    results: dict[int, Profiled] = field(default_factory=dict)

    @property
    def ends_ns(self) -> list[int]:
        """When budgets end."""
        return [one.end_at_ns for one in self.running.values()]

    def uses(self, slot: Slot) -> bool:
        return any(one.spec.slot == slot for one in self.running.values())

    def at(self) -> tuple[ProfileAt, ...]:
        """How far those are that run."""
        return tuple(ProfileAt(number, one.done, one.of) for number, one in sorted(self.running.items()))

    def want(self, desired: DesiredState, free: Set[Slot], now_ns: int) -> list[e.Instruction]:
        """New orders. free: this VM's slots without desired threads and without a worker."""
        beside = (desired.profile,) if desired.profile is not None else ()
        specs = (*desired.profiles, *beside)
        named = {spec.number for spec in specs}
        self.results = {number: said for number, said in self.results.items() if number in named}
        wanted = {spec.number: spec for spec in specs if spec.slot in free}
        out = [self._end(number) for number in sorted(self.running.keys() - wanted.keys())]
        for number, spec in sorted(wanted.items()):
            if number in self.results:
                out.append(self.results[number])
            elif number not in self.running and not self.uses(spec.slot):
                self.running[number] = RunningProfile(spec, now_ns + int(spec.budget_s * NS))
                out.append(e.StartProfile(spec, desired.topology, desired.user_paths))
        return out

    def stop(self) -> list[e.Instruction]:
        """None is desired any more; what they know stays in their records."""
        return [self._end(number) for number in sorted(self.running)]

    def _end(self, number: int) -> e.Instruction:
        del self.running[number]
        return e.EndProfile(number)

    def due(self, now_ns: int) -> list[e.Instruction]:
        """Budgets are used up: those profiles are ended, and what they measured is reported."""
        return [
            e.EndProfile(number) for number, one in sorted(self.running.items()) if now_ns >= one.end_at_ns
        ]

    def stands(self, event: e.ProfileStands) -> None:
        """One has reported how far it is."""
        if (one := self.running.get(event.number)) is not None:
            one.done, one.of = event.done, event.of

    def ended(self, event: e.ProfileEnded) -> list[e.Instruction]:
        """Its processes are gone."""
        if self.running.pop(event.number, None) is None:
            return []
        said = Profiled(self.vm, event.number, event.model, event.error, event.of_task)
        self.results[event.number] = said
        return [said]


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

REPORT_EVERY_NS = NS // 2
REPORT_GAP_NS = NS // 200  # changes closer together than this share a report
HELLO_EVERY_NS = NS // 2
SILENT_NS = 3 * NS // 2  # a controller not heard for so long is sent again who is here
QUIT_LIMIT_NS = NS  # from "quit" to the kill
LEAVE_LIMIT_NS = 5 * NS  # a worker that leaves by itself may have user objects to close
DUMP_NS = NS // 5  # from the order to write stacks to the kill
STOP_LIMIT_NS = 5 * NS  # a process that a kill does not end (uninterruptible I/O) is left behind, loudly
TROUBLES_MOST = 16  # reported of a disk


class AgentState:
    """One agent's life. `hello` is who it is; its `boot` is the UTC time in ns at `now_ns`."""

    def __init__(self, hello: Hello, now_ns: int) -> None:
        self.hello = hello
        self.slots = {number: SlotState(Slot(hello.vm, number)) for number in range(hello.slots)}
        self.desired: DesiredState | None = None
        self.profile = ProfileState(hello.vm)
        self.failures = WorkerFailures()
        self.token = Token()
        self.lease, self.contact = VmLease(), VmContact()
        self.controller_boot = 0
        self.sequence = 0
        self.stopping = ""
        self.refused = ""
        self.run = ""
        self._data: Mapping[int, bytes] = {}  # desired, by the number of the code
        self._troubles: tuple[str, ...] = ()
        self.spools_left = hello.spools
        self.positions = SourcePositions()
        self._letters = DeadLetterBox(hello.vm, hello.boot)
        self._started_ns = now_ns
        self._heard_ns = self._hello_ns = self._report_ns = self._stop_ns = -1
        self._told: object = None
        self._changed = False  # is there news that no report has said?
        self._asked_to_stop = False
        self._exiting = False

    # ── the step ────────────────────────────────────────────────────────────────────────────────

    def step(self, event: e.Event, now_ns: int) -> list[e.Instruction]:
        """What to do about one event."""
        if self._exiting:
            return []
        out = self._hear(event, now_ns)
        out += self._look_at_contact(now_ns)
        out += self.profile.due(now_ns)
        out += self._spawn_desired(now_ns)
        out += self._kill_overdue(now_ns)
        out += [e.DropDeadLetters()] if self._letters.over() else []
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
                return [e.ToWorker(slot, incarnation, event)] if self._present(slot, incarnation) else []
            case OffsetsKept(boot, offsets, positions) if boot == self.controller_boot:
                named = {thread for thread, _ in offsets}
                mine = [
                    s for s in self._running() if positions or named & {thread.thread for thread in s.desired}
                ]
                return [e.ToWorker(state.slot, state.incarnation, event) for state in mine]
            case Shutdown(token, reason):
                return self._on_shutdown(token, reason, now_ns)
            case WorkerHello():
                return self._on_worker_hello(event)
            case WorkerReport():
                return self._on_worker_report(event, now_ns)
            case e.SourcesRead(_, incarnation, sources):
                self.positions.note(incarnation, sources, now_ns)
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
        if self._of_another_run(desired.run):
            return self._leave_run(desired.run, now_ns)
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
        heard = self.failures.hear(tuple(n for vm, n in desired.strikes if vm != self.hello.vm), now_ns)
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
        return [e.ToWorker(state.slot, state.incarnation, data), *self._lease_of(state)]

    def _note_strangers(self, desired: DesiredState) -> list[e.Instruction]:
        """Slots that the controller orders used and that this VM does not have."""
        vm = self.hello.vm
        odd = {t.slot for t in desired.threads if t.slot.vm == vm and t.slot.number not in self.slots}
        return [e.Note(f"threads are desired in slot {s}, which this VM does not have") for s in sorted(odd)]

    def _on_welcome(self, welcome: Welcome, now_ns: int) -> list[e.Instruction]:
        if self._of_another_run(welcome.run):
            return self._leave_run(welcome.run, now_ns)
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
            return [*leased, *self._dead_letters_again(now_ns)]
        self._hello_ns = now_ns
        said = self.hello, e.ControllerChanged(welcome.boot)
        return [*leased, *said, *self.profile.stop(), *self._dead_letters_again(now_ns)]

    def _of_another_run(self, run: str) -> bool:
        """Rule 10. The first run that is heard of is this life's."""
        self.run = self._letters.run = self.run or run
        return run not in ("", self.run)

    def _leave_run(self, run: str, now_ns: int) -> list[e.Instruction]:
        self.controller_boot = 0
        return self._stop(f"the controller runs {run}, this was of {self.run}", now_ns)

    def take_up(self, struck: tuple[Struck, ...], letters: tuple[DeadLetter, ...]) -> None:
        """What an earlier life of the agent left of this run on its VM's disk."""
        self.failures.take_up(struck)
        self._letters.add(letters, 0, left=True)

    def _on_lease(self, welcome: Welcome) -> list[e.Instruction]:
        """Rule 7. (An answer to another life of this agent grants nothing.)"""
        (boot, sequence), before_ns = max(welcome.report, welcome.leased), self.lease.until_ns
        if boot != self.hello.boot:
            return []
        if sent_ns := self.lease.answered(sequence, welcome.leased == (boot, sequence)):
            self.contact.answered(sent_ns, welcome.fenced)
        longer = self.lease.until_ns > before_ns
        return [
            told
            for state in self._running()
            if self._exclusive(state)
            for told in self._lease_of(state)
            if longer
        ]

    def _exclusive(self, state: SlotState) -> bool:
        tasks = self.desired.topology.by_name if self.desired is not None else {}
        return any(tasks[t.task].exclusive for t in state.desired)

    def _running(self) -> list[SlotState]:
        return [state for state in self.slots.values() if state.status == "running"]

    def _look_at_contact(self, now_ns: int) -> list[e.Instruction]:
        """Rule 7."""
        running = self._running()
        linked = {vm.vm for state in running for vm in state.heard}
        news = self.contact.look(linked, now_ns)
        return [told for state in running for told in self._lease_of(state) if news]

    def _lease_of(self, state: SlotState) -> list[e.Instruction]:
        """What a worker hears: of the lease, if it has exclusive threads, and of the contact."""
        until_ns = self.lease.until_ns if self._exclusive(state) else 0
        if not (until_ns or self.contact.last_ns):
            return []
        work_until_ns = self.contact.until_ns if self.contact.last_ns else -1
        return [
            e.ToWorker(state.slot, state.incarnation, Lease(until_ns, work_until_ns, self.contact.last_ns))
        ]

    def _dead_letters_again(self, now_ns: int) -> list[e.Instruction]:
        return [*self._letters.again(now_ns)]

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
        return [e.ToWorker(state.slot, state.incarnation, Quit(reason))]

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
                e.ToWorker(
                    state.slot, state.incarnation, Quit(self.stopping or "its slot is to run other code")
                )
            ]
        out: list[e.Instruction] = list(self._poisoned(state))
        return out + self._forward(state)

    def _on_worker_report(self, report: WorkerReport, now_ns: int) -> list[e.Instruction]:
        state = self._present(report.slot, report.incarnation)
        if state is None:
            return []
        state.report(report)
        self.contact.hear(report.heard, now_ns)
        self.positions.note(report.incarnation, report.sources, now_ns)
        if report.leaving:
            state.kill_at(now_ns + LEAVE_LIMIT_NS, "it said that it leaves and did not")
        return [*self._letters.add(report.letters, now_ns)]

    def _on_exit(self, event: e.WorkerExited, now_ns: int) -> list[e.Instruction]:
        state = self._present(event.slot, event.incarnation)
        if state is None:
            return []
        blamed, out = self._blame(state, event, now_ns)
        state.unlogged += event.unlogged
        out += self._letters.add(event.letters, now_ns, left=True)
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
        struck = self.failures.lost(state.slot.number, event.calls, state.hung, why, now_ns)
        if struck is None:
            return False, []
        out: list[e.Instruction] = [
            e.Note(described(struck)),
            e.SaveFailures(tuple(self.failures.struck.values())),
        ]
        for other in self.slots.values():
            if other.status == "running" and other is not state:
                out += self._poisoned(other)
        return True, out

    def _no_answer(self, calls: tuple[UnderWay, ...], hung: int) -> str:
        tasks = self.desired.topology.by_name if self.desired is not None else {}
        limits = [tasks[call.task].max_call_s for call in calls if call.thread == hung and call.task in tasks]
        return f"hung: no answer within max_call_s={limits[0]:g}" if limits else "hung: no answer in time"

    def _poisoned(self, state: SlotState) -> list[e.ToWorker]:
        poison = self.failures.poison
        return [e.ToWorker(state.slot, state.incarnation, Poisoned(poison))] if poison else []

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
            if why := state.try_again(now_ns):
                out.append(e.Note(f"slot {state.slot} is tried again: {why}"))
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
            out.append(self.hello)
        if self.controller_boot == 0:
            return out
        if self._letters.overdue(now_ns):
            out += self._dead_letters_again(now_ns)
        quiet_ns = now_ns - self._report_ns
        news = self._news()
        self._changed = news != self._told
        if self._report_ns < 0 or quiet_ns >= (REPORT_GAP_NS if self._changed else REPORT_EVERY_NS):
            out.append(self._report(news, now_ns))
        return out

    def _report(self, news: object, now_ns: int) -> Report:
        self._told, self._changed, self._report_ns = news, False, now_ns
        self.sequence += 1
        self.lease.sent(self.sequence, now_ns)
        workers = tuple(now for state in self.slots.values() if (now := state.now()) is not None)
        unlogged = sum(state.unlogged + state.unlogged_before for state in self.slots.values())
        return Report(
            self.hello.vm, self.hello.boot, self.sequence, self.token, workers, self.positions.now(now_ns),
            self._disk(), unlogged, self.spools_left, self.failures.counts, profiles=self.profile.at(),
            keys=tuple(seen for state in self.slots.values() for seen in state.keys), run=self.run,
        )  # fmt: skip

    def _disk(self) -> tuple[str, ...]:
        """What this VM's disk does not take now, and what is lost."""
        found = dict.fromkeys((*self._letters.trouble(), *self._troubles))
        for state in self.slots.values():
            found.update(dict.fromkeys(state.troubles))
        return tuple(found)[:TROUBLES_MOST]

    def _news(self) -> object:
        """What of a report is worth a report at once (counts are not)."""
        workers = tuple(state.now() for state in self.slots.values())
        standing = tuple((s.thread, s.stopped, s.exhausted, s.rests) for s in self.positions.now(0))
        return self.token, workers, standing, self._disk(), self.failures.counts

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
            out += self._dead_letters_again(now_ns)
            last = self._report(self._news(), now_ns)
            out += [last, Goodbye(self.hello.vm, self.hello.boot)]
        self._exiting = True
        return [*out, e.Exit(self.stopping, self.refused)]
