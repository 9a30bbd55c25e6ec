"""What is on disk of a keyed thread: whole snapshots, and behind them what changed since."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from keyed_family import Tally
from test_keyed_frames import frame, task_of, whole_part

from headgate.topology_runtime.api.cluster import Slot
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.platform.disk import DiskTroubles
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import ThreadSpec
from headgate.topology_runtime.wire.state_moves import RangeCopy, StateAsked, StateMove
from headgate.topology_runtime.worker.keyed_state import snapshot_files as snapshots
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    SavedPart,
    SavedWhole,
)
from headgate.topology_runtime.worker.links.switchboard import Switchboard
from headgate.topology_runtime.worker.meters import meter as mt
from headgate.topology_runtime.worker.process.task_thread import AnsweringWork, HeldLease, Host, TaskThread


def files(folder: Path) -> SnapshotFiles:
    return SnapshotFiles(str(folder), "t", 5)


def path(folder: Path) -> Path:
    return folder / "snapshots" / "t~5"


def save(task: KeyedRows, store: SnapshotFiles) -> bool:
    """As a thread does that saves all at once; True when it was whole."""
    if not store.whole_due:
        store.save(SavedPart(task.change(task.ranges.versions)))
        task.covered()
        return False
    store.save(whole_part(task))
    task.covered()
    return True


def restored(saved: SavedWhole | None) -> KeyedRows:
    assert saved is not None
    task = task_of(CountByKey())
    task.restore(saved)
    return task


def found(folder: Path) -> KeyedSnapshot:
    whole = files(folder).of(5)
    assert whole is not None
    return whole


def states(task: KeyedRows) -> dict[Any, Any]:
    return {key: n for at in task.states.filled for key, n in task.states.of(at).items()}


def filled(folder: Path, times: int, seed: int = 1) -> tuple[KeyedRows, SnapshotFiles, list[Any]]:
    choose, task, store = random.Random(seed), task_of(CountByKey()), files(folder)
    rows: list[Any] = []
    for _ in range(times):
        some = [(choose.choice(("a", "b", 3, (1, "x"), b"y", 2.5)), len(rows) + n) for n in range(9)]
        task.take(frame(some, len(rows)), 0)
        rows += some
        save(task, store)
    return task, store, rows


@pytest.mark.parametrize("times", [1, 2, 7])
def test_what_is_read_is_what_was_there(tmp_path: Path, times: int) -> None:
    task, _, rows = filled(tmp_path, times)
    again = restored(files(tmp_path).load())
    assert states(again) == states(task)
    for at in range(0, len(rows), 9):
        again.take(frame(rows[at : at + 9], at, attempt=1), 0)
    assert states(again) == states(task), "every row is known"


def test_only_the_first_is_whole_and_the_others_cost_what_changed(tmp_path: Path) -> None:
    task, store = task_of(CountByKey()), files(tmp_path)
    task.take(frame([(f"key {n}", n) for n in range(5000)]), 0)
    assert save(task, store)
    before = path(tmp_path).stat().st_size
    task.take(frame([("key 7", 0)], 5000), 0)
    assert not save(task, store)
    assert path(tmp_path).stat().st_size - before < 200 < before


def test_a_whole_one_comes_when_more_was_added_than_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "ADDED_LEAST", 100)
    task, store = task_of(CountByKey()), files(tmp_path)
    wholes = []
    for step in range(40):
        task.take(frame([("a", n) for n in range(200)], step * 200), 0)
        wholes.append(save(task, store))
    assert wholes[0] and 2 <= sum(wholes) <= 20, wholes
    assert states(restored(files(tmp_path).load())) == {"a": 8000}


def test_a_thread_that_begins_anew_writes_a_whole_one(tmp_path: Path) -> None:
    filled(tmp_path, 3)
    store = files(tmp_path)
    task = restored(store.load())
    task.take(frame([("new", 1)], 27), 0)
    assert save(task, store)
    assert states(restored(files(tmp_path).load()))["new"] == 1


def test_a_torn_end_was_never_durable(tmp_path: Path) -> None:
    task, store, rows = filled(tmp_path, 4)
    before, size = states(task), path(tmp_path).stat().st_size
    task.take(frame([("a", 1)] * 9, len(rows)), 0)
    save(task, store)
    data = path(tmp_path).read_bytes()
    for cut in range(size, len(data)):
        path(tmp_path).write_bytes(data[:cut])
        assert states(restored(files(tmp_path).load())) == before
    path(tmp_path).write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert states(restored(files(tmp_path).load())) == before


def test_damage_between_snapshots_is_told(tmp_path: Path) -> None:
    (tmp_path / "before").mkdir()
    filled(tmp_path / "before", 1)
    filled(tmp_path, 4)
    data = bytearray(path(tmp_path).read_bytes())
    data[path(tmp_path / "before").stat().st_size + 20] ^= 0xFF  # in the first of three changes
    path(tmp_path).write_bytes(data)
    with pytest.raises(OSError, match="cannot be read"):
        files(tmp_path).load()


def test_after_a_failure_the_next_one_is_whole(tmp_path: Path) -> None:
    task, store, rows = filled(tmp_path, 3)
    os.rename(path(tmp_path), tmp_path / "elsewhere")
    task.take(frame([("a", 1)], len(rows)), 0)
    assert not store.whole_due
    with pytest.raises(OSError):
        store.save(SavedPart(task.change(task.ranges.versions)))
    assert store.whole_due and save(task, store)
    assert states(restored(files(tmp_path).load())) == states(task)


def test_a_snapshot_of_before_is_read(tmp_path: Path) -> None:
    """One whole one, without a word about itself."""
    task, _, _ = filled(tmp_path, 1)
    path(tmp_path).write_bytes(msgspec.msgpack.encode(found(tmp_path)))
    assert states(restored(files(tmp_path).load())) == states(task)


def test_rows_of_a_task_that_gives_nothing_are_known_too(tmp_path: Path) -> None:
    task, store = task_of(Tally()), files(tmp_path)
    for step in range(3):
        task.take(frame([("a", n) for n in range(4)], step * 4), 0)
        save(task, store)
    again = task_of(Tally())
    saved = files(tmp_path).load()
    assert saved is not None
    again.restore(saved)
    again.take(frame([("a", n) for n in range(4)], 4, attempt=1), 0)
    assert states(again) == {"a": 12}


def test_what_was_forgotten_before_it_was_saved_is_counted_from_above(tmp_path: Path) -> None:
    task, store = task_of(CountByKey()), files(tmp_path)
    save(task, store)
    task.applied.most = 8
    for step in range(10):
        task.take(frame([("a", n) for n in range(4)], step * 4), 0)
    assert not save(task, store)
    again = restored(files(tmp_path).load())
    again.take(frame([("a", n) for n in range(4)], 0, attempt=1), 0)
    assert states(again) == {"a": 44} and again.applied.again_at_most == 4
    assert save(again, files(tmp_path))
    assert restored(files(tmp_path).load()).applied.again_at_most == 4, "a restart forgets none of them"


# ── The thread that says what snapshots on its VM hold: the real one, over real files, without user code ───

SLOT = Slot("vm1", 0)
TOPOLOGY = Topology(
    "counting",
    (
        Task("source", kind="source", run="nowhere:Source", static=Static()),
        Task("tally", kind="keyed", state="keyed", run="nowhere:Tally"),
    ),
    (Edge("source", "tally", grouping="fields", key="nowhere:key"),),
)


@contextmanager
def answering(directory: Path) -> Iterator[Switchboard]:
    """A thread in the place of thread 5 of the task; thread 9 asks."""
    meter = mt.Meter(fd := mt.create())
    board = Switchboard(SLOT, 1)
    board.slot_of = {5: SLOT, 9: SLOT}
    host = Host(
        board, meter, str(directory), lambda _: None, lambda: None, lambda _: None, threading.Lock(),
        DiskTroubles(), HeldLease(), threading.Lock(), {},
    )  # fmt: skip
    desired = ThreadSpec(5, "tally", SLOT, leaving=True, answers=True)
    thread = TaskThread(desired, TOPOLOGY, host, meter.thread_record(), AnsweringWork)
    thread.start()
    yield board
    thread.stopping = True
    board.put(5, None)
    thread.join(10)
    os.close(fd)
    assert not thread.is_alive() and not thread.failed


def test_it_answers_for_a_thread_that_is_no_more(tmp_path: Path) -> None:
    SnapshotFiles(str(tmp_path), "tally", 5).save(
        SavedPart(begun=KeyedSnapshot((RangeCopy(3, 2, b"state"),)), ends=True)
    )
    with answering(tmp_path) as board:
        board.put(5, StateAsked(9, 5, 4, "tally", 5))
        move = board.inbox(9).get(timeout=10)
    assert isinstance(move, StateMove) and (move.target, move.number, move.gone) == (9, 4, 5)
    assert len(move.copies) == KEY_RANGES
    assert [copy for copy in move.copies if copy.version >= 0] == [RangeCopy(3, 2, b"state")]


def test_it_reads_nothing_but_snapshots_of_tasks_that_there_are(tmp_path: Path) -> None:
    """What a peer names is part of a path."""
    with answering(tmp_path / "vm") as board:
        board.put(5, StateAsked(9, 5, 4, "../../elsewhere", 5))
        board.put(5, StateAsked(9, 5, 7, "tally", 5))
        move = board.inbox(9).get(timeout=10)
    assert move.number == 7, "the first question has no answer"
