"""What a thread of a keyed task does: state per key, owned by key range. Pure but for the user's code.

Rules (protocol: Keyed ranges that move; A4, A5, B4):
 1. A row is processed only by the owner of its range. A row of a range that is still on its way here
    waits at the side, kept and not acked; a row of a range that went away follows it.
 2. A processed row stays kept until a snapshot covers it, so a killed owner's rows come again.
 3. A range leaves when marks of all upstream threads are in: its states go to the new owner in one
    message, sent again until the owner has them durably; only then are they forgotten here.
 4. A row whose identity was processed already (a replay) changes no state again, as far back as
    `REMEMBERED` rows. Its output goes out again: it may be what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Any

from topology_runtime.messages import Frame, StateMove, StateTaken
from topology_runtime.worker import attempts
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.flow import Acks, Addressed, Flow
from topology_runtime.worker.held import Kept, alone
from topology_runtime.worker.router import range_of

REMEMBERED = 50_000
Identity = tuple[int, int, int, int]


@dataclass
class KeyedFlow(Flow):
    """`owner(range)`: the thread that owns a range by the routes in force; `key(edge, row)`."""

    random64: Callable[[], int] = field(kw_only=True)
    key: Callable[[int, Any], Hashable] = lambda _, row: row
    owner: Callable[[int], int | None] = lambda _: None
    owned: set[int] = field(default_factory=set)
    states: dict[int, dict[Hashable, Any]] = field(default_factory=dict)
    leaving: dict[int, StateMove] = field(default_factory=dict)  # range → the message it goes in
    dirty: bool = False
    _side: dict[int, list[Kept]] = field(default_factory=dict)
    _uncovered: list[Kept] = field(default_factory=list)
    _seen: dict[Identity, list[Any]] = field(default_factory=dict)  # → its output

    @property
    def holding(self) -> int:
        return len(self._uncovered) + sum(map(len, self._side.values())) + len(self.leaving)

    @property
    def waiting(self) -> set[int]:
        """Ranges that have rows here but no state yet."""
        return set(self._side)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        acks = Acks()
        for root in frame.roots:
            acks.add(root, root.id)
        parts = [alone(frame.roots, number) for number in range(len(frame.roots))]
        for row, (number, offset, variant) in zip(frame.rows, r.single(frame.runs), strict=True):
            root, along = parts[number]
            self._one(Kept(row, frame.edge, root, offset, variant, self.random64(), along), now_ns, acks)
        return acks.all()

    def _one(self, kept: Kept, now_ns: int, acks: Acks) -> None:
        found, failed = attempts.once(lambda: self._place_of(kept), self.pause)
        if failed is not None:
            self._bury_one(kept, failed)
            return
        key, key_range = found
        target = self.owner(key_range)
        if key_range in self.owned:
            self._process(kept, key, key_range, now_ns, acks)
        elif target is not None and target != self.around.thread:
            run = (0, kept.offset, 1, kept.variant)
            given = self.outputs.forward(kept.edge, target, kept.row, run, kept.roots, now_ns)
            for root in kept.roots:
                acks.add(root, given[root.key])
        else:
            self._side.setdefault(key_range, []).append(kept)
            acks.add_for(kept, kept.share, 1)

    def _place_of(self, kept: Kept) -> tuple[Hashable, int]:
        key = self.key(kept.edge, kept.row)
        return key, range_of(key)

    def _process(self, kept: Kept, key: Hashable, key_range: int, now_ns: int, acks: Acks) -> None:
        """A row into its key's state, and its output on; it stays kept until a snapshot covers it."""
        identity = (*kept.position, kept.variant)
        out = self._seen.get(identity)
        if out is None:
            out, failed = attempts.once(lambda: self._change(kept, key, key_range), self.pause)
            if failed is not None:
                self._bury_one(kept, failed)
                return
            self._seen[identity] = out
            if len(self._seen) > REMEMBERED:
                del self._seen[next(iter(self._seen))]
        self.dirty = True
        run = (0, kept.offset, 1, kept.variant)
        runs = [(0, kept.offset, 1, r.over_index(kept.variant, i)) for i in range(len(out))]
        given = self.emit(out, runs, kept.roots, now_ns)
        if self.around.sink:
            self._finish([kept.root], [run])
        for root in kept.roots:
            acks.add(root, given.get(root.key, 0) ^ kept.share, 1)
        self._uncovered.append(kept)

    def _change(self, kept: Kept, key: Hashable, key_range: int) -> list[Any]:
        """Process a row; returns its output."""
        states = self.states.setdefault(key_range, {})
        state = states[key] if key in states else self.logic.new(key)
        new, out = self.logic.process(key, kept.row, state)
        rows = list(out)
        states[key] = new
        return rows

    def _bury_one(self, kept: Kept, failed: attempts.Failure) -> None:
        self._bury([kept.row], [(0, kept.offset, 1, kept.variant)], [kept.root], [failed])

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────

    def snapshot(self) -> list[Any]:
        """Everything owned as one plain row: [owned ranges, [[range, key, state], …]]."""
        states = [
            [key_range, key, self.logic.snapshot(state)]
            for key_range, of_range in self.states.items()
            for key, state in of_range.items()
        ]
        return [sorted(self.owned | self.leaving.keys()), states]

    def covered(self) -> list[Addressed]:
        """A snapshot of all that was processed is durable: its rows need not come again."""
        self.dirty = False
        acks = Acks()
        for kept in self._uncovered:
            acks.add_for(kept, kept.share, -1)
        self._uncovered = []
        return acks.all()

    def restore(self, saved: Iterable[Any]) -> None:
        """Take up a snapshot (of this thread's former life, or of a thread that is no more)."""
        ranges, states = saved
        self.owned |= set(ranges)
        for key_range, key, state in states:
            self.states.setdefault(key_range, {})[_hashable(key)] = self.logic.restore(state)
        self.dirty = True

    # ── ranges that move ────────────────────────────────────────────────────────────────────────

    def claim(self, ranges: Iterable[int], now_ns: int) -> list[Addressed]:
        """These ranges are this thread's; rows that waited for them are processed."""
        acks = Acks()
        for key_range in ranges:
            self.owned.add(key_range)
            for kept in self._side.pop(key_range, ()):
                acks.add_for(kept, kept.share, -1)
                self._process(kept, self.key(kept.edge, kept.row), key_range, now_ns, acks)
        return acks.all()

    def let_ranges_go(self, number: int) -> None:
        """All marks are in: ranges that belong to other threads now are frozen and ready to be sent."""
        gone: dict[int, list[int]] = {}
        for key_range in sorted(self.owned):
            target = self.owner(key_range)
            if target is not None and target != self.around.thread:
                gone.setdefault(target, []).append(key_range)
        for target, ranges in gone.items():
            states = tuple(
                (key_range, wire.write([[key, self.logic.snapshot(state)]], wire.NESTED))
                for key_range in ranges
                for key, state in self.states.get(key_range, {}).items()
            )
            move = StateMove(self.around.thread, target, number, tuple(ranges), states)
            self.owned -= set(ranges)
            self.leaving.update(dict.fromkeys(ranges, move))

    def moves(self) -> list[StateMove]:
        """Messages to send (again)."""
        return list({id(move): move for move in self.leaving.values()}.values())

    def on_move(self, move: StateMove, now_ns: int) -> list[Addressed]:
        """State arrives: take what is not here yet (a message may come twice)."""
        fresh = set(move.ranges) - self.owned
        for key_range, data in move.states:
            if key_range in fresh:
                key, state = wire.read(data, wire.NESTED)[0]
                self.states.setdefault(key_range, {})[_hashable(key)] = self.logic.restore(state)
        self.dirty = self.dirty or bool(fresh)
        return self.claim(sorted(fresh), now_ns)

    def on_taken(self, taken: StateTaken) -> None:
        for key_range in taken.ranges:
            if self.leaving.pop(key_range, None) is not None:
                self.states.pop(key_range, None)
                self.dirty = True


def _hashable(key: Any) -> Hashable:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key
