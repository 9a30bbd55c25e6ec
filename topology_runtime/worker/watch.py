"""Where a thread is in user code, for whoever must know if it never comes back. Pure.

A pass over rows runs at the speed of C, so nothing is noted row by row: how far it has come shows in the
length of what has come of it, and another thread may look at that at any time. Only after a worker was
lost in user code are rows named before they are begun, one at a time in the whole worker (`careful`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence, Sized

from headgate.topology_runtime.struck import CallKind, Struck

Identity = tuple[int, int, int, int, CallKind]  # source number, partition, position, variant, kind of call
Verdict = tuple[str, str]  # error, traceback


WAIT_FIRST_S, WAIT_MOST_S = 10.0, 300.0
STRIKES_MOST = 3  # one more is not risked


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
    here = [one for one in struck if one.task == task and one.times >= STRIKES_MOST]
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
    return min(WAIT_MOST_S, WAIT_FIRST_S * 2.0 ** min(times - STRIKES_MOST, 10))


class CallWatch:
    """One thread. quick: a call needs no more than to be counted (a frame round it is timed, and nothing is
    asked for). `out`, `failures`: of the pass over rows under way; `raised`, `calls`: tries that raised
    and calls made one by one or in passes that are over, ever."""

    quick = careful = False
    poison = NO_POISON

    def __init__(self) -> None:
        self.out: Sized = ()
        self.failures: Sized = ()
        self.raised = self.calls = 0

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
