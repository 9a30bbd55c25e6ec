"""A worker in virtual time: a real WorkerState, performed as worker_process.py does, over a simulated net.

Connections are first in, first out. One that breaks loses what is on its way; a dead worker loses all."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

from headgate.lab.simulation.simulated_thread import Killed, SimAnswering, SimSource, SimThread
from headgate.lab.simulation.virtual_time import MS
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.wire import messages as m
from headgate.topology_runtime.wire.dead_letter_messages import Poisoned
from headgate.topology_runtime.wire.state_moves import Barrier, StateTaken, StateWord
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot, NotRead
from headgate.topology_runtime.worker.orders import worker_state as st
from headgate.topology_runtime.worker.rows.acks import Addressed

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_agent import SimAgent

UNBOUND_NS = 1 << 62  # before its agent says how long it may work
TICK_NS = 200 * MS
HELLO_NS = 200 * MS
REPORT_NS = 500 * MS


LOST: dict[type, str] = {m.Frame: "frames lost", m.Acks: "acks lost", Barrier: "marks lost"}


class Link:
    """A connection to a peer worker, as a PUSH socket: `breaks` counts how often it broke; what is written
    before `lost_until_ns` is lost: the break was not noticed yet."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint, self.breaks, self.last_ns, self.lost_until_ns = endpoint, 0, 0, 0
        self.late_ns: dict[int, int] = {}  # what was on its way at a break still arrives, so late


CHANGES_MOST = 3  # snapshots of changes behind a whole one


