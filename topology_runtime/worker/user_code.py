"""A task's own code over rows, so that a row that fails costs no other. Pure but for that code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from topology_runtime.messages import RootPart
from topology_runtime.struck import CallKind
from topology_runtime.worker import attempts
from topology_runtime.worker import runs as r
from topology_runtime.worker.acks import BufferedRow
from topology_runtime.worker.results import Results, Rows
from topology_runtime.worker.runs import Run
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

    def run(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]) -> Rows:
        """What a map, flat-map or filter makes of these rows."""
        pieces = self.results.pieces
        if pieces is None:
            return self._pass(rows, runs, roots)
        given: list[Any] = []
        left: list[Run] = []
        for start, stop in pieces.cut(len(rows)):
            some, of = self._pass(rows[start:stop], r.part(runs, start, stop), roots)
            self.results.log()
            self.watch.calls += stop - start  # or two passes look like one call that never returns
            given += some
            left += of
        return given, left

    def _pass(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]) -> Rows:
        if self.watch.poison and (known := self._poisoned(runs, roots)):
            rows, runs = self.results.bury(rows, runs, roots, known)
        results, rows, runs = self._each(self._call, rows, rows, runs, roots)
        if self.kind == "filter" and not set(map(type, results)) <= {bool}:
            # an answer that is neither true nor false fails its row
            results, rows, runs = self._each(bool, results, rows, runs, roots)
        if self.results.around.sink:
            self.results.finish(roots, runs)
        if self.kind == "flat_map":
            return _flattened(results, runs)
        if self.kind == "filter":
            return (rows, runs) if all(results) else _chosen(results, rows, runs)
        return results, runs

    def _each(
        self,
        function: Callable[[Any], Any],
        values: Sequence[Any],
        rows: Sequence[Any],
        runs: Sequence[Run],
        roots: Sequence[RootPart],
    ) -> tuple[list[Any], Sequence[Any], Sequence[Run]]:
        """The function over these values, one of each row; the rows for which it fails are buried."""
        call = self._carefully(function, runs, roots) if self.watch.careful else function
        results, failures = attempts.each(call, values, self.pause, self.watch)
        if failures:
            rows, runs = self.results.bury(rows, runs, roots, failures)
        return results, rows, runs

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

    # ── one row ─────────────────────────────────────────────────────────────────────────────────

    def one(
        self, call: Callable[[], Any], row: BufferedRow, kind: CallKind = "row"
    ) -> tuple[Any, attempts.Failure | None]:
        """The result of a call about one row, tried three times, or its failure."""
        watch = self.watch
        if watch.quick:
            watch.calls += 1
            return attempts.once(call, self.pause, watch)
        name = *row.identity, kind
        if watch.poison and name in watch.poison.rows:
            return None, attempts.Failure(0, *watch.poison.rows[name])
        watch.enter(name)
        try:
            return attempts.once(call, self.pause, watch)
        finally:
            watch.leave()


def _identities(runs: Sequence[Run], roots: Sequence[RootPart]) -> list[Identity]:
    """Of each row of a frame."""
    return [
        (roots[number].source, roots[number].partition, roots[number].position + offset, variant, "row")
        for number, offset, variant in r.single(runs)
    ]


def _chosen(answers: Sequence[bool], rows: Sequence[Any], runs: Sequence[Run]) -> Rows:
    """The rows that a filter lets pass."""
    return list(compress(rows, answers)), r.joined(compress(r.single(runs), answers))


def _flattened(results: Sequence[Sequence[Any]], runs: Sequence[Run]) -> Rows:
    rows: list[Any] = []
    singles: list[tuple[int, int, int]] = []
    for result, (number, offset, variant) in zip(results, r.single(runs), strict=True):
        rows += result
        singles += [(number, offset, r.over_index(variant, index)) for index in range(len(result))]
    return rows, r.joined(singles)
