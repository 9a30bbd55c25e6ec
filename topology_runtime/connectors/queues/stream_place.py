"""How far a stream of Redis was read, and what became of the rest. Pure.

A stream counts all entries that were ever added. Where it is known how many of these lie at or below the last one read,
it is known how many are left, and whether some were removed before they were read.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from headgate.topology_runtime.errors import InvalidInput

SEQUENCE_BITS = 20
SEQUENCE_MOST = (1 << SEQUENCE_BITS) - 1
OFFSET_MOST = (1 << 63) - 2
Id = tuple[int, int]  # milliseconds, sequence
BEGIN: Id = (0, 0)


def id_of(text: str | bytes) -> Id:
    """Of an entry, as `1700000000000-3` says it; ValueError."""
    word = text.decode() if isinstance(text, bytes) else text
    millis, _, sequence = word.partition("-")
    if not (millis.isdecimal() and (sequence or "0").isdecimal() and word.isascii()):
        raise ValueError(text)
    return int(millis), int(sequence or 0)


def text_of_id(at: Id) -> str:
    return f"{at[0]}-{at[1]}"


def offset_of(at: Id) -> int:
    """A whole number that rises as ids do. Raises InvalidInput for an id that has none.

    >>> offset_of((1, 2)) == (1 << 20) + 2
    True
    """
    offset = at[0] << SEQUENCE_BITS | at[1]
    if at[1] > SEQUENCE_MOST or offset > OFFSET_MOST:
        raise InvalidInput(
            f"entry {text_of_id(at)} has an id that makes no offset",
            cause=f"milliseconds below 2**43 and a sequence below 2**{SEQUENCE_BITS} fit into 64 bits",
            hint="have Redis make the ids: XADD … *",
        )
    return offset


def id_at(offset: int) -> Id:
    return offset >> SEQUENCE_BITS, offset & SEQUENCE_MOST


class StreamState(NamedTuple):
    """What XINFO STREAM says. first: of what is there; deleted: the highest that XDEL removed."""

    length: int
    added: int
    last: Id
    deleted: Id
    first: Id


NO_STREAM = StreamState(0, 0, BEGIN, BEGIN, BEGIN)


@dataclass
class StreamPlace:
    """Behind the last entry that was read. count: how many of all that were ever added lie there or below; None when
    that is not known."""

    at: Id = BEGIN
    count: int | None = None
    _given: deque[int] = field(default_factory=deque)  # offsets of rows that are not done

    def missing(self, now: StreamState) -> str | None:
        """Why what comes next is not what follows; None when it is."""
        if now.last < self.at:
            return f"its newest entry is {text_of_id(now.last)}: it was made again, or lost its end"
        if now.last == self.at:
            self.count = now.added
            return None
        if now.length and now.first <= self.at:
            return None
        removed = now.added - now.length
        if removed == self.count:
            return None
        if now.length and now.first == id_at(offset_of(self.at) + 1):  # no id lies between
            self.count = removed
            return None
        begins = f"it begins at {text_of_id(now.first)}" if now.length else "it is empty"
        if self.count is None:
            return f"{begins}; entries between may have been removed unread"
        if removed < self.count:
            return f"{begins}, and had more entries before: it was made again"
        return f"{begins}; {removed - self.count:,} entries were removed unread"

    def accept(self, now: StreamState) -> None:
        """Go on with what is there."""
        self.count = now.added - now.length if now.last > self.at else None

    def read(self, last: Id, offsets: list[int], now: StreamState) -> None:
        """These rows were given, the last of them at `last`."""
        if last == now.last:
            self.count = now.added
        elif self.count is not None:
            self.count = self.count + len(offsets) if now.deleted <= self.at else None
        self.at = last
        self._given.extend(offsets)

    def left(self, now: StreamState) -> int | None:
        """Entries behind; None when that is not known."""
        if not now.length or now.last <= self.at:
            return 0
        if now.first > self.at:
            return now.length
        return now.added - self.count if self.count is not None and now.deleted <= self.at else None

    def done(self, offset: int) -> int | None:
        """All rows below it are done: how many were ever added up to there; None when that is not known."""
        last = None
        while self._given and self._given[0] < offset:
            last = self._given.popleft()
        return self.count - len(self._given) if last == offset - 1 and self.count is not None else None
