"""The state per key of one thread, owned by key range, and what rows do to it. Pure but for the user's code.
Which ranges it owns is in ranges.py, when it asks, answers and saves in keyed.py.

Rules (protocol: Keyed state) [A4] [A5] [B4]:
 1. A row is processed only by the owner of its range. A row of a range that is still on its way here
    waits at the side, kept and not acked; a row of a range that went away follows it.
 2. A processed row stays kept until a snapshot covers it, so a killed owner's rows come again.
 3. A row whose identity was processed already (a replay) changes no state again; its output goes out
    again (applied.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import compress
from typing import Any

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.messages import Frame
from headgate.topology_runtime.state_moves import RangeCopy
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.acks import AckSums, Addressed, BufferedRow, single_rows
from headgate.topology_runtime.worker.applied import Applied, grouped, twice_in
from headgate.topology_runtime.worker.keyed_snapshots import (
    Contents,
    KeyedSnapshot,
    StateChange,
    contents_of,
    copied,
)
from headgate.topology_runtime.worker.keyed_states import KeyedBatch, KeyedStates, flat
from headgate.topology_runtime.worker.ranges import NO_COPY, Ranges
from headgate.topology_runtime.worker.router import KeyRanges, range_of
from headgate.topology_runtime.worker.row_sizes import MadeSizes
from headgate.topology_runtime.worker.runs import Batch
from headgate.topology_runtime.worker.user_code import UserCode


class KeyedRows:
    """`key_of(edge)`: by what the rows of an edge are grouped."""

    def __init__(
        self,
        code: UserCode,
        random64: Callable[[], int],
        key_of: Callable[[int], Callable[[Any], Hashable]],
    ) -> None:
        self.code, self.results, self.random64, self._key_of = code, code.results, random64, key_of
        self.thread = code.results.around.thread
        self.ranges = Ranges(self.thread)
        self._known = KeyRanges()
        self.states = KeyedStates(code.logic, self._known)
        self.applied = Applied()
        self._sizes = MadeSizes()
        self.dirty = False  # something has changed since the last snapshot
        self.side: dict[int, list[BufferedRow]] = {}
        self.uncovered = AckSums()  # what the next snapshot lets go
        self.uncovered_rows = 0
        self._frozen: dict[int, RangeCopy] = {}  # ranges of others, once and for all
        self._offers: dict[int, RangeCopy] = {}  # the best copy that others have

    @property
    def holding(self) -> int:
        return self.uncovered_rows + sum(map(len, self.side.values())) + len(self.ranges.pending)

    @property
    def uncovered_bytes(self) -> int:
        """Of what came of rows that no snapshot covers, as far as it is remembered; about."""
        return int(self._sizes.mean_bytes * min(self.uncovered_rows, self.applied.most))

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        acks = AckSums(frame.roots)
        self.applied.hear(frame.roots)
        batch = Batch(list(frame.rows), frame.runs, frame.roots)
        self.results.edge = frame.edge
        keys, ranges, batch = self._places_of(batch, self._key_of(frame.edge))
        self.results.edge = None
        owned = self.ranges.owned
        if not owned.issuperset(ranges):
            here = [key_range in owned for key_range in ranges]
            there = [not one for one in here]
            self._elsewhere(batch.where(there), frame.edge, list(compress(ranges, there)), now_ns, acks)
            keys, ranges, batch = list(compress(keys, here)), list(compress(ranges, here)), batch.where(here)
        self._process(KeyedBatch(batch, frame.edge, keys, ranges), now_ns, acks)
        return acks.all()

    def _places_of(
        self, batch: Batch, key: Callable[[Any], Hashable]
    ) -> tuple[Sequence[Hashable], Sequence[int], Batch]:
        """(keys, their ranges, rows) of the rows that have a key."""
        keys, batch = self.code.over(key, batch)
        try:
            return *self._known.placed(keys), batch
        except Exception:  # a key that cannot be written: it has no range, its row fails
            pairs, batch = self.code.over(lambda row: (found := key(row), range_of(found)), batch)
            return [pair[0] for pair in pairs], [pair[1] for pair in pairs], batch

    def _elsewhere(self, batch: Batch, edge: int, ranges: Sequence[int], now_ns: int, acks: AckSums) -> None:
        """Rows of ranges that are not here: they follow their range, or wait for it at the side."""
        for row, key_range in zip(single_rows(batch, edge, self.random64), ranges, strict=True):
            owner = self.ranges.owner(key_range)
            if owner is not None and owner != self.thread:
                self._forward(row, owner, now_ns, acks)
            else:
                self.side.setdefault(key_range, []).append(row)
                acks.keep(row)

    def _forward(self, row: BufferedRow, owner: int, now_ns: int, acks: AckSums) -> None:
        acks.give(row.roots, self.results.outputs.forward(row, owner, now_ns))

    def _process(self, some: KeyedBatch, now_ns: int, acks: AckSums) -> None:
        """Rows into the states of their keys; a sink's in pieces."""
        pieces = self.results.pieces
        if pieces is None:
            self._piece(some, now_ns, acks)
            return
        for start, stop in pieces.cut(len(some.ranges)):
            self._piece(some.part(start, stop), now_ns, acks)
            self.results.log()
            self.code.watch.calls += stop - start

    def _piece(self, some: KeyedBatch, now_ns: int, acks: AckSums) -> None:
        if not some.ranges:
            return
        groups = grouped(some.batch)
        if twice_in(groups):
            for row in range(len(some.ranges)):
                self._piece(some.part(row, row + 1), now_ns, acks)
            return
        known = self.applied.outputs(groups, some.ranges)
        if known:
            again = [known[row] for row in sorted(known)]
            batch = some.where(known.__contains__).batch
            self._go_on(batch, *flat(again), now_ns, acks)
            self._piece(some.where(lambda row: row not in known), now_ns, acks)
            return
        self.results.edge = some.edge
        (came, counts), fit = self.states.process(some, self.code)
        self.results.edge = None
        if not fit.ranges:
            return
        if fit is not some:
            groups = grouped(fit.batch)
        if self.results.outputs.edges:
            self.applied.add(groups, fit.ranges, came, counts, fit.batch.roots)
        else:
            self.applied.add(groups, fit.ranges, [], [0] * len(fit.ranges))
        self._go_on(fit.batch, came, counts, now_ns, acks)

    def _go_on(
        self, batch: Batch, came: Sequence[Any], counts: Sequence[int], now_ns: int, acks: AckSums
    ) -> None:
        """Rows that are in the state: what came of them goes on, they stay kept until a snapshot covers them."""
        if came:
            runs = _each_named(batch.runs, counts) if counts else batch.runs
            acks.give(batch.roots, self.results.emit(Batch(came, runs, batch.roots), now_ns))
            if made_bytes := self._sizes.made_bytes(came, len(batch.roots)):
                acks.made = self.results.around.number, acks.made[1] + made_bytes
        if self.results.around.sink:
            self.results.finish(batch)
        of_root: dict[int, int] = {}
        for number, _, count, _ in batch.runs:
            of_root[number] = of_root.get(number, 0) + count
        for number, count in of_root.items():
            root, share = batch.roots[number], self.random64()
            roots = (root, *(batch.roots[other] for other in root.along))
            acks.keep_together(roots, share, count)
            self.uncovered.keep_together(roots, share, -count)
        self.uncovered_rows += len(batch.rows)
        self.dirty = True

    def pass_on(self, now_ns: int) -> list[Addressed]:
        """Rows at the side whose range is another thread's by now go there."""
        acks = AckSums()
        for key_range in list(self.side):
            owner = self.ranges.owner(key_range)
            if owner is not None and owner != self.thread:
                for row in self.side.pop(key_range):
                    acks.let_go(row)
                    self._forward(row, owner, now_ns, acks)
        return acks.all()

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> KeyedSnapshot:
        """Everything that is here."""
        applied = self.applied
        filled = self.states.filled | applied.filled
        copies = tuple(
            self.copy(key_range) if key_range in filled else RangeCopy(key_range, version)
            for key_range, version in sorted(self.ranges.versions.items())
        )
        return KeyedSnapshot(copies, tuple(sorted(self.ranges.lost)), applied.floors(), applied.again_at_most)

    def change(self) -> StateChange | None:
        """What is new since the last snapshot; None when that can only be told whole."""
        applied = self.applied
        try:
            return StateChange(
                self.states.pack_new(), applied.pack_new(), applied.floors(), applied.again_at_most
            )
        except BadRow:
            return None

    def covered(self) -> list[Addressed]:
        """A snapshot of all that was processed is durable: its rows need not come again."""
        self.dirty = False
        self.states.saved()
        self.applied.saved()
        acks, self.uncovered, self.uncovered_rows = self.uncovered.all(), AckSums(), 0
        return acks

    def restore(self, saved: KeyedSnapshot) -> None:
        """Take up the snapshot of this thread's former life. Raises msgspec.DecodeError."""
        for copy in saved.copies:
            self._install(copy)
        self.ranges.lost |= set(saved.lost)
        self.applied.take_floors(saved.below)
        self.applied.again_at_most = saved.applied_again

    def _install(self, copy: RangeCopy) -> None:
        """This copy of a range, in place of the one that is here. Raises msgspec.DecodeError."""
        contents = contents_of(copy)
        self.states.unpack(copy.key_range, contents.states)
        self.applied.unpack(copy.key_range, contents.applied)
        self.applied.take_floors(contents.below)
        self.ranges.put(copy.key_range, copy.version)
        self._frozen.pop(copy.key_range, None)

    def copy(self, key_range: int) -> RangeCopy:
        """What is here of a range."""
        version = self.ranges.versions.get(key_range, NO_COPY)
        if version == NO_COPY:
            return RangeCopy(key_range)
        found = self._frozen.get(key_range)
        if found is None:
            found = self._copy(key_range, version)
            if key_range in self.ranges.pending and key_range not in self.ranges.owned:
                self._frozen[key_range] = found
        return found

    def _copy(self, key_range: int, version: int) -> RangeCopy:
        if not self.states.of(key_range) and not self.applied.of(key_range):
            return RangeCopy(key_range, version)
        states, applied = self.states.pack(key_range), self.applied.pack(key_range)
        return copied(key_range, version, Contents(states, applied, self.applied.floors()))

    # ── ranges that move ────────────────────────────────────────────────────────────────────────

    def offered(self, sender: int, copies: Iterable[RangeCopy]) -> None:
        """What a keeper has of ranges that are missing here."""
        desired = [copy for copy in copies if copy.key_range in self.ranges.missing]
        self.ranges.hear(sender, (copy.key_range for copy in desired))
        for copy in desired:
            known = self._offers.get(copy.key_range)
            if copy.version > (known.version if known is not None else NO_COPY):
                self._offers[copy.key_range] = copy

    def refuse_offers(self) -> None:
        """Other routes are in force: what was offered by the old ones counts no more."""
        self._offers.clear()

    def claim(self, now_ns: int) -> list[Addressed]:
        """Take every range for which nothing is waited any more, with the best copy there is, and process
        the rows that waited for it."""
        acks = AckSums()
        for key_range in self.ranges.claimable():
            self._claim(key_range)
            for row in self.side.pop(key_range, ()):
                acks.let_go(row)
                key = self._key_of(row.edge)(row.row)
                self._process(KeyedBatch(row.batch, row.edge, [key], [key_range]), now_ns, acks)
        return acks.all()

    def _claim(self, key_range: int) -> None:
        offer = self._offers.pop(key_range, None)
        version = self.ranges.versions.get(key_range, NO_COPY)
        if offer is not None and offer.version > version:
            self._install(offer)
            version = offer.version
        self._frozen.pop(key_range, None)
        self.ranges.claim(key_range, version)
        self.dirty = True

    def taken(self, ranges: Iterable[int]) -> None:
        """Their owner has these ranges durably: what is here of them goes."""
        for key_range in self.ranges.told(ranges):
            self.states.drop(key_range)
            self._frozen.pop(key_range, None)
            self.applied.drop(key_range)
            self.dirty = True


def _each_named(runs: Sequence[r.Run], counts: Sequence[int]) -> list[r.Run]:
    """The runs of what came of these rows, so much of each."""
    return r.joined(
        (number, offset, r.over_index(variant, index))
        for count, (number, offset, variant) in zip(counts, r.single(runs), strict=True)
        for index in range(count)
    )
