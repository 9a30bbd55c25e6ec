"""Rows that were written for another worker and cannot travel: dead letters of the task that gave them. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.messages import DeadLetter, Frame
from headgate.topology_runtime.topology import Topology
from headgate.topology_runtime.worker import attempts
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.burial import ROW_TEXT_MOST


def letters_of(frame: Frame, bad: Sequence[tuple[int, BadRow]], topology: Topology) -> Iterator[DeadLetter]:
    """One for each of these rows of the frame, (place, why)."""
    singles = list(r.single(frame.runs))
    for place, error in bad:
        number, offset, _ = singles[place]
        root = frame.roots[number]
        failed = attempts.failure(place, error)
        yield DeadLetter(
            topology.edges[frame.edge].source,
            frame.sender,
            topology.sources[root.source].name,
            root.partition,
            root.position + offset,
            repr(frame.rows[place])[:ROW_TEXT_MOST],
            failed.error,
            failed.traceback,
        )
