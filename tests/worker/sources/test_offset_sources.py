"""A source with offsets: what it gave and is not done is held; where to go on from is told along with positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from line_of_threads import line_of

from headgate.controller.knowledge.knowledge import SourceKnown
from headgate.topology_runtime.api.logic import Exhausted, OffsetSource
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.messages import SourceStatus
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.process import source_thread
from headgate.topology_runtime.worker.sources import read_ahead
from headgate.topology_runtime.worker.sources.read_ahead import NO_OFFSET, ReadAhead

# ── Rows by position, offsets by row ────────────────────────────────────────────────────────────────


def log(count: int, first: int = 0) -> list[tuple[int, str]]:
    """Rows at offsets with holes."""
    return [(3 * n + n % 2, f"row {n}") for n in range(first, first + count)]


@given(
    st.integers(0, 50),
    st.lists(st.integers(1, 9), max_size=8),
    st.lists(st.integers(0, 60), max_size=8),
    st.integers(0, 12),
)
def test_whoever_goes_on_from_a_known_place_gives_the_same_rows_at_the_same_positions(
    position: int, reads: list[int], acks: list[int], beside: int
) -> None:
    """beside: how far behind the known position a successor begins."""
    ahead = ReadAhead(position)
    at = 0
    for number in reads:
        ahead.append(log(number, at), [1] * number)
        at += number
    for done in acks:
        ahead.done_below(position + done)
    rows = {position + n: row for n, (_, row) in enumerate(log(at))}
    assert ahead.read(ahead.acked, 100) == [rows[p] for p in range(ahead.acked, ahead.end)]
    offset = ahead.offset_at(ahead.acked)
    if offset == NO_OFFSET:
        assert ahead.acked == position
        return
    start = min(ahead.end, ahead.acked + beside)
    again = ReadAhead(start, offset, start - ahead.acked)
    rest = [one for one in log(at) if one[0] >= offset]
    again.append(rest, [1] * len(rest))
    assert again.end == ahead.end and again.read(start, 100) == [rows[p] for p in range(start, ahead.end)]
    assert again.next_offset == ahead.next_offset
    if start < again.end:
        assert again.offset_at(start) in (ahead.offset_at(start), NO_OFFSET)


@pytest.mark.parametrize("offsets", [[3, 3], [5, 4], [-1], [True], ["7"], [1.0], [1 << 63]])
def test_offsets_that_do_not_rise_are_refused_whole(offsets: list[Any]) -> None:
    ahead = ReadAhead(0)
    ahead.append([(0, "a")], [1])
    with pytest.raises(ValueError, match="offsets are whole numbers that rise"):
        ahead.append([(offset, "b") for offset in offsets], [1] * len(offsets))
    assert (ahead.end, ahead.next_offset) == (1, 1)


def test_what_cannot_be_read_keeps_its_place_and_what_is_held_is_bounded() -> None:
    ahead = ReadAhead(7)
    ahead.append([(0, "a"), (1, object()), (2, BadRow("torn")), (3, {"b": (1, 2)})], [1, 2, 3, 4])
    a, _, torn, b = ahead.read(7, 10)
    assert (a, b) == ("a", {"b": (1, 2)}) and torn.what == "torn"
    assert [ahead.arrived_ns(p) for p in range(7, 11)] == [1, 2, 3, 4]
    number = 4
    while not ahead.full:
        ahead.append([(number, "x" * (1 << 20))], [1])
        number += 1
    assert number < 64 + 33
    ahead.done_below(ahead.end)
    assert not ahead.full and ahead.read(ahead.acked, 10) == []


@pytest.mark.parametrize(
    "odd", [BadRow("torn"), object(), ValueError("no JSON"), 1 << 70, {"a": {1: object()}}]
)
def test_what_cannot_be_read_may_stand_anywhere(odd: Any) -> None:
    """Also where a row is looked at for how large it is."""
    ahead = ReadAhead(0)
    ahead.append([(n, odd if n % 3 == 0 else n) for n in range(100)], [1] * 100)
    assert ahead.read(0, 100) == [odd if n % 3 == 0 else n for n in range(100)]


# ── What others are told of it ──────────────────────────────────────────────────────────────────────


def test_positions_and_offsets_that_do_not_fit_are_not_read_from_a_meter() -> None:
    """Words of the one before among them: it was read while it was written."""
    before, after = ((5, 20), (9, 40)), ((6, 22), (12, 44))
    words = [0] * mt.FIELDS
    for pairs, found in ((before, before), (((3, 0), (9, 40)), ((9, 40),))):
        words[mt.SOURCE_OFFSETS : mt.SOURCE_OFFSETS + 6] = mt.offset_words(*pairs)
        assert mt.offsets_in(words, 0) == found
    old, new = list(mt.offset_words(*before)), list(mt.offset_words(*after))
    for torn in range(1, 6):
        words[mt.SOURCE_OFFSETS : mt.SOURCE_OFFSETS + 6] = new[:torn] + old[torn:]
        assert set(mt.offsets_in(words, 0)) <= {*before, *after}


def status(emitted: int, acked: int, *offsets: tuple[int, int]) -> SourceStatus:
    return SourceStatus("source", 0, 1, emitted, acked, 0, emitted - acked, 0, offsets=offsets)


def test_a_successor_goes_on_from_the_nearest_offset_that_is_known_below() -> None:
    known = SourceKnown()
    assert known.go_on_from(0) == (0, 0)
    known.hear(status(10, 4, (4, 40), (10, 100)))
    assert known.go_on_from(4) == (40, 0) and known.go_on_from(10) == (100, 0)
    assert known.go_on_from(7) == (40, 3), "three rows are passed over"
    known.hear(status(30, 20, (20, 200)))
    assert known.go_on_from(20) == (200, 0) and known.go_on_from(30) == (200, 10)
    assert known.go_on_from(12) == (0, 0), "below what is done nobody begins"
    known.hear(status(30, 25, (99, 990), (-1, 7), (25, -3)))
    assert known.go_on_from(30) == (200, 10), "what cannot be is not believed"
    for at in range(31, 300):
        known.hear(status(at, 25, (at, 10 * at)))
    assert (
        len(known.offsets) < 100 and known.go_on_from(25) == (200, 5) and known.go_on_from(299) == (2990, 0)
    )


def test_offsets_outlive_a_controller() -> None:
    from headgate.controller.knowledge.knowledge import RunCounts
    from headgate.controller.knowledge.run_tallies import Tallies

    counts = RunCounts()
    counts.source("source", 0).hear(status(10, 4, (4, 40), (10, 100)))
    kept = msgspec.json.decode(msgspec.json.encode(counts.tallies(1)), type=Tallies)
    later = RunCounts()
    later.recall(kept)
    assert later.source("source", 0).go_on_from(10) == (100, 0)


# ── Its thread ──────────────────────────────────────────────────────────────────────────────────────


class Odd(OffsetSource[Any]):
    """A row, what is none, one that cannot be read, a row."""

    def __init__(self) -> None:
        self.given = False

    def seek(self, offset: int | None) -> None: ...

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        rows, self.given = [] if self.given else [0, object(), BadRow("torn"), 1], True
        return list(enumerate(rows))


class Topic(OffsetSource[Any]):
    """Twenty rows; calls: what it was asked. broken: so many more polls fail; commits: so many more commits."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.next, self.broken, self.commits = 0, 0, 0

    def seek(self, offset: int | None) -> None:
        self.calls.append(("seek", offset))
        self.next = offset or 0

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        first, self.next = self.next, min(20, self.next + 8)
        if self.broken:
            self.broken -= 1
            raise ConnectionError("the broker is away")
        return [(n, n) for n in range(first, self.next)]

    def done(self, offset: int) -> None:
        if self.commits:
            self.commits -= 1
            raise ConnectionError("not now")
        self.calls.append(("done", offset))

    def lag(self) -> int:
        return 20 - self.next


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("RETRY_NS", "COMMIT_NS", "LOOK_SOON_NS"):
        monkeypatch.setattr(source_thread, name, 0)
    yield line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Topic)["numbers"].work  # type: ignore[arg-type]


