"""Calling a user's function over the rows of a frame so that an exception costs one row, not the frame. Pure
but for the user's code and the pauses between tries.

`out.extend(map(f, rows))` runs at nearly the speed of a bare loop and keeps the results that came before an
exception, so only the row that failed is tried again: three tries in all, then it is a dead letter. Of a call about
many rows nobody knows which one failed: after three tries its halves are tried, and theirs, down to the row.
"""

from __future__ import annotations

import sysconfig
import traceback
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import islice
from types import TracebackType
from typing import Any, TypeVar

from headgate.topology_runtime.errors import BadBatch, HeadgateError, ServiceAway
from headgate.topology_runtime.wire.dead_letter_messages import CallKind, Struck
from headgate.topology_runtime.wording import error_text, one_line, visible

# ── Where a thread is in user code, for whoever must know if it never comes back. Pure ──────────────────
#
# A pass over rows runs at the speed of C, so nothing is noted row by row: how far it has come shows in the
# length of what has come of it, and another thread may look at that at any time. Only after a worker was
# lost in user code are rows named before they are started, one at a time in the whole worker (`careful`).

Identity = tuple[int, int, int, int, CallKind]  # source number, partition, position, variant, kind of call
Verdict = tuple[str, str]  # error, traceback


WAIT_FIRST_S, WAIT_MOST_S = 10.0, 300.0
FAILURES_MOST = 3  # one more is not risked


class Poison:
    """Rows of one task that must not meet its code again, each with the verdict of its dead letter, and how
    long a source waits before it reads at a position again."""

    def __init__(
        self, rows: Mapping[Identity, Verdict], waits_s: Mapping[tuple[int, int], float] | None = None
    ) -> None:
        self.rows = rows
        self.waits_s = waits_s or {}  # (partition, position) → seconds
        self._places = sorted({identity[:3] for identity in rows})
        self.any = bool(self.rows or self.waits_s)

    def touches(self, source: int, partition: int, position: int, count: int) -> bool:
        """Is one of so many positions from this one on among them?"""
        at = bisect_left(self._places, (source, partition, position))
        return at < len(self._places) and self._places[at] < (source, partition, position + count)


NO_POISON = Poison({})


def poison_of(task: str, sources: Sequence[str], struck: Iterable[Struck]) -> Poison:
    """What of all that was struck is of this task. `sources`: their names by number."""
    here = [one for one in struck if one.task == task and one.times >= FAILURES_MOST]
    numbers = {name: number for number, name in enumerate(sources)}
    rows: dict[Identity, Verdict] = {
        (numbers[one.source], one.partition, one.position, one.variant, one.kind): (one.error, one.traceback)
        for one in here
        if one.kind in ("row", "bucket") and one.source in numbers
    }
    waits_s = {(one.partition, one.position): wait_s(one.times) for one in here if one.kind == "read"}
    return Poison(rows, waits_s)


def wait_s(times: int) -> float:
    """Before a read that hung so many times is tried again: ten seconds, then twice as long each time."""
    return min(WAIT_MOST_S, WAIT_FIRST_S * 2.0 ** min(times - FAILURES_MOST, 10))


class StartAgain(BaseException):
    """Nothing that was made of the rows of this frame counts: the state of a key is spoilt, and by which row is not
    known, or what it was before is not there any more."""


class CallWatch:
    """One thread. quick: a call needs no more than to be counted (a frame or `timers` round it is timed, and nothing is
    asked for). `out`, `failures`: of the pass over rows under way; `raised`, `calls`: tries that raised
    and calls made one by one or in passes that are over, ever. lost: rows that failed for good since one went well."""

    quick = careful = False
    ends: tuple[type[BaseException], ...] = (
        KeyboardInterrupt,
        StartAgain,
    )  # what user code may end the thread by
    poison = NO_POISON

    def __init__(self) -> None:
        self.out: Sized = ()
        self.failures: Sized = ()
        self.raised = self.calls = self.lost = 0

    @property
    def moved(self) -> int:
        """Another number than a while ago: the thread is not in the same call."""
        return len(self.out) + self.raised + self.calls

    @property
    def place(self) -> int:
        """Of the row that the pass under way is at."""
        return len(self.out) + len(self.failures)

    def over(self, calls: int) -> None:
        """A pass of so many calls has ended: what came of it is not held here, where it would outlive its frame."""
        self.calls += calls
        self.out = self.failures = ()

    def enter(self, identity: Identity) -> None:
        """The call for this row begins."""
        self.calls += 1

    def leave(self) -> None:
        """It is over, however it ended."""

    def timers(self, fire: Callable[[], bool]) -> bool:
        """Round some calls for timers; what `fire` says."""
        self.quick = not (self.careful or self.poison.any)
        try:
            with self.for_timers():
                return fire()
        finally:
            self.quick = False

    def for_timers(self) -> AbstractContextManager[None]:
        """Round work that no row makes, but a timer."""
        return nullcontext()

    def waits(self, error: ServiceAway) -> bool:
        """Wait for a service that a call needs. True: the call is to be made again, and this try does not count."""
        return False

    def away_s(self, error: ServiceAway) -> float | None:
        """For so long nobody need ask for a service that is away; None: such a try counts like any."""
        return None

    def served(self) -> None:
        """A call went well."""


