"""The worker's mind: which threads, peers and orders it has, and what it must do to have those desired.

Pure: events in, instructions out; worker_process.py performs them, the simulator too. Rules:
 1. Only the highest token counts; a lower one is answered with a report.
 2. A desired thread of this slot that is neither here nor ended is started once.
 3. A thread that is no longer desired ends at once; one that is leaving ends when the plan is COMMITTED
    and the thread is empty and marked (an exclusive one already when it is marked and empty), and every
    peer has answered a question since: what it wrote has arrived, or its loss was told (rule 7).
 4. A peer of a higher incarnation replaces the old one; what was open on the way to it is sent again.
    So it is when new routes lead away from a worker that is no more. Only a desired state names an
    incarnation; who is not named, or is named no more, is not heard.
 5. READY: every desired thread of this slot is here, built or not, and every other worker answered a ping.
 6. A worker whose threads have all ended and that has none desired, or one that it will not start again,
    leaves. Who goes, tells what was lost once
    more to peers that may not know.
 7. What was on its way over a link is lost when the link breaks; so is what was refused because its
    sender was not named yet, what was dropped because too much waited, there or here, and what was for a
    thread that has ended. All are counted as losses (the first three once the link is back, the sender
    named or room there) and told to every peer until it answers that it has heard of them: then all
    sources send again what is open.
 8. Losses that follow each other closely are answered together, ever less often.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.key_pairs import Who, key_of
from headgate.topology_runtime.wire.messages import (
    DesiredState,
    Frame,
    Ping,
    SourceStatus,
    ThreadSpec,
    ThreadStatus,
    Token,
    VmHeard,
    WorkerAt,
)
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of

NS = 1_000_000_000
PAUSE_NS, PAUSE_MOST_NS = NS // 4, 4 * NS  # after sources were told of losses, until they are again
MS, BEAT_NS = 1_000_000, 1_000_000_000  # between two questions to a peer on another VM
SHORT_PAUSES = 4  # links that broke together come back one after the other
CALM_NS = 10 * NS  # without losses: the next one is told at once, and the pause is short again
STRANGERS_MOST = 256  # slots without a thread that are remembered, of whose workers data was refused
PLACES_MOST = 1 << 16  # threads of all plans so far whose slots are remembered

ENDED = 1 << 30  # instead of how often a thread started again
ENDED_KEPT = 10_000  # threads that have ended are remembered, or they might be started again


@dataclass(frozen=True)
class StartThread:
    desired: ThreadSpec


@dataclass(frozen=True)
class EndThread:
    """The thread ends now: it is empty and nobody sends to it, or it is no longer desired."""

    thread: int


@dataclass(frozen=True)
class Obey:
    """Every thread looks at these orders between two frames."""

    orders: Orders


@dataclass(frozen=True)
class Connect:
    peer: WorkerAt


@dataclass(frozen=True)
class Disconnect:
    slot: Slot


@dataclass(frozen=True)
class AskPeer:
    """Send a ping to this peer: has it a way back, and does it know of all losses?"""

    slot: Slot


@dataclass(frozen=True)
class AnswerPeer:
    """Answer this peer's ping."""

    slot: Slot


@dataclass(frozen=True)
class Fault:
    """Source threads send again what is open."""

    why: str


@dataclass(frozen=True)
class Leave:
    """The worker exits: no thread is left or desired."""


Instruction = StartThread | EndThread | Obey | Connect | Disconnect | AskPeer | AnswerPeer | Fault | Leave


@dataclass
class Said:
    """What the worker of this incarnation has told: losses of its own, losses of ours that it knows of (told), the last
    rounds that it asked, and answered (seen)."""

    incarnation: int
    answered: bool = False
    losses: int = 0
    told: int = 0
    asked: int = 0
    seen: int = 0
    met_ns: int = 0  # the first question; then the last word, the last question, when its last was asked
    heard_ns: int = 0
    question_ns: int = 0
    at_ms: int = 0
    delay_ms: int | None = None  # of the last answer
    contact_ns: int = 0  # of its VM with the controller


