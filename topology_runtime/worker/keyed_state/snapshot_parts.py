"""What a thread saves when: each time what changed, and some states of a whole snapshot that is being made. Pure but
for the user's code.

Both are made in small steps between frames, so that no snapshot keeps its thread from rows for longer than some hundred
states take (docs/decisions/0110). A change has everything as it was when it was begun. Of a whole one each state is as
it is by then, so it ends with a change that was begun once all of them were swept, or while no row has changed any
since the last one: else it may have states without the names of the rows that made them.
"""

from __future__ import annotations

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    SavedPart,
    SnapshotStore,
    States,
    joined,
)

STEP_LEAST, STEP_MOST = 8, 256  # states
STEP_NS = 500_000
PART_STATES = 4096  # of a whole one
NS = 1_000_000_000
PACED_NS = NS // 10  # a thread has not rested for longer
OF_CHANGES, OF_WHOLES, OF_AWAITED = 1 / 4, 1 / 16, 1 / 2  # of the time of a thread with rows


class StepPace:
    """How many steps a thread does: no more than take their share of its time. states: in the next one."""

    def __init__(self) -> None:
        self.states = STEP_MOST
        self._looked_ns = 0
        self._room = dict.fromkeys((OF_CHANGES, OF_WHOLES, OF_AWAITED), 0.0)

    def look(self, now_ns: int) -> None:
        """Time has passed."""
        passed_ns = min(max(0, now_ns - self._looked_ns), PACED_NS)
        self._looked_ns = now_ns
        for share, room in self._room.items():
            self._room[share] = min(room, STEP_NS) + share * passed_ns

    def may(self, share: float) -> bool:
        return self._room[share] >= 0.0

    def did(self, spent_ns: int, of_states: bool) -> None:
        """A step took so long. of_states: which did nothing but look at some."""
        spent_ns = min(max(0, spent_ns), PACED_NS)  # the clock may be set meanwhile
        for share, room in self._room.items():
            self._room[share] = max(room - spent_ns, -share * NS)
        if not of_states:
            return
        if spent_ns > STEP_NS:
            self.states = max(STEP_LEAST, self.states // 2)
        elif 2 * spent_ns < STEP_NS:
            self.states = min(STEP_MOST, 2 * self.states)


class SnapshotParts:
    """Of the rows of one thread. told: ranges and their versions as the last part has them, which is so many changes of
    them. most: states in a step, and each of a whole snapshot in a part of its own; 0: as above. making: is a part that
    was begun still lacking something?"""

    def __init__(self, rows: KeyedRows, most: int = 0) -> None:
        self._rows, self.most = rows, most
        self.told: dict[int, int] = {}
        self.told_changes = -1
        self.making = False
        self._cut = self._ends = False
        self._begun: KeyedSnapshot | None = None
        self._applied = b""
        self._before: list[
            States
        ] = []  # swept before the part that is being made was begun, so they are in it
        self._swept: list[States] = []  # in no part yet
        self._turn = False  # of a whole one that is late, while a change is made
        self._all_swept = False  # of a whole one, which has not ended
        self._owed = 0  # states that are to be swept, or it takes too long

    def may_begin(self, store: SnapshotStore) -> bool:
        """Where nothing stands, not while states of a whole one are swept."""
        return not self.making and (store.stands or store.whole_due or self._all_swept)

    def begin(self, store: SnapshotStore) -> None:
        """From here on a part is made of what changed until now; where nothing stands behind which that could be, of a
        whole one, which has all at its end. Raises BadRow: then none is."""
        rows, stands, begins = self._rows, store.stands, store.whole_due
        self._begun, self._applied = rows.begin_whole() if begins else (None, b"")
        self._cut = stands or (self._all_swept and not begins)
        if self._cut:
            try:
                rows.cut(self.told)
            except BadRow:
                if begins:
                    rows.states.end_sweep()
                raise
            rows.cover()
        self._ends = self._all_swept and not begins
        self._before, self._swept = self._swept, []
        if begins:
            self._before, self._all_swept, self._owed = [], False, 0
        if begins and not stands:
            rows.mark()
            self._sweep(self.most or PART_STATES)
            self._before, self._swept = self._swept, []
            if self._all_swept:
                self._ends = True
                rows.cover()
        self.told, self.told_changes = dict(rows.ranges.versions), rows.ranges.changes
        self.making = True

    def busy(self, store: SnapshotStore) -> bool:
        """Has `step` anything to do? While ranges come or go no states are swept that no change has told of."""
        has = self._rows.states.sweeping or bool(self._swept)
        return self.making or (has and (self._is_told or not store.stands))

    @property
    def _is_told(self) -> bool:
        return self.told_changes == self._rows.ranges.changes

    @property
    def is_late(self) -> bool:
        """Is the whole one to go on, however long that takes? So no more than twice as much changes as there is."""
        return self._owed > 0 and self._rows.states.sweeping

    def step(self, states: int) -> SavedPart | None:
        """Some states more, so many about; the part, once it is made. Raises StartAgain."""
        rows, most = self._rows, self.most or states
        self._turn = not self._turn and self.is_late and self._is_told
        if self.making and not self._turn:
            return None if self._cut and rows.states.keep_some_cut(most) else self._made()
        self._sweep(most)
        many = sum(len(some.ranges) for some in self._swept)
        if self.making or not (self.most or self._all_swept or many >= PART_STATES):
            return None
        some, self._swept = self._swept, []
        ends = self._all_swept and not rows.dirty
        return self._part(SavedPart(states=joined(some), ends=ends))

    def give_up(self) -> None:
        """Nothing stands any more: all is saved anew."""
        self._rows.states.end_sweep()
        self.making = self._all_swept = False
        self._before, self._swept = [], []

    def _made(self) -> SavedPart:
        self.making = False
        change = self._rows.was_cut() if self._cut else None
        if change is not None and self._rows.states.sweeping:
            self._owed += len(change.states.ranges) // 2
        states, self._before = (joined(self._before) if self._before else None), []
        return self._part(SavedPart(change, self._begun, states, self._ends, self._applied))

    def _part(self, part: SavedPart) -> SavedPart:
        self._all_swept = self._all_swept and not part.ends
        return part

    def _sweep(self, most: int) -> None:
        if (some := self._rows.swept(most)) is not None:
            self._swept.append(some)
            self._owed -= len(some.ranges)
        self._all_swept = not self._rows.states.sweeping
