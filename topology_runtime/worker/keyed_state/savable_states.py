"""The states of a keyed task as they are saved and go along with their ranges. Pure but for the user's code."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable
from dataclasses import dataclass
from itertools import compress
from typing import Any

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.report_messages import KEY_TEXT_MOST
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.router import KeyRanges
from headgate.topology_runtime.worker.keyed_state.kept_states import KeptStates, SavedStates
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    States,
    columns_of,
    joined,
    of_range,
    states_of,
)
from headgate.topology_runtime.worker.keyed_state.written_states import WrittenStates
from headgate.topology_runtime.worker.rows import row_values as wire

LOOKED_FIRST, LOOK_ONE_IN = 64, 64  # of large states, those that are looked at before they are kept
SMALL = 16  # values in a state; one that has no more is always looked at


class ForgottenState:
    """In the place of a state that is forgotten, until a snapshot says so (timed_states.py)."""


GONE = ForgottenState()


@dataclass(frozen=True, slots=True)
class Aside:
    """In the place of a state that `restore` did not take: what was saved of it, tried again by the rows of its key."""

    saved: Any
    why: BaseException


def values_in(value: Any, most: int) -> int:
    """How many values this one has inside, at any depth; no more are counted than show that there are more than so
    many."""
    if type(value) not in wire.CONTAINERS:
        return 0
    found = len(value)
    for inner in value.values() if type(value) is dict else value:
        if found > most:
            break
        found += values_in(inner, most - found)
    return found


class SavableStates(KeptStates):
    """States of a task's object, which says how they are saved and restored."""

    def __init__(self, logic: Any, known: KeyRanges) -> None:
        super().__init__(known)
        self._logic = logic
        self._plain = type(logic).snapshot is Keyed.snapshot and "snapshot" not in vars(logic)
        self._restores = type(logic).restore is Keyed.restore and "restore" not in vars(logic)
        self.careful = 0  # rows for each of which the state before is kept as bytes
        self.set_aside = 0  # states that `restore` did not take, ever
        self._good: dict[tuple[int, Hashable], bytes] = {}  # these bytes, by range and key
        self._kept: list[States] = []  # of the change that is being made …
        self._cut_of: Container[int] | None = None  # … which has those of these ranges
        self._looked = 0  # states, since one could not be saved
        self._came = 0  # rows since the last snapshot
        self._row_states = WrittenStates()  # of these; every other state that changed since is `new`
        self._writes = False  # are more of them to be there?

    @property
    def _takes_all(self) -> bool:
        """Is what was saved the state itself?"""
        return self._restores and not self.careful

    @property
    def _as_they_are(self) -> bool:
        return self._plain and not self.set_aside and not self._good

    def _stays(self, state: Any) -> bool:
        return type(state) is Aside or state is GONE

    def _brought(self, key_range: int, key: Hashable, saved: Any) -> Any:
        if self.careful:
            self._good[key_range, key] = wire.write([saved], wire.NESTED)
        state = self._restored(saved)
        self.set_aside += type(state) is Aside
        return state

    def there(self, key: Hashable, key_range: int) -> Any:
        """The state of a key, GONE where there is none. It stays where it is."""
        return self.look_at(key, key_range, GONE)

    def _put_away(self, key_range: int, key: Hashable) -> None:
        self._good.pop((key_range, key), None)

    def _saved(self, key_range: int, key: Hashable, state: Any) -> Any:
        """A state as a plain value. Raises StartAgain where the user's `snapshot` does."""
        if type(state) is Aside:
            return state.saved
        if (good := self._good.get((key_range, key))) is not None:
            return wire.read(good, wire.NESTED)[0]
        try:
            return self._logic.snapshot(state)
        except BaseException as error:  # user code
            where = f"the state of key {attempts.shown(key, KEY_TEXT_MOST)} cannot be saved"
            raise attempts.StartAgain(f"{where}: {attempts.failure(0, error).error}") from error

    # ── can they be saved? ──────────────────────────────────────────────────────────────────────

    def _look(self, key: Hashable, state: Any) -> bytes | None:
        """Can this state be saved? Of many large ones not every one is looked at. What was written of it for that, if
        it is a scalar or a flat dict. Raises BadRow."""
        kind = type(state)
        if self._plain and not self._writes:
            if kind in wire.FLAT_ENOUGH:
                return None
            if kind is int and wire.LEAST_INT <= state <= wire.MOST_INT:
                return None
        try:
            if self._plain and (kind in wire.SCALARS or (kind is dict and wire.is_flat(state, wire.DEEPEST))):
                return wire.write_one(state)
            if self._plain and kind in wire.NESTS and wire.room_left(state, wire.DEEPEST) >= 0:
                wire.write_one(state)
                return None
            self._looked += 1
            if self._looked <= LOOKED_FIRST or not self._looked % LOOK_ONE_IN or self._is_small(state):
                wire.check([self._logic.snapshot(state)])
            return None
        except BadRow as error:
            self._looked = 0  # the next ones are looked at
            raise unsaved(key, error) from error

    def _is_small(self, state: Any) -> bool:
        """Is it cheap to look at?"""
        if not self._plain:
            return False
        return values_in(state, SMALL * SMALL) <= SMALL * SMALL

    # ── going along ─────────────────────────────────────────────────────────────────────────────

    def pack(self, key_range: int) -> bytes:
        """[key, state] rows."""
        rows = self.saved_in(key_range)
        try:
            is_plain = all(wire.shape_of([row[at] for row in rows]) == wire.PLAIN for at in (0, 1))
            return wire.write(rows, wire.PLAIN if is_plain else wire.NESTED)  # in both the same bytes
        except BadRow as error:
            raise attempts.StartAgain(error.what) from error

    def unpack(self, key_range: int, data: bytes) -> None:
        """In place of those here; one that `restore` does not take is set aside. Raises msgspec.DecodeError."""
        saved = dict(of_range(data))
        if self.overflow is not None:
            self.overflow.saw(list(saved.items()))
        good = {key: wire.write([state], wire.NESTED) for key, state in saved.items()} if self.careful else {}
        came = saved
        if not self._takes_all:
            came = {key: self._restored(state) for key, state in saved.items()}
            came = {key: state for key, state in came.items() if state is not GONE}
        self.drop(key_range)
        kind = self._known.kind(list(came))
        if kind is not None and self._takes_all:
            self._by_kind[kind].all.update(came)
        else:
            self.set_aside += sum(type(state) is Aside for state in came.values())
            for key, state in came.items():
                states, at = self._at(key, key_range)
                states.all[at] = state
        self._good |= {(key_range, key): data for key, data in good.items()}
        if came:
            self._ranged()[key_range] = came

    def _restored(self, saved: Any) -> Any:
        try:
            return self._logic.restore(saved)
        except BaseException as error:  # user code: the rows of its key try again
            return Aside(saved, error)

    def trouble(self, data: bytes) -> tuple[BaseException | None, bool]:
        """(why not all states in these bytes of a range can be taken up now, whether none can)."""
        if self._restores:
            return None, False
        tried = [self._restored(state) for _, state in of_range(data)]
        bad = [state.why for state in tried if type(state) is Aside]
        return bad[0] if bad else None, len(bad) == len(tried)

    def asides(self) -> tuple[int, int, BaseException | None]:
        """(states set aside, all states, why)."""
        if not self.set_aside:
            return 0, self.many + self.stored, None
        found = [state for states in self._by_kind.values() for state in states.all.values()]
        aside = [state for state in found if type(state) is Aside]
        return len(aside), len(found) + self.stored, aside[0].why if aside else None

    def cut(self, of: Container[int] | None = None) -> None:
        """The states that changed since the last snapshot, of these ranges, are to be in the next one, as they are by
        now: whatever changes one keeps it for that before (`bring`). Those that were written as rows left them go
        before the others: one that is among both changed last as one of the others, or not since it was written."""
        if of is not None:
            self._name_written()
        self._kept, self._cut_of = [], of
        writes = self._is_to_write
        if self._row_states.many:
            self._kept.append(self._row_states.taken())
        self._writes, self._came = writes, 0
        self.begin_cut()

    @property
    def _is_to_write(self) -> bool:
        """Are states to be written as rows leave them, by what there was since the last snapshot? Not when memory may
        soon have no room for some: which were touched is not known of these."""
        states = sum([len(one.new) for one in self._by_kind.values()])
        near = self.overflow is not None and (self.overflow.stored or 8 * self.many > 7 * self.overflow.most)
        return self._plain and not near and self._row_states.may_have_a_state_each(self._came, states)

    def _end_frame(self, rows: int) -> None:
        """So many rows are in the states."""
        self._came += rows
        for key_range, key in self._row_states.end_frame():
            states, at = self._at(key, key_range)
            states.new[at] = None
        if self._writes and self._row_states.is_full:
            self._writes, self._came = False, 0

    def _name_written(self) -> None:
        """From here on those that were written are `new`, as if they were not."""
        if not self._row_states.many:
            return
        for key_range, key in self._row_states.names():
            states, at = self._at(key, key_range)
            states.new[at] = None
        self._row_states.clear()

    def drop(self, key_range: int) -> None:
        self._name_written()
        super().drop(key_range)

    def pack_cut(self) -> States:
        """All of them. Raises StartAgain, as whatever keeps them does."""
        self.keep_all_cut()
        kept, self._kept, self.cutting = self._kept, [], False
        return joined(kept)

    @property
    def _forgotten(self) -> Any:
        return GONE

    def _kept_cut(self, found: SavedStates) -> None:
        if (of := self._cut_of) is not None:
            there = [key_range in of for key_range in found.ranges]
            found.ranges, found.keys, found.states = (
                list(compress(some, there)) for some in (found.ranges, found.keys, found.states)
            )
        self._kept.append(_packed(found))

    def pack_some(self, most: int) -> States:
        """The next ones of the sweep."""
        return _packed(self.sweep(most))

    def put(self, new: States) -> Iterable[tuple[Hashable, Any]]:
        """These in place of those here; keys and states. Raises msgspec.DecodeError."""
        keys, saved = columns_of(new)
        self._by_range = None
        self.bring(keys, new.ranges)
        kind = self._known.kind(keys)
        if kind is not None and self._takes_all:
            self._by_kind[kind].all.update(zip(keys, saved, strict=True))
            return zip(keys, saved, strict=True)
        came = list(map(self._restored, saved))
        for key_range, key, state, there in zip(new.ranges, keys, came, saved, strict=True):
            states, at = self._at(key, key_range)
            self._good.pop((key_range, key), None)  # is of the state before
            if state is GONE:
                states.all.pop(at, None)
                continue
            self.set_aside += type(state) is Aside
            states.all[at] = state
            if self.careful:
                self._good[key_range, key] = wire.write([there], wire.NESTED)
        return zip(keys, came, strict=True)

    def saved(self) -> None:
        """A snapshot has all that is here."""
        self._row_states.clear()
        for states in self._by_kind.values():
            states.saved()


def _packed(found: SavedStates) -> States:
    try:
        return states_of(found.ranges, found.keys, found.states)
    except BadRow as error:
        raise attempts.StartAgain(error.what) from error


def unsaved(key: Hashable, error: BadRow) -> BadRow:
    """Why a row failed, whose state of this key cannot be saved."""
    what = f"the state of key {attempts.shown(key, KEY_TEXT_MOST)} cannot be saved"
    return BadRow(what, cause=error.what.replace("a row", "it"), hint=error.hint)