@dataclass
class WorkerState:
    """The worker in `slot`, incarnation `incarnation`."""

    slot: Slot
    incarnation: int
    desired: DesiredState | None = None
    orders: Orders | None = None
    threads: dict[int, ThreadStatus] = field(default_factory=dict)
    sources: dict[int, SourceStatus] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    answering: set[int] = field(default_factory=set)  # of the threads here, those that were started to answer
    peers: dict[Slot, WorkerAt] = field(default_factory=dict)
    known: dict[Slot, int] = field(default_factory=dict)  # highest incarnation ever named
    keys: dict[str, Who] = field(
        default_factory=dict
    )  # by public key; asked at handshakes, by another thread
    _key: dict[Slot, str] = field(default_factory=dict)
    places: dict[int, Slot] = field(default_factory=dict)  # where threads are, or were: they do not move
    by_columns: set[Slot] = field(default_factory=set)  # peers that read frames of columns
    contact_ns: int = 0  # of this VM with the controller, as its agent says
    losses: int = 0
    links: dict[Slot, bool] = field(default_factory=dict)  # those that were up once: are they now?
    said: dict[Slot, Said] = field(default_factory=dict)  # by the workers that are named
    round: int = 0  # of our questions
    emptied: dict[int, int] = field(default_factory=dict)  # leaver → the round started when it was empty
    started_again: dict[int, int] = field(default_factory=dict)  # thread → how often it forgot what it had
    early: dict[Slot, int] = field(default_factory=dict)  # refused → highest incarnation
    around: frozenset[Slot] = frozenset()  # slots with threads
    _others: frozenset[Slot] = frozenset()  # slots of the workers that it waits for
    _mine: tuple[ThreadSpec, ...] = ()  # threads that are desired here
    _lost: str = ""  # why sources are to send again
    _pauses: int = 0
    _again_ns: int = 0  # not before
    _now_ns: int = 0  # of the last tick

    @property
    def token(self) -> Token:
        return self.desired.token if self.desired else Token()

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def on_desired(self, desired: DesiredState) -> list[Instruction]:
        """A desired state from the agent."""
        if desired.token < self.token:
            return []
        before, self.desired = self.desired, desired
        self.orders = orders_of(desired, self.slot, self.incarnation)
        self._mine = tuple(t for t in desired.threads if t.slot == self.slot)
        self._others = frozenset(
            t.slot
            for t in desired.threads
            if not t.answers and t.slot != self.slot and t.slot.vm not in desired.held_dead
        )
        out: list[Instruction] = []
        for peer in desired.workers:
            if peer.slot.vm not in desired.held_dead or not peer.endpoint:
                out += self._meet(peer)
        out += self._forget_peers(desired)
        self._place(desired)
        self._look_at_early()
        if before is not None and (lost := _left_behind(before, desired)):
            out.append(Fault(f"routes led to {lost}, which is no more"))
        if any(isinstance(one, Fault) for one in out):
            self.losses += 1  # what came through here for a while went nowhere: sources elsewhere are told
        out.append(Obey(self.orders))
        for thread in self._mine:
            if thread.thread not in self.threads and thread.thread not in self.ended:
                self.threads[thread.thread] = ThreadStatus(thread.thread, building=True)
                self.answering |= {thread.thread} if thread.answers else set()
                out.append(StartThread(thread))
        out += self._end_some()
        return out + self._ask() + self._leave()

    def on_ping(self, ping: Ping, now_ns: int = 0) -> list[Instruction]:
        """A peer asks, or answers. One that is not named is not answered: it asks again."""
        if self.fenced(ping.slot, ping.incarnation):
            return []
        said = self._said(ping.slot)
        said.heard_ns = now_ns
        if ping.contact_ms >= 0:
            said.contact_ns = max(said.contact_ns, now_ns - ping.contact_ms * MS)
        if not ping.answer:
            said.at_ms = ping.at_ms
        elif ping.at_ms:
            said.delay_ms = max(0, now_ns // MS - ping.at_ms)
        (self.by_columns.add if ping.columns else self.by_columns.discard)(ping.slot)
        said.asked = max(ping.round, said.asked)
        if ping.losses > said.losses:
            said.losses = ping.losses
            self._lost = f"worker {ping.slot} lost something"
        if not ping.answer:
            return [AnswerPeer(ping.slot)] if ping.slot in self.peers else []
        said.answered = True
        said.told, said.seen = max(ping.heard, said.told), max(ping.seen, said.seen)
        return self._end_some()

    def on_link(self, slot: Slot, up: bool) -> list[Instruction]:
        """The connection to a peer stands, or broke."""
        if slot not in self.peers:
            return []
        back = up and self.links.get(slot) is False
        if up or slot in self.links:
            self.links[slot] = up
        if back:
            self._lose(f"the link to {slot} broke")
        return []

    def on_refused(self, slot: Slot, incarnation: int, token: Token) -> list[Instruction]:
        """Data was refused by the desired state of `token`: a later one may name its sender, in a slot that has no
        thread yet. Of slots that are invented only so many are kept."""
        if slot not in self.early and slot not in self.around:
            strangers = [known for known in self.early if known not in self.around]
            for known in strangers[: len(strangers) - STRANGERS_MOST + 1]:
                del self.early[known]
        self.early[slot] = max(incarnation, self.early.get(slot, 0))
        if token < self.token:
            self._look_at_early()
        return []

    def on_dropped(self, peer: str) -> None:
        """Of what this peer sent there was too much, and there is room again."""
        self._lose(f"worker {peer} sent more than was taken")

    def on_unsent(self, whose: str) -> None:
        """What was for this peer was not kept, and it can be sent to now."""
        self._lose(f"what was for {whose} was not kept")

    def on_threads(self, threads: list[ThreadStatus], sources: list[SourceStatus]) -> list[Instruction]:
        """How the threads of this worker are now."""
        for now in threads:
            if now.thread in self.threads and now.thread not in self.ended:
                self.threads[now.thread] = now
        self.sources.update({now.thread: now for now in sources})
        before, out = self.round, self._end_some()
        return out + (self._ask() if self.round > before else [])

    def on_started_again(self, thread: int, times: int) -> None:
        """A thread forgot what it had, so often by now, or ended with it: rows that it kept are to come again."""
        if times > self.started_again.get(thread, 0):
            self.started_again[thread] = times
            self._lose(f"thread {thread} {'ended with rows' if times == ENDED else 'started again'}")

    def on_late(self, thread: int) -> None:
        """Rows came for a thread that has ended, or left for one that is nowhere: nobody takes them, as often as that
        happens."""
        self._lose(f"rows came for thread {thread}, which has ended")

    def on_tick(self, now_ns: int) -> list[Instruction]:
        """Ask the peers that have not answered, or not heard of all losses; leave when there is nothing to
        do. `now_ns`: monotonic."""
        self._now_ns = now_ns
        return self._send_again(now_ns) + self._ask(now_ns) + self._leave()

    def last_words(self) -> list[Instruction]:
        """The worker goes: peers that have not heard of all losses are told once more."""
        return self._ask()

    def heard(self, now_ns: int) -> tuple[VmHeard, ...]:
        """Of other VMs that have peers: is the way there and back open, and how long is it?"""
        found: dict[str, VmHeard] = {}
        for slot in self.peers:
            said = self._said(slot)
            if slot.vm == self.slot.vm or not said.met_ns:
                continue
            silent_ms = max(0, now_ns - max(said.met_ns, said.heard_ns)) // MS  # it may just have been heard
            before = found.get(slot.vm, VmHeard(slot.vm, silent_ms))
            known = [ms for ms in (before.delay_ms, said.delay_ms) if ms is not None]
            contacts = [
                before.contact_ms,
                max(0, now_ns - said.contact_ns) // MS if said.contact_ns else None,
            ]
            found[slot.vm] = VmHeard(
                slot.vm,
                min(silent_ms, before.silent_ms),
                min(known, default=None),
                min((ms for ms in contacts if ms is not None), default=None),
            )
        return tuple(found.values())

    # ── what it amounts to ──────────────────────────────────────────────────────────────────────

    @property
    def ready(self) -> bool:
        """READY for the present token (rule 5)."""
        if self.desired is None or self.orders is None:
            return False
        here = all(t.thread in self.threads or t.thread in self.ended for t in self._mine)
        reached = all(self._reached(slot) for slot in self._others)
        return here and self.orders.started and reached

    def fenced(self, slot: Slot, incarnation: int) -> bool:
        """Is this the word of a worker that has been replaced, or that no desired state has named?"""
        return incarnation != self.known.get(slot)

    def admits(self, frame: Frame) -> bool:
        """Does it come from a thread of a named worker, for a thread of this one? (Now, or in a plan before:
        what was on its way when a thread ended is no forgery.)"""
        return (
            frame.incarnation == self.known.get(frame.slot)
            and self.places.get(frame.sender) == frame.slot
            and self.places.get(frame.target) == self.slot
        )

    def ping(self, slot: Slot, answer: bool, now_ns: int = 0) -> Ping:
        """A question or an answer to the worker in `slot`."""
        said = self._said(slot)
        return Ping(
            self.slot,
            self.incarnation,
            answer,
            self.losses,
            said.losses,
            self.round,
            said.asked,
            columns=True,
            at_ms=said.at_ms if answer else self._now_ns // MS,
            contact_ms=max(0, now_ns - self.contact_ns) // MS if self.contact_ns else -1,
        )

    def validate(self) -> None:
        """Raises AssertionError when the state contradicts itself (called in every test)."""
        assert all(peer.incarnation <= self.known.get(slot, 0) for slot, peer in self.peers.items())
        assert self.slot not in self.peers
        assert self.links.keys() <= self.peers.keys()
        assert self.desired is None or self.orders is not None

    # ── rules ───────────────────────────────────────────────────────────────────────────────────

    def _said(self, slot: Slot) -> Said:
        """By the worker that is named in this slot; of one before nothing counts any more."""
        said, incarnation = self.said.get(slot), self.known.get(slot, 0)
        if said is None or said.incarnation != incarnation:
            said = self.said[slot] = Said(incarnation)
        return said

    def _reached(self, slot: Slot) -> bool:
        return slot in self.peers and self._said(slot).answered

    def _meet(self, peer: WorkerAt) -> list[Instruction]:
        if peer.slot == self.slot or peer.incarnation < self.known.get(peer.slot, 0):
            return []
        out: list[Instruction] = []
        if peer.incarnation > self.known.get(peer.slot, 0):
            self.known[peer.slot] = peer.incarnation
            if peer.slot in self.peers:  # else the one before left in order, or there was none
                out += [self._part(peer.slot), Fault(f"worker {peer.slot} was replaced")]
        if public := key_of(peer.endpoint):
            self.keys[public] = Who("worker", f"{peer.slot}#{peer.incarnation}")
            if (old := self._key.get(peer.slot, public)) != public:
                self.keys.pop(old, None)  # an agent that lies may have told one key of two workers
            self._key[peer.slot] = public
        if peer.endpoint and peer.slot not in self.peers:
            self.peers[peer.slot] = peer
            out.append(Connect(peer))
        return out

    def _forget_peers(self, desired: DesiredState) -> list[Instruction]:
        """Peers whose slot has no thread any more, or whose VM is held dead."""
        used = {t.slot for t in desired.threads if t.slot.vm not in desired.held_dead}
        out: list[Instruction] = []
        for slot in [slot for slot in self.peers if slot not in used]:
            out.append(self._part(slot))
            if slot.vm in desired.held_dead:
                out.append(Fault(f"VM {slot.vm} is held dead"))
        return out

    def _part(self, slot: Slot) -> Instruction:
        del self.peers[slot]
        self.links.pop(slot, None)
        self.by_columns.discard(slot)
        return Disconnect(slot)

    def _place(self, desired: DesiredState) -> None:
        """Remember where threads are, the newest of them."""
        self.around = frozenset(thread.slot for thread in desired.threads)
        self.places.update((thread.thread, thread.slot) for thread in desired.threads)
        if len(self.places) > PLACES_MOST + len(desired.threads):
            self.places = {number: self.places[number] for number in sorted(self.places)[-PLACES_MOST:]}
            self.places.update((thread.thread, thread.slot) for thread in desired.threads)

    def _look_at_early(self) -> None:
        """What was refused of a worker that is named now is lost. One that was named higher never comes."""
        for slot in [slot for slot in self.early if self.known.get(slot, 0) >= self.early[slot]]:
            if self.early.pop(slot) == self.known[slot]:
                self._lose(f"worker {slot} sent something before it was known here")

    def _lose(self, why: str) -> None:
        self.losses += 1
        self._lost = why

    def _send_again(self, now_ns: int) -> list[Instruction]:
        """Rule 8."""
        if not self._lost or now_ns < self._again_ns:
            return []
        self._pauses = 0 if now_ns - self._again_ns >= CALM_NS else self._pauses + 1
        pause_ns = PAUSE_NS << max(0, min(self._pauses - SHORT_PAUSES + 1, 10))
        self._again_ns = now_ns + min(pause_ns, PAUSE_MOST_NS)
        why, self._lost = self._lost, ""
        return [Fault(why)]

    def _ask(self, now_ns: int = 0) -> list[Instruction]:
        """Not over a link that is broken: the questions would pile up. now_ns: of a tick; peers on other VMs are asked
        every `BEAT_NS`, so that a way that is cut shows."""
        out: list[Instruction] = []
        for slot in self.peers:
            said = self._said(slot)
            said.met_ns = said.met_ns or now_ns
            beat = slot.vm != self.slot.vm and now_ns - said.question_ns >= BEAT_NS
            if self.links.get(slot, True) and (beat or not self._knows_all(said)):
                if now_ns and (beat or not said.question_ns):
                    said.question_ns = now_ns
                out.append(AskPeer(slot))
        return out

    def _knows_all(self, said: Said) -> bool:
        return said.answered and said.told >= self.losses and said.seen >= self.round

    def _leave(self) -> list[Instruction]:
        if self.desired is None or not all(t in self.ended for t in self.threads):
            return []
        # one that is to answer in the place of a thread that has ended here: the next worker of the slot starts it
        return [Leave()] if all(t.answers and t.thread in self.ended for t in self._mine) else []

    def _end_some(self) -> list[Instruction]:
        if self.desired is None or self.orders is None:
            return []
        mine = {t.thread: t for t in self._mine}
        out: list[Instruction] = []
        for now in list(self.threads.values()):
            if now.thread in self.ended:
                continue
            if now.thread not in mine or self._may_end(mine[now.thread], now):
                self.ended.add(now.thread)
                self.emptied.pop(now.thread, None)
                self.threads[now.thread] = ThreadStatus(now.thread, ended=True)
                out.append(EndThread(now.thread))
        for thread in self.ended - mine.keys():
            self.threads.pop(thread, None)
            self.sources.pop(thread, None)
        if len(self.ended) > ENDED_KEPT:  # numbers rise: what is so far below is named no more
            self.ended = set(sorted(self.ended)[-ENDED_KEPT // 2 :]) | (self.ended & mine.keys())
        return out

    def _may_end(self, thread: ThreadSpec, now: ThreadStatus) -> bool:
        assert self.desired is not None
        if thread.answers:  # as what it was it may not be built, and then it hears nobody
            return thread.thread not in self.answering
        if not thread.leaving or not now.empty or now.marked < self.desired.routes_number:
            self.emptied.pop(thread.thread, None)
            return False
        if self.desired.topology.by_name[thread.task].exclusive:
            return self.desired.phase in ("switched", "committed")
        return self.desired.phase == "committed" and self._arrived(thread.thread)

    def _arrived(self, thread: int) -> bool:
        """Has every peer answered since this thread was empty? Links keep their order."""
        if thread not in self.emptied:
            self.round += 1
            self.emptied[thread] = self.round
        begun = self.emptied[thread]
        return all(self._said(slot).seen >= begun for slot in self.peers)


def _left_behind(before: DesiredState, after: DesiredState) -> str:
    """A worker that was sent rows by the routes before, is sent none by those after, and is no more; or whose thread
    is no more: it had ended before it could be marked."""
    if after.routes_number == before.routes_number:
        return ""
    there = {thread.thread for thread in after.threads}
    alive = {at.slot for at in after.workers if at.endpoint and at.slot.vm not in after.held_dead}
    slots = {thread.thread: thread.slot for thread in before.threads}
    targets = {thread for route in before.routes for thread, _ in route.targets}
    targets -= {thread for route in after.routes for thread, _ in route.targets}
    lost = (t for t in sorted(targets) if t in slots and (t not in there or slots[t] not in alive))
    return next((str(slots[t]) for t in lost), "")
