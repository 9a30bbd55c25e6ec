"""A frame is written by who made it and read by who takes it: rows, runs and times come back; nothing else passes."""

from __future__ import annotations

import functools
import operator
import random
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest

from headgate.topology_runtime.channels import encode
from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import Frame, RootKey, RootPart, Tuples, WireFrame
from headgate.topology_runtime.worker import rows as wire
from headgate.topology_runtime.worker import runs as r
from headgate.topology_runtime.worker.writing import ROW_BYTES_MOST, BadRows, read, written

HOME = Slot("vm", 0)


def frame(rows: list[Any], runs: list[tuple[int, int, int, int]] | None = None) -> Frame:
    root = RootPart(RootKey(1, 1, 0, 0), HOME, 0, 2, 100, 0, 0, 7)
    return Frame(3, 1, HOME, 1, 5, [root], runs or [(0, 0, len(rows), 9)], rows, 1_000, 2_000)


random64 = partial(random.Random(7).getrandbits, 64)


def only(parts: list[bytes]) -> bytes:
    (part,) = parts
    return part


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
    found = read(heard(only(written(frame(list(rows)), bad, random64))))
    assert found is not None and found.rows == rows and found.runs == [(0, 0, len(rows), 9)]
    assert bad.empty() and found.flushed_ns - found.filled_ns == 1_000
    assert abs(found.filled_ns - 1_000) < 10_000_000_000, "times are of this process again"


@pytest.mark.parametrize("seed", range(8))
def test_a_large_frame_goes_in_parts_that_are_together_what_it_was(seed: int) -> None:
    """Rows, whose they are, and the ids by which its ledger knows it."""
    numbers = random.Random(seed)
    sizes = [
        numbers.choice([10, 200_000, 700_000, ROW_BYTES_MOST + 1]) for _ in range(numbers.randint(6, 14))
    ]
    rows: list[Any] = [(place, b"x" * size) for place, size in enumerate(sizes)]
    half = len(rows) // 2
    sent = frame(rows, [(0, 0, half, 9), (1, 40, len(rows) - half, 11)])
    sent.roots.append(RootPart(RootKey(1, 1, 1, 0), HOME, 0, 2, 200, 0, 0, 0xABCDEF, [0]))
    ids = [root.id for root in sent.roots]
    bad: BadRows = SimpleQueue()
    parts = [part for data in written(sent, bad, random64) if (part := read(heard(data))) is not None]
    whole = [place for place, size in enumerate(sizes) if size < ROW_BYTES_MOST]
    assert [row[0] for part in parts for row in part.rows] == whole
    places = [*((0, at, 9) for at in range(half)), *((1, 40 + at, 11) for at in range(len(rows) - half))]
    assert [one for part in parts for one in r.single(part.runs)] == [places[place] for place in whole]
    for number, value in enumerate(ids):
        assert functools.reduce(operator.xor, (part.roots[number].id for part in parts)) == value
    assert all(
        part.roots[1].along == [0] and sum(len(row[1]) for row in part.rows) <= 1 << 20 for part in parts
    )
    told = [] if bad.empty() else [place for place, _ in bad.get_nowait()[1]]
    assert told == [place for place in range(len(rows)) if place not in whole]


def test_rows_that_cannot_travel_are_told_and_the_others_keep_their_places() -> None:
    bad: BadRows = SimpleQueue()
    found = read(heard(only(written(frame([1, {2}, 3, object(), 5]), bad, random64))))
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
