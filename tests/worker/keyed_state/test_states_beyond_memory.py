"""States that memory has no room for: what comes of rows is the same, wherever the states are; and a store that does
not work costs no row."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import pytest
from keyed_family import Family, Member, all_of
from test_keyed_frames import Touchy, TouchyTogether, frame, task_of, whole_part

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.worker.calls.attempts import StartAgain
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state.kept_states import Overflow
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.snapshot_parts import SnapshotParts
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot, stream, whole
from headgate.topology_runtime.worker.keyed_state.state_store import SqliteStates

KEYS: tuple[Any, ...] = (
    *"abcdefgh",
    "",
    "é" * 70,
    1,
    1.0,
    True,
    -3,
    1 << 60,
    b"a",
    None,
    (1, "a"),
    (1.0, b""),
)
ROOM_FOR_TWO = 500  # bytes


class Nested(Keyed):
    """States of every shape, changed in their place."""

    def new(self, key: Hashable) -> Any:
        return {"n": 0, "last": (), "deep": [{1: {2}}]}

    def process(self, key: Hashable, row: Any, state: Any) -> tuple[Any, Iterable[Any]]:
        if row[1] < 0:
            raise ValueError("no")
        state["n"] += 1
        state["last"] = (*state["last"], row[1])[-3:]
        return state, [(state["n"], *state["last"])]


def bounded(logic: Keyed, folder: Path, most_bytes: int, **more: Any) -> KeyedRows:
    task = task_of(logic)
    task.states.overflow = Overflow(SqliteStates(str(folder), "t", 5, **more), most_bytes)
    return task


def overflow(task: KeyedRows) -> Overflow:
    assert task.states.overflow is not None
    return task.states.overflow


def states(task: KeyedRows) -> list[tuple[int, str, Any]]:
    return sorted(
        ((at, repr(key), state) for at in task.states.filled for key, state in task.states.of(at).items()),
        key=lambda one: one[:2],
    )


def restored(saved: Any, folder: Path, logic: Keyed, most_bytes: int | None) -> KeyedRows:
    task = task_of(logic) if most_bytes is None else bounded(logic, folder, most_bytes)
    task.restore(saved)
    return task


@pytest.mark.parametrize("most_bytes", [0, ROOM_FOR_TWO, 3000])
@pytest.mark.parametrize("form", [Touchy, TouchyTogether, Nested])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_comes_of_rows_wherever_their_states_are(
    seed: int, form: Callable[[], Keyed], most_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose = random.Random(seed)
    tasks = [task_of(form()), bounded(form(), tmp_path, most_bytes)]
    monkeypatch.setattr("headgate.topology_runtime.worker.keyed_state.snapshot_files.ADDED_LEAST", 1)
    files = [Saving(task, tmp_path / str(number)) for number, task in enumerate(tasks)]
    position = 0
    for _ in range(25):
        rows = [
            (choose.choice(KEYS), choose.randint(-1 if choose.random() < 0.1 else 0, 5))
            for _ in range(choose.choice([1, 2, 9]))
        ]
        came = []
        for task in tasks:
            task.results.letters = []
            task.take(frame(rows, position), 0)
            came.append((_sent(task), [(one.position, one.error) for one in task.results.letters]))
        assert came[0] == came[1]
        position += len(rows)
        what = choose.random()
        if what < 0.3:
            for one in files:
                one.save()
        elif what < 0.4:
            for number, store in enumerate(files):
                store.save_all()
                tasks[number] = bounded(form(), tmp_path, most_bytes) if number else task_of(form())
                store.begin_again(tasks[number])
        elif what < 0.5:
            key_range = choose.choice(sorted(tasks[0].states.filled or {0}))
            copies = [task.copy(key_range) for task in tasks]
            for task, copy in zip(tasks, copies, strict=True):
                task.states.drop(key_range)
                assert not task.states.any_in(key_range)
                task.restore(stream(whole(KeyedSnapshot((copy,)))))
            files = [Saving(task, tmp_path / str(number)) for number, task in enumerate(tasks)]  # a whole one
    assert states(tasks[0]) == states(tasks[1])
    assert tasks[1].states.stored > 0


def _sent(task: KeyedRows) -> list[Any]:
    return [row for one in task.results.outputs.flush(0, everything=True) for row in one.rows]


class Saving:
    """A thread's rows saved in steps of two states."""

    def __init__(self, task: KeyedRows, folder: Path) -> None:
        self.store = SnapshotFiles(str(folder), "t", 5)
        self.parts, self.task, self.several = SnapshotParts(task, most=2), task, 0

    def save(self) -> bool:
        """What there is by now, as far as it may be, and a step of a whole one; is all durable by that?"""
        covers = False
        if self.parts.may_begin(self.store):
            self.parts.begin(self.store)
            while self.parts.making:
                covers = self.step()
        if self.parts.busy(self.store):
            self.step()
        return covers

    def step(self) -> bool:
        """Is all durable by it?"""
        part = self.parts.step(2)
        if part is None:
            return False
        self.store.save(part)
        self.several += part.ends and part.begun is None
        if part.covers:
            self.task.released(0)
        return part.covers

    def save_all(self) -> None:
        while not self.save():
            pass

    def begin_again(self, task: KeyedRows) -> None:
        saved = self.store.load()
        assert saved is not None
        task.restore(saved)
        self.task, self.parts = task, SnapshotParts(task, most=2)


def test_without_a_bound_there_is_no_file(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 1 << 20)
    task.take(frame([("a", 1)]), 0)
    assert not list(tmp_path.iterdir()) and not task.states.stored


