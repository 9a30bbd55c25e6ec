"""A task's own code over rows, so that a row that fails costs no other. Pure but for that code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from topology_runtime.struck import CallKind
from topology_runtime.worker import attempts
from topology_runtime.worker import runs as r
from topology_runtime.worker.acks import BufferedRow
from topology_runtime.worker.results import Results
from topology_runtime.worker.runs import Batch, Run
from topology_runtime.worker.watch import CallWatch, Identity


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
        self._call = (lambda row: list(call(row))) if self.kind == "flat_map" else call

    # ── a frame ─────────────────────────────────────────────────────────────────────────────────

    def run(self, batch: Batch) -> Batch:
        """What a map, flat-map or filter makes of these rows."""
        pieces = self.results.pieces
        if pieces is None:
            return self._pass(batch)
        rows: list[Any] = []
        runs: list[Run] = []
        for start, stop in pieces.cut(len(batch.rows)):
            some = self._pass(batch.part(start, stop))
            self.results.log()
            self.watch.calls += stop - start  # or two passes look like one call that never returns
            rows += some.rows
            runs += some.runs
        return Batch(rows, runs, batch.roots)

    def _pass(self, batch: Batch) -> Batch:
        if self.watch.poison and (known := self._poisoned(batch)):
            batch = self.results.bury(batch, known)
        results, batch = self._each(self._call, batch.rows, batch)
        if self.kind == "filter" and not set(map(type, results)) <= {bool}:
            results, batch = self._each(bool, results, batch)  # an answer that is neither fails its row
        if self.results.around.sink:
            self.results.finish(batch)
        if self.kind == "flat_map":
            return _flattened(results, batch)
        if self.kind == "filter":
            return batch if all(results) else batch.where(results)
        return Batch(results, batch.runs, batch.roots)

    def _each(
        self, function: Callable[[Any], Any], values: Sequence[Any], batch: Batch
    ) -> tuple[list[Any], Batch]:
        """The function over these values, one for each row; the rows for which it fails are buried."""
        call = self._carefully(function, batch) if self.watch.careful else function
        results, failures = attempts.each(call, values, self.pause, self.watch)
        return results, self.results.bury(batch, failures) if failures else batch

    def _carefully(self, function: Callable[[Any], Any], batch: Batch) -> Callable[[Any], Any]:
        """The function for a pass over these rows that names each before it begins with it."""
        watch, names = self.watch, _identities(batch)

        def call(row: Any) -> Any:
            watch.enter(names[watch.place])
            try:
                return function(row)
            finally:
                watch.leave()

        return call

    def _poisoned(self, batch: Batch) -> list[attempts.Failure]:
        """The rows that must not meet user code again."""
        poison = self.watch.poison
        parts = [(batch.roots[number], offset, count) for number, offset, count, _ in batch.runs]
        if not any(poison.touches(p.source, p.partition, p.position + at, count) for p, at, count in parts):
            return []
        return [
            attempts.Failure(place, *poison.rows[name])
            for place, name in enumerate(_identities(batch))
            if name in poison.rows
        ]

    # ── one row ─────────────────────────────────────────────────────────────────────────────────

    def one(
        self, call: Callable[[], Any], row: BufferedRow, kind: CallKind = "row"
    ) -> tuple[Any, attempts.Failure | None]:
        """The result of a call about one row, tried three times, or its failure."""
        watch = self.watch
        if watch.quick:
            watch.calls += 1
            return attempts.once(call, self.pause, watch)
        name = *row.position, row.variant, kind
        if watch.poison and name in watch.poison.rows:
            return None, attempts.Failure(0, *watch.poison.rows[name])
        watch.enter(name)
        try:
            return attempts.once(call, self.pause, watch)
        finally:
            watch.leave()


def _identities(batch: Batch) -> list[Identity]:
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
