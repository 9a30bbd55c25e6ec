"""The order in which files of a folder were seen first, kept beside them: a listing changes, this does not.

    _headgate/order-KEY/00000006  files of the entries behind 4 up to 6, and how many came before

Entries are numbered from 1 on, and each is made once (`create`), by whichever reader sees new files first. Entry n has
all files of the last lowbit(n) entries: 1, 2, 4, 8 …, so that whoever opens it reads log2(n) of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from headgate.topology_runtime.connectors.lake.stores import FolderStore


class OrderedFile(NamedTuple):
    """A file as it was when it was seen to be whole."""

    name: str
    size: int
    mtime_s: float
    version: str


class Entry(msgspec.Struct, frozen=True):
    first: int  # number of its first file
    files: list[OrderedFile]


def since(entry: int) -> int:
    """The entry behind which this one's files begin.

    >>> [since(n) for n in range(1, 9)]
    [0, 0, 2, 0, 4, 4, 6, 0]
    """
    return entry & (entry - 1)


def whole(entry: int) -> list[int]:
    """Entries that hold all files up to this one, the first files first.

    >>> whole(7), whole(8)
    ([4, 6, 7], [8])
    """
    found = []
    while entry:
        found.append(entry)
        entry = since(entry)
    return found[::-1]


class FileOrder:
    """files: in their order, as far as it was read."""

    def __init__(self, store: FolderStore, folder: str) -> None:
        self._store, self._folder = store, folder
        self.files: list[OrderedFile] = []
        self.number_of: dict[str, int] = {}
        self._ends = {0: 0}  # entry → how many files there are up to it; of those that others will build on

    @property
    def _entry(self) -> int:
        return max(self._ends)

    def catch_up(self) -> None:
        """Read what was added since."""
        if not self._entry:
            for number in whole(self._last()):
                self._read(number)
        while self._read(self._entry + 1):
            pass

    def add(self, files: Sequence[OrderedFile]) -> bool:
        """At the end, in this order. False when another reader was faster: catch up, and leave out what it has."""
        number = self._entry + 1
        first = self._ends[since(number)]
        entry = Entry(first, [*self.files[first:], *files])
        if not self._store.create(self._name(number), msgspec.json.encode(entry)):
            return False
        self._take(number, entry)
        return True

    def _last(self) -> int:
        """The newest entry; there are no holes."""
        above = 1
        while self._store.seen(self._name(above)) is not None:
            above *= 2
        there = above // 2
        while above - there > 1:
            middle = (there + above) // 2
            if self._store.seen(self._name(middle)) is not None:
                there = middle
            else:
                above = middle
        return there

    def _read(self, number: int) -> bool:
        data = self._store.read(self._name(number))
        if data is None:
            return False
        self._take(number, msgspec.json.decode(data, type=Entry))
        return True

    def _take(self, number: int, entry: Entry) -> None:
        for file in entry.files[len(self.files) - entry.first :]:
            self.number_of[file.name] = len(self.files)
            self.files.append(file)
        ends = self._ends | {number: len(self.files)}
        self._ends = {0: 0} | {one: ends[one] for one in whole(number)}

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:08}"
