"""What a controller hears before it has a run to record: kept for the trace, so that the run can be replayed.

That may be hours. What says who is there and what was asked is kept as far back as it goes; of what comes all the time
(ticks, heartbeats, samples, questions) the newest. A replay meets such a gap as a controller that stood still: nobody
is judged by it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import merge
from itertools import count

from headgate.controller.knowledge import loop_events as t
from headgate.topology_runtime.wire.messages import Report, SampleBlock

TELLING_MOST = 10_000
OTHERS_MOST = 10_000  # minutes of some VMs
QUESTIONS = frozenset(
    {"ping", "status", "submission", "events", "summary", "explain", "whatif", "package_at"}
)

Early = tuple[int, t.Now, t.Event]


class EarlyInputs:
    def __init__(self, telling_most: int = TELLING_MOST, others_most: int = OTHERS_MOST) -> None:
        self._numbers = count()
        self._began: Early | None = None
        self._telling: deque[Early] = deque(maxlen=telling_most)
        self._others: deque[Early] = deque(maxlen=others_most)

    def add(self, now: t.Now, event: t.Event) -> None:
        early = next(self._numbers), now, event
        if isinstance(event, t.Started):
            self._began = early
        elif is_telling(event):
            self._telling.append(early)
        else:
            self._others.append(early)

    def take(self) -> Iterator[tuple[t.Now, t.Event]]:
        """All that is kept; nothing is any more."""
        kept = [self._began] if self._began is not None else [], self._telling, self._others
        found = list(merge(*kept, key=lambda early: early[0]))
        self._began = None
        self._telling.clear()
        self._others.clear()
        yield from ((now, event) for _, now, event in found)


def is_telling(event: t.Event) -> bool:
    """Does it say something that was not so before?"""
    match event:
        case t.Tick() | t.FromVm(message=Report() | SampleBlock()):
            return False
        case t.Command(request=request):
            return request.command not in QUESTIONS
    return True
