"""Logs of finished rows on their way to the controller (agent/reports/sampler.py): nothing skipped."""

from __future__ import annotations

import os
import time
from array import array
from pathlib import Path

import pytest

from headgate.agent.reports import sampler
from headgate.agent.reports.sampler import RECORD_BYTES, FinishedTail
from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.wire.messages import FinishedKept, FinishedRuns, RootKey, RootPart
from headgate.topology_runtime.worker.meters import thread_records
from headgate.topology_runtime.worker.meters.thread_records import FinishedLog

NAMES = ("source", "work", "store")
PATH = Path("finished") / "2-5-77.log"


def root(position: int) -> RootPart:
    return RootPart(RootKey(1, 77, 0, 0), Slot("vm1", 0), 0, 3, position, 0, 0, 0)


def append(directory: Path, *firsts: int, thread: int = 5) -> None:
    """As a worker does: a run of one row at each of these positions."""
    log = FinishedLog(str(directory), 2, thread, 77, DiskTroubles())
    for first in firsts:
        log.append([(root(first), 0, 1, 0)])
    log.close()


def record(first: int) -> bytes:
    return array("q", (0, 3, first, 1, 0)).tobytes()


def take(tail: FinishedTail, now_ns: int = 0) -> list[FinishedRuns]:
    return list(tail.take(NAMES, now_ns))


