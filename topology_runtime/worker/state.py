"""The worker's mind: which threads, peers and orders it has, and what it must do to have those wanted.

Pure: events in, instructions out; worker.py performs them, the simulator too. Rules:
 1. Only the highest token counts; a lower one is answered with a report.
 2. A wanted thread of this slot that is neither here nor ended is started once.
 3. A thread that is wanted no more ends at once; one that is leaving ends when the plan is COMMITTED
    and the thread is empty and marked (an exclusive one already when it is marked and empty).
 4. A peer of a higher incarnation replaces the old one; what was open on the way to it is sent again.
    So it is when new routes lead away from a worker that is no more.
 5. READY: every wanted thread of this slot is here, and every other worker answered a ping.
 6. A worker whose threads have all ended and that has none wanted leaves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from topology_runtime.cluster import Slot
from topology_runtime.messages import SourceNow, ThreadNow, ThreadWanted, Token, Wanted, WorkerAt
from topology_runtime.worker.orders import Orders, orders_of


@dataclass(frozen=True)
class StartThread:
    wanted: ThreadWanted


@dataclass(frozen=True)
class EndThread:
    """The thread ends now: it is empty and nobody sends to it, or it is wanted no more."""

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
    """Send a ping to this peer: has it a way back?"""

    slot: Slot


@dataclass(frozen=True)
class Fault:
    """Source threads send again what is open."""

    why: str


@dataclass(frozen=True)
class Leave:
    """The worker exits: no thread is left or wanted."""


Instruction = StartThread | EndThread | Obey | Connect | Disconnect | AskPeer | Fault | Leave


@dataclass
class WorkerState:
    """The worker in `slot`, incarnation `incarnation`."""

    slot: Slot
    incarnation: int
    wanted: Wanted | None = None
    orders: Orders | None = None
    threads: dict[int, ThreadNow] = field(default_factory=dict)
    sources: dict[int, SourceNow] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    peers: dict[Slot, WorkerAt] = field(default_factory=dict)
    known: dict[Slot, int] = field(default_factory=dict)  # highest incarnation ever heard of
    answered: set[tuple[Slot, int]] = field(default_factory=set)

    @property
    def token(self) -> Token:
        return self.wanted.token if self.wanted else Token()

    # ── events ──────────────────────────────────────────────────────────────────────────────────

    def on_wanted(self, wanted: Wanted) -> list[Instruction]:
        """A wanted state from the agent."""
        if wanted.token < self.token:
            return []
        before, self.wanted = self.wanted, wanted
        self.orders = orders_of(wanted, self.slot, self.incarnation)
        out: list[Instruction] = []
        for peer in wanted.workers:
            if peer.slot.vm not in wanted.held_dead or not peer.endpoint:
                out += self._meet(peer)
        out += self._forget_peers(wanted)
        if before is not None and (lost := _left_behind(before, wanted)):
            out.append(Fault(f"routes led to {lost}, which is no more"))
        out.append(Obey(self.orders))
        for thread in wanted.threads:
            if (
                thread.slot == self.slot
                and thread.thread not in self.threads
                and thread.thread not in self.ended
            ):
                self.threads[thread.thread] = ThreadNow(thread.thread)
                out.append(StartThread(thread))
        out += self._end_some()
        return out + self.on_tick()

    def on_peer(self, peer: WorkerAt) -> list[Instruction]:
        """A ping shows a peer that the controller has not named yet."""
        if self.wanted is not None and peer.slot.vm in self.wanted.held_dead:
            return []
        return self._meet(peer)

    def on_answer(self, slot: Slot, incarnation: int) -> list[Instruction]:
        self.answered.add((slot, incarnation))
        return []

    def on_threads(self, threads: list[ThreadNow], sources: list[SourceNow]) -> list[Instruction]:
        """How the threads of this worker are now."""
        for now in threads:
            if now.thread in self.threads and now.thread not in self.ended:
                self.threads[now.thread] = now
        self.sources.update({now.thread: now for now in sources})
        return self._end_some()

    def on_tick(self) -> list[Instruction]:
        """Ask the peers that have not answered; leave when there is nothing to do."""
        out: list[Instruction] = [
            AskPeer(slot)
            for slot, peer in self.peers.items()
            if (slot, peer.incarnation) not in self.answered
        ]
        if self.wanted is not None and not self._mine() and all(t in self.ended for t in self.threads):
            out.append(Leave())
        return out

    # ── what it amounts to ──────────────────────────────────────────────────────────────────────

    @property
    def ready(self) -> bool:
        """READY for the present token (rule 5)."""
        if self.wanted is None or self.orders is None:
            return False
        here = all(t.thread in self.threads or t.thread in self.ended for t in self._mine())
        failed = any(now.failed for now in self.threads.values())
        dead = set(self.wanted.held_dead)
        others = {t.slot for t in self.wanted.threads if t.slot != self.slot and t.slot.vm not in dead}
        return here and not failed and self.orders.started and all(self._reached(slot) for slot in others)

    def fenced(self, slot: Slot, incarnation: int) -> bool:
        """Is this the word of a worker that has been replaced?"""
        return incarnation < self.known.get(slot, 0)

    def validate(self) -> None:
        """Raises AssertionError when the state contradicts itself (called in every test)."""
        assert all(peer.incarnation <= self.known.get(slot, 0) for slot, peer in self.peers.items())
        assert self.slot not in self.peers
        assert self.wanted is None or self.orders is not None

    # ── rules ───────────────────────────────────────────────────────────────────────────────────

    def _mine(self) -> list[ThreadWanted]:
        return [t for t in self.wanted.threads if t.slot == self.slot] if self.wanted else []

    def _reached(self, slot: Slot) -> bool:
        peer = self.peers.get(slot)
        return peer is not None and (slot, peer.incarnation) in self.answered

    def _meet(self, peer: WorkerAt) -> list[Instruction]:
        if peer.slot == self.slot or peer.incarnation < self.known.get(peer.slot, 0):
            return []
        out: list[Instruction] = []
        before = self.known.get(peer.slot, 0)
        if peer.incarnation > before:
            self.known[peer.slot] = peer.incarnation
            if peer.slot in self.peers:
                del self.peers[peer.slot]
                out.append(Disconnect(peer.slot))
            if before:
                out.append(Fault(f"worker {peer.slot} was replaced"))
        if peer.endpoint and peer.slot not in self.peers:
            self.peers[peer.slot] = peer
            out.append(Connect(peer))
        return out

    def _forget_peers(self, wanted: Wanted) -> list[Instruction]:
        """Peers whose slot has no thread any more, or whose VM is held dead."""
        used = {t.slot for t in wanted.threads if t.slot.vm not in wanted.held_dead}
        out: list[Instruction] = []
        for slot in [slot for slot in self.peers if slot not in used]:
            del self.peers[slot]
            out.append(Disconnect(slot))
            if slot.vm in wanted.held_dead:
                out.append(Fault(f"VM {slot.vm} is held dead"))
        self.answered = {
            (slot, incarnation)
            for slot, incarnation in self.answered
            if incarnation >= self.known.get(slot, 0)
        }
        return out

    def _end_some(self) -> list[Instruction]:
        if self.wanted is None or self.orders is None:
            return []
        mine = {t.thread: t for t in self._mine()}
        out: list[Instruction] = []
        for now in list(self.threads.values()):
            if now.thread in self.ended:
                continue
            if now.thread not in mine or self._may_end(mine[now.thread], now):
                self.ended.add(now.thread)
                self.threads[now.thread] = ThreadNow(now.thread, ended=True)
                out.append(EndThread(now.thread))
        for thread in self.ended - mine.keys():
            self.threads.pop(thread, None)
            self.sources.pop(thread, None)
        return out

    def _may_end(self, thread: ThreadWanted, now: ThreadNow) -> bool:
        assert self.wanted is not None
        if not thread.leaving or not now.empty or now.marked < self.wanted.routes_number:
            return False
        exclusive = self.wanted.topology.by_name[thread.task].exclusive
        return self.wanted.phase == "committed" or (exclusive and self.wanted.phase == "switched")


def _left_behind(before: Wanted, after: Wanted) -> str:
    """A worker that was sent rows by the routes before, is sent none by those after, and is no more."""
    if after.routes_number == before.routes_number:
        return ""
    alive = {at.slot for at in after.workers if at.endpoint and at.slot.vm not in after.held_dead}
    slots = {thread.thread: thread.slot for thread in before.threads}
    targets = {thread for route in before.routes for thread, _ in route.targets}
    targets -= {thread for route in after.routes for thread, _ in route.targets}
    return next((str(slots[t]) for t in sorted(targets) if t in slots and slots[t] not in alive), "")
