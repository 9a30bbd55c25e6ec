"""Tallies survive a kill, and a file that does not read costs nothing but counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from headgate.controller.files.run_state_files import TallyFile
from headgate.controller.knowledge.knowledge import RunCounts
from headgate.controller.knowledge.run_tallies import SourceTally, Tallies
from headgate.topology_runtime.latency.latency_buckets import lowest_ns
from headgate.topology_runtime.wire.messages import DeadLetter, SourceStatus

TALLIES = Tallies(
    5, (SourceTally("source", 0, 10, 7, 8, 3),), (("sink", "source", (0, 4)),), (("source", 0, 2),)
)


def test_what_was_kept_is_read(tmp_path: Path) -> None:
    store = TallyFile(tmp_path / "tallies.bin")
    assert store.read() is None
    store.keep(TALLIES)
    assert store.read() == TALLIES


@pytest.mark.parametrize("keep", [0, 3, 10])
def test_a_torn_file_is_no_tallies(tmp_path: Path, keep: int) -> None:
    store = TallyFile(tmp_path / "tallies.bin")
    store.keep(TALLIES)
    data = (tmp_path / "tallies.bin").read_bytes()
    (tmp_path / "tallies.bin").write_bytes(data[:keep])
    assert store.read() is None


def test_latencies_are_counted_on_and_those_of_an_earlier_version_too() -> None:
    counts = RunCounts()
    counts.add_latency("sink", "source", [0] * 100 + [7])
    later = RunCounts()
    later.recall(counts.tallies(1))
    assert later.latency == counts.latency
    before = RunCounts()
    before.recall(Tallies(5, latency=(("sink", "source", (0, 0, 0, 0, 0, 9)),)))
    there = [bucket for bucket, rows in enumerate(before.latency["sink", "source"]) if rows]
    assert sum(before.latency["sink", "source"]) == 9
    assert [lowest_ns(there[0]), lowest_ns(there[-1] + 1)] == [5 << 10, 6 << 10]


def source(emitted: int, acked: int, above: int = 0, replayed: int = 0, thread: int = 0) -> SourceStatus:
    return SourceStatus("source", 0, thread, emitted, acked, above, 0, replayed)


def test_positions_only_move_forward() -> None:
    counts = RunCounts()
    known = counts.source("source", 0)
    known.hear(source(100, 90, 5))
    known.hear(source(60, 50))  # its worker was killed and reads again
    assert (known.emitted, known.acked, known.done) == (100, 90, 95)


def test_replays_of_workers_that_are_gone_are_kept() -> None:
    known = RunCounts().source("source", 0)
    for replayed in (0, 4, 7, 2, 3):
        known.hear(source(1, 1, replayed=replayed))
    known.hear(source(1, 1, replayed=5, thread=9))
    assert known.replayed == 7 + 3 + 5


def test_rows_that_a_new_worker_reads_again_are_replayed_rows() -> None:
    known = RunCounts().source("source", 0)
    for now in (source(100, 90), source(0, 90), source(95, 90), source(120, 100)):
        known.hear(now)
    assert known.replayed == 10, "positions 90 to 99 were read twice"
    known.hear(source(110, 100))  # by yet another worker, heard when it had read for a while
    assert known.replayed == 10 + 20


def test_who_goes_on_where_another_left_reads_nothing_again() -> None:
    known = RunCounts().source("source", 0)
    known.hear(source(100, 90, thread=1))
    known.part(1)
    for now in (source(0, 0, thread=2), source(100, 92, thread=1), source(150, 100, thread=2)):
        known.hear(now)
    assert known.replayed == 0
    for now in (
        source(0, 92, thread=1),
        source(97, 92, thread=1),
    ):  # what it left open is read again in its place
        known.hear(now)
    assert known.replayed == 100 - 92


def test_what_a_thread_that_is_no_more_left_open_is_read_again() -> None:
    known = RunCounts().source("source", 0)
    known.hear(source(100, 90, thread=1))
    known.hear(source(0, 0, thread=2))  # is there, and does not know from where to read
    known.part(1)
    known.fall_back(1)
    known.hear(source(130, 95, thread=2))
    assert known.replayed == 100 - 90


def test_what_a_lost_thread_had_open_is_read_again_by_whoever_reads_next() -> None:
    known = RunCounts().source("source", 0)
    for now in (source(100, 90, thread=1), source(0, 0, thread=2), source(140, 95, thread=2)):
        known.hear(now)
    assert known.replayed == 100 - 90


def test_who_reads_all_the_while_reads_nothing_again_for_a_controller_that_begins_anew() -> None:
    counts, later = RunCounts(), RunCounts()
    counts.source("source", 0).hear(source(100, 90))
    later.recall(counts.tallies(1))
    later.source("source", 0).hear(source(120, 95))
    assert later.replayed == 0


def test_rows_read_again_outlast_the_controller() -> None:
    counts = RunCounts()
    for now in (source(100, 90), source(0, 90), source(95, 90)):
        counts.source("source", 0).hear(now)
    later = RunCounts()
    later.recall(counts.tallies(1))
    later.source("source", 0).hear(source(105, 90))
    assert later.replayed == counts.replayed == 10


def test_a_dead_letter_is_not_acked_and_counts_once() -> None:
    counts = RunCounts()
    counts.source("source", 0).hear(source(10, 10))
    letter = DeadLetter("parse", 3, "source", 0, 4, "row", "ValueError: x", "")
    assert counts.letters.add(letter, 0)
    assert not counts.letters.add(DeadLetter("score", 5, "source", 0, 4, "row", "", ""), 0)
    assert (counts.emitted, counts.acked, counts.letters.count) == (10, 9, 1)


def test_rows_that_died_and_are_not_done_yet_take_nothing_from_those_that_are() -> None:
    """Letters come first: of 5,776 rows that were done 0 were shown, and -17,772 rows/s."""
    counts, shown = RunCounts(), list[int]()
    counts.source("orders", 0).hear(replace(source(100, 50), task="orders"))
    counts.source("source", 0).hear(source(100, 0))
    for position in range(100):
        counts.letters.add(DeadLetter("parse", 3, "source", 0, position, "row", "ValueError: x", ""), 0)
        shown.append(counts.acked)
    for acked in range(101):
        counts.source("source", 0).hear(source(100, acked))
        shown.append(counts.acked)
    assert shown == [50] * len(shown)
    assert (
        counts.letters.of_done("source", 0, 40, 3) == 43 and counts.letters.of_done("orders", 0, 50, 0) == 0
    )


def test_counts_go_on_from_an_earlier_life() -> None:
    counts = RunCounts()
    counts.source("source", 0).hear(source(100, 90, 5, 7))
    counts.add_latency("sink", "source", (1, 2))
    counts.planning_s[1] = 0.25
    later = RunCounts()
    later.recall(counts.tallies(9))
    later.source("source", 0).hear(source(95, 92, 0, 2))
    assert (later.emitted, later.done, later.replayed) == (100, 95, 9 + (100 - 90))
    assert later.latency["sink", "source"][:2] == [1, 2]
    assert later.planning_s == {1: 0.25}


def test_who_reads_next_begins_where_a_lost_thread_left_something_open() -> None:
    """`main` is where the next reader of the partition is to begin."""
    counts = RunCounts()
    known = counts.source("source", 0)
    known.hear(source(100, 60, above=10))
    known.part(0)
    known.hear(source(130, 120, above=5, thread=1))
    assert (known.main, known.acked, known.done) == (120, 60, 95)
    known.fall_back(0)
    assert (known.main, known.acked, known.done) == (60, 60, 70) and not known.apart
    known.hear(source(200, 200, thread=2))
    known.part(2)
    known.fall_back(2)
    assert known.main == 200, "it had nothing open"
