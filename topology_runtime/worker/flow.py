"""What one task thread does with one frame: run the logic, fill the buffers, work out the acks. Pure but
for the user's code; the thread around it is in threads.py, the simulator drives it as it is.

The ack of a root in a frame is: the frame's id for it ⊕ the shares of what went out ⊕ the shares of what
is kept ⊕ the shares of what was kept and is let go. It is sent once, when the frame is done.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from msgspec.structs import replace

from topology_runtime.cluster import Slot
from topology_runtime.errors import BadRow
from topology_runtime.logic import To
from topology_runtime.messages import Ack, DeadLetter, Frame, RootKey, RootPart
from topology_runtime.struck import CallKind
from topology_runtime.worker import attempts
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.burial import Around, letter_of, of_letter
from topology_runtime.worker.held import Bucket, BufferedRow, HeldRows, alone
from topology_runtime.worker.outputs import Outputs, Shares
from topology_runtime.worker.pieces import Pieces
from topology_runtime.worker.runs import Run
from topology_runtime.worker.watch import CallWatch, Identity

DRAINED_AFTER_NS = 500_000_000  # without a row while the run drains: what is kept is all there is

Addressed = tuple[Slot, Ack]  # an ack and the slot of its ledger
Finished = tuple[RootPart, int, int, int]  # root, offset, count, variant of rows done at a sink


@dataclass
class Flow:
    """Map, flat-map and filter tasks."""

    around: Around
    kind: str
    logic: Any
    outputs: Outputs
    pause: Callable[[float], None]
    letters: list[DeadLetter] = field(default_factory=list)
    finished: list[Finished] = field(default_factory=list)
    tuples_out: int = 0
    watch: CallWatch = field(default_factory=CallWatch)
    pieces: Pieces | None = None  # of a sink whose rows are logged
    refused: set[RootKey] = field(default_factory=set)  # of letters that died again: not to be acked
    _edge: int | None = None  # by which the rows came that the logic has now

    def __post_init__(self) -> None:
        call = self.logic
        self._call = (lambda row: list(call(row))) if self.kind == "flat_map" else call

    # ── frames ──────────────────────────────────────────────────────────────────────────────────

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """One frame through the logic; returns its acks."""
        self._edge = frame.edge
        rows, runs = self._run(frame.rows, frame.runs, frame.roots)
        self._edge = None
        given = self.emit(rows, runs, frame.roots, now_ns)
        return [(root.home, Ack(root.key, root.id ^ given.get(root.key, 0))) for root in frame.roots]

    def emit(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int
    ) -> Shares:
        """Rows into the output buffers (those that can travel)."""
        rows, runs = self._plain_only(rows, runs, roots)
        self.tuples_out += len(rows)
        given = self.outputs.put(rows, runs, roots, now_ns)
        self._bury_unroutable(rows, runs, roots)
        return given

    def _bury_unroutable(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]) -> None:
        failures = [attempts.failure(place, error) for place, error in self.outputs.unroutable()]
        if failures:
            self._bury(rows, runs, roots, failures)

    def on_time(self, now_ns: int, draining: bool) -> list[Addressed]:
        """Work that is due by time; nothing for tasks that keep no rows."""
        return []

    def hand_over(self, keeper: Callable[[int, Any], int | None], now_ns: int) -> list[Addressed]:
        """Pass on what other threads keep from now on; nothing for tasks that keep no rows."""
        return []

    def forget(self, threads: Iterable[int]) -> None:
        """These source threads are no longer desired; nothing to do for tasks that keep no rows."""

    @property
    def holding(self) -> int:
        """Rows kept now."""
        return 0

    # ── the logic over rows ─────────────────────────────────────────────────────────────────────

    def _run(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        if self.pieces is None:
            return self._pass(rows, runs, roots)
        given: list[Any] = []
        left: list[Run] = []
        for start, stop in self.pieces.cut(len(rows)):
            some, of = self._pass(rows[start:stop], r.part(runs, start, stop), roots)
            self.watch.calls += stop - start  # or two passes look like one call that never returns
            given += some
            left += of
        return given, left

    def _pass(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        if self.watch.poison and (known := self._poisoned(runs, roots)):
            rows, runs = self._bury(rows, runs, roots, known)
        call = self._carefully(self._call, runs, roots) if self.watch.careful else self._call
        results, failures = attempts.each(call, rows, self.pause, self.watch)
        if failures:
            rows, runs = self._bury(rows, runs, roots, failures)
        if self.kind == "filter":
            results, rows, runs = self._truths(results, rows, runs, roots)
        if self.around.sink:
            self._finish(roots, runs)
        if self.kind == "flat_map":
            return _flattened(results, runs)
        if self.kind == "filter":
            return (rows, runs) if all(results) else _chosen(results, rows, runs)
        return results, runs

    def _truths(
        self, results: list[Any], rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[list[Any], Sequence[Any], Sequence[Run]]:
        """What a filter answered, as bools; an answer that is neither true nor false fails its row."""
        if set(map(type, results)) <= {bool}:
            return results, rows, runs
        call = self._carefully(bool, runs, roots) if self.watch.careful else bool
        truths, failures = attempts.each(call, results, self.pause, self.watch)
        if failures:
            rows, runs = self._bury(rows, runs, roots, failures)
        return truths, rows, runs

    def _carefully(
        self, function: Callable[[Any], Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> Callable[[Any], Any]:
        """The function for a pass over these rows that names each before it begins with it."""
        watch, names = self.watch, _identities(runs, roots)

        def call(row: Any) -> Any:
            watch.enter(names[watch.place])
            try:
                return function(row)
            finally:
                watch.leave()

        return call

    def _poisoned(self, runs: Sequence[Run], roots: Sequence[RootPart]) -> list[attempts.Failure]:
        """The rows that must not meet user code again."""
        poison = self.watch.poison
        parts = [(roots[number], offset, count) for number, offset, count, _ in runs]
        if not any(poison.touches(p.source, p.partition, p.position + at, count) for p, at, count in parts):
            return []
        return [
            attempts.Failure(place, *poison.rows[name])
            for place, name in enumerate(_identities(runs, roots))
            if name in poison.rows
        ]

    def _try(
        self, call: Callable[[], Any], kept: BufferedRow, kind: CallKind = "row"
    ) -> tuple[Any, attempts.Failure | None]:
        """The result of a call about one row, tried three times, or its failure."""
        watch = self.watch
        if watch.quick:
            watch.calls += 1
            return attempts.once(call, self.pause, watch)
        name = *kept.position, kept.variant, kind
        if watch.poison and name in watch.poison.rows:
            return None, attempts.Failure(0, *watch.poison.rows[name])
        watch.enter(name)
        try:
            return attempts.once(call, self.pause, watch)
        finally:
            watch.leave()

    def _plain_only(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        if not self.outputs.edges or _travel(rows):
            return rows, runs
        bare = [row.row if type(row) is To else row for row in rows]
        if _travel(bare):
            return rows, runs
        _, bad = wire.good_rows(bare)
        return self._bury(
            rows, runs, roots, [attempts.failure(place, error) for place, error in bad], shown=bare
        )

    def _bury(
        self,
        rows: Sequence[Any],
        runs: Sequence[Run],
        roots: Sequence[RootPart],
        failures: Sequence[attempts.Failure],
        shown: Sequence[Any] = (),
    ) -> tuple[Sequence[Any], Sequence[Run]]:
        """Dead letters for the rows that failed for good; they count as done, but for letters of this task that
        were sent again: the controller hears of it and asks for them no more. Returns the others."""
        singles = list(r.single(runs))
        for failed in failures:
            place, row = singles[failed.place], (shown or rows)[failed.place]
            root = roots[place[0]]
            self.letters.append(letter_of(self.around, root, place, row, self._edge, failed))
            if of_letter(self.around, root):
                self.refused.add(root.key)
        places = {failed.place for failed in failures}
        left = [place for place in range(len(rows)) if place not in places]
        return [rows[place] for place in left], r.joined(singles[place] for place in left)

    def _finish(self, roots: Sequence[RootPart], runs: Sequence[Run]) -> None:
        self.finished += [(roots[number], offset, count, variant) for number, offset, count, variant in runs]
        if self.pieces is not None:
            self.pieces.end()


class AckSums:
    """Acks to be: one per root, however many of its rows are taken up or let go."""

    def __init__(self) -> None:
        self._sums: dict[RootKey, tuple[Slot, int, int]] = {}

    def add(self, root: RootPart, value: int, held: int = 0) -> None:
        _, before, kept = self._sums.get(root.key, (root.home, 0, 0))
        self._sums[root.key] = root.home, before ^ value, kept + held

    def add_for(self, kept: BufferedRow, value: int, held: int = 0) -> None:
        """The same for every root of a kept row."""
        for root in kept.roots:
            self.add(root, value, held)

    def all(self) -> list[Addressed]:
        return [(home, Ack(key, value, held)) for key, (home, value, held) in self._sums.items()]


@dataclass
class HoldFlow(Flow):
    """A task that keeps rows in buckets (`logic.Hold`)."""

    random64: Callable[[], int] = field(kw_only=True)
    held: HeldRows = field(default_factory=HeldRows)
    _taken_ns: int = 0

    @property
    def holding(self) -> int:
        return self.held.rows

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        """Rows into their buckets; a bucket that is complete goes before the next row is looked at, so
        that what a task sees does not depend on how rows came in frames."""
        self._taken_ns = now_ns
        self.held.see(frame.roots)
        acks = AckSums()
        for root in frame.roots:
            acks.add(root, root.id)
        parts = [alone(frame.roots, number) for number in range(len(frame.roots))]
        desired = [not self.held.all_stale((root, *along)) for root, along in parts]
        for row, (number, offset, variant) in zip(frame.rows, r.single(frame.runs), strict=True):
            if desired[number]:
                root, along = parts[number]
                kept = BufferedRow(row, frame.edge, root, offset, variant, self.random64(), along)
                self._keep(kept, now_ns, acks)
        return self._told(acks)

    def _told(self, acks: AckSums) -> list[Addressed]:
        """These acks, and that rows are kept no more though they were not finished."""
        given_up, self.held.given_up = self.held.given_up, []
        for kept in given_up:
            acks.add_for(kept, 0, -1)
        return acks.all()

    def _keep(self, kept: BufferedRow, now_ns: int, acks: AckSums) -> None:
        source = self.around.feeders[kept.edge]
        key, failed = self._try(lambda: _hashable(self.logic.key(kept.row, source)), kept)
        if failed is not None:
            self._bury_kept([kept], failed)
            return
        bucket = self.held.keep(key, kept, now_ns)
        if bucket is None:
            acks.add_for(kept, kept.share)  # refused: never cancelled, so this attempt never completes
            return
        acks.add_for(kept, kept.share, 1)
        ready, failed = self._try(lambda: bool(self.logic.ready(key, bucket.rows())), kept)
        if failed is not None:
            self._bury_kept(self._released(bucket, acks), failed)
        elif ready:
            self._let_go(bucket, now_ns, acks)

    def _released(self, bucket: Bucket, acks: AckSums) -> list[BufferedRow]:
        """The rows of a bucket, kept no more."""
        kept = self.held.release(bucket)
        for one in kept:
            acks.add_for(one, one.share, -1)
        return kept

    def _let_go(self, bucket: Bucket, now_ns: int, acks: AckSums) -> None:
        """Finish a bucket: let its rows go and emit its output. The task gets the rows in the order of their
        sources, so that its output and the names of that are the same whatever order they came in."""
        kept = sorted(self._released(bucket, acks), key=_place)
        rows = [one.row for one in kept]
        if self.pieces is not None:
            self.pieces.begin(len(kept))
        out, failed = self._try(lambda: list(self.logic.finish(bucket.key, rows)), kept[0], "bucket")
        if failed is not None:
            self._bury_kept(kept, failed)
            return
        if self.around.sink:
            self._finish_kept(kept)
        self._emit_for_all(out, kept, now_ns, acks)

    def _finish_kept(self, kept: Sequence[BufferedRow]) -> None:
        roots = {one.root.key: one.root for one in kept}
        numbers = {key: number for number, key in enumerate(roots)}
        runs = r.joined((numbers[one.root.key], one.offset, one.variant) for one in kept)
        self._finish(list(roots.values()), runs)

    def _emit_for_all(
        self, out: Sequence[Any], kept: Sequence[BufferedRow], now_ns: int, acks: AckSums
    ) -> None:
        """Output rows of a bucket keep *every* root of the bucket open until they are done. They are named
        after its first row, and a replay that fills the bucket with the same rows gives the same names."""
        if not out or not self.outputs.edges:
            return
        first, variant = kept[0], r.over_bucket(map(_place, kept))
        others = {root.key: root for one in kept for root in one.roots if root.key != first.root.key}
        root = first.root
        if others or root.along:
            root = replace(root, along=list(range(1, len(others) + 1)))
        roots = [root, *others.values()]
        named = [(0, first.offset, 1, r.over_index(variant, i)) for i in range(len(out))]
        given = self.emit(out, named, roots, now_ns)
        for root in roots:
            acks.add(root, given.get(root.key, 0))

    def _bury_kept(self, kept: Sequence[BufferedRow], failed: attempts.Failure) -> None:
        """The failure of a call about these rows is the failure of each of them."""
        every = attempts.Failure(0, failed.error, failed.traceback)
        for one in kept:
            self._edge = one.edge
            self._bury([one.row], [(0, one.offset, 1, one.variant)], [one.root], [every])
        self._edge = None

    # ── time and orders ─────────────────────────────────────────────────────────────────────────

    def on_time(self, now_ns: int, draining: bool) -> list[Addressed]:
        """Finish buckets that are old enough. While the run drains, those with an age limit as soon as
        nothing has come for half a second: a join's other half may still be on its way."""
        limit_s = self.logic.max_age_s
        if limit_s is None:
            return []
        last = draining and now_ns - self._taken_ns >= DRAINED_AFTER_NS
        acks = AckSums()
        for bucket in self.held.older_than(now_ns if last else now_ns - int(limit_s * 1e9)):
            self._let_go(bucket, now_ns, acks)
        return self._told(acks)

    def hand_over(self, keeper: Callable[[int, Any], int | None], now_ns: int) -> list[Addressed]:
        """Rows of buckets whose key another thread keeps now go there, by the edge they came by.

        `keeper(edge, row)`: the thread that keeps such a row now, or None when it is this one."""
        acks = AckSums()
        for bucket in list(self.held.buckets.values()):
            targets = [keeper(one.edge, one.row) for one in bucket.kept()]
            other = next((target for target in targets if target is not None), None)
            if other is None:
                continue
            for one, target in zip(self._released(bucket, acks), targets, strict=True):
                run = (0, one.offset, 1, one.variant)
                to = other if target is None else target
                given = self.outputs.forward(one.edge, to, one.row, run, one.roots, now_ns)
                for root in one.roots:
                    acks.add(root, given[root.key])
        return self._told(acks)

    def forget(self, threads: Iterable[int]) -> None:
        self.held.forget(threads)

    def finish_all(self, now_ns: int) -> list[Addressed]:
        """Finish every bucket now (a leaver whose rows no other thread can take over)."""
        acks = AckSums()
        for bucket in list(self.held.buckets.values()):
            self._let_go(bucket, now_ns, acks)
        return self._told(acks)


