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
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from topology_runtime.messages import Frame, RootPart
from topology_runtime.state_moves import RangeCopy
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.acks import AckSums, Addressed, BufferedRow, single_rows
from topology_runtime.worker.applied import Applied
from topology_runtime.worker.ranges import NO_COPY, Ranges
from topology_runtime.worker.router import range_of
from topology_runtime.worker.user_code import UserCode


class KeyedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a thread has. lost: ranges claimed although their state was lost. below, applied_again: as
    in Applied."""

    copies: tuple[RangeCopy, ...]
    lost: tuple[int, ...] = ()
    below: tuple[tuple[int, int, int], ...] = ()
    applied_again: int = 0


class SnapshotStore(Protocol):
    """Durable snapshots of one thread (snapshots.py). All raise OSError."""

    def load(self) -> KeyedSnapshot | None: ...
    def save(self, snapshot: KeyedSnapshot) -> None: ...
    def of(self, thread: int) -> KeyedSnapshot | None:
        """The last snapshot of another thread of this task on this VM."""


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """The data of a copy: [key, state] rows, and the rows that made them (Applied.pack)."""

    states: bytes
    applied: bytes
    below: tuple[tuple[int, int, int], ...] = ()


NOTHING = Contents(wire.write([], wire.NESTED), Applied().pack(0))

_encode = msgspec.msgpack.Encoder().encode
_contents = msgspec.msgpack.Decoder(Contents).decode


@dataclass(slots=True)
class _Output:
    """What came of rows, and of which: (number in `roots`, offset, variant) each."""

    roots: Sequence[RootPart]
    rows: list[Any] = field(default_factory=list)
    singles: list[tuple[int, int, int]] = field(default_factory=list)


class KeyedRows:
    """`key(edge, row)`: by what the rows of an edge are grouped."""

    def __init__(
        self, code: UserCode, random64: Callable[[], int], key: Callable[[int, Any], Hashable]
    ) -> None:
        self.code, self.results, self.random64, self.key = code, code.results, random64, key
        self.thread = code.results.around.thread
        self.ranges = Ranges(self.thread)
        self.states: dict[int, dict[Hashable, Any]] = {}
        self.applied = Applied()
        self.dirty = False  # something has changed since the last snapshot
        self.side: dict[int, list[BufferedRow]] = {}
        self.uncovered: list[BufferedRow] = []
        self._frozen: dict[int, bytes] = {}  # ranges of others: their data, once and for all
        self._offers: dict[int, RangeCopy] = {}  # the best copy that others have

    @property
    def holding(self) -> int:
        return len(self.uncovered) + sum(map(len, self.side.values())) + len(self.ranges.pending)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        acks, out = AckSums(frame.roots), _Output(frame.roots)
        numbers = (number for number, _, _ in r.single(frame.runs))
        for row, number in zip(single_rows(frame, self.random64), numbers, strict=True):
            self._one(row, number, now_ns, acks, out)
        self._emit(out, now_ns, acks)
        return acks.all()

    def _one(self, row: BufferedRow, number: int, now_ns: int, acks: AckSums, out: _Output) -> None:
        found, failed = self.code.one(lambda: self._place_of(row), row)
        if failed is not None:
            self.results.bury_one(row, failed)
            return
        key, key_range = found
        owner = self.ranges.owner(key_range)
        if key_range in self.ranges.owned:
            self._process(row, number, key, key_range, acks, out)
        elif owner is not None and owner != self.thread:
            self._forward(row, owner, now_ns, acks)
        else:
            self.side.setdefault(key_range, []).append(row)
            acks.keep(row)

    def _place_of(self, row: BufferedRow) -> tuple[Hashable, int]:
        key = self.key(row.edge, row.row)
        return key, range_of(key)

    def _forward(self, row: BufferedRow, owner: int, now_ns: int, acks: AckSums) -> None:
        acks.give(row.roots, self.results.outputs.forward(row, owner, now_ns))

    def _process(
        self, row: BufferedRow, number: int, key: Hashable, key_range: int, acks: AckSums, output: _Output
    ) -> None:
        """A row, of root `number` of the output's, into its key's state; it stays kept until a snapshot covers it."""
        results, identity = self.results, row.identity
        out = self.applied.output(key_range, identity)
        if out is None:
            if results.pieces is not None:
                results.pieces.begin()
            out, failed = self.code.one(lambda: self._change(row, key, key_range), row)
            if failed is not None:
                results.bury_one(row, failed)
                return
            self.applied.add(key_range, identity, out if results.outputs.edges else [])
        self.dirty = True
        output.rows += out
        output.singles += [(number, row.offset, r.over_index(row.variant, i)) for i in range(len(out))]
        if results.around.sink:
            results.finish(row.batch)
        acks.keep(row)
        self.uncovered.append(row)

    def _emit(self, output: _Output, now_ns: int, acks: AckSums) -> None:
        """What came of rows goes on."""
        if output.rows:
            batch = r.Batch(output.rows, r.joined(output.singles), output.roots)
            acks.give(output.roots, self.results.emit(batch, now_ns))

    def _change(self, row: BufferedRow, key: Hashable, key_range: int) -> list[Any]:
        """Process a row; returns its output."""
        logic, states = self.code.logic, self.states.setdefault(key_range, {})
        state = states[key] if key in states else logic.new(key)
        new, out = logic.process(key, row.row, state)
        rows = list(out)
        states[key] = new
        return rows

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
        filled = {key_range for key_range, states in self.states.items() if states} | applied.filled
        copies = tuple(
            self.copy(key_range) if key_range in filled else RangeCopy(key_range, version)
            for key_range, version in sorted(self.ranges.versions.items())
        )
        return KeyedSnapshot(copies, tuple(sorted(self.ranges.lost)), applied.floors(), applied.again_at_most)

    def covered(self) -> list[Addressed]:
        """A snapshot of all that was processed is durable: its rows need not come again."""
        self.dirty = False
        acks = AckSums()
        for row in self.uncovered:
            acks.let_go(row)
        self.uncovered = []
        return acks.all()

    def restore(self, saved: KeyedSnapshot) -> None:
        """Take up the snapshot of this thread's former life. Raises msgspec.DecodeError."""
        for copy in saved.copies:
            self._install(copy)
        self.ranges.lost |= set(saved.lost)
        self.applied.take_floors(saved.below)
        self.applied.again_at_most = saved.applied_again

    def _install(self, copy: RangeCopy) -> None:
        """This copy of a range, in place of the one that is here. Raises msgspec.DecodeError."""
        contents = _contents(copy.data) if copy.data else NOTHING
        states = wire.read(contents.states, wire.NESTED)
        self.states[copy.key_range] = {
            _hashable(key): self.code.logic.restore(state) for key, state in states
        }
        self.applied.unpack(copy.key_range, contents.applied)
        self.applied.take_floors(contents.below)
        self.ranges.put(copy.key_range, copy.version)
        self._frozen.pop(copy.key_range, None)

    def copy(self, key_range: int) -> RangeCopy:
        """What is here of a range."""
        version = self.ranges.versions.get(key_range, NO_COPY)
        if version == NO_COPY:
            return RangeCopy(key_range)
        data = self._frozen.get(key_range)
        if data is None:
            data = self._packed(key_range)
            if key_range in self.ranges.pending and key_range not in self.ranges.owned:
                self._frozen[key_range] = data
        return RangeCopy(key_range, version, data)

    def _packed(self, key_range: int) -> bytes:
        states = self.states.get(key_range)
        if not states and not self.applied.of(key_range):
            return b""
        rows = [[key, self.code.logic.snapshot(state)] for key, state in (states or {}).items()]
        applied = self.applied.pack(key_range)
        return _encode(Contents(wire.write(rows, wire.NESTED), applied, self.applied.floors()))

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
                output = _Output(row.roots)
                self._process(row, 0, self.key(row.edge, row.row), key_range, acks, output)
                self._emit(output, now_ns, acks)
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
            self.states.pop(key_range, None)
            self._frozen.pop(key_range, None)
            self.applied.drop(key_range)
            self.dirty = True


def _hashable(key: Any) -> Hashable:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
