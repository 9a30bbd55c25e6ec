"""What was posted, from the request until its rows are on the disk: first in, first out, bounded, each key once.

One thread offers requests and settles them, another takes rows and says which are on the disk.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

KEYS_MOST = 10_000  # of requests that were answered are remembered


@dataclass(eq=False)
class Posted:
    """One request. rows: how many it had. done: they are on the disk. waiters: whoever wants to hear of that."""

    key: str
    digest: str
    rows: int
    size: int = 0
    left: deque[Any] = field(default_factory=deque)
    end: int = 0  # number of its last row among all that were given
    done: bool = False
    waiters: list[Any] = field(default_factory=list)


class PostedRows:
    """rows_most, bytes_most: of all requests whose rows wait to be taken.

    >>> waiting = PostedRows(10, 100)
    >>> posted = waiting.offer(Posted("a", "", 2, 8), ["left", "right"])
    >>> waiting.take(5), waiting.settled(2) == [posted]
    (['left', 'right'], True)
    """

    def __init__(self, rows_most: int, bytes_most: int) -> None:
        self.rows_most, self.bytes_most = rows_most, bytes_most
        self.rows = self.bytes = self._given = 0
        self._waiting: deque[Posted] = deque()
        self._given_whole: deque[Posted] = deque()  # all their rows were given
        self._known: OrderedDict[str, Posted] = OrderedDict()
        self._unsettled: dict[str, Posted] = {}
        self._lock = Lock()

    @property
    def full(self) -> bool:
        return self.rows >= self.rows_most or self.bytes >= self.bytes_most

    def known(self, key: str) -> Posted | None:
        """The request that came with this key, if it is remembered; "": none."""
        return (self._unsettled.get(key) or self._known.get(key)) if key else None

    def offer(self, posted: Posted, rows: Sequence[Any]) -> Posted | None:
        """Its rows wait from now on; None: there is no room for them."""
        with self._lock:
            if self.rows + len(rows) > self.rows_most or self.bytes + posted.size > self.bytes_most:
                return None
            self.rows += len(rows)
            self.bytes += posted.size
            posted.left.extend(rows)
            self._waiting.append(posted)
            if posted.key:
                self._unsettled[posted.key] = posted
            return posted

    def withdraw(self, posted: Posted) -> bool:
        """As if it had never come; False: some of its rows were given already."""
        with self._lock:
            if len(posted.left) < posted.rows or posted not in self._waiting:
                return False
            self._waiting.remove(posted)
            self.rows -= posted.rows
            self.bytes -= posted.size
            self._unsettled.pop(posted.key, None)
            return True

    def take(self, limit: int) -> list[Any]:
        """The next rows; they are given now."""
        rows: list[Any] = []
        with self._lock:
            while self._waiting and len(rows) < limit:
                first = self._waiting[0]
                while first.left and len(rows) < limit:
                    rows.append(first.left.popleft())
                if not first.left:
                    self._waiting.popleft()
                    first.end = self._given + len(rows)
                    self.bytes -= first.size
                    self._given_whole.append(first)
            self.rows -= len(rows)
            self._given += len(rows)
        return rows

    def settled(self, given: int) -> list[Posted]:
        """Those whose rows are all among the first so many that were given."""
        return [one for one in self._given_whole if one.end <= given]

    def settle(self, posted: Sequence[Posted]) -> None:
        """These, the first that were given, are done, and remembered by their keys."""
        with self._lock:
            for one in posted:
                self._given_whole.remove(one)
                self._unsettled.pop(one.key, None)
                self.remember(one)

    def remember(self, posted: Posted) -> None:
        """A request that is done. The oldest are forgotten."""
        posted.done = True
        if posted.key:
            self._known[posted.key] = posted
            if len(self._known) > KEYS_MOST:
                self._known.popitem(last=False)
