"""What must be true of every source position, checked after every event.

1. A root that its ledger counts as done is done: every row it stands for was recorded at its sinks, or is
   a dead letter.
2. Every position that was read is done, or open in a live ledger, or a source that starts (or reads)
   now gets to it: no tuple is unaccounted for.
3. What the controller believes (or kept) as acked is done, and in one life it only moves forward.
4. Rows in flight stay within the window; a root is not sent again without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from controller.knowledge.knowledge import Counts
from topology_runtime.messages import DeadLetter
from topology_runtime.worker.flow import Finished
from topology_runtime.worker.state import WorkerState

if TYPE_CHECKING:
    from controller.simulation.thread import SimSource, SimThread
    from controller.simulation.worker import SimWorker

ATTEMPTS_MOST = 6  # of one root beyond one for each fault its source was told of

Partition = int


@dataclass
class Positions:
    """One source partition. done: all below `prefix`, and those in `above`."""

    read: int = 0
    prefix: int = 0
    above: set[int] = field(default_factory=set)
    rows: dict[int, set[tuple[str, int]]] = field(default_factory=dict)
    buried: set[int] = field(default_factory=set)
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
class Watch:
    """A live ledger: where it began, its open roots (sequence → positions) when it was looked at last."""

    thread: SimSource
    begin: int
    position: int
    standing: tuple[int, int, int] = (-1, 0, 0)
    open: dict[int, range] = field(default_factory=dict)


class Account:
    """Of all partitions of the one source task."""

    def __init__(self, need: int) -> None:
        self.need = need
        self.partitions: dict[Partition, Positions] = {}
        self.live: dict[tuple[int, int], Watch] = {}  # (thread, incarnation) → its ledger
        self.touched = False

    def of(self, partition: int) -> Positions:
        return self.partitions.setdefault(partition, Positions())

    # ── sinks ───────────────────────────────────────────────────────────────────────────────────

    def finished(self, task: str, finished: Iterable[Finished]) -> None:
        for root, offset, count, variant in finished:
            for position in range(root.position + offset, root.position + offset + count):
                self._row(root.partition, position, (task, variant))

    def _row(self, partition: int, position: int, row: tuple[str, int]) -> None:
        known = self.of(partition)
        known.sunk += 1
        assert position < known.read, f"position {position} reached a sink and was never read"
        if known.is_done(position):
            return
        rows = known.rows.setdefault(position, set())
        rows.add(row)
        if len(rows) >= self.need:
            known.finish(position)

    def buried(self, letters: Iterable[DeadLetter]) -> None:
        for letter in letters:
            known = self.of(letter.partition)
            known.buried.add(letter.position)
            known.finish(letter.position)

    # ── ledgers ─────────────────────────────────────────────────────────────────────────────────

    def begin(self, thread: SimSource) -> None:
        ledger = thread.source.ledger
        assert ledger is not None
        key = thread.wanted.thread, thread.worker.incarnation
        self.live[key] = Watch(thread, ledger.position, ledger.position)
        self.touched = True

    def look(self, thread: SimSource) -> None:
        """What its ledger did since it was looked at last (rules 1 and 4)."""
        watch = self.live.get((thread.wanted.thread, thread.worker.incarnation))
        ledger = thread.source.ledger
        if watch is None or ledger is None:
            return
        standing = ledger.position, ledger.in_flight, ledger.replayed
        if standing == watch.standing:
            return
        watch.standing = standing
        known = self.of(thread.wanted.partition)
        roots = {root.sequence: root for root in ledger.open_roots()}
        finished = [rows for sequence, rows in watch.open.items() if sequence not in roots]
        if ledger.position > watch.position:
            known.read = max(known.read, ledger.position)
            kept = sum(len(root.rows) for root in roots.values() if root.kept)
            most = ledger.window_rows + ledger.replayed
            assert ledger.in_flight - kept <= most, f"{ledger.in_flight} rows in flight in {thread.name}"
            self._settle_new(watch, set(roots), ledger.position, finished)
        most_attempts = ATTEMPTS_MOST + thread.faults
        for root in roots.values():
            assert root.attempt <= most_attempts, f"a replay storm: attempt {root.attempt} in {thread.name}"
        watch.open = {s: range(root.position, root.position + len(root.rows)) for s, root in roots.items()}
        watch.position = ledger.position
        for rows in finished:
            for position in rows:
                assert known.is_done(position), f"{thread.name} counts {position} as done, and it is not"
        self.touched = self.touched or bool(finished)

    def _settle_new(self, watch: Watch, open_: set[int], position: int, finished: list[range]) -> None:
        """A root that was begun and done at once was never seen open."""
        begun = range(watch.position, position)
        if not any(s not in watch.open for s in open_):
            finished.append(begun)

    def gone(self, worker: SimWorker) -> None:
        """A worker is no more, and its ledgers with it."""
        for thread in worker.threads:
            self.live.pop((thread, worker.incarnation), None)
        self.touched = True

    def ends(self, thread: SimThread, state: WorkerState) -> None:
        """A thread ends by itself: a source that is still wanted must have nothing open [A3]."""
        watch = self.live.pop((thread.wanted.thread, thread.worker.incarnation), None)
        self.touched = True
        wanted = {t.thread for t in state.wanted.threads} if state.wanted else set()
        if watch is not None and thread.wanted.thread in wanted:
            assert not watch.open, f"{thread.name} ended with a full ledger: {watch.open}"

    # ── the invariant ───────────────────────────────────────────────────────────────────────────

    def check(self, leaving: frozenset[int], restart_at: dict[Partition, int]) -> None:
        """Rule 2. restart_at: from where a source of a partition would be started now."""
        for partition, known in self.partitions.items():
            if known.prefix >= known.read:
                continue
            ledgers = [w for w in self.live.values() if w.thread.wanted.partition == partition]
            floor = min(
                (w.begin for w in ledgers if w.thread.wanted.thread not in leaving),
                default=restart_at.get(partition, 0),
            )
            if known.prefix < floor:
                self._below(known, floor, ledgers)

    def _below(self, known: Positions, floor: int, ledgers: list[Watch]) -> None:
        open_ = {p for watch in ledgers for rows in watch.open.values() for p in rows}
        lost = [p for p in range(known.prefix, min(floor, known.read)) if not known.is_done(p)]
        lost = [p for p in lost if p not in open_]
        assert not lost, f"positions {lost} are unaccounted for: the source goes on from {floor}"

    # ── the end ─────────────────────────────────────────────────────────────────────────────────

    @property
    def read(self) -> int:
        return sum(known.read for known in self.partitions.values())

    @property
    def duplicates(self) -> int:
        buried = sum(len(known.buried) for known in self.partitions.values())
        return sum(known.sunk for known in self.partitions.values()) - self.need * (self.read - buried)

    def all_done(self, counts: Counts) -> None:
        """Every position that the run emitted reached the sinks or is a dead letter. (A source on a VM that
        was cut off may have read more, by an old schedule: those positions are not of the run.)"""
        for partition, known in self.partitions.items():
            emitted = counts.source("source", partition).emitted
            assert emitted <= known.read, f"emitted {emitted}, read {known.read}"
            missing = [p for p in range(emitted) if not known.is_done(p)]
            assert not missing, f"positions {missing} of partition {partition} reached no sink"
