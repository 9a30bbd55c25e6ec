"""The state per key of one thread, owned by key range, and what rows do to it. Pure but for the user's code.
Which ranges it owns is in key_ranges.py, when it asks, answers and saves in keyed_task.py.

Rules (protocol: Keyed state) [A4] [A5] [B4]:
 1. A row is processed only by the owner of its range. A row of a range that is still on its way here
    waits at the side, kept and not acked; a row of a range that went away follows it.
 2. A processed row stays kept until a snapshot covers it, so a killed owner's rows come again.
 3. A row whose identity was processed already (a replay) changes no state again; its output goes out
    again (applied_rows.py).
 4. That the input has ended is a row too, one for each range, with the range as its position: it follows its range,
    and what `finish` gave of the range's keys is remembered as what came of it.
 5. To count exactly once, what came of rows goes on only once a snapshot has them: nothing that another owner would
    make otherwise is ever seen. And rows are forgotten only below what the controller keeps of their source.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from itertools import chain, compress, groupby, islice
from operator import is_
from typing import Any

from msgspec.structs import replace

from headgate.topology_runtime.api.logic import processes_all
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.errors import BadBatch, BadRow
from headgate.topology_runtime.wire.dead_letter_messages import END_PARTITION
from headgate.topology_runtime.wire.messages import Frame
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.batches import listed, rows_of, wrong_number
from headgate.topology_runtime.worker.calls.dead_lettering import dead_letter_of_key
from headgate.topology_runtime.worker.calls.router import KeyRanges, range_of
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied, by_turns, grouped, twice_in
from headgate.topology_runtime.worker.keyed_state.kept_states import StatesOfKind
from headgate.topology_runtime.worker.keyed_state.key_ranges import NO_COPY, Ranges
from headgate.topology_runtime.worker.keyed_state.savable_states import Aside, SavableStates, unsaved
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    NO_APPLIED,
    NO_STATES,
    NONE_NEW,
    Contents,
    KeyedSnapshot,
    RangesMoved,
    SavedWhole,
    StateChange,
    States,
    contents_of,
    copied,
)
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import (
    AckSums,
    Addressed,
    BufferedRow,
    WaitingRows,
    single_rows,
    united,
)
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.rows.row_values import MadeSizes

# ── The states of a keyed task's keys, by key range, and what the user's code makes of rows and states.
# Pure but for that code.

CAREFUL_ROWS, CAREFUL_DOUBLED = 4096, 6  # after a state was spoilt; twice as many each time
RESTORE_AGAIN_NS = 500_000_000  # a range that came is tried so often …
RESTORE_TRIES, RESTORE_TRIES_WHOLE = 16, 120  # … before some of its keys, or all of them, are set aside
WAITED_TOGETHER = 1024  # rows that waited for their ranges, in one batch
Held = Batch  # of what came of rows
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


class KeyedStates(SavableStates):
    """The states of a task's keys, and what its rows do to them."""

    def __init__(self, logic: Any, known: KeyRanges) -> None:
        super().__init__(logic, known)
        self._together = processes_all(logic)

    def key_place(self, edge: int) -> str | int | None:
        """Which column is the key of this edge's rows, where states take columns; None: they take rows."""
        return None

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def process(self, some: KeyedBatch, code: UserCode) -> tuple[Came, KeyedBatch]:
        """What comes of these rows, and which rows those are: the others are dead letters."""
        self.bring(some.keys, some.ranges)
        if self._good and not self.careful:
            self._good.clear()
        careful = self.careful or code.watch.careful
        kind = self._known.kind(some.keys) if self._together and not careful else None
        if kind is not None:
            call, span = partial(self._all, some, kind), range(len(some.ranges))
            calls, failures = attempts.together(call, span, code.pause, code.watch)
            came = calls[0] if len(calls) == 1 else _joined(calls, len(span) - len(failures))
        else:
            outs, failures = self._each(some, code)
            came = flat(outs)
        if failures:
            failed = {failure.place for failure in failures}
            code.results.bury(some.batch, failures)
            some = some.where(lambda row: row not in failed)
        self._end_frame(len(some.ranges))
        self._look_at_size(some)
        self.keep_bound()
        return came, some

    def _each(self, some: KeyedBatch, code: UserCode) -> tuple[list[Any], list[attempts.Failure]]:
        """What comes of these rows one by one, but of those that fail."""
        triples = list(zip(some.keys, some.ranges, some.batch.rows, strict=True))
        found = code.each(self._one, triples, some.batch)
        self.careful = max(0, self.careful - len(triples))
        return found

    def _look_at_size(self, some: KeyedBatch) -> None:
        if self.overflow is None or not some.keys or not self.overflow.look_due:
            return
        key, key_range = some.keys[0], some.ranges[0]
        states, at = self._at(key, key_range)
        if at in states.all and not self._stays(states.all[at]):
            self.overflow.saw([(key, self._saved(key_range, key, states.all[at]))])

    def _one(self, triple: tuple[Hashable, int, Any]) -> list[Any]:
        key, key_range, row = triple
        states, at = self._at(key, key_range)
        there = at in states.all
        state = states.all[at] if there else self._logic.new(key)
        if type(state) is Aside:
            state = states.all[at] = self._logic.restore(state.saved)
        if self.careful:
            return self._carefully(key, key_range, row, state if there else None, there)
        new, out = self._logic.process(key, row, state)
        rows = rows_of(out)
        written = self._keep(states, at, key, new, there and new is state)
        if written is not None and self._writes:
            self._row_states.rows.append((key_range, key, written))
        else:
            states.new[at] = None
        return rows

    def _keep(self, states: StatesOfKind, at: Any, key: Hashable, new: Any, in_place: bool) -> bytes | None:
        """In the place of the state before; what was written of it. in_place: it is that, and what it was is not
        known."""
        try:
            written = self._look(key, new)
        except BaseException as error:
            if in_place:
                raise attempts.StartAgain(attempts.failure(0, error).error) from error
            raise
        states.all[at] = new
        self._by_range = None
        return written

    def _carefully(self, key: Hashable, key_range: int, row: Any, state: Any, there: bool) -> list[Any]:
        """As `_one`; whatever raises leaves the state as it was."""
        states, at = self._at(key, key_range)
        before = self._good.get((key_range, key), b"")
        if there and not before:
            before = self._written(state)
        try:
            new, out = self._logic.process(key, row, state if there else self._logic.new(key))
            rows = list(out)
            good = self._written(new, key)
        except BaseException:
            if there:
                states.all[at] = self._restored(wire.read(before, wire.NESTED)[0])
                self._by_range = None
            raise
        states.all[at] = new
        states.new[at] = None
        self._by_range = None
        self._good[key_range, key] = good
        return rows

    def _written(self, state: Any, key: Hashable = None) -> bytes:
        try:
            return wire.write([self._logic.snapshot(state)], wire.NESTED)
        except BadRow as error:
            raise unsaved(key, error) from error

    def be_careful(self, times: int) -> None:
        """A state was spoilt, so many times by now."""
        self.careful = CAREFUL_ROWS << min(times - 1, CAREFUL_DOUBLED)

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
        if self.set_aside:
            for key in [key for key, state in found.items() if type(state) is Aside]:
                found[key] = there[key] = self._logic.restore(found[key].saved)
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
        written = self._look_at_all(found, there)
        there.update(found)
        ranges = (
            dict(zip(some.keys, some.ranges, strict=True)) if written is not None and self._writes else {}
        )
        if written is not None and len(ranges) == len(found) and all(map(is_, ranges, found)):
            self._row_states.add(list(ranges.values()), list(ranges), wire.without_head(written))
        else:
            states.new.update(dict.fromkeys(found))
        self._by_range = None
        return came, counts

    def _look_at_all(self, found: dict[Hashable, Any], there: dict[Hashable, Any]) -> bytes | None:
        """As `_look`, at the new states of many keys: at each that is a plain value, else at the first. What was
        written of all of them."""
        if self._plain and set(map(type, found.values())) <= wire.SCALARS:
            try:
                return wire.write(list(found.values()), wire.PLAIN)
            except BadRow as error:
                raise unsaved(next(iter(found)), error) from error
        key = next(iter(found))
        try:
            self._look(key, found[key])
        except BaseException as error:
            if key in there and found[key] is there[key]:
                raise attempts.StartAgain(attempts.failure(0, error).error) from error
            raise
        return None


