"""What a thread of a keyed task does with rows: state per key, owned by key range. Pure but for the user's
code. Which ranges it owns is in ranges.py, when it asks and answers in keyed_core.py.

Rules (protocol: Keyed state) [A4] [A5] [B4]:
 1. A row is processed only by the owner of its range. A row of a range that is still on its way here
    waits at the side, kept and not acked; a row of a range that went away follows it.
 2. A processed row stays kept until a snapshot covers it, so a killed owner's rows come again.
 3. A row whose identity was processed already (a replay) changes no state again; its output goes out
    again (applied.py).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from topology_runtime.messages import Frame
from topology_runtime.state_moves import RangeCopy
from topology_runtime.worker import attempts
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.applied import Applied
from topology_runtime.worker.flow import AckSums, Addressed, Flow
from topology_runtime.worker.held import BufferedRow, alone
from topology_runtime.worker.ranges import NO_COPY, Ranges
from topology_runtime.worker.router import range_of


class KeyedSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """All that a thread has. lost: ranges claimed although their state was lost. below, applied_again: as
    in Applied."""

    copies: tuple[RangeCopy, ...]
    lost: tuple[int, ...] = ()
    below: tuple[tuple[int, int, int], ...] = ()
    applied_again: int = 0


class Contents(msgspec.Struct, frozen=True, array_like=True):
    """The data of a copy: [key, state] rows, and the rows that made them (Applied.pack)."""

    states: bytes
    applied: bytes
    below: tuple[tuple[int, int, int], ...] = ()


NOTHING = Contents(wire.write([], wire.NESTED), Applied().pack(0))

_encode = msgspec.msgpack.Encoder().encode
_contents = msgspec.msgpack.Decoder(Contents).decode


@dataclass
class KeyedFlow(Flow):
    """`key(edge, row)`: by what the rows of an edge are grouped."""

    random64: Callable[[], int] = field(kw_only=True)
    key: Callable[[int, Any], Hashable] = lambda _, row: row
    states: dict[int, dict[Hashable, Any]] = field(default_factory=dict)
    applied: Applied = field(default_factory=Applied)
    dirty: bool = False  # something has changed since the last snapshot
    ranges: Ranges = field(init=False)
    _frozen: dict[int, bytes] = field(default_factory=dict)  # ranges of others: their data, once and for all
    _offers: dict[int, RangeCopy] = field(default_factory=dict)  # the best copy that others have
    side: dict[int, list[BufferedRow]] = field(default_factory=dict)
    uncovered: list[BufferedRow] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.ranges = Ranges(self.around.thread)

    @property
    def holding(self) -> int:
        return len(self.uncovered) + sum(map(len, self.side.values())) + len(self.ranges.pending)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        acks = AckSums()
        for root in frame.roots:
            acks.add(root, root.id)
        parts = [alone(frame.roots, number) for number in range(len(frame.roots))]
        for row, (number, offset, variant) in zip(frame.rows, r.single(frame.runs), strict=True):
            root, along = parts[number]
            self._one(
                BufferedRow(row, frame.edge, root, offset, variant, self.random64(), along), now_ns, acks
            )
        return acks.all()

    def _one(self, kept: BufferedRow, now_ns: int, acks: AckSums) -> None:
        found, failed = self._try(lambda: self._place_of(kept), kept)
        if failed is not None:
            self._bury_one(kept, failed)
            return
        key, key_range = found
        owner = self.ranges.owner(key_range)
        if key_range in self.ranges.owned:
            self._process(kept, key, key_range, now_ns, acks)
        elif owner is not None and owner != self.around.thread:
            self._forward(kept, owner, now_ns, acks)
        else:
            self.side.setdefault(key_range, []).append(kept)
            acks.add_for(kept, kept.share, 1)

    def _place_of(self, kept: BufferedRow) -> tuple[Hashable, int]:
        key = self.key(kept.edge, kept.row)
        return key, range_of(key)

    def _forward(self, kept: BufferedRow, owner: int, now_ns: int, acks: AckSums) -> None:
        run = (0, kept.offset, 1, kept.variant)
        given = self.outputs.forward(kept.edge, owner, kept.row, run, kept.roots, now_ns)
        for root in kept.roots:
            acks.add(root, given[root.key])

    def _process(self, kept: BufferedRow, key: Hashable, key_range: int, now_ns: int, acks: AckSums) -> None:
        """A row into its key's state, and its output on; it stays kept until a snapshot covers it."""
        identity = (*kept.position, kept.variant)
        out = self.applied.output(key_range, identity)
        if out is None:
            if self.pieces is not None:
                self.pieces.begin()
            out, failed = self._try(lambda: self._change(kept, key, key_range), kept)
            if failed is not None:
                self._bury_one(kept, failed)
                return
            self.applied.add(key_range, identity, out if self.outputs.edges else [])
        self.dirty = True
        run = (0, kept.offset, 1, kept.variant)
        runs = [(0, kept.offset, 1, r.over_index(kept.variant, i)) for i in range(len(out))]
        given = self.emit(out, runs, kept.roots, now_ns)
        if self.around.sink:
            self._finish([kept.root], [run])
        for root in kept.roots:
            acks.add(root, given.get(root.key, 0) ^ kept.share, 1)
        self.uncovered.append(kept)

    def _change(self, kept: BufferedRow, key: Hashable, key_range: int) -> list[Any]:
        """Process a row; returns its output."""
        states = self.states.setdefault(key_range, {})
        state = states[key] if key in states else self.logic.new(key)
        new, out = self.logic.process(key, kept.row, state)
        rows = list(out)
        states[key] = new
        return rows

    def _bury_one(self, kept: BufferedRow, failed: attempts.Failure) -> None:
        self._edge = kept.edge
        self._bury([kept.row], [(0, kept.offset, 1, kept.variant)], [kept.root], [failed])
        self._edge = None

    def pass_on(self, now_ns: int) -> list[Addressed]:
        """Rows at the side whose range is another thread's by now go there."""
        acks = AckSums()
        for key_range in list(self.side):
            owner = self.ranges.owner(key_range)
            if owner is not None and owner != self.around.thread:
                for kept in self.side.pop(key_range):
                    acks.add_for(kept, kept.share, -1)
                    self._forward(kept, owner, now_ns, acks)
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
        for kept in self.uncovered:
            acks.add_for(kept, kept.share, -1)
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
        self.states[copy.key_range] = {_hashable(key): self.logic.restore(state) for key, state in states}
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
        rows = [[key, self.logic.snapshot(state)] for key, state in (states or {}).items()]
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
            for kept in self.side.pop(key_range, ()):
                acks.add_for(kept, kept.share, -1)
                self._process(kept, self.key(kept.edge, kept.row), key_range, now_ns, acks)
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
