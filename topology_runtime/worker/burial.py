"""The dead letter of a row that failed for good. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.letters import AGAIN_PARTITION, ROW_BYTES_MOST, DeadLetter
from headgate.topology_runtime.messages import RootPart
from headgate.topology_runtime.worker import attempts
from headgate.topology_runtime.worker import rows as wire

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


def of_letter(around: Around, root: RootPart) -> bool:
    """Is this the root of a dead letter of this very task, sent again?"""
    return around.number >= 0 and root.partition == AGAIN_PARTITION + around.number


def letter_of(
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
        root.position if of_letter(around, root) else 0,
    )


def bytes_of(row: Any) -> tuple[int, bytes]:
    """(shape, bytes) of one row; none of a row that is too large."""
    try:
        shape = wire.shape_of([row])
        data = wire.write([row], shape)
    except BadRow:
        return 0, b""
    return (shape, data) if len(data) <= ROW_BYTES_MOST else (0, b"")
