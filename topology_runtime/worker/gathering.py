"""Frames that wait for a batched task, taken together: the more wait, the more rows are in a call. Pure.

Taking frames is one event then, with one ack for each root of theirs: it cancels all the ids that they came with, and
adds the shares of what goes out (acks.py). No id goes out for a part of them, so none is shared between them [A1].
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from headgate.topology_runtime.messages import Frame, RootKey, RootPart, WireFrame
from headgate.topology_runtime.worker.batches import joined
from headgate.topology_runtime.worker.runs import Run


def rows_in(sent: Frame | WireFrame) -> int:
    """Without reading them."""
    frame = sent.frame if isinstance(sent, WireFrame) else sent
    return sum(run[2] for run in frame.runs)


def edge_of(sent: Frame | WireFrame) -> int:
    return sent.frame.edge if isinstance(sent, WireFrame) else sent.edge


def gathered(frames: Sequence[Frame]) -> Frame:
    """One frame with the rows of all of these, which came by one edge. A root of several has the XOR of its ids."""
    if len(frames) == 1:
        return frames[0]
    roots: list[RootPart] = []
    runs: list[Run] = []
    places: dict[RootKey, int] = {}
    for frame in frames:
        numbers = [_place(root, roots, places) for root in frame.roots]
        for root, number in zip(frame.roots, numbers, strict=True):
            along = roots[number].along
            along += [numbers[other] for other in root.along if numbers[other] not in along]
        runs += [(numbers[number], at, count, way) for number, at, count, way in frame.runs]
    return replace(frames[0], roots=roots, runs=runs, rows=joined([frame.rows for frame in frames]))


def _place(root: RootPart, roots: list[RootPart], places: dict[RootKey, int]) -> int:
    """The number of this root in the whole."""
    number = places.setdefault(root.key, len(roots))
    if number == len(roots):
        roots.append(replace(root, along=[]))
    else:
        known = roots[number]
        known.id ^= root.id
        known.floor = max(known.floor, root.floor)
    return number
