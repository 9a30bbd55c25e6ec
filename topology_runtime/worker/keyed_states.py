"""The states of a keyed task's keys, by key range, and what the user's code makes of rows and states. Pure but for that
code."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from headgate.topology_runtime.errors import BadBatch
from headgate.topology_runtime.logic import processes_all
from headgate.topology_runtime.worker import attempts
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker.batches import listed, wrong_number
from headgate.topology_runtime.worker.keyed_snapshots import States, of_range, states_of
from headgate.topology_runtime.worker.router import KeyRanges
from headgate.topology_runtime.worker.runs import Batch
from headgate.topology_runtime.worker.user_code import UserCode

Came = tuple[list[Any], list[int]]  # what came of rows, and how much of each ([]: one row)


@dataclass(slots=True)
class KeyedBatch:
    """Rows that came by an edge, with the key of each and its range."""

    batch: Batch
    edge: int
    keys: Sequence[Hashable]
    ranges: Sequence[int]

    def part(self, start: int, stop: int) -> KeyedBatch:
        some = slice(start, stop)
        return KeyedBatch(self.batch.part(start, stop), self.edge, self.keys[some], self.ranges[some])

    def where(self, chosen: Callable[[int], bool]) -> KeyedBatch:
        """The rows, by their numbers, of which this is true."""
        some = [row for row in range(len(self.ranges)) if chosen(row)]
        batch = self.batch.where([chosen(row) for row in range(len(self.ranges))])
        return KeyedBatch(
            batch, self.edge, [self.keys[row] for row in some], [self.ranges[row] for row in some]
        )


class KeyedStates:
    """Key → state. Equal keys of several types are several keys: those of each type that has no such twins are by
    themselves (`_by_kind`), all others under their range too."""

    def __init__(self, logic: Any, known: KeyRanges) -> None:
        self._logic, self._known, self._together = logic, known, processes_all(logic)
        self._by_kind: dict[type | None, _States] = {kind: _States() for kind in (*known.kinds, None)}
        self._by_range: dict[int, dict[Hashable, Any]] | None = (
            None  # all of them, where nothing has changed since
        )

    def _ranged(self) -> dict[int, dict[Hashable, Any]]:
        if self._by_range is None:
            self._by_range = {}
            for kind, states in self._by_kind.items():
                for key_range, key, at in self._placed(kind, list(states.all)):
                    self._by_range.setdefault(key_range, {})[key] = states.all[at]
        return self._by_range

    def _placed(self, kind: type | None, places: Sequence[Any]) -> Iterable[tuple[int, Hashable, Any]]:
        """(range, key, where its state is) of these."""
        if kind is None:
            return ((key_range, key, (key_range, key)) for key_range, key in places)
        return zip(self._known.of(places), places, places, strict=True)

    def of(self, key_range: int) -> dict[Hashable, Any]:
        """The states of a range: not to be changed."""
        return self._ranged().get(key_range, {})

    @property
    def filled(self) -> set[int]:
        return set(self._ranged())

    def drop(self, key_range: int) -> None:
        for key in self._ranged().pop(key_range, ()):
            states, at = self._at(key, key_range)
            del states.all[at]
            states.new.discard(at)

    def _at(self, key: Hashable, key_range: int) -> tuple[_States, Any]:
        states = self._by_kind.get(type(key))
        return (self._by_kind[None], (key_range, key)) if states is None else (states, key)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def process(self, some: KeyedBatch, code: UserCode) -> tuple[Came, KeyedBatch]:
        """What comes of these rows, and which rows those are: the others are dead letters."""
        rows = some.batch.rows
        kind = self._known.kind(some.keys) if self._together and not code.watch.careful else None
        if kind is not None:
            call, span = partial(self._all, some, kind), range(len(rows))
            calls, failures = attempts.together(call, span, code.pause, code.watch)
            came = calls[0] if len(calls) == 1 else _joined(calls, len(rows) - len(failures))
        else:
            triples = list(zip(some.keys, some.ranges, rows, strict=True))
            outs, failures = code.each(self._one, triples, some.batch)
            came = flat(outs)
        if failures:
            failed = {failure.place for failure in failures}
            code.results.bury(some.batch, failures)
            some = some.where(lambda row: row not in failed)
        return came, some

    def _one(self, triple: tuple[Hashable, int, Any]) -> list[Any]:
        key, key_range, row = triple
        states, at = self._at(key, key_range)
        state = states.all[at] if at in states.all else self._logic.new(key)
        new, out = self._logic.process(key, row, state)
        rows = list(out)
        states.all[at] = new
        states.new.add(at)
        self._by_range = None
        return rows

    def _all(self, some: KeyedBatch, kind: type, span: Sequence[int]) -> Came:
        """Rows number `span` at once."""
        keys, rows, states = some.keys, some.batch.rows, self._by_kind[kind]
        if len(span) < len(rows):
            keys, rows = keys[span[0] : span[-1] + 1], rows[span[0] : span[-1] + 1]
        there = states.all
        try:
            found = dict(zip(keys, map(there.__getitem__, keys), strict=True))
        except KeyError:
            new = self._logic.new
            found = {key: there[key] if key in there else new(key) for key in dict.fromkeys(keys)}
        many = len(found)
        came, counts = self._logic.process_all(keys, rows, found)
        came, counts = listed(came), [] if counts is None else list(map(int, counts))
        if (sum(counts) if counts else len(rows)) != len(came) or len(counts or rows) != len(rows):
            raise wrong_number(len(came), len(rows))
        if len(found) != many:
            raise BadBatch(
                f"process_all left {len(found):,} states of {many:,} keys",
                cause="it is to put the new state of each key in the place of the old one",
            )
        there.update(found)
        states.new.update(found)
        self._by_range = None
        return came, counts

    # ── going along ─────────────────────────────────────────────────────────────────────────────

    def pack(self, key_range: int) -> bytes:
        """[key, state] rows."""
        logic = self._logic
        rows = [[key, logic.snapshot(state)] for key, state in self.of(key_range).items()]
        return wire.write(rows, wire.NESTED)

    def unpack(self, key_range: int, data: bytes) -> None:
        """In place of those that are here. Raises msgspec.DecodeError."""
        came = {key: self._logic.restore(state) for key, state in of_range(data)}
        self.drop(key_range)
        for key, state in came.items():
            states, at = self._at(key, key_range)
            states.all[at] = state
        if came:
            self._ranged()[key_range] = came

    def pack_new(self) -> States:
        """The states that changed since the last snapshot. Raises BadRow."""
        ranges: list[int] = []
        keys: list[Hashable] = []
        found: list[Any] = []
        for kind, states in self._by_kind.items():
            for key_range, key, at in self._placed(kind, list(states.new)):
                ranges.append(key_range)
                keys.append(key)
                found.append(self._logic.snapshot(states.all[at]))
        return states_of(ranges, keys, found)

    def saved(self) -> None:
        """A snapshot has all that is here."""
        for states in self._by_kind.values():
            states.new.clear()


def flat(outs: Sequence[Sequence[Any]]) -> Came:
    """What came of each of some rows, together."""
    counts = list(map(len, outs))
    return list(chain.from_iterable(outs)), [] if set(counts) == {1} else counts


def _joined(calls: Sequence[Came], rows: int) -> Came:
    """What came of several calls about so many rows in all."""
    came = list(chain.from_iterable(came for came, _ in calls))
    counts = list(chain.from_iterable(counts or [1] * len(came) for came, counts in calls))
    return came, [] if set(counts) == {1} else counts


class _States:
    """all: where → state. new: where those are that are in no snapshot."""

    def __init__(self) -> None:
        self.all: dict[Any, Any] = {}
        self.new: set[Any] = set()
