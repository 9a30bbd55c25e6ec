"""Events that cannot be read twice: on disk before they are emitted, there until they are acked."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from examples import searching
from hypothesis import given
from hypothesis import strategies as st

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import Task, Topology
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.wire.messages import DesiredState, SpoolLeft, ThreadSpec, Token
from headgate.topology_runtime.worker.orders.thread_orders import Orders
from headgate.topology_runtime.worker.rows import row_values as wire
from headgate.topology_runtime.worker.sources import source_spool as sp
from headgate.topology_runtime.worker.sources.source_spool import (
    Left,
    Owner,
    Spool,
    SpoolsLeft,
    folder_of,
    left_over,
)

S = 1_000_000_000
ROW = {"text": "ä", "pair": (1, (2, None))}


def segments(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.spool"))


def test_rows_come_back_in_order_with_their_types(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path), 7)
    assert spool.append([ROW, (1, 2.0)]) == [] and spool.append([b"x"]) == []
    assert (spool.acked, spool.end) == (7, 10)
    assert spool.read(7, 2) == [ROW, (1, 2.0)] and spool.read(9, 5) == [b"x"] and spool.read(10, 5) == []
    again = Spool(str(tmp_path), 0)  # the process was killed: nothing was closed
    assert (again.acked, again.end) == (7, 10) and again.read(7, 9) == [ROW, (1, 2.0), b"x"]


def test_what_is_acked_is_forgotten_and_only_moves_forward(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    spool.append(list(range(10)))
    spool.done_below(4, S)
    spool.done_below(2, S + 1)
    assert spool.acked == 4
    spool.done_below(99, S + 2)
    assert spool.acked == 10, "not beyond what there is"
    again = Spool(str(tmp_path))
    assert again.acked == 4, "the file is written at most every 200 ms"
    spool.done_below(10, 3 * S)
    assert Spool(str(tmp_path)).acked == 10


def test_an_idle_spool_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spool = Spool(str(tmp_path))
    spool.append([1])
    spool.done_below(1, S)
    written: list[str] = []
    monkeypatch.setattr(os, "replace", lambda a, b: written.append(b))
    for n in range(2, 9):
        spool.done_below(1, n * S)
    assert written == []


def test_the_controllers_position_counts_when_it_is_ahead(tmp_path: Path) -> None:
    Spool(str(tmp_path)).append(list(range(10)))
    spool = Spool(str(tmp_path), 6)
    assert (spool.acked, spool.end) == (6, 10) and spool.read(6, 99) == [6, 7, 8, 9]


def test_a_position_beyond_the_spool_goes_on_there(tmp_path: Path) -> None:
    """Rows that the disk lost though they were acked: new events do not take their places."""
    Spool(str(tmp_path)).append(list(range(10)))
    spool = Spool(str(tmp_path), 20)
    spool.append(["new"])
    assert (spool.acked, spool.end) == (20, 21) and spool.read(20, 5) == ["new"]


@pytest.mark.parametrize("cut", [1, 3, 5, 8])
def test_a_torn_tail_ends_the_spool_and_is_written_over(tmp_path: Path, cut: int) -> None:
    Spool(str(tmp_path)).append(["first", "second"])
    (path,) = tmp_path.glob("*.spool")
    os.truncate(path, path.stat().st_size - cut)
    spool = Spool(str(tmp_path))
    assert spool.end == 1 and spool.read(0, 9) == ["first"]
    spool.append(["third"])
    assert Spool(str(tmp_path)).read(0, 9) == ["first", "third"]


@pytest.mark.parametrize("left", [1, 3, 4, 6])
def test_a_tail_torn_in_the_first_row_of_a_segment_is_written_over(tmp_path: Path, left: int) -> None:
    """The next segment has the same name; what it held was never accepted."""
    Spool(str(tmp_path)).append(["first"])
    (path,) = tmp_path.glob("*.spool")
    os.truncate(path, left)
    spool = Spool(str(tmp_path))
    assert (spool.acked, spool.end) == (0, 0)
    spool.append(["again", "more"])
    assert Spool(str(tmp_path)).read(0, 9) == ["again", "more"]


def test_what_a_full_disk_does_not_take_waits_and_is_no_torn_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(str(tmp_path))
    spool.append(["first"])
    real = os.write

    def full(fd: int, data: bytes) -> int:
        monkeypatch.setattr(os, "write", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        return real(fd, data[:3])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="full"):
        spool.append(["does not fit"])
    monkeypatch.setattr(os, "write", real)
    assert (spool.end, spool.waiting) == (1, 1)
    spool.append(["second"])
    assert spool.waiting == 0
    assert Spool(str(tmp_path)).read(0, 9) == ["first", "does not fit", "second"]


def test_a_torn_row_that_cannot_be_taken_back_ends_its_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(str(tmp_path))
    spool.append(["first"])
    real = os.write
    broken = OSError(errno.EIO, "broken")
    answers = [lambda fd, data: real(fd, data[:3]), lambda *_: (_ for _ in ()).throw(broken)] * 2

    def failing(fd: int, data: bytes) -> int:
        return answers.pop(0)(fd, data)

    monkeypatch.setattr(os, "write", failing)
    with monkeypatch.context() as nothing_works:
        nothing_works.setattr(os, "ftruncate", answers[1])
        with pytest.raises(OSError, match="broken"):
            spool.append(["second"])
    monkeypatch.setattr(os, "write", real)
    spool.accept()
    assert spool.read(0, 9) == ["first", "second"]
    assert Spool(str(tmp_path)).read(0, 9) == ["first", "second"]


def test_the_reserve_takes_what_was_read_before_the_disk_was_known_to_be_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(str(tmp_path))
    spool.accept()
    real, reserve = os.write, tmp_path / "reserve"

    def full(fd: int, data: bytes) -> int:
        if reserve.exists():
            raise OSError(errno.ENOSPC, "full")
        return real(fd, data)

    def none_left(*_: int) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    monkeypatch.setattr(os, "posix_fallocate", none_left)
    with pytest.raises(OSError, match="full"):
        spool.append(["in time"])
    assert (spool.end, spool.waiting) == (1, 0) and spool.read(0, 9) == ["in time"]
    with pytest.raises(OSError, match="full"):
        spool.accept()  # so that nothing more is read of the source


def test_a_disk_that_forgets_the_acked_position_still_gets_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sp, "SEGMENT_ROWS", 4)
    spool = Spool(str(tmp_path))
    spool.append(list(range(10)))
    monkeypatch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
    with pytest.raises(OSError, match="full"):
        spool.done_below(9, S)
    assert segments(tmp_path) == [f"{8:020d}.spool"]
    assert Spool(str(tmp_path)).acked == 8


def test_rows_that_are_not_plain_are_told_and_the_rest_is_taken(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    refused = spool.append([1, 2j, 3, object()])
    assert [place for place, _ in refused] == [1, 3] and "builtins.complex" in refused[0][1].what
    assert spool.read(0, 9) == [1, 3]


def test_what_could_not_be_read_as_a_row_keeps_its_place_over_a_restart(tmp_path: Path) -> None:
    spool = Spool(str(tmp_path))
    assert spool.append(["a", BadRow("torn", cause="3 of 7 bytes"), object(), "b"])[0][0] == 2
    spool.drop()
    a, bad, b = Spool(str(tmp_path)).read(0, 9)
    assert (a, b) == ("a", "b") and isinstance(bad, BadRow) and bad.what == "torn (3 of 7 bytes)"


def test_what_is_to_outlive_the_power_is_synced_whatever_files_it_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fdatasync
    monkeypatch.setattr(sp, "SEGMENT_ROWS", 3)
    monkeypatch.setattr(os, "fdatasync", lambda fd: (real(fd), synced.append(os.fstat(fd).st_size))[0])
    spool = Spool(str(tmp_path))
    spool.syncs = True
    spool.append([ROW] * 7)
    assert not spool.synced
    spool.sync()
    sizes = [(tmp_path / name).stat().st_size for name in segments(tmp_path)]
    assert synced == sizes and spool.synced
    spool.sync()
    assert len(synced) == 3, "nothing is new"
    before = len(os.listdir("/proc/self/fd"))
    spool.append([ROW] * 9)
    spool.drop()
    assert len(os.listdir("/proc/self/fd")) < before


def test_segments_below_acked_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sp, "SEGMENT_ROWS", 4)
    spool = Spool(str(tmp_path))
    spool.append(list(range(10)))
    assert segments(tmp_path) == [f"{n:020d}.spool" for n in (0, 4, 8)]
    spool.done_below(7, S)
    assert segments(tmp_path) == [f"{n:020d}.spool" for n in (4, 8)]
    spool.done_below(9, 2 * S)
    assert segments(tmp_path) == [f"{8:020d}.spool"]
    again = Spool(str(tmp_path))
    assert again.read(9, 9) == [9]
    again.done_below(10, 3 * S)
    again.close()
    assert segments(tmp_path) == [] and Spool(str(tmp_path)).end == 10


def test_without_the_file_acked_the_spool_begins_with_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sp, "SEGMENT_ROWS", 4)
    spool = Spool(str(tmp_path))
    spool.append(list(range(10)))
    spool.done_below(6, S)
    for damage in (b"", b"rubbish"):
        (tmp_path / "acked").write_bytes(damage)
        assert Spool(str(tmp_path)).acked == 4
    (tmp_path / "acked").unlink()
    assert Spool(str(tmp_path)).read(4, 9) == [4, 5, 6, 7, 8, 9]


def test_rows_missing_in_the_middle_are_refused_loudly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sp, "SEGMENT_ROWS", 4)
    Spool(str(tmp_path)).append(list(range(12)))
    (tmp_path / f"{4:020d}.spool").unlink()
    with pytest.raises(OSError, match="lost rows before position 8"):
        Spool(str(tmp_path))
    assert Spool(str(tmp_path), 8).read(8, 9) == [8, 9, 10, 11], "unless all below is acked"


def test_who_leaves_and_is_started_anew_reads_up_to_its_successor(tmp_path: Path) -> None:
    """What it had accepted beyond has positions that are its successor's: that stays for whoever comes."""
    Spool(str(tmp_path)).append(list(range(5)))
    again = Spool(str(tmp_path), 1, until=3)
    assert (again.acked, again.end) == (1, 3) and again.read(1, 99) == [1, 2]
    again.done_below(3, S)
    again.close()
    left = Left(str(tmp_path))
    assert [wire.read(row, wire.NESTED)[0] for _, row in left.rows] == [3, 4]