def _identities(runs: Sequence[Run], roots: Sequence[RootPart]) -> list[Identity]:
    """Of each row of a frame."""
    return [
        (roots[number].source, roots[number].partition, roots[number].position + offset, variant, "row")
        for number, offset, variant in r.single(runs)
    ]


def _place(kept: BufferedRow) -> tuple[int, int, int, int]:
    return (*kept.position, kept.variant)


def _hashable(key: Any) -> Hashable:
    hash(key)
    found: Hashable = key
    return found


def _travel(rows: Sequence[Any]) -> bool:
    try:
        wire.check(rows)
    except BadRow:
        return False
    return True


def _chosen(answers: Sequence[bool], rows: Sequence[Any], runs: Sequence[Run]) -> tuple[list[Any], list[Run]]:
    """The rows that a filter lets pass."""
    return list(compress(rows, answers)), r.joined(compress(r.single(runs), answers))


def _flattened(results: Sequence[Sequence[Any]], runs: Sequence[Run]) -> tuple[list[Any], list[Run]]:
    rows: list[Any] = []
    singles: list[tuple[int, int, int]] = []
    for result, (number, offset, variant) in zip(results, r.single(runs), strict=True):
        rows += result
        singles += [(number, offset, r.over_index(variant, index)) for index in range(len(result))]
    return rows, r.joined(singles)
