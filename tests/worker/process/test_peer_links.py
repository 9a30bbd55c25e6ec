"""What leaves a worker keeps the order in which each thread gave it, whoever writes it to the socket: real sockets, and
threads that give at once.
"""

from __future__ import annotations

import functools
import operator
import random
import threading
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE_S

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.keys.curve import new_pair
from headgate.topology_runtime.keys.key_pairs import KeyGuard, Who, contact_at
from headgate.topology_runtime.wire.channels import PullChannel, PushChannel, encode
from headgate.topology_runtime.wire.messages import Frame, RootKey, RootPart, Tuples, WireFrame
from headgate.topology_runtime.worker.links.frame_encoding import (
    PART_BYTES_MOST,
    ROW_BYTES_MOST,
    BadRows,
    read,
    written,
)
from headgate.topology_runtime.worker.links.peer_links import Outbox
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.process.task_thread import SPENT_MOST_NS, spent_ns
from headgate.topology_runtime.worker.rows import row_runs as r
from headgate.topology_runtime.worker.rows import row_values as wire

PEER, NOBODY = Slot("vm", 1), Slot("vm", 2)
GIVERS, EACH = 4, 2000


@pytest.fixture
def ends() -> Iterator[tuple[Outbox, PullChannel]]:
    own, mine = new_pair(), new_pair()
    pull = PullChannel(KeyGuard(own, {mine.public: Who("worker", "one")}.get))
    out = Outbox()
    out.peers[PEER] = push = PushChannel(contact_at(pull.endpoint, mine))
    yield out, pull
    push.close(linger_ms=0)
    push.watch.close(linger_ms=0)
    pull.close(linger_ms=0)


def waiting(out: Outbox) -> list[object]:
    with out.taken(100) as items:
        return [what for _, what in items]


def test_what_finds_nothing_waiting_leaves_at_once(ends: tuple[Outbox, PullChannel]) -> None:
    out, pull = ends
    out.send(PEER, "at once", str.encode)
    assert pull.wait_for_bytes(5.0) == b"at once" and waiting(out) == []
    out.put((PEER, b"waits"))
    out.send(PEER, "behind it", str.encode)
    out.put((None, "an order"))
    assert waiting(out) == [b"waits", "behind it", "an order"]
    out.send(NOBODY, b"nobody is connected")
    assert waiting(out) == [b"nobody is connected"]


def test_what_a_thread_gives_while_others_write_waits(ends: tuple[Outbox, PullChannel]) -> None:
    out, _ = ends
    with out.taken(100):
        out.send(PEER, b"meanwhile")
    assert waiting(out) == [b"meanwhile"]


def test_more_than_is_taken_at_once_wakes_the_sender_again(ends: tuple[Outbox, PullChannel]) -> None:
    out, _ = ends
    for n in range(3):
        out.put((PEER, n))
    seen: list[object] = []

    def take() -> None:
        for _ in range(2):
            out.wait()
            with out.taken(2) as items:
                seen.extend(what for _, what in items)

    taker = threading.Thread(target=take, daemon=True)
    taker.start()
    taker.join(5.0)
    assert seen == [0, 1, 2]


def test_each_threads_order_is_kept_by_threads_that_give_at_once(ends: tuple[Outbox, PullChannel]) -> None:
    """Every seventh is put, so others come while some wait."""
    out, pull = ends

    def give(giver: int) -> None:
        for n in range(EACH):
            data = giver.to_bytes(1, "big") + n.to_bytes(4, "big")
            if n % 7 == giver:
                out.put((PEER, data))
            else:
                out.send(PEER, data)

    def write() -> None:
        over = False
        while not over:
            out.wait()
            with out.taken(16) as items:
                for slot, what in items:
                    over = over or slot is None
                    if slot is not None:
                        out.peers[slot].send_bytes(what)

    sender = threading.Thread(target=write, daemon=True)
    givers = [threading.Thread(target=give, args=(n,)) for n in range(GIVERS)]
    for thread in (sender, *givers):
        thread.start()
    for thread in givers:
        thread.join()
    out.put((None, None))
    sender.join(PATIENCE_S)
    assert not sender.is_alive(), "it was not woken"
    came: dict[int, list[int]] = defaultdict(list)
    for _ in range(GIVERS * EACH):
        data = pull.wait_for_bytes(5.0)
        assert data is not None
        came[data[0]].append(int.from_bytes(data[1:5], "big"))
    assert came == {giver: list(range(EACH)) for giver in range(GIVERS)}


# ── A frame is written by who made it and read by who takes it: rows, runs and times come back; nothing
# else passes

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
    heavy = [[len(row[1]) for row in part.rows] for part in parts]
    assert all(sum(one) + other[0] > PART_BYTES_MOST * 0.99 for one, other in pairwise(heavy)), (
        "no more parts"
    )
    told = [] if bad.empty() else [place for place, _ in bad.get_nowait()[1]]
    assert told == [place for place in range(len(rows)) if place not in whole]


def test_rows_that_cannot_travel_are_told_and_the_others_keep_their_places() -> None:
    bad: BadRows = SimpleQueue()
    found = read(heard(only(written(frame([1, 2j, 3, object(), 5]), bad, random64))))
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


# ── Frames that name what this topology does not have are refused before a task thread sees them ────────

SLOT = Slot("vm1", 0)


def strange_frame(edge: int, source: int) -> Frame:
    root = RootPart(RootKey(1, 1, 0, 0), SLOT, source, 0, 0, 0, 0, 7)
    return Frame(edge, 1, SLOT, 1, 2, [root], [(0, 0, 1, 0)], ["row"], 0, 0)


@pytest.mark.parametrize(
    ("edge", "source", "known"), [(0, 0, True), (1, 0, True), (2, 0, False), (-1, 0, False), (0, 1, False)]
)
def test_edges_and_sources_are_checked(edge: int, source: int, known: bool) -> None:
    board = Switchboard(SLOT, 1)
    assert board.knows(strange_frame(edge, source)), (
        "before the topology is known, frames wait for their threads"
    )
    board.topology_size = (2, 1)
    assert board.knows(strange_frame(edge, source)) is known


# ── What a peer says of times is added up in 64 bits: whatever it says, the sum stays a number that fits ───

TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


@given(TIMES, TIMES)
def test_no_time_is_negative_or_longer_than_an_hour(begin_ns: int, end_ns: int) -> None:
    spent = spent_ns(begin_ns, end_ns)
    assert 0 <= spent <= SPENT_MOST_NS
    assert spent == end_ns - begin_ns or not 0 <= end_ns - begin_ns <= SPENT_MOST_NS


def test_two_million_lies_fit_into_a_word() -> None:
    assert 2_000_000 * SPENT_MOST_NS < 1 << 63
