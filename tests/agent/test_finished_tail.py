"""Logs of finished rows on their way to the controller (agent/finished.py): nothing skipped, chunks fixed."""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import finished
from agent.finished import RECORD, FinishedTail, merged
from topology_runtime.messages import FinishedRuns, RootKey, RootPart
from topology_runtime.worker.finished import FinishedLog

NAMES = ("source", "work", "store")
Run = tuple[int, int, int, int, int]


def append(directory: Path, *runs: Run, thread: int = 5) -> None:
    """As a worker does."""
    log = FinishedLog(str(directory), 2, thread, 77)
    root = RootPart(RootKey(0, 0, 0, 0), None, 0, 0, 0, 0, 0, 0)  # type: ignore[arg-type]
    for source, partition, first, count, variant in runs:
        root.source, root.partition, root.position = source, partition, first
        log.append([(root, 0, count, variant)])
    log.close()


def rows_of(runs: bytes) -> Counter[tuple[int, int, int, int]]:
    return Counter(
        (source, partition, first + k, variant)
        for source, partition, first, count, variant in RECORD.iter_unpack(runs)
        for k in range(count)
    )


def take(tail: FinishedTail, now_ns: int = 0) -> list[FinishedRuns]:
    return list(tail.take(NAMES, now_ns))


def test_rows_are_handed_on_once_with_task_thread_and_incarnation(tmp_path: Path) -> None:
    tail = FinishedTail(str(tmp_path))
    assert take(tail) == [] and not tail.behind()
    append(tmp_path, (0, 0, 0, 10, 0), (0, 0, 10, 5, 0))
    assert tail.behind()
    assert take(tail) == [FinishedRuns("store", 5, 77, 0, array("q", (0, 0, 0, 15, 0)).tobytes())]
    assert take(tail) == [] and not tail.behind()
    append(tmp_path, (0, 0, 15, 1, 0))
    assert [(f.offset, f.runs) for f in take(tail)] == [(80, array("q", (0, 0, 15, 1, 0)).tobytes())]


def test_a_torn_record_waits_until_it_is_whole(tmp_path: Path) -> None:
    append(tmp_path, (0, 0, 0, 1, 0))
    path = tmp_path / "finished" / "2-5-77.log"
    record = RECORD.pack(0, 0, 1, 1, 0)
    with path.open("ab") as file:
        file.write(record[:13])
    tail = FinishedTail(str(tmp_path))
    assert len(take(tail)) == 1 and take(tail) == []
    with path.open("ab") as file:
        file.write(record[13:])
    assert rows_of(take(tail)[0].runs) == Counter({(0, 0, 1, 0): 1})


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    append(tmp_path, (0, 0, 0, 1, 0))
    (tmp_path / "finished" / "notes.txt").write_text("x")
    assert len(take(FinishedTail(str(tmp_path)))) == 1


@pytest.mark.parametrize("restarted", [False, True])
def test_chunks_sent_again_are_the_same_also_by_a_new_agent(tmp_path: Path, restarted: bool) -> None:
    tail = FinishedTail(str(tmp_path))
    first = []
    for n in range(5):
        append(tmp_path, (0, 0, 2 * n, 2, 0))
        first += take(tail)
    append(tmp_path, (0, 0, 10, 2, 0))
    if restarted:
        tail = FinishedTail(str(tmp_path))
    else:
        tail.rewind()
    again = take(tail)
    assert again[:5] == first and len(again) == 6


def test_only_what_was_sent_since_then_is_sent_again(tmp_path: Path) -> None:
    tail = FinishedTail(str(tmp_path))
    for n in range(4):
        append(tmp_path, (0, 0, n, 1, 0))
        append(tmp_path, (0, 1, n, 1, 0), thread=6)
        take(tail, now_ns=n)
    tail.rewind(since_ns=2)
    assert [(f.thread, f.offset) for f in take(tail, now_ns=9)] == [(5, 80), (5, 120), (6, 80), (6, 120)]
    tail.rewind(since_ns=10)
    assert take(tail) == []


def test_a_torn_note_of_a_chunk_is_made_anew(tmp_path: Path) -> None:
    append(tmp_path, (0, 0, 0, 1, 0))
    tail = FinishedTail(str(tmp_path))
    take(tail)
    notes = tmp_path / "finished" / "2-5-77.chunks"
    notes.write_bytes(notes.read_bytes() + b"\x01\x02")
    append(tmp_path, (0, 0, 1, 1, 0))
    again = FinishedTail(str(tmp_path))
    assert [f.offset for f in take(again)] == [0, 40]
    assert array("q", notes.read_bytes()).tolist() == [40, 80]


def test_a_block_is_bounded_and_the_rest_comes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finished, "RAW_MOST_BYTES", 10 * RECORD.size)
    monkeypatch.setattr(finished, "MERGED_MOST_BYTES", 4 * RECORD.size)
    append(tmp_path, *((0, 0, 10 * n, 1, 0) for n in range(11)))  # nothing can be merged
    tail, sent = FinishedTail(str(tmp_path)), []
    for _ in range(3):
        assert tail.behind()
        taken = take(tail)
        assert sum(len(f.runs) for f in taken) <= 4 * RECORD.size
        sent += taken
    assert not tail.behind()
    assert sum((rows_of(f.runs) for f in sent), Counter()) == Counter(
        {(0, 0, 10 * n, 0): 1 for n in range(11)}
    )


runs_of = st.lists(
    st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 6), st.integers(1, 3), st.integers(0, 1)),
    max_size=30,
)


@given(runs_of)
def test_merging_keeps_the_multiset_of_rows(runs: list[Run]) -> None:
    raw = b"".join(RECORD.pack(*run) for run in runs)
    assert rows_of(merged(raw)) == rows_of(raw)
    assert len(merged(raw)) <= len(raw)


def test_partitions_that_alternate_are_merged_each_for_itself() -> None:
    raw = b"".join(RECORD.pack(0, n % 2, n // 2, 1, 0) for n in range(100))
    assert list(RECORD.iter_unpack(merged(raw))) == [(0, 0, 0, 50, 0), (0, 1, 0, 50, 0)]
