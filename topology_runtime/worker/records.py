"""What one thread has done, written where it outlives the worker: counted in the meter, finished rows in their log,
dead letters on their way to the controller."""

from __future__ import annotations

from collections.abc import Callable

from headgate.topology_runtime.clock import wall_ns
from headgate.topology_runtime.latency_buckets import bucket_of
from headgate.topology_runtime.messages import DeadLetter
from headgate.topology_runtime.worker import meter as mt
from headgate.topology_runtime.worker.finished import FinishedLog
from headgate.topology_runtime.worker.pieces import Finished
from headgate.topology_runtime.worker.user_code import ToRecord


class ThreadRecords:
    """`at`: the first word of the thread's meter record. `sink`: the log of its finished rows."""

    def __init__(
        self, words: memoryview, at: int, letters: Callable[[DeadLetter], None], sink: FinishedLog
    ) -> None:
        self._words, self._at, self._letters, self._sink = words, at, letters, sink

    @property
    def unlogged(self) -> int:
        """Finished rows of which there is no log."""
        return self._sink.dropped

    def write(self, done: ToRecord, holding: int) -> None:
        self._words[self._at + mt.TUPLES_OUT] = done.tuples_out
        self._words[self._at + mt.HELD_ROWS] = holding
        for letter in done.letters:
            self._letters(letter)

    def begun(self, rows: int) -> None:
        self._words[self._at + mt.UNLOGGED] = rows

    def log(self, finished: list[Finished]) -> None:
        if not finished:
            return
        words, at, now_ns = self._words, self._at, wall_ns()
        for root, _, count, _ in finished:
            words[at + mt.E2E + bucket_of(max(0, now_ns - root.intended_ns))] += count
        self._sink.append(finished)

    def close(self) -> None:
        self._sink.close()
