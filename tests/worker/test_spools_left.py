"""Who reads a partition accepts anew what threads that are no more left on its VM, and nothing else."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from plane_tasks import S

from headgate.topology_runtime.cluster import Slot
from headgate.topology_runtime.messages import DesiredState, ThreadSpec, Token
from headgate.topology_runtime.topology import Task, Topology
from headgate.topology_runtime.worker import spool as sp
from headgate.topology_runtime.worker.orders import Orders
from headgate.topology_runtime.worker.spool import Owner, Spool, folder_of
from headgate.topology_runtime.worker.spools_left import SpoolsLeft

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
