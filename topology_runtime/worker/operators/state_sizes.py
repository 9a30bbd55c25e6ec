"""How much the states of one keyed thread take, by range: what its snapshots weighed, and keys since then. Pure.

Nothing is looked at for this: what is saved passes by here. States that are saved together are taken to be of one size;
keys that are new since the last whole snapshot to be as large as those that changed last, and to be spread evenly, as
keys are.
"""

from __future__ import annotations

import math
from collections import Counter

from msgspec.structs import replace

from headgate.topology_runtime.wire.report_messages import (
    EVEN_BYTES,
    PART_STEPS,
    STATE_BYTES,
    UNEVEN,
    HeldState,
)
from headgate.topology_runtime.worker.keyed_state.key_ranges import runs_of
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart, States

BYTE_MOST = 255


class StateSizes:
    def __init__(self) -> None:
        self._whole: Counter[int] = Counter()  # range → bytes in the last whole snapshot
        self._making: Counter[int] = Counter()  # … in the one that is being made
        self._keys_then = 0
        self._mean_bytes = 0.0  # of a state

    def saw(self, part: SavedPart, keys: int) -> None:
        """This is saved; the thread has so many keys."""
        if part.change is not None:
            self._mean_bytes = _each_bytes(part.change.states) or self._mean_bytes
            for copy in part.change.moved.came if part.change.moved is not None else ():
                self._whole[copy.key_range] = len(copy.data)
        if part.begun is not None:
            self._making = Counter({copy.key_range: len(copy.data) for copy in part.begun.copies})
        if part.states is not None:
            each = _each_bytes(part.states)
            for key_range, states in Counter(part.states.ranges).items():
                self._making[key_range] += round(states * each)
        if part.ends:
            self._whole, self._making, self._keys_then = self._making, Counter(), keys
            if keys:
                self._mean_bytes = self._whole.total() / keys

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


def _each_bytes(states: States) -> float:
    return (len(states.keys) + len(states.states)) / len(states.ranges) if states.ranges else 0.0


def _part(size: float) -> int:
    return min(BYTE_MOST, max(1, round(PART_STEPS * math.log2(size)))) if size > 1 else 0
