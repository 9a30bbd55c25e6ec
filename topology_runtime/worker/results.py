"""What comes of rows in one thread: output into its buffers, rows finished at a sink, dead letters. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from topology_runtime.errors import BadRow
from topology_runtime.logic import To
from topology_runtime.messages import DeadLetter, RootKey, RootPart
from topology_runtime.worker import attempts
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.acks import BufferedRow, Shares
from topology_runtime.worker.burial import Around, letter_of, of_letter
from topology_runtime.worker.outputs import Outputs
from topology_runtime.worker.pieces import Finished, Pieces
from topology_runtime.worker.runs import Run

Rows = tuple[Sequence[Any], Sequence[Run]]


class ToRecord(NamedTuple):
    """What is to be recorded before acks leave. finished: rows at a sink that are in no log yet."""

    finished: list[Finished]
    letters: list[DeadLetter]
    tuples_out: int  # ever


@dataclass
class Results:
    """Of one thread. pieces: of a sink whose rows are logged. edge: by which the rows came that the task has now.
    refused: roots of letters that died again, which are not to be acked."""

    around: Around
    outputs: Outputs
    finished: list[Finished] = field(default_factory=list)
    letters: list[DeadLetter] = field(default_factory=list)
    tuples_out: int = 0
    pieces: Pieces | None = None
    refused: set[RootKey] = field(default_factory=set)
    edge: int | None = None

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

    def emit(
        self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart], now_ns: int
    ) -> Shares:
        """Rows into the output buffers (those that can travel)."""
        rows, runs = self._plain_only(rows, runs, roots)
        self.tuples_out += len(rows)
        given = self.outputs.put(rows, runs, roots, now_ns)
        failures = [attempts.failure(place, error) for place, error in self.outputs.unroutable()]
        if failures:
            self.bury(rows, runs, roots, failures)
        return given

    def _plain_only(self, rows: Sequence[Any], runs: Sequence[Run], roots: Sequence[RootPart]) -> Rows:
        if not self.outputs.edges or _travel(rows):
            return rows, runs
        bare = [row.row if type(row) is To else row for row in rows]
        if _travel(bare):
            return rows, runs
        _, bad = wire.good_rows(bare)
        return self.bury(
            rows, runs, roots, [attempts.failure(place, error) for place, error in bad], shown=bare
        )

    # ── finished rows ───────────────────────────────────────────────────────────────────────────

    def finish(self, roots: Sequence[RootPart], runs: Sequence[Run]) -> None:
        """These rows are done, at a sink."""
        self.finished += [(roots[number], offset, count, variant) for number, offset, count, variant in runs]
        if self.pieces is not None and self.pieces.long:
            self.log()

    def log(self) -> None:
        """Finished rows into the log of the sink."""
        assert self.pieces is not None
        finished, self.finished = self.finished, []
        self.pieces.log(finished)

    # ── dead letters ────────────────────────────────────────────────────────────────────────────

    def bury(
        self,
        rows: Sequence[Any],
        runs: Sequence[Run],
        roots: Sequence[RootPart],
        failures: Sequence[attempts.Failure],
        shown: Sequence[Any] = (),
    ) -> Rows:
        """Dead letters for the rows that failed for good; they count as done, but for letters of this task that
        were sent again: the controller hears of it and asks for them no more. Returns the others."""
        singles = list(r.single(runs))
        for failed in failures:
            place, row = singles[failed.place], (shown or rows)[failed.place]
            root = roots[place[0]]
            self.letters.append(letter_of(self.around, root, place, row, self.edge, failed))
            if of_letter(self.around, root):
                self.refused.add(root.key)
        places = {failed.place for failed in failures}
        left = [place for place in range(len(rows)) if place not in places]
        return [rows[place] for place in left], r.joined(singles[place] for place in left)

    def bury_one(self, row: BufferedRow, failed: attempts.Failure) -> None:
        """A dead letter for a row that was kept, or was to be."""
        self.edge = row.edge
        self.bury([row.row], [row.run], [row.root], [attempts.Failure(0, failed.error, failed.traceback)])
        self.edge = None


def _travel(rows: Sequence[Any]) -> bool:
    try:
        wire.check(rows)
    except BadRow:
        return False
    return True