class SimWorker:
    """The process in one slot. It is its threads' Post."""

    def __init__(self, agent: SimAgent, slot: Slot, incarnation: int) -> None:
        self.agent, self.slot, self.incarnation = agent, slot, incarnation
        self.world = agent.world
        self.state = st.WorkerState(slot, incarnation)
        self.endpoint = f"{slot}#{incarnation}"
        self.alive, self.heard = True, False
        self.code = -1  # not told yet
        self.threads: dict[int, SimThread] = {}
        self.inboxes: dict[int, deque[Any]] = {}
        self.closed: set[int] = set()
        self.letters: list[m.DeadLetter] = []
        self.letters_kept: list[m.DeadLetter] = []  # on its VM's disk
        self._links: dict[Slot, Link] = {}
        self._pending: dict[Slot, list[Any]] = {}
        self._slot_of: dict[int, Slot] = {}
        self._news: object = None
        self._reported_ns = -REPORT_NS
        self.told_ns = 0  # when the last word of its agent arrives
        self._turn_due = False
        self.leased_until_ns = 0
        self.work_until_ns = UNBOUND_NS
        self.world.later(self.world.delay_ns(20, 120), self._startup)

    def _startup(self) -> None:
        if self.alive:
            self.world.endpoints[self.endpoint] = self
            self._hello()
            self._tick()

    def _hello(self) -> None:
        if self.alive and not self.heard:
            self.to_agent(m.WorkerHello(self.slot, self.incarnation, 1, self.endpoint))
            self.world.later(HELLO_NS, self._hello)

    def kill(self, why: str) -> None:
        """As SIGKILL: its threads, queues and ledgers are gone at once."""
        if not self.alive:
            return
        self.world.clock.say(f"worker {self.slot} dies: {why}")
        self.world.met[f"worker killed in {self.world.phase}"] += 1
        self.world.killed += 1
        self._gone(killed=True)
        self.world.later(self.world.delay_ns(1, 20), lambda: self.agent.worker_exited(self, why, False))

    def _gone(self, killed: bool = False) -> None:
        self.alive = False
        for thread in self.threads.values():
            thread.gone(killed)
        self.world.endpoints.pop(self.endpoint, None)
        self.world.account.gone(self)
        if not self.world.random.randrange(3) and killed:  # else what was written already still arrives
            for link in self._links.values():
                link.breaks += 1

    def effect(self, what: str) -> None:
        """Something others will see is about to happen: a place to be killed at."""
        if self.alive and self.world.faults.strikes(what):
            raise Killed(what)

    @property
    def rests(self) -> bool:
        return self.world.now_ns >= self.work_until_ns

    # ── the agent ───────────────────────────────────────────────────────────────────────────────

    def to_agent(self, message: m.FromWorker) -> None:
        agent = self.agent
        self.world.later(self.world.delay_ns(0.1, 2), lambda: agent.from_worker(self, message))

    def from_agent(self, message: m.FromAgentToWorker) -> None:
        if not self.alive:
            return
        if isinstance(message, m.Quit):
            self._leave(message.reason)
            return
        if isinstance(message, m.Lease):
            self.leased_until_ns = max(self.leased_until_ns, message.until_ns)
            rested = self.rests
            if message.work_until_ns >= 0:
                self.work_until_ns, self.state.contact_ns = message.work_until_ns, message.contact_ns
            for thread in self.threads.values() if rested or message.until_ns else ():
                thread.wake()
            return
        if isinstance(message, m.OffsetsKept):  # simulated logs forget nothing
            for number, thread in self.threads.items() if message.positions else ():
                if thread.core.task.state == "keyed":
                    self._put(number, message)
            return
        if isinstance(message, Poisoned | m.ClockOff | m.StateQuestion):
            return  # simulated rows are survived, simulated clocks are right, and nobody asks for a state
        if isinstance(message, m.SendAgain):
            if message.thread in self.threads:
                self.world.letters.told(message)
                self._put(message.thread, message)
            return
        self.heard = True
        before = self.state.token
        self._perform(self.state.on_desired(message))
        assert self.state.token >= before, f"worker {self.slot} obeys a lower token"
        self.state.validate()
        self.changed()

    def changed(self) -> None:
        """Wake the main thread."""
        if not self._turn_due and self.alive:
            self._turn_due = True
            self.world.later(self.world.delay_ns(0.1, 2), self._turn)

    def _tick(self) -> None:
        if self.alive:
            self.changed()
            self.world.later(TICK_NS, self._tick)

    def _turn(self) -> None:
        self._turn_due = False
        if not self.alive:
            return
        now = [t.now() for n, t in self.threads.items() if n not in self.state.ended]
        sources = [t.source_now() for t in self.threads.values() if isinstance(t, SimSource)]
        self._perform(self.state.on_threads(now, sources))
        for number, thread in self.threads.items():
            self.state.on_started_again(number, thread.core.behaviour.started_again)
        if self.alive:
            self._perform(self.state.on_tick(self.world.now_ns))
            self.state.validate()
            self._report()

    def _report(self, leaving: bool = False) -> None:
        state = self.state
        if not self.heard:
            return
        threads, sources = tuple(state.threads.values()), tuple(state.sources.values())
        standing = tuple((s.thread, s.stopped, s.exhausted, s.rests) for s in sources)
        again = tuple(
            now for t in self.threads.values() if isinstance(t, SimSource) and (now := t.again_now())
        )
        self.world.letters.says(again)
        news = (state.token, state.ready, threads, leaving, standing, again)
        if self.letters or news != self._news or self.world.now_ns - self._reported_ns >= REPORT_NS:
            letters, self.letters = tuple(self.letters), []
            report = m.WorkerReport(
                self.slot, self.incarnation, state.token, state.ready, threads, sources, letters, leaving,
                again=again, heard=state.heard(self.world.now_ns),
            )  # fmt: skip
            self.to_agent(report)
            self._news, self._reported_ns = news, self.world.now_ns

    # ── instructions ────────────────────────────────────────────────────────────────────────────

    def _perform(self, instructions: list[st.Instruction]) -> None:
        for instruction in instructions:
            if self.alive:
                self._do(instruction)

    def _do(self, instruction: st.Instruction) -> None:
        match instruction:
            case st.Obey(orders):
                self._slot_of = orders.slot_of
                for thread in self.threads.values():
                    thread.wake()
            case st.StartThread(desired):
                self._start(desired)
            case st.EndThread(number):
                self._end(number)
            case st.Connect(peer):
                self._connect(peer)
            case st.Disconnect(slot):
                self._drop(slot)
            case st.AskPeer(slot):
                self._ping(slot, answer=False)
            case st.AnswerPeer(slot):
                self._ping(slot, answer=True)
            case st.Fault(why):
                self.world.clock.say(f"worker {self.slot}: {why}")
                for thread in self.threads.values():
                    thread.faults += 1
            case st.Leave():
                self._leave("no thread is left")

    def _start(self, desired: m.ThreadSpec) -> None:
        assert self.state.orders is not None
        topology = self.state.orders.topology
        kind = SimThread if topology.in_edges(desired.task) else SimSource
        kind = SimAnswering if desired.answers else kind
        self.world.clock.say(f"worker {self.slot} starts {desired.task}-{desired.thread}")
        self.threads[desired.thread] = kind(self, desired, self.state.orders)

    def _end(self, number: int) -> None:
        thread = self.threads.pop(number, None)
        self.inboxes.pop(number, None)
        self.closed.add(number)
        if thread is not None:
            self.world.clock.say(f"worker {self.slot} ends {thread.name}")
            self.world.account.ends(thread, self.state)
            thread.end()
            if thread.dropped:
                self.state.on_started_again(number, st.ENDED)

    def _leave(self, why: str) -> None:
        """The worker exits by itself."""
        self._perform(self.state.last_words())
        self._report(leaving=True)
        self.world.clock.say(f"worker {self.slot} leaves: {why}")
        self._gone()
        self.world.later(self.world.delay_ns(3, 20), lambda: self.agent.worker_exited(self, why, True))

    # ── the net ─────────────────────────────────────────────────────────────────────────────────

    def _connect(self, peer: m.WorkerAt) -> None:
        self._drop(peer.slot)
        self._links[peer.slot] = link = Link(peer.endpoint)
        self._told_of_link(peer.slot, link, True, self.world.delay_ns(1, 5))
        for message in self._pending.pop(peer.slot, []):
            self._send(peer.slot, message)

    def _drop(self, slot: Slot) -> None:
        link = self._links.pop(slot, None)
        if link is not None:
            link.breaks += 1

    def break_link(self, slot: Slot, late_ns: int = 0) -> None:
        """The connection breaks and comes back: what is on its way is lost, or comes over the old one, so late,
        after what follows over the new one."""
        link = self._links.get(slot)
        if late_ns and link is not None:
            link.late_ns[link.breaks] = self.world.now_ns + late_ns
        self._lose_link(slot, self.world.delay_ns(0, 20), 0)

    def half_open(self, slot: Slot, length_ns: int) -> None:
        """Nothing gets through for so long. Heartbeats notice, or all of it comes late."""
        noticed_ns = self.world.delay_ns(1600, 3200)
        if length_ns > noticed_ns:
            self._lose_link(slot, noticed_ns, length_ns - noticed_ns)
        elif (link := self._links.get(slot)) is not None:
            link.last_ns = max(link.last_ns, self.world.now_ns + length_ns)

    def _lose_link(self, slot: Slot, noticed_ns: int, away_ns: int) -> None:
        """It is noticed after a while; then what is written waits until the link is back."""
        link = self._links.get(slot)
        if link is None:
            return
        link.breaks += 1
        back_ns = noticed_ns + away_ns + self.world.delay_ns(20, 520)
        link.lost_until_ns = self.world.now_ns + noticed_ns
        link.last_ns = max(link.last_ns, self.world.now_ns + back_ns)
        self._told_of_link(slot, link, False, noticed_ns)
        self._told_of_link(slot, link, True, back_ns)

    def _told_of_link(self, slot: Slot, link: Link, up: bool, delay_ns: int) -> None:
        def tell() -> None:
            if self.alive and self._links.get(slot) is link:
                self._perform(self.state.on_link(slot, up))
                self.changed()

        self.world.later(delay_ns, tell)

    @property
    def linked(self) -> list[Slot]:
        return sorted(self._links)

    def _send(self, slot: Slot, message: Any) -> None:
        link = self._links.get(slot)
        if link is None:
            self._pending.setdefault(slot, []).append(message)
            return
        if self.world.now_ns < link.lost_until_ns:
            self._lost(message)
            return
        way_ns = self.world.ways.arrives_ns(self.slot.vm, slot.vm)
        link.last_ns = max(link.last_ns, way_ns + self.world.data_delay_ns())
        self.world.clock.at(link.last_ns, "", partial(self._arrive, link, link.breaks, message))

    def _arrive(self, link: Link, breaks: int, message: Any) -> None:
        """It was written when the link had broken so often."""
        peer = self.world.endpoints.get(link.endpoint)
        late_ns = link.late_ns.get(breaks, 0)
        if peer is None or (breaks != link.breaks and not late_ns):
            self._lost(message)
        elif late_ns > self.world.now_ns:
            self.world.met["frames out of order"] += 1
            self.world.clock.at(late_ns, "", partial(self._arrive, link, breaks, message))
        else:
            peer.arrives(message)

    def _lost(self, message: Any) -> None:
        what = message.word if isinstance(message, m.ToldWord) else message
        self.world.met[LOST.get(type(what), "words lost")] += 1

    def _ping(self, slot: Slot, answer: bool) -> None:
        self._send(slot, self.state.ping(slot, answer, self.world.now_ns))

    def arrives(self, message: Any) -> None:
        """As switchboard.py's Receiver."""
        if isinstance(message, m.Frame):
            if self.state.admits(message):
                self._put(message.target, message)
            else:
                self._refuse(message.slot, message.incarnation)
        elif isinstance(message, m.Ping):
            self._perform(self.state.on_ping(message, self.world.now_ns))
            self.changed()
        elif self.state.fenced(message.slot, message.incarnation):
            self._refuse(message.slot, message.incarnation)
        elif isinstance(message, m.Acks):
            self._acks(message.acks)
        else:
            self._put(message.word.target, message.word)

    def _refuse(self, slot: Slot, incarnation: int) -> None:
        self._perform(self.state.on_refused(slot, incarnation, self.state.token))
        self.changed()

    def _acks(self, acks: Iterable[m.Ack]) -> None:
        for ack in acks:
            if ack.key.incarnation == self.incarnation:
                self._put(ack.key.thread, [ack])

    def _put(self, thread: int, item: Any) -> None:
        if thread in self.closed:
            if isinstance(item, m.Frame):
                self.state.on_late(thread)
            return
        self.inboxes.setdefault(thread, deque()).append(item)
        if thread in self.threads:
            self.threads[thread].wake()

    # ── what threads ask of it (thread_core.Post) ─────────────────────────────────────────────────

    def deliver(self, frames: Iterable[m.Frame]) -> None:
        for frame in frames:
            self.effect("deliver")
            slot = self._slot_of.get(frame.target)
            if slot == self.slot:
                self._put(frame.target, frame)
            elif slot is None:
                self.state.on_late(frame.target)
            else:
                self._send(slot, frame)

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        homes: dict[Slot, list[m.Ack]] = {}
        for home, ack in acks:
            homes.setdefault(home, []).append(ack)
        for home, batch in homes.items():
            self.effect("ack")
            if home == self.slot:
                self._acks(batch)
            else:
                self._send(home, m.Acks(self.slot, self.incarnation, batch))

    def send_word(self, word: StateWord) -> None:
        self.effect("word")
        faults = self.world.faults
        if (
            isinstance(word, StateTaken)
            and self.alive
            and faults.may_lose(self.agent)
            and faults.strikes("move")
        ):
            self.agent.lose()
            raise Killed("word")
        self.world.met["ranges moved"] += isinstance(word, StateTaken)
        slot = self._slot_of.get(word.target)
        if slot == self.slot:
            self._put(word.target, word)
        elif slot is not None:
            self._send(slot, m.told(self.slot, self.incarnation, word))

    def store(self, task: str, thread: int) -> SimStore | SimFarStore:
        return SimFarStore(self, task, thread) if self.world.far else SimStore(self.agent, task, thread)


