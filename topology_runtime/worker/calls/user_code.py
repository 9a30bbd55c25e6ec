"""A task's own code over rows, so that a row that fails costs no other, and what comes of it in one thread: output
into its buffers, rows finished at a sink, dead letters. Pure but for that code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from types import NoneType
from typing import Any, Protocol

import msgspec

from headgate.topology_runtime.api.logic import RowId, Sink
from headgate.topology_runtime.wire.dead_letter_messages import CallKind
from headgate.topology_runtime.wire.messages import DeadLetter, RootKey, RootPart
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.calls.attempts import CallWatch, Failure, Identity, failure
from headgate.topology_runtime.worker.calls.batches import (
    BatchCall,
    ColumnCall,
    SinkCall,
    call_of,
    joined,
    rows_of,
)
from headgate.topology_runtime.worker.calls.dead_lettering import Around, dead_letter_of, is_replayed
from headgate.topology_runtime.worker.calls.output_buffers import Outputs, bare
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.acks import BufferedRow, Shares
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.rows.row_values import RowChecks

# ── A sink's rows are called and logged in pieces, so that a worker killed at them hides few copies. Pure
# but for its clock and its log, which the caller gives.
#
# What a sink did before its rows were in the log of finished rows, nobody can count. So a slow sink logs row
# by row, a fast one as many as it takes in a millisecond, and how many are started and not logged yet is in the
# worker's meter: its agent counts those of a killed worker as not logged.

PIECE_NS = 1_000_000
MOST_ROWS = 4096

Finished = tuple[RootPart, int, int, int]  # root, offset, count, variant of rows done at a sink


class PieceLog(Protocol):
    """Where the finished rows of one thread are kept (thread_records.py)."""

    def begun(self, rows: int) -> None:
        """So many are started and not logged."""

    def log(self, finished: list[Finished]) -> None: ...


class Pieces:
    """One thread of a sink."""

    def __init__(self, clock: Callable[[], int], log: PieceLog) -> None:
        self._clock, self._log = clock, log
        self._size = 1
        self._begun, self._since_ns = 0, 0

    def cut(self, rows: int) -> Iterator[tuple[int, int]]:
        """(start, stop) of each piece; it is to be logged before the next one is asked for."""
        start = 0
        while start < rows:
            stop = min(rows, start + self._size)
            self.begin(stop - start)
            yield start, stop
            took_ns = self._clock() - self._since_ns
            if took_ns > PIECE_NS:
                self._size = max(1, self._size // 2)
            elif took_ns < PIECE_NS // 2 and stop - start == self._size:
                self._size = min(MOST_ROWS, self._size * 2)
            start = stop

    def begin(self, rows: int = 1) -> None:
        """So many rows are started."""
        if not self._begun:
            self._since_ns = self._clock()
        self._begun += rows
        self._log.begun(self._begun)

    @property
    def long(self) -> bool:
        """Has what is started taken so long that it is to be logged?"""
        return self._begun > 0 and self._clock() - self._since_ns > PIECE_NS

    def log(self, finished: list[Finished]) -> None:
        if not (finished or self._begun):
            return
        self._log.log(finished)
        self._begun = 0
        self._log.begun(0)


class ToRecord(msgspec.Struct):
    """What is to be recorded before acks leave. finished: rows at a sink that are in no log yet."""

    finished: list[Finished]
    letters: list[DeadLetter]
    tuples_out: int  # ever


@dataclass
class Results:
    """Of one thread. pieces: of a sink whose rows are logged. edge: by which the rows came that the task has now.
    refused: roots of dead letters that died again, which are not to be acked. gave_none: None went on to the next task
    as a row, which is hardly meant. run: its id."""

    around: Around
    outputs: Outputs
    finished: list[Finished] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    tuples_out: int = 0
    pieces: Pieces | None = None
    refused: set[RootKey] = field(default_factory=set)
    edge: int | None = None
    gave_none: bool = False
    checks: RowChecks = field(default_factory=RowChecks)
    run: str = ""

    def done(self) -> ToRecord:
        """What has come since this was asked last."""
        if self.pieces is not None:
            self.log()
        done = ToRecord(self.finished, self.letters, self.tuples_out)
        if self.finished:
            self.finished = []
        if self.letters:
            self.letters = []
        return done

    # ── output ──────────────────────────────────────────────────────────────────────────────────

    def emit(self, batch: Batch, now_ns: int) -> Shares:
        """Rows into the output buffers (those that can travel)."""
        batch = self.fit(batch)
        self.tuples_out += len(batch.rows)
        given = self.outputs.put(batch.rows, batch.runs, batch.roots, now_ns)
        if self.outputs.choosy and (unroutable := self.outputs.unroutable()):
            self.bury(batch, starmap(failure, unroutable))
        return given

    def fit(self, batch: Batch) -> Batch:
        """Those of the rows that can travel."""
        if not self.outputs.edges:
            return batch
        rows = bare(batch.rows) if self.outputs.addressed else batch.rows
        if self.checks.pass_on(rows):
            return batch
        return self.bury(batch, starmap(failure, wire.good_rows(rows)[1]), shown=rows)

    # ── finished rows ───────────────────────────────────────────────────────────────────────────

    def finish(self, batch: Batch) -> None:
        """These rows are done, at a sink."""
        roots = batch.roots
        self.finished += [(roots[number], offset, count, way) for number, offset, count, way in batch.runs]
        if self.pieces is not None and self.pieces.long:
            self.log()

    def log(self) -> None:
        """Finished rows into the log of the sink."""
        assert self.pieces is not None
        finished, self.finished = self.finished, []
        self.pieces.log(finished)

    # ── dead letters ────────────────────────────────────────────────────────────────────────────

    def bury(self, batch: Batch, failures: Iterable[Failure], shown: Sequence[Any] = ()) -> Batch:
        """Dead letters for the rows that failed for good; they count as done, but for dead letters of this task that
        were sent again: the controller hears of it and asks for them no more. Returns the others."""
        singles, healthy = list(r.single(batch.runs)), [True] * len(batch.rows)
        for failed in failures:
            place, row = singles[failed.place], (shown or batch.rows)[failed.place]
            root, healthy[failed.place] = batch.roots[place[0]], False
            self.letters.append(dead_letter_of(self.around, root, place, row, self.edge, failed))
            if is_replayed(self.around, root):
                self.refused.add(root.key)
        return batch.where(healthy)

    def bury_one(self, row: BufferedRow, failed: Failure) -> None:
        """A dead letter for a row that was kept, or was to be."""
        self.edge = row.edge
        self.bury(row.batch, [replace(failed, place=0)])
        self.edge = None


@dataclass
class UserCode:
    """The object of one thread's task."""

    results: Results
    kind: str
    logic: Any
    pause: Callable[[float], None]
    watch: CallWatch = field(default_factory=CallWatch)

    def __post_init__(self) -> None:
        call = self.logic
        self._batch = call_of(call)
        self._columns = isinstance(self._batch, ColumnCall)
        if self._batch is not None:
            call = self._batch.one
        self._call = (lambda row: rows_of(call(row))) if self.kind == "flat_map" else call

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────

    def run(self, batch: Batch) -> Batch:
        """What a map, flat-map or filter makes of these rows."""
        if type(batch.rows) is Columns and not self._columns:
            batch = Batch(batch.rows.rows(), batch.runs, batch.roots)
        pieces = self.results.pieces
        if pieces is None:
            return self._pass(batch)
        if self._batch is not None:
            pieces.begin(len(batch.rows))
            batch = self._pass(batch)
            self.results.log()
            return batch
        done: list[Batch] = []
        for start, stop in pieces.cut(len(batch.rows)):
            done.append(self._pass(batch.part(start, stop)))
            self.results.log()
        if len(done) == 1:
            return done[0]
        rows = [row for some in done for row in some.rows]
        return Batch(rows, [run for some in done for run in some.runs], batch.roots)

    def _pass(self, batch: Batch) -> Batch:
        if self.watch.poison.any and (known := self.poisoned(batch)):
            batch = self.results.bury(batch, known)
        if self._batch is None or self.watch.careful:
            results, batch = self._each(self._call, self._given(batch), batch)
        else:
            results, batch = self._together(self._batch, batch)
        if self.kind == "filter" and not set(map(type, results)) <= {bool}:
            results, batch = self._each(bool, results, batch)  # an answer that is neither fails its row
        return self.came(results, batch)

    def came(self, results: Sequence[Any], batch: Batch) -> Batch:
        """These rows are done, with a result each: what goes on."""
        if self.results.around.sink:
            self.results.finish(batch)
        if self.kind == "flat_map":
            return _flattened(results, batch)
        if self.kind == "filter":
            return batch if all(results) else batch.where(results)
        if not (self.results.gave_none or self.results.around.sink or type(results) is Columns):
            self.results.gave_none = NoneType in map(type, results) and NoneType not in map(type, batch.rows)
        return Batch(results, batch.runs, batch.roots)

    def _each(
        self, function: Callable[[Any], Any], values: Sequence[Any], batch: Batch
    ) -> tuple[Sequence[Any], Batch]:
        """The function over these values, one for each row; the rows for which it fails are dead-lettered."""
        results, failures = self.each(function, values, batch)
        return (results, self.results.bury(batch, failures)) if failures else (results, batch)

    def each(
        self, function: Callable[[Any], Any], values: Sequence[Any], batch: Batch
    ) -> tuple[list[Any], list[Failure]]:
        """The results of the function over these values, one for each row, but of those for which it fails."""
        watch = self.watch
        call = self._carefully(function, batch) if watch.careful else function
        return attempts.each(call, values, self.pause, watch)

    def each_of(self, calls: Callable[[int], Iterable[Any]], rows: int) -> tuple[list[Any], list[Failure]]:
        """As `each`, of so many rows; calls: the results from a row on. Not while rows are named (`careful`)."""
        return attempts.each_of(calls, rows, self.pause, self.watch)

    def over(self, function: Callable[[Any], Any], batch: Batch) -> tuple[Sequence[Any], Batch]:
        """What a function says of rows that meet user code first here, and those rows of which it says something."""
        if self.watch.poison and (known := self.poisoned(batch)):
            batch = self.results.bury(batch, known)
        return self._each(function, batch.rows, batch)

    def _together(self, call: BatchCall, batch: Batch) -> tuple[Sequence[Any], Batch]:
        """The batched function over these rows; those for which it fails are dead-lettered."""
        calls, failures = attempts.together(call, self._given(batch), self.pause, self.watch)
        results = joined(calls)
        batch = self.results.bury(batch, failures) if failures else batch
        return self._each(list, results, batch) if self.kind == "flat_map" else (results, batch)

    def _given(self, batch: Batch) -> Sequence[Any]:
        """What the task is called with for each row: a sink gets its name, too."""
        return self.named(batch) if isinstance(self._batch, SinkCall) else batch.rows

    def named(self, batch: Batch) -> list[tuple[Any, RowId]]:
        """Rows with their names."""
        run, sources = self.results.run, self.results.around.sources
        names = (
            RowId(run, sources[root.source], root.partition, root.position + offset, variant)
            for number, offset, variant in r.single(batch.runs)
            for root in (batch.roots[number],)
        )
        return list(zip(batch.rows, names, strict=True))

    def write(self, sink: Sink[Any], batch: Batch) -> list[Failure]:
        """All rows of a pane to a sink; those that it does not take."""
        watch = self.watch
        if not batch.rows:
            return []
        name: Identity = (*identities(batch)[0][:4], "bucket")
        if watch.poison.any and name in watch.poison.rows:
            return [Failure(place, *watch.poison.rows[name]) for place in range(len(batch.rows))]
        if not watch.quick:
            watch.enter(name)
        try:
            return attempts.together(SinkCall(sink), self.named(batch), self.pause, watch)[1]
        finally:
            if not watch.quick:
                watch.leave()

    def _carefully(self, function: Callable[[Any], Any], batch: Batch) -> Callable[[Any], Any]:
        """The function for a pass over these rows that names each before it begins with it."""
        watch, names = self.watch, identities(batch)

        def call(row: Any) -> Any:
            watch.enter(names[watch.place])
            try:
                return function(row)
            finally:
                watch.leave()

        return call

    def poisoned(self, batch: Batch) -> list[Failure]:
        """The rows that must not meet user code again."""
        poison = self.watch.poison
        parts = [(batch.roots[number], offset, count) for number, offset, count, _ in batch.runs]
        if not any(poison.touches(p.source, p.partition, p.position + at, count) for p, at, count in parts):
            return []
        return [
            Failure(place, *poison.rows[name])
            for place, name in enumerate(identities(batch))
            if name in poison.rows
        ]

    # ── one row ─────────────────────────────────────────────────────────────────────────────────

    def one(
        self, call: Callable[[], Any], row: BufferedRow, kind: CallKind = "row"
    ) -> tuple[Any, Failure | None]:
        """The result of a call about one row, tried three times, or its failure."""
        watch = self.watch
        if watch.quick:
            watch.calls += 1
            return attempts.once(call, self.pause, watch)
        name = *row.position, row.variant, kind
        if name in watch.poison.rows:
            return None, Failure(0, *watch.poison.rows[name])
        watch.enter(name)
        try:
            return attempts.once(call, self.pause, watch)
        finally:
            watch.leave()


def identities(batch: Batch) -> list[Identity]:
    """Of each row."""
    return [
        (root.source, root.partition, root.position + offset, variant, "row")
        for number, offset, variant in r.single(batch.runs)
        for root in (batch.roots[number],)
    ]


def _flattened(results: Sequence[Sequence[Any]], batch: Batch) -> Batch:
    rows: list[Any] = []
    singles: list[tuple[int, int, int]] = []
    for result, (number, offset, variant) in zip(results, r.single(batch.runs), strict=True):
        rows += result
        singles += [(number, offset, r.over_index(variant, index)) for index in range(len(result))]
    return Batch(rows, r.joined(singles), batch.roots)