def places(taken: list[FinishedRuns]) -> list[tuple[int, int, int]]:
    return [(f.thread, f.offset, len(f.runs) // RECORD_BYTES) for f in taken]


def test_rows_are_handed_on_once_with_task_thread_incarnation_and_place(tmp_path: Path) -> None:
    tail = FinishedTail(str(tmp_path))
    assert take(tail) == [] and not tail.behind()
    append(tmp_path, 0, 1)
    assert tail.behind()
    assert take(tail) == [FinishedRuns("store", 5, 77, 0, record(0) + record(1))]
    assert take(tail) == [] and not tail.behind()
    append(tmp_path, 2)
    assert take(tail) == [FinishedRuns("store", 5, 77, 80, record(2))]


def test_a_torn_record_waits_until_it_is_whole(tmp_path: Path) -> None:
    append(tmp_path, 0)
    with (tmp_path / PATH).open("ab") as file:
        file.write(record(1)[:13])
    tail = FinishedTail(str(tmp_path))
    assert len(take(tail)) == 1 and take(tail) == []
    with (tmp_path / PATH).open("ab") as file:
        file.write(record(1)[13:])
    assert take(tail) == [FinishedRuns("store", 5, 77, 40, record(1))]


def test_other_files_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    append(tmp_path, 0)
    (tmp_path / "finished" / "notes.txt").write_text("x")
    assert len(take(FinishedTail(str(tmp_path)))) == 1


def test_a_new_agent_and_a_new_controller_get_everything(tmp_path: Path) -> None:
    tail = FinishedTail(str(tmp_path))
    for first in range(3):
        append(tmp_path, first)
        take(tail, now_ns=first)
    assert places(take(FinishedTail(str(tmp_path)))) == [(5, 0, 3)]
    tail.rewind()
    assert places(take(tail)) == [(5, 0, 3)] and take(tail) == []


def test_after_a_silence_only_what_was_sent_since_then_is_sent_again(tmp_path: Path) -> None:
    tail = FinishedTail(str(tmp_path))
    for first in range(4):
        append(tmp_path, first)
        append(tmp_path, first, thread=6)
        take(tail, now_ns=first)
    tail.rewind(since_ns=2)
    assert places(take(tail, now_ns=9)) == [(5, 80, 2), (6, 80, 2)]
    tail.rewind(since_ns=10)
    assert take(tail) == []


def test_logs_of_another_run_in_the_same_folder_are_removed(tmp_path: Path) -> None:
    for run, kept in (("monday", 0), ("monday", 1), ("tuesday", 0)):
        append(tmp_path, 0)
        tail = FinishedTail(str(tmp_path))
        tail.begin(run)
        assert len(take(tail)) == kept
    tail.begin("tuesday")
    append(tmp_path, 7)
    assert take(tail)[0].runs == record(7)


def test_a_log_that_somebody_removes_is_no_more_than_gone(tmp_path: Path) -> None:
    append(tmp_path, 0)
    tail = FinishedTail(str(tmp_path))
    assert tail.behind()
    (tmp_path / PATH).unlink()
    assert not tail.behind() and take(tail) == []


def test_a_block_is_bounded_and_the_rest_comes_with_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "MOST_BYTES", 4 * RECORD_BYTES)
    append(tmp_path, *range(6))
    append(tmp_path, *range(3), thread=6)
    tail, sent = FinishedTail(str(tmp_path)), []
    for _ in range(3):
        assert tail.behind()
        sent.append(places(take(tail)))
    assert sent == [[(5, 0, 4)], [(5, 160, 2), (6, 0, 2)], [(6, 80, 1)]]
    assert not tail.behind()


# ── what the controller needs no more ───────────────────────────────────────────────────────────


def kept(floor: int, end: int) -> FinishedKept:
    return FinishedKept(((0, 3, floor),), (("store", 5, 77, end),))


def files(directory: Path) -> list[str]:
    return sorted(path.name for path in (directory / "finished").iterdir())


def in_parts(directory: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> FinishedLog:
    """A log of thread 5 in parts of two records, still open."""
    monkeypatch.setattr(thread_records, "PART_BYTES", 2 * RECORD_BYTES)
    log = FinishedLog(str(directory), 2, 5, 77, DiskTroubles())
    for first in range(rows):
        log.append([(root(first), 0, 1, 0)])
    return log


def test_a_log_in_parts_is_told_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_parts(tmp_path, monkeypatch, 5)
    assert files(tmp_path) == ["2-5-77-160.log", "2-5-77-80.log", "2-5-77.log"]
    told = take(FinishedTail(str(tmp_path)))
    assert places(told) == [(5, 0, 2), (5, 80, 2), (5, 160, 1)]
    assert b"".join(runs.runs for runs in told) == b"".join(map(record, range(5)))


def test_only_whole_parts_go_that_are_counted_settled_and_written_to_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = in_parts(tmp_path, monkeypatch, 5)
    tail, names = FinishedTail(str(tmp_path)), NAMES
    tail.trim(kept(100, 200), names)
    assert len(files(tmp_path)) == 3, "nothing of it was read yet"
    take(tail)
    tail.trim(kept(3, 200), names)  # of the second part, position 3 is not settled
    assert files(tmp_path) == ["2-5-77-160.log", "2-5-77-80.log"]
    tail.trim(kept(100, 159), names)  # the second part's last byte is not counted
    assert files(tmp_path) == ["2-5-77-160.log", "2-5-77-80.log"]
    tail.trim(kept(100, 200), names)
    assert files(tmp_path) == ["2-5-77-160.log"], "the last part may still be written to"
    log.close()
    tail.trim(kept(100, 200), names)
    assert files(tmp_path) == []


def test_a_new_agent_goes_on_with_the_parts_that_are_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_parts(tmp_path, monkeypatch, 5)
    tail = FinishedTail(str(tmp_path))
    take(tail)
    tail.trim(kept(2, 80), NAMES)
    assert places(take(FinishedTail(str(tmp_path)))) == [(5, 80, 2), (5, 160, 1)]


def test_names_that_are_of_no_log_are_left_out_and_those_of_real_workers_are_not(tmp_path: Path) -> None:
    """An incarnation is a time in ns; a task can make any file beside the logs."""
    now_ns = time.time_ns()
    (tmp_path / "finished").mkdir()
    for name in (f"0-5-{now_ns}.log", "99-5-77.log", f"0-5-{10**40}.log"):
        (tmp_path / "finished" / name).write_bytes(bytes(RECORD_BYTES))
    (tmp_path / "finished" / "0-6-77.log").symlink_to(f"0-5-{now_ns}.log")
    os.mkfifo(tmp_path / "finished" / "0-7-77.log")
    tail = FinishedTail(str(tmp_path))
    assert [(runs.thread, runs.incarnation) for runs in tail.take(("sink",), 1)] == [(5, now_ns)]