def note_met(world: Any, part: form.SavedPart) -> None:
    world.met["snapshots of changes"] += part.change is not None and not part.ends
    world.met["whole snapshots in several parts"] += part.ends and part.begun is None


class SimStore:
    """Snapshots of a keyed thread on its VM's disk (keyed.SnapshotStore)."""

    under_way = late = False

    def __init__(self, agent: SimAgent, task: str, thread: int) -> None:
        self._agent, self._disk, self._task, self._thread = agent, agent.disk, task, thread
        self._there: bytes | None = None  # nothing may be put behind what else is on the disk
        self._making: bytes | None = None
        self._changes = 0  # behind the whole one

    @property
    def stands(self) -> bool:
        return self._there is not None

    @property
    def whole_due(self) -> bool:
        return self._making is None and (self._there is None or self._changes >= CHANGES_MOST)

    def load(self) -> form.SavedWhole | None:
        self._there = self._making = None
        data = self._disk.get((self._task, self._thread))
        return form.stream(data) if data is not None else None

    def save(self, part: form.SavedPart) -> None:
        """On a full disk half of a change is written."""
        before, self._there = self._there, None
        there, self._making = form.behind(before, self._making, part)
        if self._agent.full:
            if before is not None and there is not None and there.startswith(before):
                self._disk[self._task, self._thread] = there[: (len(before) + len(there)) // 2]
            self._making = None
            raise OSError(28, "no space left on the simulated disk")
        self._there, self._changes = there, 0 if part.ends else self._changes + 1
        if there is not None:
            self._disk[self._task, self._thread] = there
        note_met(self._agent.world, part)

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | None:
        data = self._disk.get((self._task, thread))
        if data is None:
            return None
        snapshot = form.read(data)
        if thread != self._thread:
            self._agent.world.met["ranges taken over"] += sum(bool(copy.data) for copy in snapshot.copies)
        return snapshot

    def look(self) -> None: ...
    def close(self) -> None: ...
    def remove(self) -> None: ...


class SimFarStore:
    """Snapshots of a keyed thread in a store that outlives all VMs: what is written lands a while later, also when its
    worker is dead by then (far_snapshots.py)."""

    late = True

    def __init__(self, worker: SimWorker, task: str, thread: int) -> None:
        self._worker, self._world, self._task, self._thread = worker, worker.world, task, thread
        self._there: bytes | None = None
        self._making: bytes | None = None
        self._changes, self._pending, self._error = 0, False, ""
        self._unseen = False
        self._due_ns: dict[int, int] = {}

    @property
    def stands(self) -> bool:
        return self._there is not None

    @property
    def whole_due(self) -> bool:
        return self._making is None and (self._there is None or self._changes >= CHANGES_MOST)

    @property
    def under_way(self) -> bool:
        return self._pending or (self._unseen and self._worker.rests)

    def look(self) -> None:
        self._unseen = False
        if self._error:
            raise OSError(self._error)

    def save(self, part: form.SavedPart) -> None:
        there, making = form.behind(self._there, self._making, part)
        changes = 0 if part.ends else self._changes + 1
        self._pending, self._there, self._making = True, None, None
        self._world.later(self._world.delay_ns(1, 300), lambda: self._land(there, making, changes))
        note_met(self._world, part)

    def _land(self, there: bytes | None, making: bytes | None, changes: int) -> None:
        self._pending, self._unseen, self._error = False, True, ""
        place = self._task, self._thread
        if self._worker.agent.full:
            self._error = "the simulated store does not answer"
            return
        if there is not None:
            self._world.far_disk.setdefault(place, {})[self._worker.incarnation] = there
        if place in self._world.far_taken:
            self._error = "others have taken it over"
            self._world.met["snapshots fenced"] += 1
            return
        self._there, self._making, self._changes = there, making, changes

    def load(self) -> form.SavedWhole | None:
        if (self._task, self._thread) in self._world.far_taken:
            raise ConnectionError("others have taken it over")
        self._there = self._making = None
        lives = self._world.far_disk.get((self._task, self._thread))
        return form.stream(lives[max(lives)]) if lives else None

    def _newest(self, thread: int) -> KeyedSnapshot | None:
        lives = self._world.far_disk.get((self._task, thread))
        return form.read(lives[max(lives)]) if lives else None

    def of(self, thread: int, ranges: Collection[int] = ()) -> KeyedSnapshot | form.SavedWhole | None:
        if thread == self._thread:
            return self._newest(thread)
        if self._worker.agent.full:
            raise NotRead("the simulated store does not answer")
        self._world.far_taken.add((self._task, thread))
        now_ns = self._world.now_ns
        if now_ns < self._due_ns.setdefault(thread, now_ns + self._world.delay_ns(1, 300)):
            raise NotRead("")
        snapshot = self._newest(thread)
        if snapshot is not None:
            self._world.met["ranges taken over elsewhere"] += sum(bool(copy.data) for copy in snapshot.copies)
            there = {copy.key_range for copy in snapshot.copies}
            if (
                self._there is None
                and not self._pending
                and 2 * len(there & set(ranges)) >= max(1, len(there))
            ):
                return self._gone_on_from(thread)
        return snapshot

    def _gone_on_from(self, thread: int) -> form.SavedWhole:
        """What it had is here too, at once: changes go behind it."""
        lives = self._world.far_disk[self._task, thread]
        self._there, self._changes = lives[max(lives)], 0
        self._world.far_disk.setdefault((self._task, self._thread), {})[self._worker.incarnation] = (
            self._there
        )
        self._world.met["snapshots gone on from"] += 1
        return form.stream(self._there)

    def close(self) -> None: ...
    def remove(self) -> None: ...