def turns(work: Any, number: int = 12) -> Topic:
    for _ in range(number):
        work.turn()
    topic = work.thread.logic
    assert isinstance(topic, Topic)
    return topic


def test_a_source_is_sought_read_committed_and_asked_for_its_lag(work: Any) -> None:
    topic = turns(work, 1)
    assert topic.calls[0] == ("seek", None)
    now = work.source_now()
    assert now.arrived == 20, "what is still at the broker has come, too"
    turns(work)
    now = work.source_now()
    assert (now.emitted, now.acked) == (20, 20) and (20, 20) in now.offsets
    work.kept(20)
    turns(work, 1)
    assert topic.calls[-1] == ("done", 20) and [one for one, _ in topic.calls].count("seek") == 1


def test_only_what_the_controller_keeps_is_done(work: Any) -> None:
    """The VM may be lost while no controller is there: what a later one does not know is read again."""
    topic = turns(work)
    assert work.source_now().acked == 20 and ("seek", None) in topic.calls
    assert "done" not in [call for call, _ in topic.calls]
    for kept in (8, 5, 20, 99):
        work.kept(kept)
        turns(work, 2)
    assert [offset for call, offset in topic.calls if call == "done"] == [8, 20]


def test_who_goes_on_from_an_offset_may_let_go_what_is_before_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_thread, "COMMIT_NS", 0)
    line = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Topic, offset=6)  # type: ignore[arg-type]
    topic = turns(line["numbers"].work)
    assert topic.calls == [("seek", 6), ("done", 6)]


