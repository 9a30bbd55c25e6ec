"""Whole snapshots are made in parts, while rows change states: whatever is read is what was there when all was last
durable, and one that was not finished is none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from keyed_family import Family, all_of
from test_keyed_frames import frame, task_of, whole_part
from test_states_beyond_memory import ROOM_FOR_TWO, Nested, Saving, bounded, states

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.connectors.object_folder import FolderOfFiles
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import far_snapshots as far
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.snapshot_parts import SnapshotParts
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart

FILES = "headgate.topology_runtime.worker.keyed_state.snapshot_files"


def take(task: KeyedRows, keys: Any, position: int) -> None:
    task.take(frame([(key, 1) for key in keys], position), 0)


def read_again(saving: Saving) -> list[tuple[int, str, Any]]:
    again, found = task_of(CountByKey()), saving.store.load()
    assert found is not None
    again.restore(found)
    return states(again)


def test_rows_go_on_while_a_whole_one_is_made_and_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{FILES}.ADDED_LEAST", 1)
    task = task_of(CountByKey())
    saving = Saving(task, tmp_path)
    take(task, range(30), 0)
    saving.save_all()
    for step in range(60):
        take(task, (step % 30, 30 + step), 30 + 2 * step)
        assert saving.save(), "what stands takes changes"
    assert saving.several, "one was made in several parts"
    assert read_again(saving) == states(task)


def test_a_crash_once_it_is_whole_counts_no_row_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """States are written as they are: those that rows have changed since are in a snapshot only with these rows' names,
    else the rows come again and count again."""
    monkeypatch.setattr(f"{FILES}.ADDED_LEAST", 1)
    task = task_of(CountByKey())
    saving, position = Saving(task, tmp_path), 30
    take(task, range(30), 0)
    saving.save_all()
    while not task.states.sweeping:
        take(task, (position % 30,), position)
        saving.save()
        position += 1
    take(task, range(30), 1000)
    while task.states.sweeping:
        saving.step()
        again, found = task_of(CountByKey()), SnapshotFiles(str(tmp_path), "t", 5).load()
        assert found is not None
        again.restore(found)
        take(again, range(30), 1000)
        assert states(again) == states(task)
    saving.save()
    assert not saving.store.whole_due and read_again(saving) == states(task)


def test_until_it_is_whole_the_one_before_stands(tmp_path: Path) -> None:
    task = task_of(CountByKey())
    saving = Saving(task, tmp_path)
    take(task, range(9), 0)
    saving.save_all()
    before = states(task)
    saving.begin_again(task_of(CountByKey()))
    take(saving.task, range(9), 9)
    assert not saving.save(), "nothing stands: rows wait until all is there"
    assert read_again(saving) == before


def test_a_state_that_comes_back_from_the_store_meanwhile_is_in_it(tmp_path: Path) -> None:
    task = bounded(Nested(), tmp_path / "memory", ROOM_FOR_TWO)
    keys = [f"k{n}" for n in range(40)]
    saving = Saving(task, tmp_path)
    take(task, keys, 0)
    for _ in range(3):
        saving.save()
    overflow = task.states.overflow
    assert overflow is not None
    overflow.most_bytes = 1 << 20
    task.states.bring(keys, [range_of(key) for key in keys])  # and no row changes them
    saving.save_all()
    again, found = task_of(Nested()), saving.store.load()
    assert found is not None
    again.restore(found)
    assert states(again) == states(task) and len(states(again)) == 40


@pytest.mark.parametrize("far_away", [False, True])
def test_ranges_that_move_are_changes_and_are_read_as_they_are(far_away: bool) -> None:
    family = Family({1: "vm1", 2: "vm2", 3: "vm3"}, far=far_away)
    for member in (1, 2):
        family.plan(all_of(member))
        family.settle()
        family.offer(60)
        family.run(2.0)
    family.plan(all_of(1, 2))
    family.settle()
    for number in (1, 2):
        store = family.members[number].keyed.store
        found = store.load()
        assert found is not None
        assert found.ranges == set(family.members[number].rows.ranges.versions)
    family.all_done()
    assert family.counts() == family.expected() and not family.lost


# ── elsewhere ───────────────────────────────────────────────────────────────────────────────────────


def far_saving(folder: Path, task: KeyedRows, life: int = 1) -> tuple[FarSnapshots, SnapshotParts]:
    far.note_run(str(folder), "run")
    return FarSnapshots(FarPlace(str(folder), "run", life), "t", 5), SnapshotParts(task, most=2)


def save_all(store: FarSnapshots, parts: SnapshotParts, task: KeyedRows) -> None:
    covers = False
    while not covers:
        if parts.may_begin(store):
            parts.begin(store)
        if (part := parts.step(2)) is not None:
            store.save(part)
            covers = part.covers
    task.released(0)


def far_found(folder: Path) -> list[tuple[int, str, Any]]:
    data, _ = far.read(FarPlace(str(folder), "run", 9).open(), "t", 5)
    again = task_of(CountByKey())
    if data is not None:
        again.restore(form.stream(data))
    return states(again)


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(far, "PIECE_BYTES", 1)


@pytest.mark.usefixtures("pieces")
def test_a_whole_one_elsewhere_is_in_objects_and_read_as_one(tmp_path: Path) -> None:
    task = task_of(CountByKey())
    store, parts = far_saving(tmp_path, task)
    take(task, range(20), 0)
    save_all(store, parts, task)
    take(task, range(5), 20)
    save_all(store, parts, task)
    objects = list((tmp_path / "run" / "state" / "t~5").iterdir())
    assert len(objects) == 13, "the beginning, ten pieces, what changed meanwhile, a change"
    assert far_found(tmp_path) == states(task)
    data, _ = far.read(FarPlace(str(tmp_path), "run", 9).open(), "t", 5)
    assert data is not None
    far.begin_with(FarPlace(str(tmp_path), "another", 0).open(), "t", 5, data)
    copied, _ = far.read(FarPlace(str(tmp_path), "another", 9).open(), "t", 5)
    assert copied == data, "a copy of it is one object"


@pytest.mark.usefixtures("pieces")
def test_a_store_that_is_full_or_a_death_before_its_last_object_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of(CountByKey())
    store, parts = far_saving(tmp_path, task)
    take(task, range(20), 0)
    save_all(store, parts, task)
    before, put = states(task), FolderOfFiles.put

    def full(self: FolderOfFiles, name: str, data: bytes) -> None:
        if name.endswith("-00000000"):
            raise OSError(28, "No space left on device")
        put(self, name, data)

    again = task_of(CountByKey())
    found = FarSnapshots(FarPlace(str(tmp_path), "run", 2), "t", 5)
    saved = found.load()
    assert saved is not None
    again.restore(saved)
    take(again, range(20), 20)
    monkeypatch.setattr(FolderOfFiles, "put", full)
    with pytest.raises(OSError, match="No space"):
        save_all(found, SnapshotParts(again, most=2), again)
    assert found.whole_due and far_found(tmp_path) == before
    monkeypatch.setattr(FolderOfFiles, "put", put)
    save_all(found, SnapshotParts(again, most=2), again)
    assert far_found(tmp_path) == states(again)


@pytest.mark.usefixtures("pieces")
def test_a_death_before_the_first_one_is_whole_leaves_nothing(tmp_path: Path) -> None:
    task = task_of(CountByKey())
    store, parts = far_saving(tmp_path, task)
    take(task, range(20), 0)
    parts.begin(store)
    given = 0
    while given < 4:
        if (part := parts.step(2)) is not None:
            store.save(part)
            given += 1
    assert task.states.sweeping and list((tmp_path / "run" / "state" / "t~5").iterdir())
    assert far_found(tmp_path) == []
    again = FarSnapshots(FarPlace(str(tmp_path), "run", 2), "t", 5)
    assert again.load() is None
    save_all(again, SnapshotParts(task, most=2), task)
    assert far_found(tmp_path) == states(task)


@pytest.mark.usefixtures("pieces")
@pytest.mark.parametrize("which", [0, 3])
def test_a_piece_that_is_lost_is_told(tmp_path: Path, which: int) -> None:
    task = task_of(CountByKey())
    store, parts = far_saving(tmp_path, task)
    take(task, range(20), 0)
    save_all(store, parts, task)
    take(task, range(5), 20)
    save_all(store, parts, task)
    next((tmp_path / "run" / "state" / "t~5").glob(f"*.00000000-{which:08}")).unlink()
    with pytest.raises(msgspec.DecodeError, match="damaged"):
        far.read(FarPlace(str(tmp_path), "run", 9).open(), "t", 5)


def test_rows_whose_output_cannot_travel_are_left_out_of_a_change_and_others_are_known() -> None:
    task = task_of(Odd())
    data, _ = form.behind(None, None, whole_part(task))
    task.covered()
    take(task, ("a", "odd", "b"), 0)
    data, _ = form.behind(data, None, SavedPart(task.change(task.ranges.versions)))
    assert data is not None
    again = task_of(Odd())
    again.restore(form.stream(data))
    take(again, ("a", "odd", "b"), 0)
    counts = {key: n for at in again.states.filled for key, n in again.states.of(at).items()}
    assert counts == {"a": 1, "b": 1, "odd": 2} and again.applied.again_at_most == 1


class Odd(Keyed[Any, Any, int, Any]):
    """What comes of some of its rows cannot travel."""

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: Any, state: int) -> Any:
        return state + 1, [object() if key == "odd" else key]


def test_files_of_before_are_read_and_new_ones_are_not_taken_for_theirs() -> None:
    """Who knows nothing of ranges that come and go in changes would keep ranges that left."""
    data = form.whole(form.KeyedSnapshot((RangeCopy(3, 7, b"x"),)))
    before = b"hgk1" + data[4:]
    assert data[:4] != before[:4] and form.is_complete(before) and form.is_complete(data)
    assert form.read(before) == form.read(data)
