"""Where the states of a keyed task's keys are: in memory, and above a bound those that were touched longest ago in a
scratch store. Pure but for that store, which the caller gives.

What is in the store is in no other place, and in the form of snapshots; it comes back when a row of its key does. The
store holds nothing that must last: snapshots have it, and rows that no snapshot covers are kept at their sources. So a
store that cannot be written is an alarm, and states stay in memory; from one that cannot be read the thread starts
again, as from any state that is spoilt.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any, Protocol

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.report_messages import STATE_BYTES
from headgate.topology_runtime.worker.calls.attempts import StartAgain
from headgate.topology_runtime.worker.calls.router import KeyRanges, range_in
from headgate.topology_runtime.worker.keyed_state.state_snapshots import hashable
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.row_values import RowSizes

TOLD_BY_BYTES = frozenset({str, int, bytes})  # types of keys
SHAPES = [bytes((shape,)) for shape in range(4)]
FLAT_MOST = 64  # values in a state that is looked at as a whole
ONE_ROW = bytes((0x91,))  # what is before it, in msgpack
LOOK_EVERY, LOOK_ALL = 16, 64  # calls: of so many one state is looked at for its size; of the first ones all
STORED_LEAST, STORED_MOST = 64, 4096  # states that go at once, beyond those that are too many
STORED_SHARE = 256  # … one of so many
GONE_MOST = 100_000  # records that are in memory by now, and wait there for their next state, or to go
KEPT_AT_ONCE = 256  # states that are looked at and written together: the processor has them at hand still
PASSED_OVER = 2  # times as many are looked at to find some that were not touched lately


Name = tuple[int, bytes]  # of a state in the store: its range, and its key as bytes


class StateStore(Protocol):
    """Of one thread. All but `clear` raise OSError."""

    def put(self, records: Sequence[tuple[int, bytes, bytes]], gone: Sequence[Name]) -> Collection[Name]:
        """These records, each behind its name, in place of those of these names; and those that are gone go. All or,
        when it raises, nothing. Returns the few that it cannot have."""

    def get(self, names: Sequence[Name]) -> Iterable[tuple[int, bytes, bytes]]:
        """Those of these that are there, and maybe some others."""

    def of(self, key_range: int) -> Iterator[tuple[int, bytes, bytes]]:
        """All of a range."""

    def drop(self, key_range: int) -> None:
        """All of a range go."""

    def clear(self) -> None:
        """All go, whatever is wrong with it, and no file is left."""


class Overflow:
    """What of the states of a thread is in its store. most_bytes: of those in memory, about; it may change. stored:
    range → how many are in the store. trouble: why none can be put there; none is, until `rests` is over."""

    def __init__(self, store: StateStore, most_bytes: int) -> None:
        self.store, self.most_bytes = store, most_bytes
        self.stored: Counter[int] = Counter()
        self.trouble, self.rests = "", False
        self._sizes = RowSizes()
        self._calls = self._gone_many = 0
        self._gone: defaultdict[int, set[bytes]] = defaultdict(set)  # by range: there yet, and not `stored`

    @property
    def state_bytes(self) -> float:
        """Of a state in memory, about."""
        return STATE_BYTES + self._sizes.mean_bytes

    @property
    def most(self) -> int:
        """StatesOfKind that memory has room for."""
        return max(1, int(self.most_bytes / self.state_bytes))

    @property
    def look_due(self) -> bool:
        self._calls += 1
        return self._calls <= LOOK_ALL or not self._calls % LOOK_EVERY

    def saw(self, states: Sequence[Any]) -> None:
        """Keys and states, as snapshots have them."""
        self._sizes.saw(states)

    def put(self, states: Sequence[tuple[int, bytes, Hashable, Any]]) -> Collection[Name] | None:
        """(range, key as bytes, key, saved) of each. Returns those that stay; None: all. Raises BadRow."""
        records = [(key_range, name, _record(key, saved)) for key_range, name, key, saved in states]
        gone = self._to_go({record[:2] for record in records}) if self._gone_many > GONE_MOST else []
        try:
            refused = self.store.put(records, gone)
        except OSError as error:
            self.trouble, self.rests = str(error), True
            return None
        self.trouble = ""
        for key_range, name, _ in records:
            if not refused or (key_range, name) not in refused:
                self.stored[key_range] += 1
                self._is_not_gone(key_range, name)
        for key_range, name in gone:
            self._is_not_gone(key_range, name)
        return refused

    def _to_go(self, but: set[Name]) -> list[Name]:
        there = ((r, name) for r, gone in self._gone.items() for name in gone if (r, name) not in but)
        return list(islice(there, self._gone_many - GONE_MOST))

    def _is_not_gone(self, key_range: int, name: bytes) -> None:
        if name in (gone := self._gone[key_range]):
            gone.remove(name)
            self._gone_many -= 1

    def take(self, keys: Iterable[tuple[int, Hashable]]) -> list[tuple[int, Hashable, Any]]:
        """(range, key, saved) of those of these keys that are in the store: they count as there no more."""
        taken = self._found(keys)
        stored, gone = self.stored, self._gone
        for key_range, name, _, _ in taken:
            stored[key_range] -= 1
            gone[key_range].add(name)
        self._gone_many += len(taken)
        return [(key_range, key, saved) for key_range, _, key, saved in taken]

    def look(self, keys: Iterable[tuple[int, Hashable]]) -> list[tuple[int, Hashable, Any]]:
        """As `take`; they stay."""
        return [(key_range, key, saved) for key_range, _, key, saved in self._found(keys)]

    def _found(self, keys: Iterable[tuple[int, Hashable]]) -> list[tuple[int, bytes, Hashable, Any]]:
        gone, asked = self._gone, {}
        for key_range, key in keys:
            name = wire.key_bytes(key)
            if name not in gone[key_range]:
                asked[key_range, name] = key
        with _readable():
            found = self.store.get(list(asked))
        return [
            (key_range, name, asked[key_range, name], wire.read(record[1:], record[0])[0])
            for key_range, name, record in found
            if (key_range, name) in asked
        ]

    def of(self, key_range: int) -> Iterator[tuple[Hashable, Any]]:
        """(key, saved) of a range."""
        if self.stored[key_range]:
            gone = self._gone[key_range]
            with _readable():
                for _, name, record in self.store.of(key_range):
                    if name not in gone:
                        yield _read(name, record)

    def drop(self, key_range: int) -> None:
        if self.stored.pop(key_range, 0) or self._gone[key_range]:
            with _readable():
                self.store.drop(key_range)
            self._gone_many -= len(self._gone.pop(key_range, ()))


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StartAgain(f"states that are not in memory cannot be read: {error}") from error


def _record(key: Hashable, saved: Any) -> bytes:
    """The shape, and the state in it; the key behind it, where its bytes do not tell it. Raises BadRow."""
    rows = [saved] if type(key) in TOLD_BY_BYTES else [saved, key]
    kind = type(saved)
    flat = kind in wire.SCALARS or (kind is dict and wire.is_flat(saved, FLAT_MOST))
    shape = wire.PLAIN if flat and len(rows) == 1 else wire.shape_of(rows)
    return SHAPES[shape] + wire.write(rows, shape)


def _read(name: bytes, record: bytes) -> tuple[Hashable, Any]:
    """(key, saved)."""
    rows = wire.read(record[1:], record[0])
    key = hashable(rows[1]) if len(rows) > 1 else wire.read(ONE_ROW + name, wire.PLAIN)[0]
    return key, rows[0]


class StatesOfKind:
    """all: where → state. new: where those are that are in no snapshot; before: … were in none before the last one that
    had some. cut: of the change that is being made, those that it lacks."""

    def __init__(self) -> None:
        self.all: dict[Any, Any] = {}
        self.new: dict[Any, None] = {}  # these three in an order that is the same each time
        self.before: dict[Any, None] = {}
        self.cut: dict[Any, None] = {}

    def saved(self) -> None:
        if self.new:
            self.before, self.new = self.new, {}


class SavedStates:
    """As plain values, with the range and the key of each."""

    def __init__(self) -> None:
        self.ranges: list[int] = []
        self.keys: list[Hashable] = []
        self.states: list[Any] = []

    def add(self, key_range: int, key: Hashable, saved: Any) -> None:
        self.ranges.append(key_range)
        self.keys.append(key)
        self.states.append(saved)


class Sweep:
    """What is left of it: places by kind, and ranges of the store."""

    def __init__(self, places: list[tuple[type | None, list[Any]]], stored: list[int]) -> None:
        self.places, self.stored = places, stored

    def take(self, most: int) -> tuple[type | None, list[Any]] | None:
        if not self.places:
            return None
        kind, places = self.places[-1]
        some = places[-most:]
        del places[-most:]
        if not places:
            self.places.pop()
        return kind, some


NOWHERE = object()


class KeptStates:
    """Key → state. Equal keys of several types are several keys: those of each type that has no such twins are by
    themselves (`_by_kind`), all others under their range too. overflow: none, where nothing bounds memory."""

    def __init__(self, known: KeyRanges) -> None:
        self._known = known
        self._by_kind: dict[type | None, StatesOfKind] = {
            kind: StatesOfKind() for kind in (*known.kinds, None)
        }
        self._by_range: dict[int, dict[Hashable, Any]] | None = (
            None  # those in memory, where nothing has changed since
        )
        self.overflow: Overflow | None = None
        self._sweep: Sweep | None = None
        self.cutting = False  # a change is being made, and may lack some

    # What the states are.

    @property
    def _as_they_are(self) -> bool:
        """Is each its own plain value?"""
        raise NotImplementedError

    def _saved(self, key_range: int, key: Hashable, state: Any) -> Any:
        """A state as a plain value. Raises StartAgain."""
        raise NotImplementedError

    def _restored(self, saved: Any) -> Any:
        raise NotImplementedError

    @property
    def _forgotten(self) -> Any:
        """In place of a state that is nowhere, for `_saved`."""
        raise NotImplementedError

    def _stays(self, state: Any) -> bool:
        """In memory, whatever there is."""
        raise NotImplementedError

    def _brought(self, key_range: int, key: Hashable, saved: Any) -> Any:
        """The state, of what the store had of it."""
        return self._restored(saved)

    def _put_away(self, key_range: int, key: Hashable) -> None:
        """Its state has left memory."""

    # ── where they are ──────────────────────────────────────────────────────────────────────────

    def _ranged(self) -> dict[int, dict[Hashable, Any]]:
        if self._by_range is None:
            self._by_range = {}
            by_range = defaultdict[int, dict[Hashable, Any]](dict)
            for kind, states in self._by_kind.items():
                placed = self._placed(kind, list(states.all))
                for (key_range, key, _), state in zip(placed, states.all.values(), strict=True):
                    by_range[key_range][key] = state
            self._by_range = dict(by_range)
        return self._by_range

    def _placed(self, kind: type | None, places: Sequence[Any]) -> Iterable[tuple[int, Hashable, Any]]:
        """(range, key, where its state is) of these."""
        if kind is None:
            return ((key_range, key, (key_range, key)) for key_range, key in places)
        return zip(self._known.of(places), places, places, strict=True)

    def _at(self, key: Hashable, key_range: int) -> tuple[StatesOfKind, Any]:
        states = self._by_kind.get(type(key))
        return (self._by_kind[None], (key_range, key)) if states is None else (states, key)

    def look_at(self, key: Hashable, key_range: int, none: Any) -> Any:
        """The state of a key, `none` where there is none. It stays where it is."""
        states, at = self._at(key, key_range)
        if at in states.all or self.overflow is None or not self.overflow.stored[key_range]:
            return states.all.get(at, none)
        for _, _, saved in self.overflow.look([(key_range, key)]):
            return self._restored(saved)
        return none

    def everywhere(self) -> Iterator[Any]:
        """All states, those in the store too. Raises StartAgain."""
        for states in self._by_kind.values():
            yield from states.all.values()
        if self.overflow is not None:
            for key_range in sorted(self.overflow.stored):
                for _, saved in self.overflow.of(key_range):
                    yield self._restored(saved)

    def of(self, key_range: int) -> dict[Hashable, Any]:
        """The states of a range: not to be changed."""
        here = self._ranged().get(key_range, {})
        if self.overflow is None or not self.overflow.stored[key_range]:
            return here
        return here | {key: self._restored(saved) for key, saved in self.overflow.of(key_range)}

    def any_in(self, key_range: int) -> bool:
        """Has a range any?"""
        if key_range in self._ranged():
            return True
        return self.overflow is not None and self.overflow.stored[key_range] > 0

    @property
    def filled(self) -> set[int]:
        here = set(self._ranged())
        return here if self.overflow is None else here | {r for r, n in self.overflow.stored.items() if n}

    @property
    def here(self) -> list[Hashable]:
        """The keys of those in memory."""
        return [key for kind, one in self._by_kind.items() for _, key, _ in self._placed(kind, list(one.all))]

    @property
    def many(self) -> int:
        """In memory."""
        return sum([len(states.all) for states in self._by_kind.values()])

    @property
    def stored(self) -> int:
        """In the store."""
        return 0 if self.overflow is None else self.overflow.stored.total()

    def drop(self, key_range: int) -> None:
        self.keep_all_cut()
        for key in self._ranged().pop(key_range, ()):
            states, at = self._at(key, key_range)
            del states.all[at]
            states.new.pop(at, None)
            self._put_away(key_range, key)
        if self.overflow is not None:
            for key, _ in self.overflow.of(key_range):
                states, at = self._at(key, key_range)
                states.new.pop(at, None)
            self.overflow.drop(key_range)

    def saved_in(self, key_range: int) -> list[list[Any]]:
        """[key, state as a plain value] of a range."""
        here = self._ranged().get(key_range, {}).items()
        rows = [[key, self._saved(key_range, key, state)] for key, state in here]
        if self.overflow is not None:
            self.overflow.saw(rows)
            rows += map(list, self.overflow.of(key_range))
        return rows

    # ── those in the store ──────────────────────────────────────────────────────────────────────

    def bring(self, keys: Sequence[Hashable], ranges: Sequence[int]) -> None:
        """The states of these keys are in memory, where there are any, and may change."""
        if self.cutting:
            self._keep_cut(keys, ranges)
        overflow = self.overflow
        if overflow is None or not overflow.stored:
            return
        kind = self._known.kind(keys)
        if kind is not None:
            here = self._by_kind[kind].all
            pairs = [(r, key) for key, r in zip(keys, ranges, strict=True) if key not in here]
        else:
            pairs = list(zip(ranges, keys, strict=True))
        stored = overflow.stored
        away = [pair for pair in pairs if stored[pair[0]] and not self._is_here(*pair)]
        if not away:
            return
        for key_range, key, saved in overflow.take(away):
            states, at = self._at(key, key_range)
            states.all[at] = self._brought(key_range, key, saved)
            if self._sweep is not None:  # which may have passed this place, and will not find it in the store
                states.new[at] = None
        self._by_range = None

    def _is_here(self, key_range: int, key: Hashable) -> bool:
        states, at = self._at(key, key_range)
        return at in states.all

    # ── what snapshots take ─────────────────────────────────────────────────────────────────────

    def begin_cut(self) -> None:
        """Those that are in no snapshot are to be in the next one, as they are by now."""
        for states in self._by_kind.values():
            states.cut = states.new.copy() if self.overflow is not None else states.new
            states.before, states.new = states.new or states.before, {}
        self.cutting = True

    def _keep_cut(self, keys: Sequence[Hashable], ranges: Sequence[int]) -> None:
        """The states of these keys may change: what the change lacks of them is kept for it."""
        kind = self._known.kind(keys)
        some: dict[type | None, dict[Any, None]] = {}
        if kind is not None:
            cut = self._by_kind[kind].cut
            some[kind] = {key: None for key in keys if key in cut}
        else:
            for key, key_range in zip(keys, ranges, strict=True):
                states, at = self._at(key, key_range)
                if at in states.cut:
                    some.setdefault(type(key) if type(key) in self._by_kind else None, {})[at] = None
        found = SavedStates()
        for there, places in some.items():
            cut = self._by_kind[there].cut
            for at in places:
                del cut[at]
            self._gather(there, list(places), found, self._forgotten)
        if found.keys:
            self._kept_cut(found)

    def keep_some_cut(self, most: int) -> int:
        """So many of those that the change lacks are kept for it; how many it lacks still."""
        found = SavedStates()
        for kind, states in self._by_kind.items():
            places = [states.cut.popitem()[0] for _ in range(min(most - len(found.keys), len(states.cut)))]
            self._gather(kind, places, found, self._forgotten)
        if found.keys:
            self._kept_cut(found)
        return sum([len(states.cut) for states in self._by_kind.values()])

    def keep_all_cut(self) -> None:
        while self.cutting and self.keep_some_cut(KEPT_AT_ONCE):
            pass

    def _kept_cut(self, found: SavedStates) -> None:
        """These are of the change."""
        raise NotImplementedError

    def begin_sweep(self) -> None:
        """`sweep` gives all that there are by now, in this order: some at a time, as they are by then. Those that come
        or change meanwhile are new."""
        stored = [] if self.overflow is None else [r for r, n in self.overflow.stored.items() if n]
        self._sweep = Sweep([(kind, list(one.all)) for kind, one in self._by_kind.items() if one.all], stored)

    def end_sweep(self) -> None:
        self._sweep = None

    @property
    def sweeping(self) -> bool:
        """Does `sweep` have more?"""
        return self._sweep is not None

    def sweep(self, most: int) -> SavedStates:
        """The next ones, `most` at once; of those in the store a whole range."""
        found = SavedStates()
        while self._sweep is not None and len(found.keys) < most:
            if (some := self._sweep.take(most - len(found.keys))) is not None:
                self._gather(*some, found, NOWHERE)
            elif self._sweep.stored and self.overflow is not None:
                key_range = self._sweep.stored.pop()
                for key, saved in self.overflow.of(key_range):
                    found.add(key_range, key, saved)
            if not (self._sweep.places or (self._sweep.stored and self.overflow is not None)):
                self._sweep = None
        return found

    def _gather(self, kind: type | None, places: list[Any], found: SavedStates, forgotten: Any) -> None:
        """Those at these places. forgotten: NOWHERE leaves out one that is nowhere."""
        states = self._by_kind[kind]
        if kind is not None and self._as_they_are and not self.stored:
            if forgotten is NOWHERE:
                places = list(filter(states.all.__contains__, places))
            found.ranges += self._known.of(places)
            found.keys += places
            found.states += map(states.all.__getitem__, places)
            return
        away: list[tuple[int, Hashable]] = []
        for key_range, key, at in self._placed(kind, places):
            if at in states.all:
                found.add(key_range, key, self._saved(key_range, key, states.all[at]))
            elif self.overflow is not None and self.overflow.stored[key_range]:
                away.append((key_range, key))
            elif forgotten is not NOWHERE:
                found.add(key_range, key, self._saved(key_range, key, forgotten))
        if away and self.overflow is not None:
            left = dict.fromkeys(away)
            for key_range, key, saved in self.overflow.look(away):
                del left[key_range, key]
                found.add(key_range, key, saved)
            for one in left if forgotten is not NOWHERE else ():
                found.add(*one, self._saved(*one, forgotten))

    # ── what memory has no room for ─────────────────────────────────────────────────────────────

    def keep_bound(self) -> None:
        """What memory has no room for goes. Raises StartAgain."""
        overflow = self.overflow
        if overflow is None or overflow.rests:
            return
        many = self.many
        if (over := many - overflow.most) <= 0:
            return
        most = over + min(STORED_MOST, max(STORED_LEAST, many // STORED_SHARE))
        for states in sorted(self._by_kind.values(), key=lambda one: -len(one.all)):
            while most > 0 and (found := self._longest_untouched(states, min(most, STORED_MOST))):
                if not self._store(states, found):
                    return
                most -= len(found)

    def _longest_untouched(self, states: StatesOfKind, most: int) -> list[Any]:
        """Where those are. They are in the order in which they came or were passed over here; one that was touched
        since the last snapshot but one is, while there are others."""
        found: list[Any] = []
        touched: list[Any] = []
        stay: list[Any] = []
        for at in islice(states.all, PASSED_OVER * most):
            if self._stays(states.all[at]):
                stay.append(at)
            elif at in states.new or at in states.before:
                touched.append(at)
            else:
                found.append(at)
                if len(found) == most:
                    break
        lacks = most - len(found)
        found += touched[:lacks]
        for at in chain(touched[lacks:], stay):
            states.all[at] = states.all.pop(at)
        return found

    def _store(self, states: StatesOfKind, places: Sequence[Any]) -> bool:
        """These states leave memory; False: they do not."""
        assert self.overflow is not None
        kind = next(kind for kind, one in self._by_kind.items() if one is states)
        going = []
        for at in places:
            key = at[1] if kind is None else at
            name = wire.key_bytes(key)
            key_range = at[0] if kind is None else range_in(name)
            going.append((key_range, name, key, self._saved(key_range, key, states.all[at])))
        try:
            refused = self.overflow.put(going)
        except BadRow as error:
            raise StartAgain(error.what) from error
        if refused is None:
            return False
        by_range = self._by_range
        for at, (key_range, name, key, _) in zip(places, going, strict=True):
            state = states.all.pop(at)
            if (key_range, name) in refused:
                states.all[at] = state
                continue
            self._put_away(key_range, key)
            if by_range is not None:
                by_range[key_range].pop(key)
                if not by_range[key_range]:
                    del by_range[key_range]
        return True
