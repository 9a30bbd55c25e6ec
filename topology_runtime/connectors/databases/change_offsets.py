"""Offsets of changes, and up to where a replication slot may forget. Pure.

Changes come in the order of commits. The offset of one is the LSN of its transaction's record of commit, or one more
than the last, whichever is greater: it rises, though a transaction has many rows. So that a replay gives the same
offsets, it has to begin where no transaction before reaches beyond: only such a place is ever confirmed. Each row costs
more bytes of the log than one, so such places come soon behind any transaction.

A place that is confirmed says which row came last before it: records begin at multiples of 8 and those of commits are
longer than 32 bytes, so its last five bits are free. Who goes on behind a row and finds a slot that was confirmed
behind it sees whether rows are missing: those of a slot that was made anew, or moved by hand, are multiples of 8.
"""

from __future__ import annotations

from collections import deque

ROOM = 32
CODES = [code for code in range(ROOM) if code % 8][:23]  # a prime number of them


def code_of(row: int) -> int:
    """What the last bits of a place say of the row before it, by its offset.

    >>> code_of(100), code_of(101)
    (10, 11)
    """
    return CODES[row % len(CODES)]


def is_behind(place: int, row: int) -> bool:
    """Does a confirmed place say that this row came last before it?

    >>> is_behind(10 + 32 * 4, 100), is_behind(10 + 32 * 4, 101), is_behind(128, 100)
    (True, False, False)
    """
    return place > row and place % ROOM == code_of(row)


class ChangeOffsets:
    """Of one stream, from the place that the slot has confirmed.

    >>> offsets = ChangeOffsets()
    >>> [offsets.offset(100), offsets.offset(100), offsets.offset(100)]
    [100, 101, 102]
    >>> offsets.passed(102), offsets.confirmed(103)  # the rows reach up to there
    (None, 0)
    >>> offsets.passed(140), offsets.confirmed(102), offsets.confirmed(103), is_behind(offsets.confirmed(103), 102)
    (None, 0, 140, True)
    """

    def __init__(self) -> None:
        self.last = 0  # offset that was given last
        self._places: deque[tuple[int, int]] = deque()  # to confirm, and the row before
        self._confirmed = 0

    def offset(self, commit: int) -> int:
        """Of the next row, whose transaction's record of commit is there."""
        self.last = max(commit, self.last + 1)
        return self.last

    def passed(self, lsn: int) -> None:
        """All that committed before this place has come."""
        place = lsn - (lsn - code_of(self.last)) % ROOM
        if place <= self.last or (self._places and place <= self._places[-1][0]):
            return
        if self._places and self._places[-1][1] == self.last:
            self._places.pop()
        self._places.append((place, self.last))

    def confirmed(self, offset: int) -> int:
        """Up to where all is done, when the rows below this offset are; 0: nowhere yet. Never goes back."""
        while self._places and self._places[0][1] < max(offset, 1):
            self._confirmed = self._places.popleft()[0]
        return self._confirmed