Came = TypeVar("Came")  # of a call
TRIES = 3
PAUSES_S = (0.01, 0.1)  # before the second and the third try: a service may need a moment
# Modules that call user code.
_WORKER = ("headgate.topology_runtime.worker.", "headgate.topology_runtime.api.")
PAUSED_SHARE, PAUSED_MOST_S = 0.1, 1.1  # of the time; saved up while nothing fails: ten rows
LOST_MANY = 5  # rows one after the other: no longer a bad row here and there
LINE_MOST = 500  # characters of the exception's own line that are kept
TRACEBACK_MOST = 4000  # characters of a traceback that are kept
OURS = "/topology_runtime/"  # in the names of our files
LIBRARIES = tuple(sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))


class Pauses:
    """Between two tries of a call: sleeps so many seconds, or not at all. Bad rows here and there hold up those
    behind them for a tenth of the time at most. Where nothing goes well a service may be away: then each one waits.

    >>> slept = []
    >>> pauses = Pauses(CallWatch(), slept.append, lambda: 0.0)
    >>> for _ in range(20): pauses(0.1)
    >>> len(slept)
    11
    """

    def __init__(
        self,
        watch: CallWatch,
        sleep: Callable[[float], None],
        clock_s: Callable[[], float],
    ) -> None:
        self._watch, self._sleep, self._clock_s = watch, sleep, clock_s
        self._left_s, self._at_s = PAUSED_MOST_S, clock_s()

    def __call__(self, seconds: float) -> None:
        now_s = self._clock_s()
        self._left_s = min(PAUSED_MOST_S, self._left_s + PAUSED_SHARE * (now_s - self._at_s))
        self._at_s = now_s
        if self._left_s < seconds * (1 - 1e-9) and self._watch.lost < LOST_MANY:
            return
        self._left_s = max(0.0, self._left_s - seconds)
        self._sleep(seconds)


@dataclass(frozen=True)
class Failure:
    """A row (its place) that failed for good: the exception in a line, and its traceback."""

    place: int
    error: str
    traceback: str


def failure(place: int, error: BaseException) -> Failure:
    text = "".join(traceback.format_exception(type(error), error, _theirs(error)))
    if isinstance(error, HeadgateError):
        text += "\n".join(error.lines()[1:])
    return Failure(place, one_line(error_text(error))[:LINE_MOST], visible(text)[-TRACEBACK_MOST:])


def _theirs(error: BaseException) -> TracebackType | None:
    """The traceback from where the worker called user code: its own steps say nothing to a user."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(_WORKER):
        trace = trace.tb_next
    return trace if trace is not None or isinstance(error, HeadgateError) else error.__traceback__


def users_line(error: BaseException) -> str:
    """` (file:line in function)`: the innermost line of the user's own that it came from, or else of a library; empty
    when none is seen, or when the error is a connector's, which says itself what is wrong."""
    frames = [one for one in traceback.extract_tb(error.__traceback__) if OURS not in one.filename]
    own = [one for one in frames if not one.filename.startswith((*LIBRARIES, "<"))]
    if not own and isinstance(error, HeadgateError):
        return ""
    if not own and error.__cause__ is not None and (line := users_line(error.__cause__)):
        return line  # Python puts a RuntimeError in the place of what a coroutine must not raise
    own = own or frames
    return f" ({own[-1].filename}:{own[-1].lineno} in {own[-1].name})" if own else ""