def test_those_that_were_touched_longest_ago_go_and_nothing_is_left_on_disk(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 100 * 300)
    for position in range(200):
        task.take(frame([(f"k{position}", 1)], position), 0)
    here = task.states.here
    assert "k199" in here and "k0" not in here and len(here) <= overflow(task).most
    assert task.states.stored + len(here) == 200
    assert list((tmp_path / "overflow").iterdir()) == [], "the file has no name"


def test_a_state_that_is_touched_again_and_again_stays(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 100 * 300)
    for position in range(400):
        task.take(frame([("hot" if position % 2 else f"k{position}", 1)], position), 0)
        if position % 50 == 0:
            task.covered()
    assert "hot" in task.states.here


def test_a_full_store_keeps_states_in_memory_and_says_so(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 0, most_pages=4)
    for position in range(0, 300, 10):
        rows = [(f"a key of some length {position + n}", 1) for n in range(10)]
        task.take(frame(rows, position), 0)
    assert overflow(task).trouble == "database or disk is full"
    assert task.states.stored > 0, "what was there before is there still"
    assert task.states.stored + task.states.many == 300
    for position in range(0, 300, 10):
        rows = [(f"a key of some length {position + n}", 1) for n in range(10)]
        task.take(frame(rows, 300 + position), 0)
    assert {state for _, _, state in states(task)} == {2} and len(states(task)) == 300
    assert not task.results.letters


def test_a_store_that_takes_more_again_is_used_again(tmp_path: Path) -> None:
    blocked = tmp_path / "overflow"
    blocked.write_text("no folder")
    task = bounded(Touchy(), tmp_path, 0)
    task.take(frame([("a", 1), ("b", 1)]), 0)
    assert "File exists" in overflow(task).trouble and task.states.many == 2
    assert not task.results.letters
    blocked.unlink()
    overflow(task).rests = False
    task.states.keep_bound()
    assert overflow(task).trouble == "" and task.states.many + task.states.stored == 2 and task.states.stored


def test_a_store_that_cannot_be_read_has_the_thread_start_again(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 0)
    task.take(frame([("a", 1), ("b", 1)]), 0)
    store = overflow(task).store
    assert isinstance(store, SqliteStates) and store.database is not None
    store.database.execute("drop table states")
    with pytest.raises(StartAgain, match=r"overflow/t~5.sqlite: no such table"):
        task.take(frame([("a", 1), ("b", 1)], 2), 0)


def test_two_keys_with_one_hash_are_two(tmp_path: Path) -> None:
    task = bounded(Touchy(), tmp_path, 0, hash_of=lambda name: 7)
    alike = [f"k{n}" for n in range(9000) if range_of(f"k{n}") == 5]
    for position in range(3 * len(alike)):
        task.take(frame([(alike[position % len(alike)], 1)], position), 0)
    assert task.states.stored == 1 and len(alike) > 3
    assert [state for _, _, state in states(task)] == [3] * len(alike)


class Beyond(Member):
    """With room for two states."""

    folder: Path

    def __post_init__(self) -> None:
        super().__post_init__()
        self.core.ports = self.core.ports.__class__(
            **self.core.ports.__dict__
            | {
                "overflow": lambda task, thread: SqliteStates(str(self.folder), task, thread),
                "state_bytes": 500,
            }
        )
        self.keyed.bound_memory()


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_ranges_move_and_threads_die_with_states_beyond_memory(
    seed: int, far: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Beyond, "folder", tmp_path, raising=False)
    monkeypatch.setattr("keyed_family.Member", Beyond)
    choose = random.Random(seed)
    family = Family({1: "vm1", 2: "vm1", 3: "vm2"}, far=far)
    family.plan(all_of(1, 2))
    family.offer(60)
    family.settle()
    for table in (all_of(1, 2, 3), all_of(3), all_of(2, 1)):
        family.offer(60)
        family.run(choose.random())
        if choose.random() < 0.5:
            thread = choose.choice(sorted(family.threads))
            family.kill(thread)
            family.restart(thread)
        family.plan(table)
        family.offer(30)
        family.settle()
    family.all_done()
    assert family.counts() == family.expected() and not family.lost
    assert any(member.rows.states.stored for member in family.alive)


@pytest.mark.parametrize("most_bytes", [None, ROOM_FOR_TWO])
def test_a_large_snapshot_is_read_from_its_file_with_what_changed_since(
    most_bytes: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.topology_runtime.worker.keyed_state.snapshot_files.MAPPED_FROM", 0)
    monkeypatch.setattr("headgate.topology_runtime.worker.keyed_state.state_snapshots.CHANGES_BYTES", 200)
    task = bounded(Nested(), tmp_path, ROOM_FOR_TWO)
    saving = Saving(task, tmp_path)
    for position in range(0, 120, 4):
        task.take(frame([(f"k{(position + n) * 7 % 50}", n) for n in range(4)], position), 0)
        saving.save_all()
    again = restored(saving.store.load(), tmp_path, Nested(), most_bytes)
    assert states(again) == states(task)
    again.take(frame([("k0", 0)], 0), 0)
    assert states(again) == states(task), "it knows which rows it has"


def test_a_part_that_is_too_large_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topology_runtime.worker.keyed_state.state_snapshots.RECORD_MOST", 100)
    task, store = bounded(Nested(), tmp_path, 0), SnapshotFiles(str(tmp_path), "t", 5)
    task.take(frame([("a", 1), ("b", 1)]), 0)
    with pytest.raises(OSError, match="use more threads"):
        store.save(whole_part(task))
    assert store.whole_due and store.load() is None
