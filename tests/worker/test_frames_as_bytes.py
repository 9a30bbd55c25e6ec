"""A frame is written by who made it and read by who takes it: rows, runs and times come back; nothing else passes."""

from __future__ import annotations

from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from topology_runtime.channels import encode
from topology_runtime.cluster import Slot
from topology_runtime.messages import Frame, RootKey, RootPart, Tuples, WireFrame
from topology_runtime.worker import rows as wire
from topology_runtime.worker.writing import BadRows, read, written

HOME = Slot("vm", 0)


def frame(rows: list[Any], runs: list[tuple[int, int, int, int]] | None = None) -> Frame:
    root = RootPart(RootKey(1, 1, 0, 0), HOME, 0, 2, 100, 0, 0, 7)
    return Frame(3, 1, HOME, 1, 5, [root], runs or [(0, 0, len(rows), 9)], rows, 1_000, 2_000)


def heard(data: bytes) -> WireFrame:
    message = msgspec.msgpack.Decoder(Tuples).decode(data)
    assert isinstance(message, WireFrame)
    return message


@pytest.mark.parametrize(
    "rows",
    [
        [1, "a", None],
        [(1, 2.5, "x"), (2, 0.5, "y")],
        [{"a": [1, (2, b"z")], "t": datetime(2026, 1, 2, tzinfo=UTC)}],
    ],
)
def test_what_was_written_is_read(rows: list[Any]) -> None:
    bad: BadRows = SimpleQueue()
    found = read(heard(written(frame(list(rows)), bad)))
    assert found is not None and found.rows == rows and found.runs == [(0, 0, len(rows), 9)]
    assert bad.empty() and found.flushed_ns - found.filled_ns == 1_000
    assert abs(found.filled_ns - 1_000) < 10_000_000_000, "times are of this process again"


def test_rows_that_cannot_travel_are_told_and_the_others_keep_their_places() -> None:
    bad: BadRows = SimpleQueue()
    found = read(heard(written(frame([1, {2}, 3, object(), 5]), bad)))
    assert found is not None and found.rows == [1, 3, 5]
    assert found.runs == [(0, 0, 1, 9), (0, 2, 1, 9), (0, 4, 1, 9)]
    told, which = bad.get_nowait()
    assert [place for place, _ in which] == [1, 3] and len(told.rows) == 5


@pytest.mark.parametrize(
    ("rows", "shape", "runs"),
    [
        (encode([1, 2]), wire.PLAIN, [(0, 0, 3, 0)]),  # fewer rows than it says
        (encode([1, 2]), wire.PLAIN, [(0, 0, 1, 0)]),  # more
        (encode([1, 2]), wire.PLAIN, [(1, 0, 2, 0)]),  # of a root that is not there
        (encode([1, 2]), 7, [(0, 0, 2, 0)]),
        (encode({"a": 1}), wire.PLAIN, [(0, 0, 1, 0)]),
        (b"\xc1", wire.NESTED, [(0, 0, 1, 0)]),
        (encode([1]), wire.TUPLES, [(0, 0, 1, 0)]),
        (b"\x91" * 5000 + b"\x01", wire.NESTED, [(0, 0, 1, 0)]),
    ],
)
def test_what_is_no_frame_is_none(rows: bytes, shape: int, runs: list[tuple[int, int, int, int]]) -> None:
    made = frame([], runs)
    assert read(WireFrame(made, shape, msgspec.Raw(rows))) is None
