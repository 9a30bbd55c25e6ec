"""States as rows left them, as they were written when they were looked at: what is saved of them needs no second look.

A state is written anyway before it takes the place of the one before, to see whether it can be saved. Where most rows
change a state that no other row changes before the next snapshot, these bytes are kept, and are what the snapshot has;
of a key with several rows the last ones count, as ever. So nothing is looked for, brought into the processor's caches
and written once more when the snapshot is made (docs/decisions/0118). Pure.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from headgate.topology_runtime.worker.keyed_state.state_snapshots import States
from headgate.topology_runtime.worker.rows import row_values as wire

WRITTEN_MOST = 32 << 20  # bytes of states that wait for a snapshot so
ROWS_A_STATE = 2  # no more, or each state is better written once


class WrittenStates:
    """rows: of the frame that is under way, (range, key, state as a plain row without tuples, written)."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, Hashable, bytes]] = []
        self.clear()

    def clear(self) -> None:
        """A snapshot has them, or something else has."""
        self.rows.clear()
        self._ranges: list[int] = []
        self._keys: list[bytes] = []  # frame by frame
        self._states: list[bytes] = []
        self._bytes = 0
        self._range = -1  # of which rows and keys are counted …
        self._counted = 0
        self._different: set[Hashable] = set()

    @property
    def many(self) -> int:
        """Of frames that are over."""
        return len(self._ranges)

    @property
    def is_full(self) -> bool:
        return self._bytes >= WRITTEN_MOST

    def may_have_a_state_each(self, rows: int, states: int) -> bool:
        """Are so many rows, which changed so many states, few enough for each? As far as one range tells where these
        are here: then no more is known."""
        if self._ranges:
            rows, states = self._counted, len(self._different)
        return rows <= ROWS_A_STATE * states

    def end_frame(self) -> list[tuple[int, Hashable]]:
        """Its rows are over; (range, key) of those that are not here, for keys of such types are written otherwise."""
        if not self.rows:
            return []
        ranges, keys, states = zip(*self.rows, strict=True)
        self.rows.clear()
        if not wire.TOLD_APART.issuperset(map(type, keys)):
            return list(zip(ranges, keys, strict=True))
        self.add(ranges, keys, b"".join(states))
        return []

    def add(self, ranges: Sequence[int], keys: Sequence[Hashable], states: bytes) -> None:
        """Of these keys, whose types tell them apart: states without what is before them, one behind the other."""
        written = wire.without_head(wire.write(keys, wire.PLAIN))
        self._ranges += ranges
        self._keys.append(written)
        self._states.append(states)
        self._bytes += len(written) + len(states)
        if self._range < 0:
            self._range = ranges[0]
        if many := ranges.count(self._range):
            self._counted += many
            self._different.update(key for key, at in zip(keys, ranges, strict=True) if at == self._range)

    def taken(self) -> States:
        """All of them, in their order, which are here no more."""
        many, keys, states = len(self._ranges), self._keys, self._states
        found = States(
            self._ranges, wire.PLAIN, wire.with_head(keys, many), wire.PLAIN, wire.with_head(states, many)
        )
        self.clear()
        return found

    def names(self) -> Iterable[tuple[int, Hashable]]:
        """(range, key) of all of them."""
        keys: list[Hashable] = wire.read(wire.with_head(self._keys, self.many), wire.PLAIN)
        return zip(self._ranges, keys, strict=True)
