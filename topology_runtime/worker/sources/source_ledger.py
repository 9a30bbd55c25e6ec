"""The ledger of one source thread: what is in flight, what is done, what must be sent again. Pure.

Rules (protocol: Tuples):
 1. A root is one frame of the source. Its entry is the XOR of all ids sent and not yet acked; zero
    means that everything that came of it is done.
 2. A root is done when *any* of its attempts reaches zero. Its latency counts from its first emission [B3].
 3. A root that misses its deadline is sent again with fresh ids; each expiry doubles its own deadline.
    A fault elsewhere (a dead peer) sends again everything that is open, doubling nothing. A root that
    is only late, because everything queues, is not lost: it is sent again once what was sent half a second later is
    done. When nothing was done in the last five seconds, one root is, after twenty more, doubled by each expiry: what
    stands still is not to become more and more, and what was lost is sent again once that root is done.
 4. Deadline: 30 s until 100 roots are measured, then max(30 s, 4 × p99), 600 s at most: for what no fault tells of
    (faults are told by links and by who is where). It stands still
    while rows of the root are kept by a task.
 5. Rows in flight and not kept stay within the window, and their bytes too, but for a few rows that large ones are
    granted; replays use a quarter of both at a time. A root has the bytes of its rows where they are largest: as they
    were read, or as a task says in its acks that it made of them. Before anything is known of that they are few.
    Of roots with kept rows as many bytes are held besides; the rows of more are let go here, and read again when they
    must be sent again.
 6. `acked` only moves forward: every position below it is done [B5].
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, KeysView, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from typing import Any

from headgate.topology_runtime.wire.messages import Ack

S = 1_000_000_000
LEAST_DEADLINE_NS, MOST_DEADLINE_NS = 30 * S, 600 * S
KEPT_DEADLINE_NS = 600 * S  # a root whose rows are kept: only a lost message can leave it this long
OVERTAKEN_NS, STUCK_NS = S // 2, 5 * S  # past its deadline: is it lost, or does everything queue?
STANDS_NS, STANDS_DOUBLED = 20 * S, 8  # the same when nothing was done in STUCK_NS; doubled so often at most
MEASURED_BEFORE_LEARNING = 100
LATENCIES_KEPT = 1024
LEARN_EVERY = 50  # roots measured between two looks at the 99th percentile
KEPT_ROWS_MOST = 200_000  # buffered rows a ledger may hold beside the window
IN_FLIGHT_BYTES = 32 << 20  # of rows in flight: the source's worker holds three times as much, others once
ROWS_A_THREAD = 2  # but no fewer rows for each thread of the run
FRAME_BYTES = 1024  # that a frame takes besides its rows, wherever it waits
WINDOW_LEAST_ROWS = 64
AT_FIRST_ROWS = 512  # in flight until it is known what becomes of them
LARGEST_OF = 64  # roots, in the mean of what becomes of a row
MADE_MOST_BYTES = 1 << 40  # of a root: sums of what a peer tells stay numbers


@dataclass(slots=True)
class Root:
    """An open root. Its rows stay here until it is done, or released: then there are none."""

    sequence: int
    position: int
    rows: Sequence[Any]
    count: int  # of its rows
    intended_ns: int
    first_sent_ns: int
    sent_ns: int  # its present attempt
    deadline_ns: int
    attempt: int = 0
    expiries: int = 0
    kept: int = 0
    read_bytes: int = 0  # of its rows as they were read
    largest_bytes: int = 0  # where they are largest, as far as is known
    size_bytes: int = 0  # counted for it: no less
    made: dict[int, int] = field(default_factory=dict)  # number of a task → bytes, of the present attempt
    open: dict[int, int] = field(default_factory=dict)  # attempt → XOR of its ids
    waits: dict[int, int] | None = (
        None  # who keeps rows of its present attempt in panes → XOR of their shares
    )

    def at_rest(self) -> bool:
        """Does all that is open of it wait in panes?"""
        return self.waits is not None and self.open.get(self.attempt) == reduce(xor, self.waits.values(), 0)


class Ledger:
    """One source thread's roots. Times are monotonic ns, given by the caller."""

    def __init__(self, position: int = 0, window_rows: int = WINDOW_LEAST_ROWS, first: int = 0) -> None:
        self.position = position  # next to read
        self.window_rows = window_rows
        self.window_bytes = 0  # 0: no bound
        self.least_rows = 0  # that may be in flight, however large they are
        self._read_bytes = 0.0  # of a row as it is read, about
        self._largest_bytes = 0.0  # of a row where it is largest, in the mean
        self._learned = 0  # roots in that mean
        self.row_bytes = 0.0  # of a row that is read next, where it is largest on its way
        self.in_flight = 0  # rows of open roots
        self.in_flight_bytes = 0  # of those of which no row is kept
        self.replayed = 0
        self._open: OrderedDict[int, Root] = OrderedDict()
        self.sequence = first
        self._kept = 0  # rows of roots with buffered rows
        self.held_bytes = 0  # of those of them that are here
        self.again: deque[int] = deque()
        self._replaying: dict[int, Root] = {}  # roots sent again, neither done nor kept
        self._tried = -1  # the root that was sent again last because all stands still
        self._latencies: deque[int] = deque(maxlen=LATENCIES_KEPT)
        self._measured = 0
        self.deadline_ns = LEAST_DEADLINE_NS
        self._newest_done_ns = 0  # when the latest sent of all done roots was sent
        self._last_done_ns = -STUCK_NS  # when one was done last

    # ── what may be sent ────────────────────────────────────────────────────────────────────────

    def room(self) -> int:
        """How many rows may be read now."""
        if self.again or self._kept >= KEPT_ROWS_MOST:
            return 0
        moving = self.in_flight - self._kept
        room = self.window_rows - moving
        if self.window_bytes and self.row_bytes:
            fit = int((self.window_bytes - self.in_flight_bytes) / self.row_bytes)
            if not self._learned:
                fit = min(fit, AT_FIRST_ROWS - moving)
            room = min(room, max(fit, self.least_rows - moving))
        return max(0, room)

    def reads(self, row_bytes: float) -> None:
        """A row that is read next is so large, about."""
        self._read_bytes = row_bytes
        self.row_bytes = max(row_bytes, self._largest_bytes)

    def begin(self, rows: Sequence[Any], intended_ns: int, now_ns: int, size_bytes: int = 0) -> Root:
        """A new root of these rows, at the next positions; size_bytes: as they were read, about."""
        deadline_ns = now_ns + self.deadline_ns
        root = Root(self.sequence, self.position, rows, len(rows), intended_ns, now_ns, now_ns, deadline_ns)
        root.read_bytes = root.largest_bytes = size_bytes
        root.size_bytes = max(size_bytes, int(self.row_bytes * len(rows))) + FRAME_BYTES
        self.in_flight_bytes += root.size_bytes
        self.sequence += 1
        self.position += len(rows)
        self.in_flight += len(rows)
        self._open[root.sequence] = root
        return root

    def sent(self, root: Root, value: int, now_ns: int) -> bool:
        """The XOR of the ids of the attempt's first frames; True when nothing of it is open."""
        return self._mix(root, root.attempt, value, 0, now_ns)

    def ack(self, ack: Ack, now_ns: int) -> bool:
        """True when this ack completes its root; False also for roots long done, or never sent so."""
        root = self._open.get(ack.key.sequence)
        if root is None or ack.key.attempt not in root.open:
            return False
        if ack.made_bytes > 0 and ack.key.attempt == root.attempt:
            self._made(root, ack.made_by, min(ack.made_bytes, MADE_MOST_BYTES))
        if ack.kept and ack.key.attempt == root.attempt:
            waits = root.waits = root.waits or {}
            if not (left := waits.pop(ack.kept_by, 0) ^ ack.kept):
                root.waits = waits or None
            else:
                waits[ack.kept_by] = left
        return self._mix(root, ack.key.attempt, ack.value, ack.held, now_ns)

    def _made(self, root: Root, task: int, made_bytes: int) -> None:
        """This task made so much more of its rows."""
        root.made[task] = made = root.made.get(task, 0) + made_bytes
        if made <= root.largest_bytes:
            return
        root.largest_bytes = made
        if (size_bytes := made + FRAME_BYTES) > root.size_bytes:
            if not root.kept:
                self.in_flight_bytes += size_bytes - root.size_bytes
            root.size_bytes = size_bytes
            self._learn(root)

    def _learn(self, root: Root) -> None:
        """What becomes of a row, from what became of this root's."""
        if self._learned < LARGEST_OF:
            self._learned += 1
        elif not root.made and self._largest_bytes <= self._read_bytes:
            return  # they are as they were read
        each = root.largest_bytes / max(1, root.count)
        self._largest_bytes += (each - self._largest_bytes) / self._learned
        self.row_bytes = max(self._read_bytes, self._largest_bytes)

    def _mix(self, root: Root, attempt: int, value: int, held: int, now_ns: int) -> bool:
        left = root.open.get(attempt, 0) ^ value
        root.open[attempt] = left
        if left == 0:
            self._done(root, root.sent_ns if attempt == root.attempt else root.first_sent_ns, now_ns)
            return True
        if held and attempt == root.attempt:
            self._keep(root, held, now_ns)
        return False

    def _keep(self, root: Root, held: int, now_ns: int) -> None:
        before, root.kept = root.kept, max(0, root.kept + held)
        if before == 0 and root.kept:
            self._moves(root, -1)
            self._learn(root)
            self._replaying.pop(root.sequence, None)  # or a batch that waits for the rest would never fill
            self._tried = -1 if self._tried == root.sequence else self._tried
            root.deadline_ns = now_ns + KEPT_DEADLINE_NS
        elif before and root.kept == 0:
            self._moves(root, 1)
            root.deadline_ns = now_ns + self._deadline_of(root)

    def _moves(self, root: Root, way: int) -> None:
        """No row of it is kept any more (1), or some are from now on (-1)."""
        self._kept -= way * root.count
        self.in_flight_bytes += way * root.size_bytes
        if len(root.rows) < root.count:
            return
        self.held_bytes -= way * root.read_bytes
        if way < 0 and self.window_bytes and self.held_bytes > self.window_bytes:
            root.rows = ()
            self.held_bytes -= root.read_bytes

    def _over(self, root: Root) -> None:
        if root.kept:
            self._moves(root, 1)
        self.in_flight -= root.count
        self.in_flight_bytes -= root.size_bytes
        self._replaying.pop(root.sequence, None)

    def _done(self, root: Root, sent_ns: int, now_ns: int) -> None:
        del self._open[root.sequence]
        self._over(root)
        self._learn(root)
        self._last_done_ns = now_ns
        self._newest_done_ns = max(self._newest_done_ns, sent_ns)
        self._latencies.append(now_ns - root.first_sent_ns)
        self._measured += 1
        if self._measured >= MEASURED_BEFORE_LEARNING and self._measured % LEARN_EVERY == 0:
            ordered = sorted(self._latencies)
            p99 = ordered[int(0.99 * (len(ordered) - 1))]
            self.deadline_ns = min(MOST_DEADLINE_NS, max(LEAST_DEADLINE_NS, 4 * p99))

    def give_up(self, sequence: int) -> None:
        """Nobody waits for this root any more, done or not."""
        root = self._open.pop(sequence, None)
        if root is not None:
            self._over(root)

    # ── what must be sent again ─────────────────────────────────────────────────────────────────

    def _deadline_of(self, root: Root) -> int:
        return min(MOST_DEADLINE_NS, self.deadline_ns << min(root.expiries, 6))

    def fault(self) -> None:
        """A peer died or a link broke: everything open is sent again."""
        waiting = set(self.again)
        self.again.extend(s for s in self._open if s not in waiting)
        self._replaying.clear()

    def expire(self, now_ns: int) -> None:
        """Roots past their deadline are sent again."""
        waiting = set(self.again)
        for root in self._open.values():
            if now_ns >= root.deadline_ns and root.sequence not in waiting and self._lost(root, now_ns):
                root.expiries += 1
                self.again.append(root.sequence)
                self._replaying.pop(root.sequence, None)

    def _lost(self, root: Root, now_ns: int) -> bool:
        """It is past its deadline: is it lost, or only late?"""
        if self._newest_done_ns >= root.sent_ns + OVERTAKEN_NS:
            return True
        moves = now_ns - self._last_done_ns < STUCK_NS
        if moves and not root.expiries:  # in a queue, behind what is done now
            return False
        if moves:
            return now_ns >= root.deadline_ns + STUCK_NS
        if self._tried != root.sequence and self._tried in self._open:
            return False
        if stands := now_ns >= root.deadline_ns + (STANDS_NS << min(root.expiries, STANDS_DOUBLED)):
            self._tried = root.sequence
        return stands

    def next_replay(self, now_ns: int, whole: Callable[[Root], bool] = lambda _: True) -> Root | None:
        """The next root to send again, on its new attempt; None when there is none, or not now. whole: are its rows
        here, or could they be read again?"""
        while self.again:
            root = self._open.get(self.again[0])
            if root is None:
                self.again.popleft()
                continue
            if self._replaying and not self._fits(root):
                return None
            if root.kept:  # of what is sent again nothing is kept, until a task says so
                self._moves(root, 1)
                root.kept = 0
            if not whole(root):
                return None
            self.again.popleft()
            self._replaying[root.sequence] = root
            self._restart(root, now_ns)
            return root
        self._replaying.clear()
        return None

    def _fits(self, root: Root) -> bool:
        """Is it, with what is being sent again, no more than a quarter of the window?"""
        all_of_it = (root, *self._replaying.values())
        rows, size_bytes = sum(one.count for one in all_of_it), sum(one.size_bytes for one in all_of_it)
        return rows <= max(self.window_rows // 4, 1) and size_bytes <= (self.window_bytes // 4 or size_bytes)

    def _restart(self, root: Root, now_ns: int) -> None:
        root.attempt += 1
        root.sent_ns = now_ns
        root.made.clear()
        root.waits = None
        root.deadline_ns = now_ns + self._deadline_of(root)
        self.replayed += root.count

    # ── what is done ────────────────────────────────────────────────────────────────────────────

    @property
    def acked(self) -> int:
        """All positions below are done."""
        first = next(iter(self._open.values()), None)
        return self.position if first is None else first.position

    @property
    def acked_above(self) -> int:
        return self.position - self.acked - self.in_flight

    @property
    def floor(self) -> int:
        """All sequences below are done."""
        return next(iter(self._open), self.sequence)

    @property
    def empty(self) -> bool:
        return not self._open

    def at_rest(self, over: Callable[[int], bool]) -> bool:
        """Is nothing to be sent again, and waits all that is open in panes, with no keeper who should be over?"""
        if self.again:
            return False
        return all(root.at_rest() and not any(map(over, root.waits or ())) for root in self._open.values())

    @property
    def open(self) -> KeysView[int]:
        """Sequences of the open roots."""
        return self._open.keys()

    def open_root(self, sequence: int) -> Root:
        return self._open[sequence]

    def open_roots(self) -> list[Root]:
        return list(self._open.values())
