"""A task whose calls are awaited: many rows wait for their answers at once, out of several frames if one has too few.
What is called when, and what leaves when, is decided here; who calls is async_calls.py. Pure.

Rows leave as they are done (ordered: once all before them have left), under shares of their frame, and a frame is
acked when all its rows have left: as a frame of a map is, only that rows of it leave one after the other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate.topology_runtime.wire.messages import Frame, RootKey
from headgate.topology_runtime.worker.calls.attempts import Failure, Identity
from headgate.topology_runtime.worker.calls.user_code import UserCode, identities
from headgate.topology_runtime.worker.operators.thread_core import Behaviour
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows.acks import Addressed, Shares, passed_on
from headgate.topology_runtime.worker.rows.columns import Columns
from headgate.topology_runtime.worker.rows.row_runs import Batch
from headgate.topology_runtime.worker.rows.row_values import MadeSizes

NOT_YET = object()
HELD = 4  # rows are taken and have not left, at most this many times the calls at once (and what is left of a frame)


@dataclass(eq=False)
class FrameInWork:
    """A frame that was taken. answers: a result or a Failure for each row. left: rows that have left; came: places of
    rows that can leave now; out_of_order: of those that came since, where order does not matter. refused: its roots of
    dead letters that died again."""

    frame: Frame
    batch: Batch
    answers: list[Any]
    left: int = 0
    came: Sequence[int] = ()
    out_of_order: list[int] = field(default_factory=list)
    given: Shares = field(default_factory=dict)
    made_bytes: int = 0
    refused: set[RootKey] = field(default_factory=set)
    _singles: list[tuple[int, int, int]] = field(default_factory=list)
    _names: list[Identity] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.left == len(self.answers)

    def name(self, place: int) -> Identity:
        """Of a row, for whoever must know it if its call never comes back."""
        if not self._names:
            self._names = identities(self.batch)
        return self._names[place]

    def part(self, places: Sequence[int]) -> Batch:
        """These of its rows."""
        batch = self.batch
        if places == range(len(batch.rows)):
            return batch
        if not self._singles:
            self._singles = list(r.single(batch.runs))
        runs = r.joined(self._singles[place] for place in places)
        return Batch([batch.rows[place] for place in places], runs, batch.roots)


class AsyncTask(Behaviour):
    """calls: at once at most. drive: makes all calls that were begun, for whoever takes frames and waits for what comes
    of them (a test, an exclusive task); None: somebody else makes them meanwhile."""

    holding, by_the_clock = 0, False

    def __init__(
        self, code: UserCode, calls: int, ordered: bool, drive: Callable[[], None] | None = None
    ) -> None:
        self.code, self.results, self.calls, self.ordered, self._drive = (
            code,
            code.results,
            calls,
            ordered,
            drive,
        )
        self._frames: dict[FrameInWork, None] = {}  # in the order in which they came
        self._ahead: deque[tuple[FrameInWork, int]] = deque()  # rows that are not called yet
        self._touched: list[FrameInWork] = []  # out of order: those of which rows can leave
        self.in_calls = 0  # rows
        self.held = 0  # rows that were taken and have not left
        self._sizes = MadeSizes()

    @property
    def empty(self) -> bool:
        return not self._frames

    @property
    def has_room(self) -> bool:
        """Would another frame be of use now?"""
        return len(self._ahead) < self.calls - self.in_calls and self.held < HELD * self.calls

    def take(self, frame: Frame, now_ns: int) -> list[Addressed]:
        self.begin(frame)
        if self._drive is not None:
            self._drive()
        return self.leave(now_ns)[0]

    def begin(self, frame: Frame) -> None:
        """Its rows are to be called."""
        rows: Any = frame.rows
        if isinstance(rows, Columns):
            rows = rows.rows()
        work = FrameInWork(frame, Batch(rows, frame.runs, frame.roots), [NOT_YET] * len(rows))
        self._frames[work] = None
        self.held += len(rows)
        poisoned = self.code.poisoned(work.batch) if self.code.watch.poison.any else ()
        known = {failed.place: failed for failed in poisoned}
        for place in range(len(rows)):
            if place in known:
                self._answered(work, place, known[place])
            else:
                self._ahead.append((work, place))
        if not rows:
            self._touched.append(work)

    # ── calls ───────────────────────────────────────────────────────────────────────────────────

    @property
    def ahead(self) -> int:
        """Rows that are not called yet."""
        return len(self._ahead)

    def next_call(self) -> tuple[FrameInWork, int]:
        """The row that is to be called next."""
        self.in_calls += 1
        if (pieces := self.results.pieces) is not None:
            pieces.begin()
        return self._ahead.popleft()

    def called(self, work: FrameInWork, place: int, answer: Any) -> None:
        """What came of a call: a result, or the Failure of its last try."""
        self.in_calls -= 1
        self._answered(work, place, answer)

    def _answered(self, work: FrameInWork, place: int, answer: Any) -> None:
        work.answers[place] = answer
        if not self.ordered:
            if not work.out_of_order:
                self._touched.append(work)
            work.out_of_order.append(place)

    # ── what leaves ─────────────────────────────────────────────────────────────────────────────

    def leave(self, now_ns: int) -> tuple[list[Addressed], list[tuple[Frame, int, bool]]]:
        """Rows that may leave do: the acks of the frames that are done then, and for each frame of which rows have left
        how many, and whether it is done."""
        acks: list[Addressed] = []
        told: list[tuple[Frame, int, bool]] = []
        for work in list(self._leaving()):
            rows = len(work.came)
            self._send(work, now_ns)
            if work.over:
                self.results.refused |= work.refused
                acks += self._acks(work)
                del self._frames[work]
            told.append((work.frame, rows, work.over))
        return acks, told

    def _leaving(self) -> Iterator[FrameInWork]:
        """The frames of which rows can leave, or that have none."""
        if not self.ordered:
            touched, self._touched = self._touched, []
            for work in touched:
                work.came, work.out_of_order = work.out_of_order, []
                yield work
            return
        for work in self._frames:
            until = work.left
            while until < len(work.answers) and work.answers[until] is not NOT_YET:
                until += 1
            work.came = range(work.left, until)
            if work.came or not work.answers:
                yield work
            if until < len(work.answers):
                return

    def recorded(self) -> None:
        """What has left is in the records; calls of a sink that are under way are told of as begun again."""
        if (pieces := self.results.pieces) is not None and self.in_calls:
            pieces.begin(self.in_calls)

    def _send(self, work: FrameInWork, now_ns: int) -> None:
        results, places = self.results, work.came
        work.came = ()
        work.left += len(places)
        self.held -= len(places)
        batch, answers = work.part(places), [work.answers[place] for place in places]
        failures = [Failure(n, a.error, a.traceback) for n, a in enumerate(answers) if type(a) is Failure]
        if failures:
            results.edge = work.frame.edge
            batch = results.bury(batch, failures)
            results.edge = None
            answers = [answer for answer in answers if type(answer) is not Failure]
        batch = self.code.came(answers, batch)
        for key, share in results.emit(batch, now_ns).items():
            work.given[key] = work.given.get(key, 0) ^ share
        work.made_bytes += self._sizes.made_bytes(batch.rows, len(work.frame.roots)) if batch.rows else 0
        work.refused |= results.refused
        results.refused = set()

    def _acks(self, work: FrameInWork) -> list[Addressed]:
        if not self.results.outputs.edges:
            return passed_on(work.frame.roots, work.given)
        return passed_on(work.frame.roots, work.given, self.results.around.number, work.made_bytes)