def test_what_an_ended_thread_left_is_accepted_anew(tmp_path: Path) -> None:
    old = Spool(str(tmp_path / "old"), 10)
    old.append(["done", "a", "b"], [77, 77, 77])
    old.done_below(11, S)
    with pytest.raises(BlockingIOError):
        Left(str(tmp_path / "old"))
    old.drop()
    left = Left(str(tmp_path / "old"))
    new = Spool(str(tmp_path / "new"), 500)
    new.append(["first"])
    new.take(left)
    assert new.read(500, 9) == ["first", "a", "b"] and new.arrived_ns(501) == 77, "it came when it came"
    left.forget()
    assert not (tmp_path / "old").exists()


def test_a_spool_that_is_being_taken_is_opened_by_nobody(tmp_path: Path) -> None:
    Spool(str(tmp_path)).append([1])
    left = Left(str(tmp_path))
    with pytest.raises(BlockingIOError):
        Spool(str(tmp_path))
    assert len(left.rows) == 1


@searching(60)
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "ack", "kill", "tear", "close"]), st.integers(0, 9)), max_size=25
    )
)
def test_whatever_happens_nothing_accepted_is_lost(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, int]]
) -> None:
    """A spool beside a list. `tear`: killed while it wrote a row, of which some bytes are there."""
    folder = tmp_path_factory.mktemp("spool")
    spool, rows, now_ns = Spool(str(folder)), list[Any](), S
    for kind, n in events:
        now_ns += S
        if kind == "append":
            new = [(len(rows) + i, "x" * n) for i in range(n)]
            assert spool.append(new) == []
            rows += new
        elif kind == "ack":
            spool.done_below(min(len(rows), spool.acked + n), now_ns)
        elif kind == "close":
            spool.close()
            spool = Spool(str(folder))
        else:
            if kind == "tear":
                name = segments(folder)[-1] if spool.writing else f"{spool.end:020d}.spool"
                with open(folder / name, "ab" if spool.writing else "wb") as file:
                    file.write((20).to_bytes(4, "big")[: n // 2] + b"y" * (n if n // 2 >= 4 else 0))
            spool = Spool(str(folder))
        assert spool.end == len(rows) and spool.acked <= spool.end
        assert spool.read(spool.acked, 10_000) == rows[spool.acked :]


def test_left_over_spools_are_found(tmp_path: Path) -> None:
    for task, partition, acked in (("clicks", 0, 2), ("clicks", 11, 5), ("odd~name", 3, 0)):
        spool = Spool(folder_of(str(tmp_path), Owner(task, partition, "run", 8)))
        spool.append(list(range(5)))
        spool.done_below(acked, S)
    (tmp_path / sp.FOLDER / "not a spool").mkdir()
    (tmp_path / sp.FOLDER / "a~file").touch()
    clicks, odd = SpoolLeft("clicks", 0, 2, 5, "run", 8), SpoolLeft("odd~name", 3, 0, 5, "run", 8)
    assert left_over(str(tmp_path)) == (clicks, odd)
    assert left_over(str(tmp_path / "nowhere")) == ()


# ── Who reads a partition accepts anew what threads that are no more left on its VM, and nothing else ───

MINE = Owner("source", 0, "run", 7)


def accepted(directory: Path, owner: Owner, *rows: str) -> Spool:
    spool = Spool(folder_of(str(directory), owner), 40)
    spool.append(rows)
    return spool


def orders(*threads: int) -> Orders:
    specs = tuple(ThreadSpec(n, "source", Slot("vm1", 0)) for n in threads)
    topology = Topology("t", (Task("source", kind="source", run="x:X"),), ())
    return Orders(DesiredState(Token(), "committed", "run", topology, (), specs, 1, ()), True)


def left_by(directory: Path, *owners: Owner) -> None:
    """Killed threads of these owners, each with a row of its own."""
    for owner in owners:
        accepted(directory, owner, f"{owner.run} {owner.thread}").drop()


def taken(directory: Path, given: Orders) -> list[str]:
    mine, left = accepted(directory, MINE), SpoolsLeft(str(directory), MINE)
    left.look(given)
    for n in range(6):
        left.take(mine, (n + 1) * S)
    rows = mine.read(40, 99)
    mine.drop()
    return rows


def test_of_threads_that_are_no_more_and_of_earlier_runs(tmp_path: Path) -> None:
    left_by(
        tmp_path, MINE._replace(thread=3), MINE._replace(thread=5), MINE._replace(run="earlier", thread=9)
    )
    assert sorted(taken(tmp_path, orders(7))) == ["earlier 9", "run 3", "run 5"]
    assert taken(tmp_path, orders(7)) == sorted(taken(tmp_path, orders(7))), "they are its own now"
    assert [path.name for path in (tmp_path / sp.FOLDER).iterdir()] == ["source~0~run~7"]


def test_not_of_threads_that_are_desired_or_come_later_nor_of_other_partitions(tmp_path: Path) -> None:
    left_by(
        tmp_path,
        MINE._replace(thread=3),  # a leaver, which is started again
        MINE._replace(thread=8),  # of a plan that this worker has not heard of
        MINE._replace(partition=1, thread=2),
        MINE._replace(task="other", thread=2),
    )
    assert taken(tmp_path, orders(3, 7)) == []


def test_who_still_has_its_spool_keeps_it_until_it_ends(tmp_path: Path) -> None:
    old, mine = accepted(tmp_path, MINE._replace(thread=3), "row"), accepted(tmp_path, MINE)
    left = SpoolsLeft(str(tmp_path), MINE)
    left.look(orders(7))
    assert left.take(mine, S) == 0
    old.drop()
    assert left.take(mine, 2 * S) == 1 and mine.read(40, 9) == ["row"]


def test_a_full_disk_takes_them_later_and_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    left_by(tmp_path, MINE._replace(thread=3), MINE._replace(thread=4))
    mine, left, real = accepted(tmp_path, MINE), SpoolsLeft(str(tmp_path), MINE), os.write
    left.look(orders(7))

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(os, "write", full)
    for n in range(3):
        with pytest.raises(OSError, match="full"):
            left.take(mine, (n + 1) * S)
    assert (tmp_path / sp.FOLDER / "source~0~run~3").exists(), "not before it is accepted"
    monkeypatch.setattr(os, "write", real)
    for n in range(3, 6):
        left.take(mine, (n + 1) * S)
    assert mine.read(40, 9) == ["run 3", "run 4"]


def test_a_kill_in_between_brings_them_twice_and_loses_none(tmp_path: Path) -> None:
    left_by(tmp_path, MINE._replace(thread=3))
    mine, left = accepted(tmp_path, MINE), SpoolsLeft(str(tmp_path), MINE)
    left.look(orders(7))
    left.take(mine, S)
    del left  # its process is killed
    mine.drop()
    assert taken(tmp_path, orders(7)) == ["run 3", "run 3"]


def test_who_ends_before_it_is_done_with_one_leaves_it_to_the_next(tmp_path: Path) -> None:
    """In a worker that stays, or a simulated one: nothing else lets go of it."""
    left_by(tmp_path, MINE._replace(thread=3))
    mine, left = accepted(tmp_path, MINE), SpoolsLeft(str(tmp_path), MINE)
    left.look(orders(7))
    assert left.take(mine, S) == 1
    mine.drop()
    left.close()
    assert taken(tmp_path, orders(7)) == ["run 3", "run 3"], "it was accepted, and not forgotten yet"
    left.close()
