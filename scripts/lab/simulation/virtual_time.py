"""Virtual time: events in order of their times, and a hash of all that happened."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from zlib import crc32

MS = 1_000_000
S = 1_000_000_000
WALL0_NS = 1_700_000_000 * S
EVENTS_MOST = 1_000_000  # of one seed; usual are some thousands
TRAIL = 400  # events told of a failing seed


class Clock:
    """What happens when. `after_event` is called after each event."""

    def __init__(self) -> None:
        self.now_ns = S
        self.events = 0
        self.hash = 0
        self.trail: deque[str] = deque(maxlen=TRAIL)
        self.after_event: Callable[[], None] = lambda: None
        self._number = 0
        self._heap: list[tuple[int, int, str, Callable[[], None]]] = []

    def at(self, when_ns: int, what: str, do: Callable[[], None]) -> None:
        self._number += 1
        now_ns = self.now_ns
        heappush(self._heap, (when_ns if when_ns > now_ns else now_ns, self._number, what, do))

    def say(self, text: str) -> None:
        """A line of the trail; part of the hash."""
        line = f"{(self.now_ns - S) / S:.6f} {text}"
        self.hash = crc32(line.encode(), self.hash)
        self.trail.append(line)

    def run_until(self, end_ns: int) -> None:
        """Let time go by until `end_ns`."""
        heap, after_event = self._heap, self.after_event
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, what, do = heappop(heap)
            self.events += 1
            assert self.events < EVENTS_MOST, "it does not come to an end"
            if what:
                self.say(what)
            do()
            after_event()
        self.now_ns = max(self.now_ns, end_ns)