def flat(outs: Sequence[Sequence[Any]]) -> Came:
    """What came of each of some rows, together."""
    counts = list(map(len, outs))
    return list(chain.from_iterable(outs)), [] if set(counts) == {1} else counts


def _joined(calls: Sequence[Came], rows: int) -> Came:
    """What came of several calls about so many rows in all."""
    came = list(chain.from_iterable(came for came, _ in calls))
    counts = list(chain.from_iterable(counts or [1] * len(came) for came, counts in calls))
    return came, [] if set(counts) == {1} else counts


class KeyedRows:
    """`key_of(edge)`: by what the rows of an edge are grouped."""

    def __init__(
        self,
        code: UserCode,
        random64: Callable[[], int],
        key_of: Callable[[int], Callable[[Any], Hashable]],
        exactly_once: bool = False,
    ) -> None:
        self.exactly_once = exactly_once
        self.code, self.results, self.random64, self.key_of = code, code.results, random64, key_of
        self.thread = code.results.around.thread
        self.ranges = Ranges(self.thread)
        self._known = KeyRanges()
        self.states = self._made_states(code.logic)
        self.applied = Applied(exact=exactly_once)
        self._sizes = MadeSizes()
        self.dirty = False  # something has changed since the last snapshot
        self.side = WaitingRows()  # for their ranges
        self.uncovered = AckSums()  # what the next snapshot lets go
        self.uncovered_rows = 0
        self._held: list[Held] = []  # what came of its rows, where that goes on only then
        self._covering: list[tuple[AckSums, list[Held]]] = []  # … of those that are not known to be durable
        self._covering_rows = 0
        self._frozen: dict[int, RangeCopy] = {}  # ranges of others, once and for all
        self._replaced: set[int] = set()  # ranges that are not what snapshots and what is new add up to
        self._offers: dict[int, RangeCopy] = {}  # the best copy that others have
        self._tried: dict[int, tuple[int, int]] = {}  # range → how often `restore` failed, not again before
        self.troubles: dict[int, str] = {}  # range → why it is not claimed yet
        self._cut = StateChange(NONE_NEW, b"", (), 0)  # but its states
        self._end = END_PARTITION + code.results.around.number  # of words that the input has ended

    def _made_states(self, logic: Any) -> KeyedStates:
        return KeyedStates(logic, self._known)

    @property
    def holding(self) -> int:
        kept = self.uncovered_rows + self._covering_rows
        return kept + len(self.side) + len(self.ranges.pending)

    @property
    def uncovered_bytes(self) -> int:
        """Of what came of rows that no snapshot covers, as far as it is remembered; about."""
        return int(self._sizes.mean_bytes * min(self.uncovered_rows, self.applied.most))

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        acks, place = AckSums(frame.roots), self.states.key_place(frame.edge)
        last = self.applied.hear(frame.roots)
        rows: Sequence[Any] = frame.rows
        stay = place is not None and type(rows) is Columns
        batch = Batch(rows if stay else list(rows), frame.runs, frame.roots)
        if last >= END_PARTITION:
            batch = self._take_ends(batch, frame.edge, now_ns, acks)
            if not batch.rows:
                return acks.all()
        self.results.edge = frame.edge
        keys, ranges, batch = self._places_of(batch, self.key_of(frame.edge), place)
        self.results.edge = None
        owned = self.ranges.owned
        if not owned.issuperset(ranges):
            here = [key_range in owned for key_range in ranges]
            there = [not one for one in here]
            self._elsewhere(batch.where(there), frame.edge, list(compress(ranges, there)), now_ns, acks)
            keys, ranges, batch = list(compress(keys, here)), list(compress(ranges, here)), batch.where(here)
        self._process(KeyedBatch(batch, frame.edge, keys, ranges), now_ns, acks)
        return acks.all()

    def _places_of(
        self, batch: Batch, key: Callable[[Any], Hashable], place: str | int | None = None
    ) -> tuple[Sequence[Hashable], Sequence[int], Batch]:
        """(keys, their ranges, rows) of the rows that have a key."""
        columns = batch.rows if type(batch.rows) is Columns and not self.code.watch.poison.any else None
        keys: Sequence[Hashable] | None = columns.values_at(place) if columns is not None else None
        if keys is None:
            keys, batch = self.code.over(key, batch)
        try:
            return *self._known.placed(keys), batch
        except Exception:  # a key that cannot be written: it has no range, its row fails
            pairs, batch = self.code.over(
                lambda row: (wire.one_key(found := key(row)), range_of(found)), batch
            )
            return [pair[0] for pair in pairs], [pair[1] for pair in pairs], batch

    def _take_ends(self, batch: Batch, edge: int, now_ns: int, acks: AckSums) -> Batch:
        """Words that the input has ended; returns the other rows."""
        ends = [batch.roots[number].partition == self._end for number, _, _ in r.single(batch.runs)]
        for row in single_rows(batch.where(ends), edge, self.random64):
            key_range = row.root.position
            if key_range in self.ranges.owned:
                self._finish(row, now_ns, acks)
            elif 0 <= key_range < KEY_RANGES:
                self._elsewhere(row.batch, edge, [key_range], now_ns, acks)
        return batch.where([not end for end in ends])

    def _finish(self, end: BufferedRow, now_ns: int, acks: AckSums) -> None:
        """The last rows of all keys of a range."""
        key_range, groups = end.root.position, grouped(end.batch)
        known = self.applied.outputs(groups, [key_range])
        out = list(known[0]) if known else []
        if not known:
            self.states.keep_all_cut()
            for key, state in list(self.states.of(key_range).items()):
                found, failed = self.code.one(partial(self._last_rows, key, state), end)
                if failed is None:
                    out += found
                else:
                    self.results.letters.append(
                        dead_letter_of_key(self.results.around, end.root, key, failed)
                    )
            out = out if self.results.outputs.edges else []
            self.applied.add(groups, [key_range], out, [len(out)], end.batch.roots)
        self._go_on(end.batch, out, [len(out)], now_ns, acks)

    def _last_rows(self, key: Hashable, state: Any) -> list[Any]:
        logic = self.code.logic
        return rows_of(logic.finish(key, logic.restore(state.saved) if type(state) is Aside else state))

    def _elsewhere(self, batch: Batch, edge: int, ranges: Sequence[int], now_ns: int, acks: AckSums) -> None:
        """Rows of ranges that are not here: they follow their range, or wait for it at the side."""
        for row, key_range in zip(single_rows(batch, edge, self.random64), ranges, strict=True):
            owner = self.ranges.owner(key_range)
            if owner is not None and owner != self.thread:
                self._forward(row, owner, now_ns, acks)
            else:
                self.side.add(key_range, row)
                acks.keep(row)

    def _forward(self, row: BufferedRow, owner: int, now_ns: int, acks: AckSums) -> None:
        acks.give(row.roots, self.results.outputs.forward(row, owner, now_ns))

    def _process(self, some: KeyedBatch, now_ns: int, acks: AckSums) -> None:
        """Rows into the states of their keys; a sink's in pieces."""
        pieces = self.results.pieces
        if pieces is None:
            self._piece(some, now_ns, acks)
            return
        for start, stop in pieces.cut(len(some.ranges)):
            self._piece(some.part(start, stop), now_ns, acks)
            self.results.log()
            self.code.watch.calls += stop - start

    def _piece(self, some: KeyedBatch, now_ns: int, acks: AckSums) -> None:
        if not some.ranges:
            return
        groups = grouped(some.batch)
        if twice_in(groups):
            for turn in by_turns(groups):
                self._piece(some.where(turn.__contains__), now_ns, acks)
            return
        known = self.applied.outputs(groups, some.ranges)
        if known:
            again = [known[row] for row in sorted(known)]
            batch = some.where(known.__contains__).batch
            self._go_on(batch, *flat(again), now_ns, acks)
            self._piece(some.where(lambda row: row not in known), now_ns, acks)
            return
        self.results.edge = some.edge
        (came, counts), fit = self.states.process(some, self.code)
        self.results.edge = None
        if not fit.ranges:
            return
        if fit is not some:
            groups = grouped(fit.batch)
        if self.results.outputs.edges:
            self.applied.add(groups, fit.ranges, came, counts, fit.batch.roots)
        else:
            self.applied.add(groups, fit.ranges, [], [0] * len(fit.ranges))
        self._go_on(fit.batch, came, counts, now_ns, acks)

    def _go_on(
        self, batch: Batch, came: Sequence[Any], counts: Sequence[int], now_ns: int, acks: AckSums
    ) -> None:
        """Rows that are in the state: what came of them goes on (rule 5); they stay kept until a snapshot has them."""
        if came:
            held = Batch(came, _each_named(batch.runs, counts) if counts else batch.runs, batch.roots)
            if self.exactly_once:
                self._held.append(held)
            else:
                self._emit(held, now_ns, acks)
        if self.results.around.sink and batch.roots[0].partition != self._end:
            self.results.finish(batch)
        of_root: dict[int, int] = {}
        for number, _, count, _ in batch.runs:
            of_root[number] = of_root.get(number, 0) + count
        for number, count in of_root.items():
            root, share = batch.roots[number], self.random64()
            roots = (root, *(batch.roots[other] for other in root.along))
            acks.keep_together(roots, share, count)
            self.uncovered.keep_together(roots, share, -count)
        self.uncovered_rows += len(batch.rows)
        self.dirty = True

    def _emit(self, batch: Batch, now_ns: int, acks: AckSums) -> None:
        acks.give(batch.roots, self.results.emit(batch, now_ns))
        if made_bytes := self._sizes.made_bytes(batch.rows, len(batch.roots)):
            acks.made = self.results.around.number, acks.made[1] + made_bytes

    def pass_on(self, now_ns: int) -> list[Addressed]:
        """Rows at the side whose range is another thread's by now go there."""
        acks = AckSums()
        for key_range in list(self.side.places):
            owner = self.ranges.owner(key_range)
            if owner is not None and owner != self.thread:
                for row in self.side.take([key_range]):
                    acks.let_go(row)
                    self._forward(row, owner, now_ns, acks)
        return acks.all()

    # ── snapshots ───────────────────────────────────────────────────────────────────────────────

    def begin_whole(self) -> tuple[KeyedSnapshot, bytes]:
        """Of everything that is here, all but states, and apart the rows that were applied. States that there are by
        now are swept (`swept`), and what changes from now on is to be saved behind it."""
        applied, filled = self.applied, self._beside()
        rows = applied.pack_all()
        copies = (
            copied(at, version, Contents(NO_STATES, NO_APPLIED, (), self._pack_given(at)))
            if at in filled
            else RangeCopy(at, version)
            for at, version in sorted(self.ranges.versions.items())
        )
        lost, again = tuple(sorted(self.ranges.lost)), applied.again_at_most
        whole = KeyedSnapshot(tuple(copies), lost, applied.floors(), again, applied.exact)
        self.states.begin_sweep()
        return whole, rows

    def swept(self, most: int) -> States | None:
        """The next states of the whole snapshot that was begun, so many about; None: it has all."""
        return self.states.pack_some(most) if self.states.sweeping else None

    # What a range has beside states and rows that were applied: nothing here (timed_rows.py).

    def _beside(self) -> Set[int]:
        """Ranges that may have something."""
        return frozenset()

    def _pack_beside(self, key_range: int) -> bytes:
        return b""

    def _pack_given(self, key_range: int) -> bytes:
        """As `_pack_beside`, also where a range has no states."""
        return b""

    def _pack_new_beside(self) -> tuple[tuple[int, bytes], ...]:
        """Of all ranges where that has changed since the last snapshot."""
        return ()

    def _take_beside(self, key_range: int, data: bytes) -> None:
        """Of a copy that takes the place of the one that is here. Raises msgspec.DecodeError."""

    def cut(self, told: Mapping[int, int]) -> None:
        """What is new since the last snapshot is to be in the next one, as it is by now; told: the ranges that it had,
        and their versions. Its states are kept for it some at a time (`states.keep_some_cut`), and all that rows are to
        change before they do."""
        applied, versions = self.applied, self.ranges.versions
        moved = None
        if versions != told:
            changed = [at for at, version in sorted(versions.items()) if told.get(at) != version]
            came = [at for at in changed if at not in told or at in self._replaced]
            raised = tuple((at, versions[at]) for at in changed if at in told and at not in self._replaced)
            left = tuple(sorted(told.keys() - versions.keys()))
            moved = RangesMoved(tuple(map(self.copy, came)), left, tuple(sorted(self.ranges.lost)), raised)
        rows, beside = applied.pack_new(), self._pack_new_beside()
        self._cut = StateChange(NONE_NEW, rows, applied.floors(), applied.again_at_most, beside, moved)
        self.states.cut(None if moved is None else dict(versions))
        self._replaced.clear()

    def was_cut(self) -> StateChange:
        """What was new by then."""
        return replace(self._cut, states=self.states.pack_cut())

    def change(self, told: Mapping[int, int]) -> StateChange:
        """What is new since the last snapshot, at once."""
        self.cut(told)
        return self.was_cut()

    def cover(self) -> None:
        """A snapshot has all that was processed so far; whether it is durable is not known yet."""
        self.dirty = False
        self.states.saved()
        self.applied.saved()
        self._covering.append((self.uncovered, self._held))
        self._covering_rows += self.uncovered_rows
        self.uncovered, self.uncovered_rows, self._held = AckSums(), 0, []

    def released(self, now_ns: int) -> list[Addressed]:
        """The last snapshot is durable: rows that it covers need not come again."""
        covering, self._covering, self._covering_rows = self._covering, [], 0
        for sums, held in covering:
            for batch in held:
                self._emit(batch, now_ns, sums)
        return [ack for sums, _ in covering for ack in sums.all()]

    def covered(self) -> list[Addressed]:
        """A snapshot of all that was processed is durable."""
        self.cover()
        return self.released(0)

    def mark(self) -> None:
        """What changes from here on is behind the whole snapshot that was begun; nothing is durable by that."""
        self.states.saved()
        self.applied.saved()
        self._replaced.clear()

    def restore(self, saved: SavedWhole) -> None:
        """Take up the snapshot of this thread's former life. Raises msgspec.DecodeError."""
        for copy in saved.copies:
            self._install(copy)
        lost, again = saved.rest.lost, saved.rest.applied_again
        self.applied.take_floors(saved.rest.below)
        for change in saved.changes:
            self.applied.unpack_new(change.applied)
            self.applied.take_floors(change.below)
            if change.moved is not None:
                for key_range in change.moved.left:
                    self._leave(key_range)
                    self.ranges.drop(key_range)
                for copy in change.moved.came:
                    self._install(copy)
                for key_range, version in change.moved.raised:
                    self.ranges.put(key_range, version)
                lost = change.moved.lost
            self._took_up(self.states.put(change.states))
            self.states.keep_bound()
            for key_range, data in change.beside:
                self._take_beside(key_range, data)
            again = max(again, change.applied_again)
        self.ranges.lost |= set(lost)
        self.applied.again_at_most = again

    def restored(self) -> None:
        """What was taken up is durable as this thread's last snapshot."""

    def go_on_from(self, thread: int, saved: SavedWhole) -> dict[int, int]:
        """Take up what another thread saved, which is this one's last snapshot by now, as far as it is to be here; this
        one has nothing yet. Where `restore` does not take some state, it is only offered. Ranges in it, and their
        versions. Raises msgspec.DecodeError."""
        lost, again = set(self.ranges.lost), self.applied.again_at_most
        self.restore(saved)
        self.restored()
        self.ranges.lost, self.applied.again_at_most = lost, again  # the other one has said so
        self.mark()
        told = dict(self.ranges.versions)
        aside, _, _ = self.states.asides()
        for key_range in told.keys() - (() if aside else self.ranges.missing):
            self._leave(key_range)
            self.ranges.drop(key_range)
        if aside:
            self.offered(thread, saved.by_range()[1])
        return told

    def _took_up(self, states: Iterable[tuple[Hashable, Any]]) -> None:
        """These are here anew."""

    def _leave(self, key_range: int) -> None:
        """What is here of a range goes."""
        self.states.drop(key_range)
        self._frozen.pop(key_range, None)
        self._replaced.add(key_range)
        self.applied.drop(key_range)

    def _install(self, copy: RangeCopy) -> None:
        """This copy of a range, in place of the one that is here. Raises msgspec.DecodeError."""
        contents = contents_of(copy)
        self.states.unpack(copy.key_range, contents.states)
        self.applied.unpack(copy.key_range, contents.applied)
        self.applied.take_floors(contents.below)
        self._take_beside(copy.key_range, contents.beside)
        self.ranges.put(copy.key_range, copy.version)
        self._frozen.pop(copy.key_range, None)
        self._replaced.add(copy.key_range)
        self.states.keep_bound()

    def copy(self, key_range: int) -> RangeCopy:
        """What is here of a range."""
        version = self.ranges.versions.get(key_range, NO_COPY)
        if version == NO_COPY:
            return RangeCopy(key_range)
        found = self._frozen.get(key_range)
        if found is None:
            found = self._copy(key_range, version)
            beyond = self.states.stored  # then it is made again: nothing changes it
            if key_range in self.ranges.pending and key_range not in self.ranges.owned and not beyond:
                self._frozen[key_range] = found
        return found

    def _copy(self, key_range: int, version: int) -> RangeCopy:
        beside = self._pack_beside(key_range)
        if not (beside or self.states.any_in(key_range) or self.applied.of(key_range)):
            return RangeCopy(key_range, version)
        return self._copied(key_range, version, self.states.pack(key_range), beside)

    def _copied(self, key_range: int, version: int, states: bytes, beside: bytes) -> RangeCopy:
        rows = self.applied.pack(key_range)
        return copied(key_range, version, Contents(states, rows, self.applied.floors(), beside))

    # ── ranges that move ────────────────────────────────────────────────────────────────────────

    def offered(self, sender: int, copies: Iterable[RangeCopy]) -> None:
        """What a keeper has of ranges that are missing here."""
        desired = [copy for copy in copies if copy.key_range in self.ranges.missing]
        self.ranges.hear(sender, (copy.key_range for copy in desired))
        for copy in desired:
            known = self._offers.get(copy.key_range)
            if copy.version > (known.version if known is not None else NO_COPY):
                self._offers[copy.key_range] = copy

    def refuse_offers(self) -> None:
        """Other routes are in force: what was offered by the old ones counts no more."""
        self._offers.clear()

    def claim(self, now_ns: int) -> list[Addressed]:
        """Take every range for which nothing is waited any more, with the best copy there is, and process
        the rows that waited for it."""
        acks = AckSums()
        claimed = [at for at in self.ranges.claimable() if self._may_claim(at, now_ns)]
        for (
            key_range
        ) in claimed:  # all before any row: one that changes a state has the ranges' tables made anew
            self._claim(key_range)
        waited = self.side.take(claimed)
        for row in waited:
            acks.let_go(row)
        for (edge, is_end), rows in groupby(waited, lambda row: (row.edge, row.root.partition == self._end)):
            if is_end:
                for row in rows:
                    self._finish(row, now_ns, acks)
                continue
            while some := list(islice(rows, WAITED_TOGETHER)):
                keys, ranges, batch = self._places_of(united(some), self.key_of(edge))
                self._process(KeyedBatch(batch, edge, keys, ranges), now_ns, acks)
        return acks.all()

    def _may_claim(self, key_range: int, now_ns: int) -> bool:
        """Not at once when `restore` does not take some state of it: what it needs may be there soon."""
        offer = self._offers.get(key_range)
        tries, again_ns = self._tried.get(key_range, (0, 0))
        if offer is not None and now_ns < again_ns:
            return False
        trouble, whole = (
            self.states.trouble(contents_of(offer).states) if offer is not None else (None, False)
        )
        if trouble is None or tries >= (RESTORE_TRIES_WHOLE if whole else RESTORE_TRIES):
            self._tried.pop(key_range, None)
            self.troubles.pop(key_range, None)
            return True
        self._tried[key_range] = tries + 1, now_ns + RESTORE_AGAIN_NS
        why = f"{attempts.failure(0, trouble).error}{attempts.users_line(trouble)}"
        self.troubles[key_range] = f"restore: {why}"
        return False

    def _claim(self, key_range: int) -> None:
        offer = self._offers.pop(key_range, None)
        version = self.ranges.versions.get(key_range, NO_COPY)
        if offer is not None and offer.version > version:
            self._install(offer)
            version = offer.version
        self._frozen.pop(key_range, None)
        self.ranges.claim(key_range, version)
        self.dirty = True

    def taken(self, ranges: Iterable[int]) -> None:
        """Their owner has these ranges durably: what is here of them goes."""
        for key_range in self.ranges.told(ranges):
            self._leave(key_range)
            self.dirty = True


def _each_named(runs: Sequence[r.Run], counts: Sequence[int]) -> list[r.Run]:
    """The runs of what came of these rows, so much of each."""
    return r.joined(
        (number, offset, r.over_index(variant, index))
        for count, (number, offset, variant) in zip(counts, r.single(runs), strict=True)
        for index in range(count)
    )
