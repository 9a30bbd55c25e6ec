"""headgate's tasks for scripts/peers/headgate_peer.py; the functions f1, f2, f3 are those of work.py as they are."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.api.logic import Exhausted, Source, any_thread
from peers import work


class Rows(Source):
    """The first `total` rows of this work. Of W3 a row's first value is its number: when it is due the offer says."""

    def __init__(self, name: str, total: int) -> None:
        work.here()
        self._total, self._pool = total, work.events() if name == "W4" else []

    def read(self, position: int, limit: int) -> Sequence[Any]:
        if not position:
            work.begin()
        if position >= self._total:
            raise Exhausted
        many = min(limit, self._total - position)
        return work.read_events(self._pool, position, many) if self._pool else work.numbers(position, many)


@any_thread
class Parse:
    def __init__(self, library: str = "msgspec") -> None:
        self._parse = work.parser(library)

    def __call__(self, data: bytes) -> work.Event:
        return self._parse(data)


@any_thread
class Count:
    """By key, in its own object: gone with its thread."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def __call__(self, row: work.Event) -> work.Counted:
        key, counts = row[0], self._counts
        counts[key] = count = counts.get(key, 0) + 1
        return key, count


@any_thread
class Sink:
    """Writes what it has into a file once all rows are there."""

    def __init__(self, name: str, total: int, path: str) -> None:
        work.here()
        self._sink, self._left, self._path = work.SINKS[name](total), total, Path(path)

    def __call__(self, row: Any) -> None:
        self._sink(row)
        self._left -= 1
        if not self._left:
            part = self._path.with_suffix(".part")
            part.write_bytes(msgspec.json.encode(vars(self._sink)))
            os.replace(part, self._path)
