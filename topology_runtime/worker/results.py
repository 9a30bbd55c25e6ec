"""What comes of rows in one thread: output into its buffers, rows finished at a sink, dead letters. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any

import msgspec

from topology_runtime.errors import BadRow
from topology_runtime.logic import To
from topology_runtime.messages import DeadLetter, RootKey
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r
from topology_runtime.worker.acks import BufferedRow, Shares
from topology_runtime.worker.attempts import Failure, failure
from topology_runtime.worker.burial import Around, letter_of, of_letter
from topology_runtime.worker.outputs import Outputs
from topology_runtime.worker.pieces import Finished, Pieces
from topology_runtime.worker.runs import Batch


class ToRecord(msgspec.Struct):
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

    def emit(self, batch: Batch, now_ns: int) -> Shares:
        """Rows into the output buffers (those that can travel)."""
        batch = self._plain_only(batch)
        self.tuples_out += len(batch.rows)
        given = self.outputs.put(batch.rows, batch.runs, batch.roots, now_ns)
        if unroutable := self.outputs.unroutable():
            self.bury(batch, starmap(failure, unroutable))
        return given

    def _plain_only(self, batch: Batch) -> Batch:
        if not self.outputs.edges or _travel(batch.rows):
            return batch
        bare = [row.row if type(row) is To else row for row in batch.rows]
        if _travel(bare):
            return batch
        return self.bury(batch, starmap(failure, wire.good_rows(bare)[1]), shown=bare)

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
        """Dead letters for the rows that failed for good; they count as done, but for letters of this task that
        were sent again: the controller hears of it and asks for them no more. Returns the others."""
        singles, healthy = list(r.single(batch.runs)), [True] * len(batch.rows)
        for failed in failures:
            place, row = singles[failed.place], (shown or batch.rows)[failed.place]
            root, healthy[failed.place] = batch.roots[place[0]], False
            self.letters.append(letter_of(self.around, root, place, row, self.edge, failed))
            if of_letter(self.around, root):
                self.refused.add(root.key)
        return batch.where(healthy)

    def bury_one(self, row: BufferedRow, failed: Failure) -> None:
        """A dead letter for a row that was kept, or was to be."""
        self.edge = row.edge
        self.bury(row.batch, [replace(failed, place=0)])
        self.edge = None


def _travel(rows: Sequence[Any]) -> bool:
    try:
        wire.check(rows)
    except BadRow:
        return False
    return True
