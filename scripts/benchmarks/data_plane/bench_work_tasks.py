"""Tasks of the benchmark W4 (`bench_work.py`); the work itself is in scripts/peers/work.py."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from headgate.topology_runtime.api.logic import Exhausted, Source, any_thread
from peers import work


class Events(Source):
    """The first `total` events."""

    def __init__(self, total: int) -> None:
        self._total, self._pool = total, work.events()

    def read(self, position: int, limit: int) -> Sequence[bytes]:
        if position >= self._total:
            raise Exhausted
        return work.read_events(self._pool, position, min(limit, self._total - position))


@any_thread
class Last:
    """The sink: writes the newest count of each user to a file when it has had `total` rows."""

    def __init__(self, total: int, path: str) -> None:
        self._left, self._path, self._sink = total, Path(path), work.LastCounts()

    def __call__(self, row: work.Counted) -> None:
        self._sink(row)
        self._left -= 1
        if not self._left:
            part = self._path.with_suffix(".part")
            part.write_text(json.dumps(self._sink.counts))
            os.replace(part, self._path)
