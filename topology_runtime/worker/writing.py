"""Frames as bytes: written by the thread that made them, read by the one that takes them, so that the threads which own
the sockets only move bytes."""

from __future__ import annotations

from queue import SimpleQueue

import msgspec

from topology_runtime.channels import encode
from topology_runtime.clock import wall_of_monotonic_ns
from topology_runtime.errors import BadRow
from topology_runtime.messages import Frame, WireFrame
from topology_runtime.worker import rows as wire
from topology_runtime.worker import runs as r

BadRows = SimpleQueue[tuple[Frame, list[tuple[int, BadRow]]]]  # a frame, and which rows of it cannot travel


def written(frame: Frame, bad_rows: BadRows) -> bytes:
    """The frame on the wire, without the rows that cannot travel: those are told."""
    rows = frame.rows
    try:
        shape = wire.shape_of(rows)
        body = wire.write(rows, shape)
    except BadRow:
        good, bad = wire.good_rows(rows)
        bad_rows.put((msgspec.structs.replace(frame), bad))
        singles = list(r.single(frame.runs))
        frame.runs = r.joined(singles[place] for place in good)
        rows = [rows[place] for place in good]
        shape = wire.shape_of(rows)
        body = wire.write(rows, shape)
    frame.rows, utc_ns = [], wall_of_monotonic_ns()
    frame.filled_ns, frame.flushed_ns = frame.filled_ns + utc_ns, frame.flushed_ns + utc_ns
    return encode(WireFrame(frame, shape, msgspec.Raw(body)))


def read(message: WireFrame) -> Frame | None:
    """The frame with its rows; None when it is none: its rows cannot be read, or its runs do not name them."""
    frame = message.frame
    try:
        frame.rows = wire.read(message.rows, message.shape)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not r.fits(frame):
        return None
    utc_ns = wall_of_monotonic_ns()
    frame.filled_ns -= utc_ns
    frame.flushed_ns -= utc_ns
    return frame
