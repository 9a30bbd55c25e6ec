"""Sample rows between the processes of a calibration: a file per task, and tasks that play it back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.logic import Source, flat_map
from headgate.topology_runtime.worker.rows import row_values as wire

Sample = tuple[str, Any]  # (task the row came from, row)


def write(path: Path, samples: Sequence[Sample]) -> None:
    """Types survive exactly, as on the wire between workers. BadRow for what is no plain value."""
    rows = [[source, row] for source, row in samples]
    shape = wire.shape_of(rows)
    path.write_bytes(bytes([shape]) + wire.write(rows, shape))


def read(path: Path) -> list[Sample]:
    data = path.read_bytes()
    return [(source, row) for source, row in wire.read(data[1:], data[0])]


class Replay(Source):
    """A file of sample rows again and again. tagged: rows are (source task, row), for `Only`."""

    def __init__(self, path: str, tagged: bool = False) -> None:
        samples = read(Path(path))
        self._rows = [[source, row] for source, row in samples] if tagged else [row for _, row in samples]

    def read(self, position: int, limit: int) -> Sequence[Any]:
        count = len(self._rows)
        return [self._rows[number % count] for number in range(position, position + limit)]


class Only:
    """Of rows (source task, row), the rows of one source."""

    __headgate_kind__ = "flat_map"  # as `logic.flat_map` would set it

    def __init__(self, source: str) -> None:
        self._source = source

    def __call__(self, tagged: Sequence[Any]) -> Iterable[Any]:
        return (tagged[1],) if tagged[0] == self._source else ()


def hand_on(row: Any) -> Any:
    """A task that does nothing."""
    return row


@flat_map
def swallow(row: Any) -> Iterable[Any]:
    """A sink that does nothing."""
    return ()
