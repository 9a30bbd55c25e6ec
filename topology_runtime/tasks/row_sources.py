"""Sources that can be read again from any position: numbers for trying things out, and numbered lines."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count
from typing import Any

from headgate.topology_runtime.api.logic import Context, Exhausted, Source
from headgate.topology_runtime.connectors.files import FilesSource
from headgate.topology_runtime.errors import BadRow


class Numbered(Source):
    """Partition k of n has the numbers k, k + n, k + 2 n …"""

    _first, _stride = 0, 1

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions

    def numbers(self, position: int, limit: int) -> range:
        first = self._first + position * self._stride
        return range(first, first + limit * self._stride, self._stride)


class Counter(Numbered):
    """0, 1, 2 …: with n partitions, partition k gives k, k + n, k + 2 n … Ends before `limit` if given."""

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit

    def read(self, position: int, limit: int) -> Sequence[int]:
        numbers = self.numbers(position, limit)
        if self._limit is None:
            return numbers
        if numbers.start >= self._limit:
            raise Exhausted
        return range(numbers.start, min(numbers.stop, self._limit), numbers.step)


class FileLines(FilesSource):
    """(number, line) of each line of text files that is not blank: `FilesSource` with a number. Read once; `repeat`
    begins again at the end, with new numbers."""

    def __init__(self, path: str, repeat: bool = False, follow: bool = False) -> None:
        super().__init__(path, follow=follow, repeat=repeat, format="text")

    def read(self, position: int, limit: int) -> Sequence[Any]:
        numbers = count(self.number_of(position), self.number_of(position + 1) - self.number_of(position))
        lines = zip(numbers, super().read(position, limit), strict=False)
        return [line if isinstance(line, BadRow) else (number, line) for number, line in lines]
