"""A task that keeps rows in window panes (`logic.Window`) until one is ready or old enough to fire. Pure but for the
user's code. What buffered rows do to acks is in acks.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heappop, heappush
from operator import attrgetter
from typing import Any

from headgate.topology_runtime.api.logic import Sink, Window
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.messages import EndOfInput, Frame, RootKey, RootPart
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import shown
from headgate.topology_runtime.worker.calls.batches import rows_of
from headgate.topology_runtime.worker.calls.router import owners, range_of
from headgate.topology_runtime.worker.calls.user_code import UserCode
from headgate.topology_runtime.worker.operators.thread_core import Behaviour, ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows.acks import (
    FIRED,
    STAYS,
    AckSums,
    Addressed,
    BufferedRow,
    Position,
    single_rows,
    together,
)
from headgate.topology_runtime.worker.rows.row_values import key_place

# ── Rows that a task keeps, in window panes: which of them belong together, and which have to go. Pure ───
#
# What buffered rows do to acks is in acks.py. Two hazards decide the shape of this file:
#
# 1. A pane must never mix rows of one source position from different *generations* (replays, restarted or
# moved sources): a join would pair an old half with a new one and the other new half would wait for ever. The
# newest generation of a position wins; older rows of it are given up, late ones are refused [A2].
# 2. A late copy of a root that is done would wait for ever. Its source says with every frame below which
# sequence all is done (`floor`); a source that was started again or is no longer desired has no ledger for
# older roots.

ALL = 1 << 63  # above every sequence
AGE_MOST_S = 1e9  # of a pane

Generation = tuple[int, int, int]  # source thread (never reused), incarnation of its worker, attempt


def generation(key: RootKey) -> Generation:
    return key.thread, key.incarnation, key.attempt


@dataclass(slots=True)
class Pane:
    """Rows under one key in order of arrival (by serial number), and which of them each position has. place: of the
    key among all. keeper: who keeps them, as their ledgers hear (acks.py, rule 8)."""

    key: Hashable
    place: Hashable
    since_ns: int
    keeper: int = 0
    by_serial: dict[int, BufferedRow] = field(default_factory=dict)
    by_position: dict[Position, list[int]] = field(default_factory=dict)
    serial: int = 0

    @property
    def size(self) -> int:
        return len(self.by_serial)

    def kept(self) -> Iterator[BufferedRow]:
        yield from self.by_serial.values()

    def rows(self) -> Sequence[Any]:
        """The rows as they are now; its length costs nothing, however many there are."""
        return _RowsOf(self)

    def at(self, position: Position) -> list[BufferedRow]:
        """The rows of a position: all of one generation, so of one root."""
        return [self.by_serial[serial] for serial in self.by_position.get(position, ())]

    def add(self, kept: BufferedRow, position: Position) -> bool:
        """Put a row at the end; True when it is the first of its position."""
        serials = self.by_position.setdefault(position, [])
        serials.append(self.serial)
        self.by_serial[self.serial] = kept
        self.serial += 1
        return len(serials) == 1

    def remove(self, position: Position) -> list[BufferedRow]:
        """Forget all rows of a position."""
        return [self.by_serial.pop(serial) for serial in self.by_position.pop(position, ())]


class _RowsOf(Sequence[Any]):
    """The rows of a pane to look at: `ready` is asked after every row and mostly wants their number."""

    def __init__(self, pane: Pane) -> None:
        self._pane = pane
        self._list: list[Any] = []

    def __len__(self) -> int:
        return self._pane.size

    def __iter__(self) -> Iterator[Any]:
        return (kept.row for kept in self._pane.by_serial.values())

    def __getitem__(self, place: Any) -> Any:
        if place == -1 and len(self):  # a window looks at its newest row
            return next(reversed(self._pane.by_serial.values())).row
        if len(self._list) != len(self):
            self._list = list(self)
        return self._list[place]


@dataclass(slots=True)
class _Source:
    """What is known of one source thread: its newest incarnation, below which sequence all of that is
    done, and where rows of its open roots are kept (`sequences`: a heap of the keys of `places`)."""

    incarnation: int = 0
    floor: int = 0
    sequences: list[int] = field(default_factory=list)
    places: dict[int, list[tuple[Pane, Position]]] = field(default_factory=dict)

    def below(self, floor: int) -> Iterator[tuple[Pane, Position]]:
        """Places of rows of roots below `floor`; told once."""
        while self.sequences and self.sequences[0] < floor:
            yield from self.places.pop(heappop(self.sequences))

    def put(self, sequence: int, place: tuple[Pane, Position]) -> None:
        if sequence not in self.places:
            heappush(self.sequences, sequence)
            self.places[sequence] = []
        self.places[sequence].append(place)


class Panes:
    """The panes of one thread."""

    def __init__(self) -> None:
        self.by_key: dict[Hashable, Pane] = {}  # by `key_place`, the oldest first
        self.rows = 0
        self.given_up: list[BufferedRow] = []  # went without being finished; their ledgers are to know
        self._sources: dict[int, _Source] = {}
        self._gone: set[int] = set()  # source threads that are no longer desired

    def see(self, roots: Iterable[RootPart]) -> None:
        """Roots of an arriving frame tell which earlier roots are done: rows of those go."""
        for root in roots:
            if root.key.thread in self._gone:
                continue
            source = self._source(root.key.thread)
            if root.key.incarnation > source.incarnation:
                before = list(source.below(ALL))
                source.incarnation, source.floor = root.key.incarnation, root.floor
                self._drop(before)
            elif root.key.incarnation == source.incarnation and root.floor > source.floor:
                source.floor = root.floor
                self._drop(source.below(root.floor))

    def forget(self, threads: Iterable[int]) -> None:
        """These source threads are no longer desired: all of theirs is done, or comes again from another."""
        for thread in threads:
            self._gone.add(thread)
            source = self._sources.pop(thread, None)
            if source is not None:
                self._drop(source.below(ALL))

    def stale(self, key: RootKey) -> bool:
        """Is this root done already, or its ledger no more?"""
        source = self._sources.get(key.thread)
        if source is None:
            return key.thread in self._gone
        return (key.incarnation, key.sequence) < (source.incarnation, source.floor)

    def all_stale(self, roots: Iterable[RootPart]) -> bool:
        """Does nobody wait any more for a row of these roots?"""
        return all(self.stale(root.key) for root in roots)

    def keep(self, key: Hashable, kept: BufferedRow, now_ns: int, keeper: int = 0) -> Pane | None:
        """Put a row into its pane; None when its position is there in a newer generation."""
        place = key_place(key)
        pane = self.by_key.get(place)
        if pane is None:
            pane = self.by_key[place] = Pane(key, place, now_ns, keeper)
        position = kept.position
        present = pane.at(position)
        if present and generation(present[0].root.key) != generation(kept.root.key):
            if generation(present[0].root.key) > generation(kept.root.key):
                return None
            self._give_up(pane, position)
        if pane.add(kept, position):
            for root in kept.roots:
                self._source(root.key.thread).put(root.key.sequence, (pane, position))
        self.rows += 1
        return pane

    def release(self, pane: Pane) -> list[BufferedRow]:
        """The rows of a pane, which are kept no more: they are to be released."""
        if self.by_key.get(pane.place) is pane:
            del self.by_key[pane.place]
            self.rows -= pane.size
        return list(pane.kept())

    def older_than(self, born_ns: int) -> list[Pane]:
        old: list[Pane] = []
        for pane in self.by_key.values():
            if pane.since_ns > born_ns:
                break
            old.append(pane)
        return old

    def _source(self, thread: int) -> _Source:
        source = self._sources.get(thread)
        if source is None:
            source = self._sources[thread] = _Source()
        return source

    def _drop(self, places: Iterable[tuple[Pane, Position]]) -> None:
        """Rows of roots that are done (by another attempt), or whose ledger is no more."""
        for pane, position in places:
            if self.by_key.get(pane.place) is pane and all(
                self.all_stale(kept.roots) for kept in pane.at(position)
            ):
                self._give_up(pane, position)
                if not pane.size:
                    del self.by_key[pane.place]

    def _give_up(self, pane: Pane, position: Position) -> None:
        rows = pane.remove(position)
        self.rows -= len(rows)
        self.given_up += rows


_identity = attrgetter("identity")

Keeper = Callable[[int, Any], int | None]  # (in-edge, row) → the other thread that keeps such a row now


class SinkPane(Window[Any, Any, Any]):
    """The rows that a sink is to write together."""

    def __init__(self, sink: Sink[Any]) -> None:
        self.sink, self.max_age_s = sink, sink.batch_age_s

    def ready(self, key: Any, rows: Sequence[Any]) -> bool:
        return len(rows) >= self.sink.batch_rows

    def finish(self, key: Any, rows: Sequence[Any]) -> Sequence[Any]:
        return rows


class WindowRows:
    """The rows that one thread keeps."""

    def __init__(self, code: UserCode, random64: Callable[[], int]) -> None:
        self.code, self.results, self.random64 = code, code.results, random64
        self.panes, self._feeders = Panes(), self.results.around.feeders
        self.max_age_s = _age_of(code.logic)
        self.number = code.results.around.number
        self.over = False  # all rows that there ever were are done: what comes is a copy

    @property
    def holding(self) -> int:
        return self.panes.rows

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """Rows into their panes; a pane that is complete fires before the next row is looked at, so that what
        a task sees does not depend on how rows came in frames."""
        acks = AckSums(frame.roots)
        if self.over:
            return acks.all()
        self.panes.see(frame.roots)
        for row in single_rows(frame, frame.edge, self.random64, self.panes.all_stale):
            self._keep(row, now_ns, acks)
        return self._all(acks)

    def _all(self, acks: AckSums) -> list[Addressed]:
        """These acks, and that rows are kept no more though they were not finished."""
        given_up, self.panes.given_up = self.panes.given_up, []
        for row in given_up:
            acks.give_up(row)
        return acks.all()

    def _keep(self, row: BufferedRow, now_ns: int, acks: AckSums) -> None:
        logic, source = self.code.logic, self._feeders[row.edge]
        key, failed = self.code.one(lambda: _hashable(logic.key(row.row, source)), row)
        if failed is not None:
            self.results.bury_one(row, failed)
            return
        pane = self.panes.keep(key, row, now_ns, self.number)
        if pane is None:
            acks.refuse(row)
            return
        acks.waits(row, pane.keeper, 1)
        ready, failed = self.code.one(lambda: bool(logic.ready(key, pane.rows())), row)
        if failed is not None:
            self._bury(self._released(pane, acks), failed)
        elif ready:
            self._fire(pane, now_ns, acks)

    def _released(self, pane: Pane, acks: AckSums) -> list[BufferedRow]:
        """The rows of a pane, kept no more."""
        rows = self.panes.release(pane)
        for row in rows:
            acks.waits(row, pane.keeper, -1)
        return rows

    def _kept_by(self, pane: Pane, keeper: int, acks: AckSums) -> list[BufferedRow]:
        """The rows of a pane, which have another keeper from now on."""
        rows = list(pane.kept())
        for row in rows:
            acks.waits(row, pane.keeper)
            acks.waits(row, keeper)
        pane.keeper = keeper
        return rows

    def _fire(self, pane: Pane, now_ns: int, acks: AckSums, keeper: int = 0) -> None:
        """Finish a pane: let its rows go (keeper: not yet) and emit its output. The task gets the rows in the order of
        their sources, so that its output and the names of that are the same whatever order they came in."""
        rows = self._kept_by(pane, keeper, acks) if keeper else self._released(pane, acks)
        rows.sort(key=_identity)
        bare = [row.row for row in rows]
        if self.results.pieces is not None:
            self.results.pieces.begin(len(rows))
        if isinstance(self.code.logic, SinkPane):
            self._write(self.code.logic.sink, rows, now_ns, acks)
            return
        out, failed = self.code.one(
            lambda: rows_of(self.code.logic.finish(pane.key, bare)), rows[0], "bucket"
        )
        if failed is not None:
            self._bury(rows, failed)
            return
        if self.results.around.sink:
            self._finish(rows)
        self._emit_for_all(out, rows, now_ns, acks)

    def _write(self, sink: Sink[Any], rows: list[BufferedRow], now_ns: int, acks: AckSums) -> None:
        failures = self.code.write(sink, _batch_of(rows, [row.row for row in rows]))
        for failed in failures:
            self.results.bury_one(rows[failed.place], failed)
        bad = {failed.place for failed in failures}
        good = [row for place, row in enumerate(rows) if place not in bad]
        if good and self.results.around.sink:
            self._finish(good)
        if good:
            self._emit_for_all([row.row for row in good], good, now_ns, acks)

    def _bury(self, rows: Iterable[BufferedRow], failed: attempts.Failure) -> None:
        """The failure of a call about these rows is the failure of each of them."""
        for row in rows:
            self.results.bury_one(row, failed)

    def _finish(self, rows: Sequence[BufferedRow]) -> None:
        self.results.finish(_batch_of(rows, rows))

    def _emit_for_all(
        self, out: Sequence[Any], rows: Sequence[BufferedRow], now_ns: int, acks: AckSums
    ) -> None:
        """What comes of a pane keeps *every* root of its rows open until it is done. It is named after the first
        row, and a replay that fills the pane with the same rows gives the same names."""
        if not out or not self.results.outputs.edges:
            return
        variant, roots = r.over_pane(map(_identity, rows)), together(rows)
        named = [(0, rows[0].offset, 1, r.over_index(variant, i)) for i in range(len(out))]
        acks.give(roots, self.results.emit(r.Batch(out, named, roots), now_ns))

    # ── time and moves ──────────────────────────────────────────────────────────────────────────

    def fire_old(self, now_ns: int) -> list[Addressed]:
        """Fire panes that are old enough."""
        limit_s = self.max_age_s
        if limit_s is None:
            return []
        return self._fire_all(self.panes.older_than(now_ns - int(limit_s * 1e9)), now_ns)

    def last(self, number: int, whole: bool, now_ns: int) -> list[Addressed]:
        """Fire every pane by step `number` of the end of the input, and keep its rows until all is over. A run that is
        only stopped fires those with an age limit."""
        acks = AckSums()
        for pane in list(self.panes.by_key.values()):
            if self.stay(whole):
                self._kept_by(pane, STAYS, acks)
            else:
                self._fire(pane, now_ns, acks, FIRED + number)
        return self._all(acks)

    def stay(self, whole: bool) -> bool:
        """Are rows to stay, for the run that goes on with them?"""
        return not whole and self.max_age_s is None

    def let_go(self) -> list[Addressed]:
        """All that came of the panes that fired last is done."""
        acks, self.over = AckSums(), True
        for pane in list(self.panes.by_key.values()):
            self._released(pane, acks)
        return self._all(acks)

    def fire_all(self, now_ns: int) -> list[Addressed]:
        """Fire every pane now (a leaver whose rows no other thread can take over)."""
        return self._fire_all(list(self.panes.by_key.values()), now_ns)

    def _fire_all(self, panes: Iterable[Pane], now_ns: int) -> list[Addressed]:
        acks = AckSums()
        for pane in panes:
            self._fire(pane, now_ns, acks)
        return self._all(acks)

    def hand_over(self, keeper: Keeper, now_ns: int) -> list[Addressed]:
        """Rows of panes whose key another thread keeps now go there, by the edge they came by."""
        acks = AckSums()
        for pane in list(self.panes.by_key.values()):
            targets, failed = self._keepers(pane, keeper)
            other = next((target for target in targets if target is not None), None)
            if other is None:
                if failed is not None:
                    self._bury(self._released(pane, acks), failed)
                continue
            for row, target in zip(self._released(pane, acks), targets, strict=True):
                to = other if target is None else target
                acks.give(row.roots, self.results.outputs.forward(row, to, now_ns))
        return self._all(acks)

    def _keepers(self, pane: Pane, keeper: Keeper) -> tuple[list[int | None], attempts.Failure | None]:
        """Who keeps each row now; and why it is not known of one, which goes with the others then."""
        found = [self.code.one(partial(keeper, row.edge, row.row), row) for row in pane.kept()]
        return [target for target, _ in found], next((why for _, why in found if why is not None), None)


def _age_of(logic: Window[Any, Any, Any]) -> float | None:
    """How old a pane may be, in seconds. Raises InvalidInput."""
    age_s = logic.max_age_s
    if age_s is None or (isinstance(age_s, int | float) and 0 <= age_s <= AGE_MOST_S):
        return age_s
    raise InvalidInput(
        f"a pane cannot be {shown(age_s, 100)} seconds old",
        hint="max_age_s (batch_age_s of a sink) is a number from 0 on, or None: no pane fires by its age",
    )


def _batch_of(rows: Sequence[BufferedRow], values: Sequence[Any]) -> r.Batch:
    """These values, under the names of these rows."""
    roots = {row.root.key: row.root for row in rows}
    numbers = {key: number for number, key in enumerate(roots)}
    runs = r.joined((numbers[row.root.key], row.offset, row.variant) for row in rows)
    return r.Batch(values, runs, list(roots.values()))


class WindowTask(Behaviour):
    def __init__(self, core: ThreadCore, windows: WindowRows) -> None:
        self.core, self.windows = core, windows
        self._stepped = 0  # the last step of the end of the input that was done

    @property
    def holding(self) -> int:
        return self.windows.holding

    @property
    def due_ns(self) -> int | None:
        """When its oldest pane fires, if panes fire by their age."""
        limit_s, panes = self.windows.max_age_s, self.windows.panes.by_key
        if limit_s is None or not panes:
            return None
        return next(iter(panes.values())).since_ns + int(limit_s * 1e9)

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        return self.windows.take(frame, now_ns)

    def on_time(self, now_ns: int) -> None:
        orders = self.core.orders
        if orders is not None and self.holding and orders.desired.end is None:
            self.core.settle(self.windows.fire_old(now_ns))

    def on_orders(self, gone: Collection[int], rerouted: bool, now_ns: int) -> None:
        self.windows.panes.forget(gone)
        self.on_barriers(now_ns)
        assert self.core.orders is not None
        if (end := self.core.orders.desired.end) is not None:
            self._end(end, now_ns)

    def _end(self, end: EndOfInput, now_ns: int) -> None:
        """Panes are whole where sources hold still and no worker has been replaced since they do: only then they
        fire."""
        name = self.core.task.name
        if name in end.over and not (self.windows.over or self.windows.stay(end.whole)):
            self.core.settle(self.windows.let_go())
        elif (end.step, end.task) == ("fire", name) and end.number > self._stepped:
            self._stepped = end.number
            if (self.core.post.slot, self.core.post.incarnation) in end.workers:
                self.core.settle(self.windows.last(end.number, end.whole, now_ns))

    def on_barriers(self, now_ns: int) -> None:
        """Buffered rows whose keeper is another thread now go there, once all barriers are in."""
        core, orders = self.core, self.core.orders
        if orders is None or not self.holding or not orders.switched or core.marked < orders.number:
            return
        if any(edge.grouping == "fields" for _, edge in core.topology.in_edges(core.task.name)):
            core.settle(self.windows.hand_over(self._keeper(orders), now_ns))
        elif core.leaving:
            core.settle(self.windows.fire_all(now_ns))

    def _keeper(self, orders: Orders) -> Keeper:
        tables = {
            number: (owners(orders.route_of[number]), self.core.ports.key_of(edge.key))
            for number, edge in self.core.topology.in_edges(self.core.task.name)
            if edge.grouping == "fields" and edge.key is not None and number in orders.route_of
        }
        here = self.core.desired.thread

        def keeper(edge: int, row: Any) -> int | None:
            if edge not in tables:
                return None
            table, key = tables[edge]
            owner = table[range_of(key(row))]
            return None if owner == here else owner

        return keeper


def _hashable(key: Any) -> Hashable:
    hash(key_place(key))  # which compares it, too
    found: Hashable = key
    return found