def shown(value: Any, most: int) -> str:
    """At most so many characters of a value's repr, whatever the value is."""
    try:
        text = repr(value)
    except BaseException as error:  # the user's class cannot even say what it is
        text = f"<{type(value).__name__}, whose repr raises {type(error).__name__}>"
    return visible(text)[:most]


def each(
    function: Callable[[Any], Any],
    rows: Sequence[Any],
    pause: Callable[[float], None],
    watch: CallWatch | None = None,
) -> tuple[list[Any], list[Failure]]:
    """Results of the rows that went well, in order, and the failures of the others. `watch` shows how far
    this has come."""
    return each_of(
        lambda at: map(function, islice(rows, at, None) if at else rows),
        len(rows),
        pause,
        watch or CallWatch(),
    )


def each_of(
    calls: Callable[[int], Iterable[Any]], rows: int, pause: Callable[[float], None], watch: CallWatch
) -> tuple[list[Any], list[Failure]]:
    """As `each`, of so many rows. calls: their results from that row on, each as it is made.

    Whatever user code raises is its row's failure (also SystemExit, or a CancelledError that a task let
    out): it must not end the thread."""
    out: list[Any] = []
    failures: list[Failure] = []
    watch.out, watch.failures = out, failures
    tries = well = 0
    while (at := len(out) + len(failures)) < rows:
        try:
            out.extend(calls(at))
            stopped = len(out) + len(failures)
            if stopped == rows:
                watch.served()
                break
            raise RuntimeError("the task raised StopIteration")
        except watch.ends:
            raise
        except BaseException as error:
            watch.raised += 1
            if isinstance(error, ServiceAway) and watch.waits(error):
                continue
            stopped = len(out) + len(failures)
            tries = tries + 1 if stopped == at else 1
            if len(out) > well:
                well, watch.lost = len(out), 0
            if tries >= TRIES:
                failures.append(failure(stopped, error))
                watch.lost += 1
                tries = 0
            else:
                pause(PAUSES_S[tries - 1])
    if len(out) > well:
        watch.lost = 0
    watch.over(rows)
    return out, failures


def together(
    function: Callable[[Sequence[Any]], Came],
    rows: Sequence[Any],
    pause: Callable[[float], None],
    watch: CallWatch | None = None,
) -> tuple[list[Came], list[Failure]]:
    """Results of calls about many rows at once: of the rows that went well, in order, as many as there were
    calls in the end; and the failures of the others. A call that raises is tried as one about a row is; then its
    halves are, once each as long as they have more than one row. One whose result does not tell what came of each row
    (BadBatch) is no row's fault: its rows fail, and it is not tried again."""
    out: list[Came] = []
    failures: list[Failure] = []
    watch = watch or CallWatch()
    watch.out, watch.failures = out, failures
    ahead = [(0, len(rows), TRIES)] if rows else []  # (start, stop, tries), the next one last
    while ahead:
        start, stop, most = ahead.pop()
        some = rows if stop - start == len(rows) else rows[start:stop]
        tries = 0
        while tries < most:
            watch.calls += 1
            try:
                out.append(function(some))
                watch.lost = 0
                watch.served()
                break
            except watch.ends:
                raise
            except BadBatch as error:
                failures += [failure(place, error) for place in range(start, stop)]
                break
            except BaseException as error:  # as in `each`
                watch.raised += 1
                if isinstance(error, ServiceAway) and watch.waits(error):
                    continue
                last = error
            tries += 1
            if tries < most:
                pause(PAUSES_S[tries - 1])
        else:
            if stop - start == 1:
                failures.append(failure(start, last))
                watch.lost += 1
                continue
            middle = (start + stop) // 2
            ahead += [(a, b, TRIES if b - a == 1 else 1) for a, b in ((middle, stop), (start, middle))]
    watch.over(len(out))
    return out, failures


def once(
    call: Callable[[], Any], pause: Callable[[float], None], watch: CallWatch | None = None
) -> tuple[Any, Failure | None]:
    """The result of a call tried three times, or its failure."""
    watch = watch or CallWatch()
    tries = 0
    while True:
        try:
            result = call()
            watch.lost = 0
            watch.served()
            return result, None
        except watch.ends:
            raise
        except BaseException as error:  # as in `each`
            watch.raised += 1
            if isinstance(error, ServiceAway) and watch.waits(error):
                continue
            tries += 1
            if tries >= TRIES:
                watch.lost += 1
                return None, failure(0, error)
            pause(PAUSES_S[tries - 1])
