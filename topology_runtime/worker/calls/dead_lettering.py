"""The dead letter of a row that failed for good. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.dead_letter_messages import AGAIN_PARTITION, ROW_BYTES_MOST
from headgate.topology_runtime.wire.messages import DeadLetter, Frame, RootPart
from headgate.topology_runtime.wording import utc_of_us
from headgate.topology_runtime.worker.calls import attempts
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire

ROW_TEXT_MOST = 2000  # characters of a row in a dead letter


@dataclass(frozen=True)
class Around:
    """What a flow needs to know of the topology: names of sources by number, names of the tasks that
    feed it by edge, whether it is a sink, and the number of its task."""

    task: str
    thread: int
    sources: tuple[str, ...]
    feeders: dict[int, str]
    sink: bool
    number: int = -1


def is_replayed(around: Around, root: RootPart) -> bool:
    """Is this the root of a dead letter of this very task, sent again?"""
    return around.number >= 0 and root.partition == AGAIN_PARTITION + around.number


def dead_letter_of(
    around: Around,
    root: RootPart,
    place: tuple[int, int, int],
    row: Any,
    edge: int | None,
    failed: attempts.Failure,
) -> DeadLetter:
    """place: of the row, (root number, offset, variant). edge: by which the task got the row; None: it is one that
    the task gave on, which nobody can give to it again."""
    shape, data = bytes_of(row) if edge is not None else (0, b"")
    return DeadLetter(
        around.task,
        around.thread,
        around.sources[root.source],
        root.partition,
        root.position + place[1],
        attempts.shown(row, ROW_TEXT_MOST),
        failed.error,
        failed.traceback,
        place[2],
        around.feeders.get(edge, "") if edge is not None else "",
        shape,
        data,
        root.position if is_replayed(around, root) else 0,
    )


def dead_letter_of_key(around: Around, end: RootPart, key: Any, failed: attempts.Failure) -> DeadLetter:
    """Of a key whose `finish` failed; `end`: the word that the input has ended. No row can be sent again."""
    shown = attempts.shown(key, ROW_TEXT_MOST)
    source, which = around.sources[end.source], crc32(shown.encode()) & r.VARIANT_MASK
    return DeadLetter(
        around.task,
        around.thread,
        source,
        end.partition,
        end.position,
        f"finish of key {shown}",
        failed.error,
        failed.traceback,
        which,
    )


def dead_letter_of_timer(
    around: Around, root: RootPart, key: Any, at_us: int, failed: attempts.Failure
) -> DeadLetter:
    """Of a key whose `on_timer` failed; `root`: what it would have given. No row can be sent again."""
    return DeadLetter(
        around.task,
        around.thread,
        around.sources[root.source],
        root.partition,
        root.position,
        f"timer at {utc_of_us(at_us)} of key {attempts.shown(key, ROW_TEXT_MOST)}",
        failed.error,
        failed.traceback,
    )


def bytes_of(row: Any) -> tuple[int, bytes]:
    """(shape, bytes) of one row; none of a row that is too large."""
    try:
        shape = wire.shape_of([row])
        data = wire.write([row], shape)
    except BadRow:
        return 0, b""
    return (shape, data) if len(data) <= ROW_BYTES_MOST else (0, b"")


# ── Rows that were written for another worker and cannot travel: dead letters of the task that gave them.
# Pure


def dead_letters_of(
    frame: Frame, bad: Sequence[tuple[int, BadRow]], topology: Topology
) -> Iterator[DeadLetter]:
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
