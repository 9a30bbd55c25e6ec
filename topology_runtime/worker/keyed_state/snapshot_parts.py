"""What a thread saves when: each time what changed, and some states of a whole snapshot that is being made. Pure but
for the user's code.

So no snapshot keeps its thread from rows for longer than some thousand states take (docs/decisions/0104).
"""

from __future__ import annotations

from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart, SnapshotStore

SWEPT = 1024  # states of a whole one at once: 2 to 4 ms; with many changes half as many as changed
SWEPT_AWAITED = 32_768  # … while nothing is durable without it


class SnapshotParts:
    """Of the rows of one thread. told: ranges and their versions, as the last part has them. most: states at once,
    0: as above."""

    def __init__(self, rows: KeyedRows, most: int = 0) -> None:
        self._rows, self.most = rows, most
        self.told: dict[int, int] = {}
        self._all_swept = False  # of the whole one that is being made, and it lacks what changed last

    def next(self, store: SnapshotStore) -> SavedPart:
        """What changed, unless nothing stands behind which it could be: then a whole one, which has all at its end."""
        rows, stands = self._rows, store.stands
        change = rows.change(self.told) if stands else None
        most = self.most or SWEPT_AWAITED
        if change is not None:
            most = self.most or max(SWEPT, len(change.states.ranges) // 2)
        begun = rows.begin_whole() if store.whole_due else None
        if begun is not None and not stands:
            rows.mark()
        states = rows.swept(most)
        ends = not rows.states.sweeping and (states is not None or (begun is None and self._all_swept))
        self._all_swept = False
        if ends and not stands and begun is None:
            change = rows.change(self.told)
        if change is not None or begun is not None:
            self.told = dict(rows.ranges.versions)
        return SavedPart(change, begun, states, ends)

    def more(self) -> SavedPart:
        """Of the whole snapshot that is being made, without what changed. Where rows have changed states since the last
        part, it is whole only with the next one: it may have these states, and lacks the names of their rows."""
        states = self._rows.swept(self.most or SWEPT)
        all_swept = not self._rows.states.sweeping
        self._all_swept = all_swept and self._rows.dirty
        return SavedPart(states=states, ends=all_swept and not self._all_swept)
