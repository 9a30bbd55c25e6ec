"""Inside one worker: where frames, acks and barriers go. Local ones straight into a thread's inbox, others
out of it, by one PUSH socket per peer worker.

The sender and the receiver run no user code.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys.key_pairs import KeyPair, contact_at
from headgate.topology_runtime.latency.latency_messages import LatencyReport, Paces
from headgate.topology_runtime.platform.clock import monotonic_ns
from headgate.topology_runtime.platform.kept_threads import KeptThread
from headgate.topology_runtime.wire.channels import LinkWatch, PullChannel, PushChannel, encode
from headgate.topology_runtime.wire.messages import (
    Ack,
    Acks,
    DesiredState,
    Frame,
    Ping,
    Token,
    ToldWord,
    Tuples,
    WireFrame,
    WorkerAt,
    told,
)
from headgate.topology_runtime.wire.state_moves import StateWord
from headgate.topology_runtime.worker.links.frame_encoding import ROW_BYTES_MOST, BadRows, written
from headgate.topology_runtime.worker.links.peer_links import Outbox
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.orders.worker_state import WorkerState
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import Addressed, summed
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.sources.source_ledger import FRAME_BYTES, IN_FLIGHT_BYTES, ROWS_A_THREAD

SMALL_BYTES = 4096  # of a frame that its maker may write into a socket
SEND_BATCH = 512  # messages taken from the queue before acks are written
PENDING_MOST = 8192  # messages kept for a peer that is not connected yet
POLL_S = 0.2
CLOSED_KEPT = 10_000  # threads that have ended are remembered: what still comes for them is dropped
EARLY_MOST = 4096  # refused senders told at once; and of any word of peers that waits
PEERS_TOLD, TOLD_NS = 4, 60_000_000_000

Whole = Ping | LatencyReport | Paces  # they say themselves who says them
_random64 = partial(random.getrandbits, 64)

WAITING_BYTES = 2 * IN_FLIGHT_BYTES  # of frames that one peer sent and nobody has taken (Receiver.room)


class HeldBytes(int):
    """The size of a frame, for as long as somebody has it: then it is given back."""

    back: deque[int]

    def __new__(cls, size: int, back: deque[int]) -> Self:
        held = super().__new__(cls, size)
        held.back = back
        return held

    def __del__(self) -> None:
        self.back.append(int(self))


class PeerBytes:
    """What one peer has sent and nobody has taken yet. One thread adds, any gives back. dropped: frames too many."""

    def __init__(self) -> None:
        self.dropped = self.dropped_ns = 0
        self._waiting = 0
        self._back: deque[int] = deque()

    @property
    def waiting(self) -> int:
        while self._back:
            self._waiting -= self._back.popleft()
        return self._waiting

    def holds(self, size: int, most: int) -> HeldBytes | None:
        """None: there is no room."""
        size += FRAME_BYTES
        if self.waiting and self.waiting + size > most:
            self.dropped, self.dropped_ns = self.dropped + 1, monotonic_ns()
            return None
        self._waiting += size
        return HeldBytes(size, self._back)


# (arrived_ns, Frame or, of a peer, WireFrame, bytes), Barrier, list[Ack], or None: look around
Inbox = SimpleQueue[Any]


class Switchboard:
    """Inboxes of this worker's threads, and the way out."""

    def __init__(self, slot: Slot, incarnation: int, by_columns: Collection[Slot] = frozenset()) -> None:
        """by_columns: peers that read frames of columns; told by them, so it may change."""
        self.slot, self.incarnation, self._by_columns = slot, incarnation, by_columns
        self.inboxes: dict[int, Inbox] = {}
        self.wakers: dict[
            int, Callable[[], None]
        ] = {}  # of threads that may wait for something else than their inbox
        self.out = Outbox()
        self.slot_of: dict[int, Slot] = {}
        self.strict = False
        self.topology_size = (0, 0)  # edges and sources; 0: not known yet
        self.bad_rows: BadRows = SimpleQueue()
        self.latency: SimpleQueue[LatencyReport | Paces] = SimpleQueue()
        self.late: set[int] = (
            set()
        )  # threads that have ended, here or elsewhere, and that rows came for since
        self._closed: set[int] = set()
        self._lock = threading.Lock()

    def knows(self, frame: Frame) -> bool:
        """Does the frame name an edge and sources of this topology? (Before it is known here: believed.)"""
        edges, sources = self.topology_size
        return not edges or (
            0 <= frame.edge < edges and all(0 <= root.source < sources for root in frame.roots)
        )

    def inbox(self, thread: int) -> Inbox:
        """The inbox of a thread, made on first use: frames may come before the thread is built."""
        inbox = self.inboxes.get(thread)
        if inbox is None:
            with self._lock:
                inbox = self.inboxes.setdefault(thread, SimpleQueue())
        return inbox

    def close_inbox(self, thread: int) -> None:
        """The thread has ended: what still comes for it is dropped, and `late` says so where it is rows."""
        self._closed.add(thread)
        if len(self._closed) > CLOSED_KEPT:  # numbers rise: nobody sends to what is so far below
            self._closed = set(sorted(self._closed)[-CLOSED_KEPT // 2 :])
        self.inboxes.pop(thread, None)

    def put(self, thread: int, item: Any) -> None:
        if thread not in self._closed:
            self.inbox(thread).put(item)
            if thread in self.wakers:
                self.wakers[thread]()
        if thread in self._closed:  # maybe only now, by another: then it may not have seen the item
            self._drop(thread, item)

    def _drop(self, thread: int, item: Any) -> None:
        self.inboxes.pop(thread, None)  # it may have been made again since it was closed
        if type(item) is tuple:
            self.late.add(thread)

    def wake_all(self) -> None:
        for thread in list(self.inboxes):
            self.put(thread, None)

    def deliver(self, frames: Iterable[Frame]) -> int:
        """Frames of a thread of this worker, on their way: the bytes of those that leave it."""
        wire_bytes = 0
        for frame in frames:
            slot = self.slot_of.get(frame.target)
            if slot == self.slot:
                if self.strict:
                    frame.rows = wire.read(wire.write(frame.rows, shape := wire.shape_of(frame.rows)), shape)
                self.put(frame.target, (frame.flushed_ns, frame, 0))
            elif slot is None:
                self.late.add(frame.target)
            else:
                if isinstance(frame.rows, Columns) and slot not in self._by_columns:
                    frame.rows = frame.rows.rows()
                for data in written(frame, self.bad_rows, _random64):
                    wire_bytes += len(data)
                    if len(data) <= SMALL_BYTES:
                        self.out.send(slot, data)
                    else:  # who is busy fills its frames, and has others write them
                        self.out.put((slot, data))
        return wire_bytes

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        """Acks to the ledgers they belong to."""
        own: list[Ack] = []
        others: dict[Slot, list[Ack]] = {}
        for home, ack in acks:
            (own if home == self.slot else others.setdefault(home, [])).append(ack)
        for home, batch in others.items():
            self.out.send(home, batch, self.written_acks)
        self.put_acks(own)

    def put_acks(self, acks: Iterable[Ack]) -> None:
        """Acks to ledgers of this worker; those of a worker before are nobody's."""
        by_thread: dict[int, list[Ack]] = {}
        for ack in acks:
            if ack.key.incarnation == self.incarnation:
                by_thread.setdefault(ack.key.thread, []).append(ack)
        for thread, batch in by_thread.items():
            self.put(thread, batch)

    def written_acks(self, acks: list[Ack]) -> bytes:
        return encode(Acks(self.slot, self.incarnation, acks))

    def send_word(self, word: StateWord) -> None:
        """What threads tell each other beside rows, in order with the rows."""
        slot = self.slot_of.get(word.target)
        if slot == self.slot:
            self.put(word.target, word)
        elif slot is not None:
            self.out.put((slot, word))


@dataclass(frozen=True)
class Over:
    """This thread has ended, and all that it sent was given to the sender before this."""

    thread: int


class Sender(KeptThread):
    """Makes and ends the sockets to the peers; writes what waits: frames, words, and acks in batches."""

    def __init__(
        self, board: Switchboard, meter: mt.Meter, records: dict[int, int], wake: Any, own: KeyPair
    ) -> None:
        super().__init__("sender")
        self._own = own
        self._board, self._meter, self._records, self._wake = board, meter, records, wake
        self.watches: SimpleQueue[tuple[WorkerAt, LinkWatch]] = SimpleQueue()  # of links, for who reads them
        self._pending: dict[Slot, list[bytes]] = {}
        self._owed: set[Slot] = set()  # peers for whom something came that was not kept
        self.lost: SimpleQueue[str] = SimpleQueue()  # for whom something was lost that may be sent again

    def connect(self, peer: WorkerAt) -> None:
        self._board.out.put((None, peer))

    def disconnect(self, slot: Slot) -> None:
        self._board.out.put((None, slot))

    def stop(self) -> None:
        self._board.out.put((None, None))

    def over(self) -> None:
        with self._board.out.taken(0):
            for channel in self._board.out.peers.values():
                channel.close()
            self._board.out.peers.clear()

    def turn(self) -> bool:
        """One batch; False to stop."""
        self._board.out.wait()
        try:
            return self._batch()
        except Exception:
            self._tell_lost("the peers")
            raise

    def _batch(self) -> bool:
        acks: dict[Slot, list[Ack]] = {}
        go_on = True
        with self._board.out.taken(SEND_BATCH) as items:
            for item in items:
                go_on = self._one(*item, acks) and go_on
            for slot, batch in acks.items():
                self._send(slot, self._board.written_acks(batch))
        return go_on

    def _tell_lost(self, whose: str) -> None:
        self.lost.put(whose)
        self._wake.set()

    def _one(self, slot: Slot | None, what: Any, acks: dict[Slot, list[Ack]]) -> bool:
        if slot is None:
            return self._order(what)
        if isinstance(what, bytes):
            self._send(slot, what)
        elif isinstance(what, list):
            acks.setdefault(slot, []).extend(what)
        else:
            self._send(slot, encode(what if isinstance(what, Whole) else self._signed(what)))
        return True

    def _signed(self, word: StateWord) -> ToldWord:
        return told(self._board.slot, self._board.incarnation, word)

    def _order(self, what: Any) -> bool:
        if isinstance(what, WorkerAt):
            self._drop_peer(what.slot)
            try:
                channel = self._board.out.peers[what.slot] = PushChannel(contact_at(what.endpoint, self._own))
            except HeadgateError:  # what is for it waits until another worker is in its place
                return True
            self.watches.put((what, channel.watch))
            self._wake.set()
            if what.slot in self._owed:
                self._owed.remove(what.slot)
                self._tell_lost(str(what.slot))
            for data in self._pending.pop(what.slot, []):
                self._send(what.slot, data)
        elif isinstance(what, Slot):
            self._drop_peer(what)
        elif isinstance(what, Over) and (record := self._records.pop(what.thread, None)) is not None:
            self._meter.thread_ended(record)
        return what is not None

    def _drop_peer(self, slot: Slot) -> None:
        channel = self._board.out.peers.pop(slot, None)
        if channel is not None:
            channel.close(linger_ms=0)

    def _send(self, slot: Slot, data: bytes) -> None:
        channel = self._board.out.peers.get(slot)
        if channel is not None:
            if not channel.send_bytes(data):
                self._owed.add(slot)
            return
        pending = self._pending.setdefault(slot, [])
        if len(pending) < PENDING_MOST:
            pending.append(data)
        else:
            self._owed.add(slot)


class Receiver(KeptThread):
    """Owns the worker's PULL socket; hands what arrives to inboxes, if the worker's state admits it."""

    def __init__(
        self, board: Switchboard, pull: PullChannel, state: WorkerState, pings: SimpleQueue[Ping], wake: Any
    ) -> None:
        super().__init__("receiver")
        self._board, self._pull, self._state, self._pings, self._wake = board, pull, state, pings, wake
        self._decoder: msgspec.msgpack.Decoder[Tuples] = msgspec.msgpack.Decoder(Tuples)
        self.refused = 0
        self.early: SimpleQueue[tuple[Slot, int, Token]] = SimpleQueue()  # refused: by which desired state
        self.lost: SimpleQueue[str] = SimpleQueue()  # whose frames were dropped, and there is room again
        self.peers: dict[str, PeerBytes] = {}  # by name: VM/SLOT#INCARNATION
        self.stopping = False
        self._owed: dict[str, PeerBytes] = {}  # of whom frames were dropped since that was told
        self.room = WAITING_BYTES  # for frames of one peer
        self._room_for: DesiredState | None = None

    def turn(self) -> bool:
        data = self._pull.wait_for_bytes(POLL_S)
        if data is not None:
            self.take(data)
        self.look_for_room()
        return not self.stopping

    def look_for_room(self) -> None:
        """What was dropped is lost; that is told when it may be sent again."""
        for name, peer in tuple(self._owed.items()):
            if peer.waiting <= self.room // 2:
                del self._owed[name]
                self.lost.put(name)
                self._wake.set()

    def over(self) -> None:
        self._pull.close(linger_ms=0)

    def dropped(self) -> tuple[str, ...]:
        """What peers sent too much of within the last minute."""
        since_ns = monotonic_ns() - TOLD_NS
        found = [
            (name, p.dropped) for name, p in list(self.peers.items()) if p.dropped and p.dropped_ns > since_ns
        ]
        return tuple(
            f"peer {name} sends more than is taken: {n:,} frames dropped" for name, n in found[:PEERS_TOLD]
        )

    def _peer(self) -> tuple[str, PeerBytes]:
        """Whose the message is by its key, whatever it says itself."""
        who = self._state.keys.get(self._pull.whose)
        name = who.name if who is not None else ""
        if (peer := self.peers.get(name)) is None:
            if len(self.peers) >= EARLY_MOST:
                self.peers.pop(next(iter(self.peers)))
            peer = self.peers[name] = PeerBytes()
        return name, peer

    def _make_room(self) -> None:
        """For all that honest peers may have on its way here: what each source thread has in flight, once for each way
        on which it may come."""
        desired, here = self._state.desired, self._board.slot
        if desired is self._room_for or desired is None:
            return
        self._room_for = desired
        sources = {task.name for task in desired.topology.sources}
        threads = Counter(thread.task for thread in desired.threads if thread.slot == here)
        ways = sum(
            threads[edge.target] if edge.grouping == "all" else min(1, threads[edge.target])
            for edge in desired.topology.edges
        )
        each = max(WAITING_BYTES, ROWS_A_THREAD * len(desired.threads) * ROW_BYTES_MOST)
        self.room = each * max(1, sum(thread.task in sources for thread in desired.threads)) * max(1, ways)
        self._pull.links.unread_most = self.room

    def take(self, data: bytes) -> None:
        try:
            message = self._decoder.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            self.refused += 1
            return
        if isinstance(message, WireFrame):
            self._frame(message, len(data))
        elif not self._is_his(message.slot, message.incarnation):
            self.refused += 1
        elif isinstance(message, Ping):
            if self._pings.qsize() < EARLY_MOST:
                self._pings.put(message)
            self._wake.set()
        else:
            self._told(message)

    def _frame(self, message: WireFrame, size: int) -> None:
        frame, token = message.frame, self._state.token
        if not self._state.admits(frame):
            return self._refuse(frame.slot, frame.incarnation, token)
        self._make_room()
        name, peer = self._peer()
        if not self._board.knows(frame) or (name and name != f"{frame.slot}#{frame.incarnation}"):
            self.refused += 1
        elif (held := peer.holds(size, self.room)) is not None:
            self._board.put(frame.target, (monotonic_ns(), message, held))
        else:
            self._owed[name] = peer
        self._pull.links.held[self._pull.whose] = peer.waiting

    def _is_his(self, slot: Slot, incarnation: int) -> bool:
        """Nobody speaks for another worker. (Under a key that is named no more, what it says is fenced.)"""
        name = self._peer()[0]
        return not name or name == f"{slot}#{incarnation}"

    def _told(self, message: Acks | ToldWord | LatencyReport | Paces) -> None:
        token = self._state.token
        if self._state.fenced(message.slot, message.incarnation):
            self._refuse(message.slot, message.incarnation, token)
        elif isinstance(message, Acks):
            self._board.put_acks(message.acks)
        elif isinstance(message, ToldWord):
            self._word(message)
        elif self._board.latency.qsize() < EARLY_MOST:
            self._board.latency.put(message)

    def _word(self, message: ToldWord) -> None:
        word, places = message.word, self._state.places
        if places.get(word.sender) != message.slot or places.get(word.target) != self._board.slot:
            self.refused += 1
            return
        self._board.put(word.target, word)

    def _refuse(self, slot: Slot, incarnation: int, token: Token) -> None:
        self.refused += 1
        if self.early.qsize() < EARLY_MOST:
            self.early.put((slot, incarnation, token))
            self._wake.set()


# ── The way out of one thread: frames for a thread that is chained to it are given to that by a direct
# call, all else to the switchboard.


class Ran(NamedTuple):
    """When it was done with a frame, by the CPU clock of the calling thread, ns; and the acks, which are for the
    caller to send."""

    cpu_ns: int
    acks: Sequence[Addressed]


class Receiving(Protocol):
    """A thread of this worker that others may run (task_thread.py)."""

    def run_for(self, frame: Frame, before: int, cpu_ns: int) -> Ran | None:
        """Take the frame now, in the calling thread, if all the `before` frames that its sender sent earlier are
        taken. None: it is to be put into the inbox. cpu_ns: what the calling thread's CPU clock says."""


class ChainedPost:
    """Of one thread. targets: the threads that it may run; chained: those that it ran when it had a frame for
    them last. lent_ns: CPU that it spent on them. wire_bytes: that left the worker. cpu_ns: what the CPU clock said
    when it was read last within what is done now; 0: it was not. A chain reads it once for each of its threads."""

    def __init__(self, board: Switchboard, threads: Mapping[int, Receiving]) -> None:
        self.slot, self.incarnation = board.slot, board.incarnation
        self._board, self._threads = board, threads
        self.targets: frozenset[int] = frozenset()
        self.chained: set[int] = set()
        self.lent_ns = self.wire_bytes = self.cpu_ns = 0
        self._sent: dict[int, int] = {}
        self._acks: list[Addressed] | None = None  # while they are gathered

    def begin(self, cpu_ns: int = 0) -> None:
        """From now on acks are gathered: of a frame, of the thread and of all that it runs, those of a root leave as
        one when all of these are done."""
        self._acks, self.cpu_ns = [], cpu_ns

    def end(self) -> Sequence[Addressed]:
        """What was gathered, for whoever runs this thread."""
        acks, self._acks, self.cpu_ns = self._acks or (), None, 0
        return acks

    def end_and_send(self) -> None:
        if acks := self.end():
            self._board.send_acks(summed(acks))

    def deliver(self, frames: Iterable[Frame]) -> None:
        for frame in frames:
            target = frame.target
            before = self._sent.get(target, 0)
            self._sent[target] = before + 1
            if target in self.targets and self._run(frame, before):
                self.chained.add(target)
                continue
            self.chained.discard(target)
            if wire_bytes := self._board.deliver((frame,)):
                self.wire_bytes += wire_bytes
                if self.cpu_ns:
                    self.cpu_ns = time.thread_time_ns()  # to write it was this thread's work

    def _run(self, frame: Frame, before: int) -> bool:
        receiver = self._threads.get(frame.target)
        if receiver is None:
            return False
        cpu_ns = self.cpu_ns or time.thread_time_ns()
        ran = receiver.run_for(frame, before, cpu_ns)
        if ran is None:
            return False
        self.lent_ns += ran.cpu_ns - cpu_ns
        self.cpu_ns = ran.cpu_ns if self._acks is not None else 0
        self.send_acks(ran.acks)
        return True

    def send_acks(self, acks: Iterable[Addressed]) -> None:
        if self._acks is not None:
            self._acks += acks
        else:
            self._board.send_acks(acks)

    def send_word(self, word: StateWord) -> None:
        self._board.send_word(word)
