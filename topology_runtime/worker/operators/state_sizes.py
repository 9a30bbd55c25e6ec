"""How much the states of one keyed thread take, by range: what its snapshots weighed, and keys since then. Pure.

Nothing is looked at for this: a whole snapshot passes by here, and so do changes. Keys that are new since the last
whole one are taken to be as large as those that changed last, and to be spread evenly, as keys are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from msgspec.structs import replace

from headgate.topology_runtime.wire.report_messages import EVEN_BYTES, PART_STEPS, UNEVEN, HeldState
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.keyed_state.kept_states import STATE_BYTES
from headgate.topology_runtime.worker.keyed_state.key_ranges import runs_of
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    StateChange,
    StreamedSnapshot,
    Whole,
)

BYTE_MOST = 255


class StateSizes:
    def __init__(self) -> None:
        self._whole: dict[int, int] = {}  # range → bytes in the last whole snapshot
        self._keys_then = 0
        self._mean_bytes = 0.0  # of a state

    def whole(self, snapshot: Whole, keys: int) -> Whole:
        """The same snapshot, of so many keys; looked at as it is written."""
        self._whole, self._keys_then = {}, keys
        if isinstance(snapshot, StreamedSnapshot):
            return StreamedSnapshot(snapshot.rest, snapshot.count, self._passing(snapshot.copies))
        self._note(snapshot.copies)
        self._mean_bytes = sum(self._whole.values()) / keys if keys else self._mean_bytes
        return snapshot

    def changed(self, change: StateChange) -> None:
        if change.states.ranges:
            size = len(change.states.keys) + len(change.states.states)
            self._mean_bytes = size / len(change.states.ranges)

    def held(self, owned: set[int], keys: int) -> HeldState | None:
        """What the states of these ranges take, with so many keys by now; None: nothing."""
        here = {key_range: self._whole.get(key_range, 0) for key_range in owned}
        more = max(0, keys - self._keys_then) * self._mean_bytes
        total = int(sum(here.values()) + more)
        if not owned or not total:
            return None
        told = HeldState(total, total + keys * STATE_BYTES)
        each = more / len(owned)
        if total < EVEN_BYTES or max(here.values()) + each <= UNEVEN * total / len(owned):
            return told
        parts = bytes(_part(here[key_range] + each) for key_range in sorted(owned))
        return replace(told, ranges=runs_of(owned), parts=parts)

    def _note(self, copies: tuple[RangeCopy, ...]) -> None:
        self._whole = {copy.key_range: len(copy.data) for copy in copies if copy.data}

    def _passing(self, copies: Iterator[RangeCopy]) -> Iterator[RangeCopy]:
        for copy in copies:
            if copy.data:
                self._whole[copy.key_range] = len(copy.data)
            yield copy
        if self._keys_then:
            self._mean_bytes = sum(self._whole.values()) / self._keys_then


def _part(size: float) -> int:
    return min(BYTE_MOST, max(1, round(PART_STEPS * math.log2(size)))) if size > 1 else 0
