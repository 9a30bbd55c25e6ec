"""Frames as bytes: written by the thread that made them, read by the one that takes them, so that the threads which own
the sockets only move bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.platform import clock
from headgate.topology_runtime.wire.channels import encode
from headgate.topology_runtime.wire.messages import Frame, WireFrame
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.rows.columns import Columns, chosen

ROW_BYTES_MOST = 768 * 1024
FRAME_BYTES_MOST = 1024 * 1024
PART_BYTES_MOST = FRAME_BYTES_MOST - 64 * 1024  # rows are a little smaller one by one than together
BadRows = SimpleQueue[tuple[Frame, list[tuple[int, BadRow]]]]  # a frame, and which rows of it cannot travel


def written(frame: Frame, bad_rows: BadRows, random64: Callable[[], int]) -> list[bytes]:
    """The frame on the wire, in as many parts as it needs, without the rows that cannot travel: those are told."""
    try:
        shape = wire.shape_of(frame.rows)
        body = wire.write(frame.rows, shape)
    except BadRow:
        frame = _only(frame, *wire.good_rows(frame.rows), bad_rows)
        shape = wire.shape_of(frame.rows)
        body = wire.write(frame.rows, shape)
    if len(body) > FRAME_BYTES_MOST:
        return [
            data for part in _parts(frame, bad_rows, random64) for data in written(part, bad_rows, random64)
        ]
    utc_ns = clock.HERE.ahead_ns
    bare = replace(frame, rows=[], filled_ns=frame.filled_ns + utc_ns, flushed_ns=frame.flushed_ns + utc_ns)
    return [encode(WireFrame(bare, shape, msgspec.Raw(body)))]


def _only(frame: Frame, good: Sequence[int], bad: list[tuple[int, BadRow]], bad_rows: BadRows) -> Frame:
    """The frame with its good rows; the bad ones are told."""
    if bad:
        bad_rows.put((frame, bad))
    singles = list(r.single(frame.runs))
    runs = r.joined(singles[place] for place in good)
    return replace(frame, rows=chosen(frame.rows, good), runs=runs)


def _parts(frame: Frame, bad_rows: BadRows, random64: Callable[[], int]) -> Iterator[Frame]:
    """Frames that are small enough, of all rows that one can hold. Each has all roots of the frame, under ids of its
    own; together these are the frame's id (acks.py), so the ledger hears the same."""
    sizes = _sizes(frame.rows)
    bad = [(place, _too_large(size)) for place, size in enumerate(sizes) if size > ROW_BYTES_MOST]
    good = [place for place, size in enumerate(sizes) if size <= ROW_BYTES_MOST]
    frame = _only(frame, good, bad, bad_rows)
    ends, filled = [], 0
    for at, place in enumerate(good):
        if filled + sizes[place] > PART_BYTES_MOST:
            ends.append(at)
            filled = 0
        filled += sizes[place]
    roots = frame.roots
    for start, stop in pairwise([0, *ends]):
        ids = [random64() for _ in roots]
        part = [replace(root, id=value) for root, value in zip(roots, ids, strict=True)]
        roots = [replace(root, id=root.id ^ value) for root, value in zip(roots, ids, strict=True)]
        yield replace(frame, rows=frame.rows[start:stop], runs=r.part(frame.runs, start, stop), roots=part)
    start = ends[-1] if ends else 0
    yield replace(
        frame, rows=frame.rows[start:], runs=r.part(frame.runs, start, len(frame.rows)), roots=roots
    )


def _sizes(rows: Sequence[Any]) -> list[int]:
    """Bytes of each row."""
    if not isinstance(rows, Columns):
        return [len(wire.write([row], wire.NESTED)) for row in rows]
    each = [_sizes(values) for values in rows.objects]
    return (
        [rows.row_bytes + sum(sizes) for sizes in zip(*each, strict=True)]
        if each
        else [rows.row_bytes] * len(rows)
    )


def _too_large(size: int) -> BadRow:
    return BadRow(
        f"a row of {size:,} bytes cannot travel: at most 768 KiB do",
        hint="give on where the data is, not the data, or cut it into rows",
    )


def read(message: WireFrame) -> Frame | None:
    """The frame with its rows; None when it is none: its rows cannot be read, or its runs do not name them."""
    frame = message.frame
    try:
        frame.rows = wire.read(message.rows, message.shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not r.fits(frame):
        return None
    utc_ns = clock.HERE.ahead_ns
    frame.filled_ns -= utc_ns
    frame.flushed_ns -= utc_ns
    return frame