def test_while_no_more_is_taken_it_is_asked_for_its_lag_all_the_same(
    work: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sink stands still, and what waits at the broker grows."""
    topic = turns(work, 1)
    monkeypatch.setattr(read_ahead, "HELD_ROWS_MOST", 0)
    monkeypatch.setattr(topic, "lag", lambda: 1_000)
    given = topic.next
    turns(work)
    assert (topic.next, work.source_now().arrived) == (given, given + 1_000)


def test_after_an_error_it_is_sought_again_where_it_was_and_no_row_is_left_out(work: Any) -> None:
    topic = turns(work, 1)
    topic.broken = 1
    turns(work)
    assert [call for call in topic.calls if call[0] == "seek"] == [("seek", None), ("seek", 8)]
    assert work.source_now().acked == 20 and not work.unreadable


def test_a_commit_that_fails_is_said_and_made_again(work: Any) -> None:
    topic = turns(work, 0)
    topic.commits = 2
    work.kept(20)
    turns(work, 1)
    turns(work, 14)
    assert topic.calls[-1] == ("done", 20)


def test_what_is_no_row_and_what_cannot_be_read_are_dead_letters_and_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Odd)["numbers"]  # type: ignore[arg-type]
    letters: list[str] = []
    monkeypatch.setattr(thread.records, "_letters", lambda letter: letters.append(letter.error))
    work: Any = thread.work
    for _ in range(6):
        work.turn()
    assert work.source_now().acked == 4 and (4, 4) in work.source_now().offsets
    assert len(letters) == 2 and any("torn" in one for one in letters)


class Beside(Topic):
    """Its `done` and `lag` fail for good; it gives as many rows as there are, and says behind them that it is over."""

    def poll(self, limit: int) -> Any:
        first, self.next = self.next, 3000
        yield from ((n, n) for n in range(first, 3000))
        raise Exhausted

    def done(self, offset: int) -> None:
        raise Exhausted

    def lag(self) -> int:
        raise SystemExit


def test_what_fails_beside_reading_is_said_once_and_stays_an_alarm_while_all_rows_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("RETRY_NS", "COMMIT_NS", "LOOK_SOON_NS"):
        monkeypatch.setattr(source_thread, name, 0)
    line = line_of(tmp_path, dict.fromkeys(range(1, 5), 1e5), Beside)  # type: ignore[arg-type]
    work = line["numbers"].work
    work.kept(3000)
    for _ in range(100):
        for thread in line.values():
            thread.inbox.put(None)
            thread.work.turn()
    source = work.source_now()
    assert source is not None and (source.emitted, source.acked) == (3000, 3000)
    told = [line for line in capfd.readouterr().err.splitlines() if "tried again" in line]
    assert len(told) == 2 and "fails in lag(): SystemExit" in told[0]
    assert "fails in done(): Exhausted" in told[1] and "test_offset_sources.py:" in told[1]
    assert work.unreadable.startswith("fails in lag(): SystemExit")
