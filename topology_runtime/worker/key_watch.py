"""Which keys most rows of an edge have, in the thread that splits them by key. Pure.

All rows of small frames are counted, and of the larger ones every eighth frame, chosen so that no rhythm of the rows is
met. What is counted is a summary of Misra and Gries (1982): when there are too many keys, all counts lose as much as
the largest that goes, so a count is short by at most a (KEPT + 1)-th of the rows, and a key that has more is there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence

from headgate.topology_runtime.key_counts import KEY_TEXT_MOST, KeyCount, KeysSeen
from headgate.topology_runtime.worker.attempts import shown

WHOLE_MOST = 32  # rows in a frame that is always counted
ONE_IN = 8  # of the larger ones
GOLDEN = 0x9E3779B1  # its multiples, modulo 2³², lie evenly spread
KEPT = 100  # keys, when there are more than …
KEYS_MOST = 1000
TOLD_MOST, TOLD_LEAST = 4, 0.1  # so many keys, if they have that share of the rows


class KeyWatch:
    """Of one edge."""

    def __init__(self) -> None:
        self._rows = self._looked_at = self._frames = 0
        self._counts: Counter[Hashable] = Counter()

    def wants(self, rows: int) -> bool:
        """Are the keys of this frame to be counted?"""
        self._rows += rows
        if rows <= WHOLE_MOST:
            return True
        self._frames += 1
        return ((self._frames * GOLDEN) & 0xFFFFFFFF) * ONE_IN >> 32 == 0

    def add(self, keys: Sequence[Hashable]) -> None:
        """The keys of a frame. One that cannot be hashed has its frame passed over."""
        try:
            found = Counter(keys)
        except TypeError:
            return
        self._looked_at += len(keys)
        self._counts.update(found)
        if len(self._counts) > KEYS_MOST:
            ordered = self._counts.most_common(KEPT + 1)
            least = ordered.pop()[1]
            self._counts = Counter({key: count - least for key, count in ordered if count > least})

    def told(
        self, edge: int, thread: int, range_of: Callable[[Hashable], int], hidden: bool
    ) -> KeysSeen | None:
        """What was seen since this was asked last; None: no row."""
        rows, looked_at, counts = self._rows, self._looked_at, self._counts
        self._rows, self._looked_at, self._counts = 0, 0, Counter()
        if not looked_at:
            return None
        top = tuple(
            KeyCount("" if hidden else shown(key, KEY_TEXT_MOST), range_of(key), count)
            for key, count in counts.most_common(TOLD_MOST)
            if count >= TOLD_LEAST * looked_at
        )
        return KeysSeen(edge, thread, rows, looked_at, top)
