"""What must be true of every source position, checked after every event.

1. A root that its ledger counts as done is done: every row it stands for was recorded at its sinks, or is
   a dead letter.
2. Every position that was read is done, or open in a live ledger, or a source that starts (or reads)
   now gets to it: no tuple is unaccounted for.
3. What the controller believes (or kept) as acked is done, and in one life it only moves forward.
4. Rows in flight stay within the window; a root is not sent again without end: all that were in flight once
   for each fault, and each by its own deadline.
5. Dead letters are the rows that must fail, while they must, and no others.
6. A row reaches the sinks again only if it was sent again or read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from typing import TYPE_CHECKING

from headgate.controller.knowledge.journal_records import HandedOver
from headgate.controller.knowledge.knowledge import RunCounts
from headgate.lab.simulation.simulated_topologies import WITH, Origin, Row, Shape
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_PARTITION
from headgate.topology_runtime.wire.messages import DeadLetter
from headgate.topology_runtime.worker.calls.user_code import Finished
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.orders.worker_state import WorkerState
from headgate.topology_runtime.worker.sources.source_ledger import Ledger

if TYPE_CHECKING:
    from headgate.lab.simulation.simulated_thread import SimSource, SimThread
    from headgate.lab.simulation.simulated_worker import SimWorker

ATTEMPTS_MOST = 6  # of one root beyond one for each fault its source was told of

Partition = tuple[str, int]  # source task, partition


@dataclass
class Positions:
    """One source partition. done: all below `prefix`, and those in `above`."""

    read: int = 0
    prefix: int = 0
    above: set[int] = field(default_factory=set)
    rows: dict[int, set[str]] = field(default_factory=dict)  # position → ways of its rows at sinks
    buried: set[int] = field(default_factory=set)
    mended: set[int] = field(default_factory=set)  # that would have failed before
    given_up: set[int] = field(
        default_factory=set
    )  # of events that come at other positions, or went with their VM
    sunk: int = 0  # rows that reached a sink, copies included

    def is_done(self, position: int) -> bool:
        return position < self.prefix or position in self.above

    def finish(self, position: int) -> None:
        if self.is_done(position):
            return
        self.above.add(position)
        while self.prefix in self.above:
            self.above.discard(self.prefix)
            self.rows.pop(self.prefix, None)
            self.prefix += 1


@dataclass
class SimWatch:
    """A live ledger: where it began, its open roots (sequence → positions) when it was looked at last."""

    thread: SimSource
    begin: int
    position: int
    standing: tuple[int, int, int] = (-1, 0, 0)
    replayed: int = 0
    most: int = 0  # rows in flight
    expired: int = 0  # rows whose deadline passed, each time
    expiries: dict[int, int] = field(default_factory=dict)
    open: dict[int, range] = field(default_factory=dict)

    @property
    def place(self) -> Partition:
        return self.thread.place


class SimAccount:
    """Of all source partitions of a world."""

    def __init__(
        self,
        shape: Shape,
        met: Counter[str],
        mended: Callable[[], bool] = lambda: False,
        state_went: Callable[[], bool] = lambda: False,
    ) -> None:
        """state_went: with its VM? Rows that were done there may come again, and be late."""
        self.shape, self.met, self.mended, self.state_went = shape, met, mended, state_went
        self.again_sunk: dict[int, Row] = {}  # letter → its row at a sink
        self.need = shape.need
        self.partitions: dict[Partition, Positions] = {}
        self.live: dict[tuple[int, int], SimWatch] = {}  # (thread, incarnation) → its ledger
        self.again = 0  # rows that were sent again, or read again
        self.accepted: dict[Row, str] = {}  # events that no sink has seen → the VM whose spool took them
        self.events_gone = 0  # events that went with their VMs
        self.touched = False
        self.came_to_sinks = 0  # rows of a run that ends
        self.ended: dict[tuple[int, int, int, int], Row] = {}  # name → row at the sink of a run that ends

    def of(self, place: Partition) -> Positions:
        return self.partitions.setdefault(place, Positions())

    # ── sinks ───────────────────────────────────────────────────────────────────────────────────

    def finished(self, sources: Sequence[str], finished: Iterable[Finished], rows: Sequence[Row]) -> None:
        """Rows at a sink, in what they say themselves and by the names that the runtime gave them."""
        if self.shape.ends:
            self._ended(finished, rows)
            return
        named = list(_names(sources, finished))
        again = [name[1] >= AGAIN_PARTITION for name in named]
        if any(again):  # rows of dead letters
            pairs = zip(named, rows, strict=True)
            self.again_sunk.update({name[2]: row[:3] for name, row in compress(pairs, again)})
            healthy = [not one for one in again]
            named, rows = list(compress(named, healthy)), list(compress(rows, healthy))
        if self.shape.live:
            for (source, partition, position), row in zip(named, rows, strict=True):
                self._row((source, partition), position, row[3])
                self.accepted.pop(row[:3], None)
            return
        told = [(row[0], row[1], row[2]) for row in rows]
        assert sorted(named) == sorted(told), f"rows {told} are named {named}"
        for row in rows:
            self._row((row[0], row[1]), row[2], row[3])
            for at in range(4, len(row), 3):
                if row[at].startswith(WITH):
                    self._row((row[at].removeprefix(WITH), row[at + 1]), row[at + 2], row[3])

    def _ended(self, finished: Iterable[Finished], rows: Sequence[Row]) -> None:
        """A row that comes again has the same name, and is the same."""
        self.came_to_sinks += len(rows)
        names = (
            (root.source, root.partition, root.position + offset + n, variant)
            for root, offset, count, variant in finished
            for n in range(count)
        )
        for name, row in zip(names, rows, strict=True):
            before = self.ended.setdefault(name, row)
            assert before == row, f"{name} was {before} and is {row} now"

    def whole_once(self, partitions: int) -> None:
        """Every pane and every `finish` gave its rows once, of all rows that there were."""
        found, expected = sorted(self.ended.values()), sorted(self.shape.expected(partitions))
        assert found == expected, f"at the sink: {found}, and it should be {expected}"

    def _row(self, place: Partition, position: int, way: str) -> None:
        known = self.of(place)
        known.sunk += 1
        known.given_up.discard(position)
        assert position < known.read, f"position {position} reached a sink and was never read"
        if self.shape.fails(position):
            assert self.mended(), f"position {position} cannot be processed and reached a sink"
            known.mended.add(position)
        if known.is_done(position):
            return
        ways = known.rows.setdefault(position, set())
        ways.add(way)
        if len(ways) >= self.need:
            known.finish(position)

    def buried(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            if letter.of:  # the row of another one
                assert not self.mended(), f"dead letter {letter.of} died again, and its cause is fixed"
                continue
            row = letter.source, letter.partition, letter.position
            if " is late at " in letter.error and self.state_went():
                self.met["rows late behind a lost state"] += 1
                continue
            assert self.shape.fails(letter.position), (
                f"a dead letter for the healthy row {row}: {letter.error}"
            )
            assert letter.row.startswith(repr(row)[:-1]), f"the dead letter of {row} shows {letter.row}"
            assert str(letter.position) in letter.error, f"the dead letter of {row} says {letter.error}"
            known = self.of(row[:2])
            assert letter.position < known.read, f"position {row} is a dead letter and was never read"
            known.buried.add(letter.position)
            self.met["dead letters"] += 1
            known.finish(letter.position)

    def given_up(self, gap: HandedOver) -> None:
        """Positions of a thread that is no more. What they held is in `accepted`, or went with its VM."""
        known = self.of((gap.task, gap.partition))
        for position in range(gap.acked, gap.emitted):
            if not known.is_done(position):
                known.given_up.add(position)
                known.finish(position)

    # ── ledgers ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, thread: SimSource) -> None:
        ledger = thread.source.ledger
        assert ledger is not None
        key = thread.desired.thread, thread.worker.incarnation
        self.live[key] = SimWatch(thread, ledger.position, ledger.position)
        read = self.of(thread.place).read
        self.met["sources restarted"] += read > 0
        self.met["sources read again"] += ledger.position < read
        self.touched = True

    def look(self, thread: SimSource) -> None:
        """What its ledger did since it was looked at last (rules 1 and 4)."""
        watch = self.live.get((thread.desired.thread, thread.worker.incarnation))
        ledger = thread.source.ledger
        if watch is None or ledger is None:
            return
        standing = ledger.position, ledger.in_flight, ledger.replayed
        if standing == watch.standing:
            return
        watch.standing, watch.most = standing, max(watch.most, ledger.in_flight)
        known = self.of(watch.place)
        self.again += max(0, min(known.read, ledger.position) - watch.position)
        known.read = max(known.read, ledger.position)
        finished = [watch.open.pop(sequence) for sequence in watch.open.keys() - ledger.open]
        if ledger.position > watch.position:
            finished += self._begun(watch, ledger)
        if ledger.replayed > watch.replayed:
            self._replayed(watch, ledger)
        for rows in () if self.shape.ends else finished:
            for position in rows:
                assert known.is_done(position), f"{thread.name} counts {position} as done, and it is not"
        self.touched = self.touched or bool(finished)

    def _begun(self, watch: SimWatch, ledger: Ledger) -> list[range]:
        """What was read since; returns what was begun and done at once, and so was never seen open."""
        most = ledger.window_rows + ledger.replayed
        if ledger.in_flight > most:
            kept = sum(root.count for root in ledger.open_roots() if root.kept)
            assert ledger.in_flight - kept <= most, (
                f"{ledger.in_flight} rows in flight in {watch.thread.name}"
            )
        fresh = ledger.open - watch.open.keys()
        for sequence in fresh:
            root = ledger.open_root(sequence)
            watch.open[sequence] = range(root.position, root.position + root.count)
        begun, watch.position = range(watch.position, ledger.position), ledger.position
        return [] if fresh else [begun]

    def _replayed(self, watch: SimWatch, ledger: Ledger) -> None:
        self.again += ledger.replayed - watch.replayed
        by_deadline = any(root.expiries for root in ledger.open_roots())
        self.met["replays by deadline" if by_deadline else "replays by fault"] += 1
        watch.replayed = ledger.replayed
        most, name = ATTEMPTS_MOST + watch.thread.faults, watch.thread.name
        for root in ledger.open_roots():
            assert root.attempt <= most, f"a replay storm: attempt {root.attempt} in {name}"
            before, watch.expiries[root.sequence] = watch.expiries.get(root.sequence, 0), root.expiries
            watch.expired += (root.expiries - before) * root.count
        most = watch.most * watch.thread.faults + watch.expired
        assert self.shape.ends or ledger.replayed <= most, (
            f"{ledger.replayed} rows sent again in {name}, {most} were to be"
        )

    def gone(self, worker: SimWorker) -> None:
        """A worker is no more, and its ledgers with it."""
        for thread in worker.threads:
            self.live.pop((thread, worker.incarnation), None)
        self.touched = True

    def vm_lost(self, vm: str) -> None:
        """A spool is gone with its VM: the stated exception (protocol: Sources)."""
        lost = [row for row, holder in self.accepted.items() if holder == vm]
        self.met["spools lost"] += bool(lost)
        for row in lost:
            del self.accepted[row]
        self.events_gone += len(lost)

    def ends(self, thread: SimThread, state: WorkerState) -> None:
        """A thread ends by itself: a source that is still desired must have nothing open [A3]."""
        watch = self.live.pop((thread.desired.thread, thread.worker.incarnation), None)
        self.touched = True
        desired = {t.thread for t in state.desired.threads} if state.desired else set()
        if watch is not None and thread.desired.thread in desired:
            assert not watch.open, f"{thread.name} ended with a full ledger: {watch.open}"

    # ── the invariant ───────────────────────────────────────────────────────────────────────────

    def check(
        self, leaving: frozenset[int], restart_at: dict[Partition, int], apart: Sequence[HandedOver] = ()
    ) -> None:
        """Rule 2. restart_at: from where a source of a partition would be started now. apart: what leavers read
        again if they are started anew."""
        for place, known in () if self.shape.ends else self.partitions.items():
            if known.prefix >= known.read:
                continue
            ledgers = [w for w in self.live.values() if w.place == place]
            floor = min(
                (w.begin for w in ledgers if w.thread.desired.thread not in leaving),
                default=restart_at.get(place, 0),
            )
            if known.prefix < floor:
                gaps = [gap for gap in apart if gap.thread in leaving and (gap.task, gap.partition) == place]
                self._below(known, floor, ledgers, gaps)

    def _below(
        self, known: Positions, floor: int, ledgers: list[SimWatch], gaps: Sequence[HandedOver]
    ) -> None:
        open_ = {p for watch in ledgers for rows in watch.open.values() for p in rows}
        open_ |= {p for gap in gaps for p in range(gap.acked, gap.emitted)}
        lost = [p for p in range(known.prefix, min(floor, known.read)) if not known.is_done(p)]
        lost = [p for p in lost if p not in open_]
        assert not lost, f"positions {lost} are unaccounted for: the source goes on from {floor}"

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    @property
    def read(self) -> int:
        return sum(known.read for known in self.partitions.values())

    @property
    def duplicates(self) -> int:
        """Rows beyond the distinct ones of what is done."""
        done = sum(
            known.prefix + len(known.above) - len(known.buried) - len(known.given_up)
            for known in self.partitions.values()
        )
        half = sum(len(ways) for known in self.partitions.values() for ways in known.rows.values())
        return sum(known.sunk for known in self.partitions.values()) - self.need * done - half

    def all_done(self, counts: RunCounts, unusable: Set[str] = frozenset()) -> None:
        """Every position that the run emitted reached the sinks or is a dead letter. (A source on a VM that
        was cut off may have read more, by an old schedule: those positions are not of the run.) What was accepted
        on a VM without a slot that can be used stays there."""
        for place, known in self.partitions.items():
            emitted = counts.source(*place).emitted
            assert emitted <= known.read, f"emitted {emitted}, read {known.read}"
            missing = [p for p in range(emitted) if not known.is_done(p)]
            assert not missing, f"positions {missing} of {place} reached no sink"
            must = {p for p in range(emitted) if self.shape.fails(p)}
            missing = sorted(must - known.buried - known.mended)
            assert not missing, f"not among the dead letters: {missing} of {place}"
        lost = sorted(row for row, vm in self.accepted.items() if vm not in unusable)
        self.met["events on unusable VMs"] += len(lost) < len(self.accepted)
        assert not lost, f"accepted and never at a sink: {lost[:5]}"

    def few_duplicates(self) -> None:
        """Rule 6. A root that is sent again comes with all the rows that it gives."""
        most = self.need * self.again
        assert self.duplicates <= most, f"{self.duplicates} duplicates of {self.again} rows sent again"


def _names(sources: Sequence[str], finished: Iterable[Finished]) -> Iterator[tuple[str, int, int]]:
    for root, offset, count, _ in finished:
        first = root.position + offset
        yield from (
            (sources[root.source], root.partition, position) for position in range(first, first + count)
        )


def twice(rows: Iterable[object]) -> int:
    """How many are there more than once, all of their copies but the first counted."""
    return sum(count - 1 for count in Counter(rows).values())


# ── What must be true of the state of keyed tasks, from nothing but the rows that were read and what tasks
# did
#
# 1. Once all is settled, each key range has one owner.
# 2. At the end each key's state counts every row of the key that the run read, and it lies with one owner.
# 3. It counts no row twice, whoever is killed, unless a VM was lost.
# 4. A row at a sink says what its key's state was after it: the state at the end tells the same story.

Key = tuple[str, Hashable]  # keyed task, key


class KeyedAccount:
    """Of all keyed tasks of a world."""

    def __init__(self, shape: Shape, account: SimAccount) -> None:
        self.shape, self.account = shape, account
        self.counted: dict[Key, list[Origin]] = {}  # rows in the order in which tasks counted them
        self.sunk: list[tuple[Key, Origin, int]] = []  # what rows at sinks said of their keys
        self.final: dict[Key, list[list[Origin]]] = {}  # states at the end, one for each owner
        self.owners_killed = 0
        self.states_lost = 0  # with their VM: what is not promised
        self.exact = False  # nothing is seen of a state that is not durable

    def count(self, task: str, counted: Iterable[tuple[Hashable, Origin]]) -> None:
        key_of = self.shape.keys[task]
        for key, origin in counted:
            assert key == key_of(origin), f"{origin} was counted under {key!r} in {task}"
            self.counted.setdefault((task, key), []).append(origin)

    def see(self, rows: Sequence[Row]) -> None:
        """Rows at a sink."""
        for row in rows:
            for at in range(4, len(row), 3):
                if row[at] in self.shape.keys:
                    self.sunk.append(((row[at], row[at + 1]), row[:3], row[at + 2]))

    # ── owners ──────────────────────────────────────────────────────────────────────────────────

    def one_owner_each(self, threads: Iterable[SimThread]) -> None:
        """Rule 1."""
        owned: dict[str, list[int]] = {task: [] for task in self.shape.keys}
        for thread in threads:
            if thread.desired.task in owned:
                owned[thread.desired.task] += owned_by(thread)
        for task, ranges in owned.items():
            assert not twice(ranges), f"{twice(ranges)} ranges of {task} have two owners"
            assert len(ranges) == KEY_RANGES, f"{KEY_RANGES - len(ranges)} ranges of {task} have no owner"

    def ends(self, thread: SimThread) -> None:
        """The run is over, and this owner with it."""
        for key, state in states_of(thread).items() if thread.desired.task in self.shape.keys else ():
            self.final.setdefault((thread.desired.task, key), []).append(state)

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    def all_counted(self, emitted: dict[tuple[str, int], int]) -> None:
        """emitted: how many positions of each partition the run read."""
        rows = [(*place, p) for place, n in emitted.items() for p in range(n)]
        for task, key_of in self.shape.keys.items():
            sequential: dict[Hashable, set[Origin]] = {}
            for origin in rows:
                sequential.setdefault(key_of(origin), set()).add(origin)
            for key, expected in sequential.items():
                self._one((task, key), expected)
        for key, origin, count in self.sunk:
            self._told(key, origin, count)

    def _one(self, key: Key, expected: set[Origin]) -> None:
        states = self.final.get(key, [])
        assert len(states) <= 1, f"{len(states)} owners have state of {key}"
        state = states[0] if states else []
        again = twice(state)
        if not self.states_lost:
            missing = sorted(expected - set(state))
            assert not missing, f"the state of {key} counts {len(state)} rows and lacks {missing[:5]}"
        if not self.states_lost:
            assert not again, f"the state of {key} counts {again} rows twice, and no VM was lost"
        assert again <= self.account.again, f"the state of {key} counts {again} rows twice"

    def _told(self, key: Key, origin: Origin, count: int) -> None:
        state = (self.final.get(key) or [[]])[0]
        most = len(self.counted[key])
        assert 0 < count <= most, f"{origin} says that {key} has {count} rows, {most} were counted"
        steady = self.exact or not self.owners_killed
        if steady and not self.states_lost and count <= len(state):
            assert state[count - 1] == origin, (
                f"row {count} of {key} was {origin}, its state says {state[count - 1]}"
            )


# ── the only words about how a keyed thread keeps its state ─────────────────────────────────────


def owned_by(thread: SimThread) -> list[int]:
    rows = rows_of(thread)
    return sorted(rows.ranges.owned) if rows is not None else []


def copies_of(thread: SimThread) -> set[int]:
    """Ranges of which it has a copy, its own or not."""
    rows = rows_of(thread)
    return set(rows.ranges.versions) if rows is not None else set()


def answered_by(thread: SimThread) -> set[int]:
    """Ranges of others that it has let go, and of which it still has the copy."""
    rows = rows_of(thread)
    if rows is None:
        return set()
    return (rows.ranges.pending - rows.ranges.owned) & rows.ranges.versions.keys()


def claiming(thread: SimThread) -> set[int]:
    """Ranges that are its own by the routes that it obeys."""
    rows = rows_of(thread)
    return rows.ranges.missing | rows.ranges.owned if rows is not None else set()


def states_of(thread: SimThread) -> dict[Hashable, list[Origin]]:
    """States of the keys that this thread owns."""
    rows = rows_of(thread)
    if rows is None:
        return {}
    return {
        key: list(state)
        for key_range in rows.ranges.owned
        for key, state in rows.states.of(key_range).items()
    }


def rows_of(thread: SimThread) -> KeyedRows | None:
    """What the thread of a keyed task has, once it is built."""
    behaviour = thread.core.behaviour
    return behaviour.rows if isinstance(behaviour, KeyedTask) else None
