"""Snapshots of keyed state that are on no VM: a VM that is lost takes no state along, rows are let go only once they
are durable there, and a place that is away, slow, full or damaged costs no row."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest
from keyed_family import Family, S, all_of
from patience import PATIENCE_S
from test_keyed_frames import frame, task_of, whole_part

from headgate.topology_runtime.connectors import object_folder
from headgate.topology_runtime.connectors.object_folder import FolderOfFiles, ObjectFolder
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.worker.keyed_state import far_snapshots as far
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.saved_beside import SavedBeside
from headgate.topology_runtime.worker.keyed_state.state_snapshots import KeyedSnapshot, NotRead, SavedPart

ONE, TWO, THREE = 10, 11, 12


def family() -> Family:
    made = Family({ONE: "vm1", TWO: "vm2", THREE: "vm3"}, far=True)
    made.plan(all_of(ONE, TWO))
    made.settle()
    return made


# ── who owns what ───────────────────────────────────────────────────────────────────────────────────


def test_a_lost_vm_takes_no_state_along() -> None:
    them = family()
    them.offer(400)
    them.run(3.0)
    them.offer(100)
    them.run(0.2)
    them.lose("vm1")
    them.plan(all_of(TWO, THREE), gone=[ONE])
    them.settle()
    them.offer(100)
    them.all_done()
    assert not them.lost
    assert them.counts() == them.expected()


def test_vms_lost_one_after_the_other_while_ranges_move_take_none_along() -> None:
    them = family()
    them.offer(300)
    them.run(2.0)
    them.plan(all_of(TWO, THREE))  # … and before they have moved:
    them.run(0.1)
    them.lose("vm1")
    them.plan(all_of(TWO, THREE), gone=[ONE])
    them.run(0.1)
    them.lose("vm2")
    them.plan(all_of(THREE), gone=[ONE, TWO])
    them.settle()
    them.all_done()
    assert not them.lost
    assert them.counts() == them.expected()


def test_rows_are_let_go_once_their_snapshot_is_durable() -> None:
    them = family()
    them.far_ns = 5 * S
    them.offer(50)
    them.run(3.0)
    assert len(them.open) == 50, "its snapshot is under way"
    them.run(4.0)
    assert not them.open


def test_rows_that_come_while_a_snapshot_is_under_way_wait_for_the_next() -> None:
    them = family()
    them.far_ns = 2 * S
    them.offer(50)
    them.run(1.5)
    them.offer(30)
    them.run(2.0)
    assert len(them.open) == 30
    them.run(4.0)
    assert not them.open


def test_a_place_that_takes_nothing_for_a_while_is_said_and_costs_nothing() -> None:
    them = family()
    them.disk_full = True
    them.offer(60)
    them.run(3.0)
    said = {member.core.now(idle=True).unsaved for member in them.alive}
    assert len(them.open) == 60 and said == {"[Errno 28] No space left on device"}
    them.disk_full = False
    them.run(3.0)
    assert not them.open and not any(member.core.now(idle=True).unsaved for member in them.alive)
    assert them.counts() == them.expected()


def test_a_snapshot_that_takes_long_is_said() -> None:
    them = family()
    them.far_ns = 60 * S
    them.offer(10)
    them.run(15.0)
    assert "not written yet" in them.alive[0].core.now(idle=True).unsaved


def test_while_the_place_does_not_answer_ranges_of_a_lost_vm_wait_and_are_not_given_up() -> None:
    them = family()
    them.offer(200)
    them.run(3.0)
    them.disk_full = True
    them.lose("vm1")
    them.plan(all_of(TWO, THREE), gone=[ONE])
    them.run(20.0)
    assert not them.in_force
    assert all(member.core.now(idle=True).unsaved for member in them.alive)
    them.disk_full = False
    them.settle()
    them.all_done()
    assert not them.lost
    assert them.counts() == them.expected()


# ── what is there ───────────────────────────────────────────────────────────────────────────────────


class Thread:
    """A thread's rows and their snapshots in a folder."""

    def __init__(self, folder: Path, life: int = 1, thread: int = 5) -> None:
        far.note_run(str(folder), "run")
        self.written = threading.Event()
        self.counts = True
        self.rows = task_of(CountByKey())
        far_ones = FarSnapshots(place(folder, life), "t", thread, self.written.set)
        self.store = SavedBeside(far_ones, "t", lambda: self.counts, self.written.set)
        saved = self.store.load()
        if saved is not None:
            self.rows.restore(saved)
        self._next = 1000 * life

    def takes(self, *keys: str) -> None:
        self.rows.take(frame([(key, 1) for key in keys], self._next), 0)
        self._next += len(keys)

    def part(self) -> SavedPart:
        """All at once."""
        if not self.store.whole_due:
            return SavedPart(self.rows.change(self.rows.ranges.versions))
        return whole_part(self.rows)

    def saves(self) -> None:
        """Raises OSError."""
        self.written.clear()
        self.store.save(self.part())
        self.rows.cover()
        assert self.written.wait(PATIENCE_S)
        self.store.look()


def place(folder: Path, life: int = 9) -> FarPlace:
    return FarPlace(str(folder), "run", life)


def of(rows: KeyedRows) -> dict[Any, Any]:
    return {key: n for at in rows.states.filled for key, n in rows.states.of(at).items()}


def found(folder: Path, thread: int = 5) -> dict[Any, Any]:
    saved, _ = far.read(place(folder).open(), "t", thread)
    rows = task_of(CountByKey())
    if saved is not None:
        rows.restore(form.stream(saved))
    return of(rows)


def objects(folder: Path) -> list[Path]:
    return sorted((folder / "run" / "state" / "t~5").iterdir())


def test_a_whole_snapshot_and_changes_read_as_what_was_there(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    for keys in ("ab", "bc", "c", "abc"):
        one.takes(*keys)
        one.saves()
    assert found(tmp_path) == of(one.rows) == {"a": 2, "b": 3, "c": 3}
    assert len(objects(tmp_path)) == 2, "small changes are one object"


def test_changes_that_are_large_are_objects_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "AGAIN_BYTES", 1)
    one = Thread(tmp_path)
    for _ in range(5):
        one.takes("a", "b")
        one.saves()
    assert len(objects(tmp_path)) == 5
    assert found(tmp_path) == {"a": 5, "b": 5}


def test_a_new_whole_one_takes_the_place_of_all_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(far, "ADDED_LEAST", 1)
    one = Thread(tmp_path)
    for n in range(40):
        one.takes(f"key {n}", "a")
        one.saves()
        assert len(objects(tmp_path)) <= 2
    assert found(tmp_path) == of(one.rows)


def test_a_later_life_goes_on_and_what_the_earlier_one_still_writes_is_not_read(tmp_path: Path) -> None:
    first = Thread(tmp_path)
    first.takes("a")
    first.saves()
    second = Thread(tmp_path, life=2)
    assert of(second.rows) == {"a": 1}
    second.takes("a", "b")
    second.saves()
    first.takes("c", "c", "c")
    first.saves()
    assert found(tmp_path) == {"a": 2, "b": 1}


def test_a_thread_whose_ranges_were_taken_over_lets_nothing_go_any_more(tmp_path: Path) -> None:
    one, other = Thread(tmp_path), Thread(tmp_path, thread=6)
    one.takes("a")
    one.saves()
    assert contents(other, 5) == {"a": 1}
    one.takes("a")
    with pytest.raises(OSError, match="taken over"):
        one.saves()
    with pytest.raises(OSError, match="taken over"):
        Thread(tmp_path, life=2)


def contents(thread: Thread, of_thread: int) -> dict[Any, Any]:
    while True:
        thread.written.clear()
        try:
            saved = thread.store.of(of_thread)
            break
        except NotRead:
            assert thread.written.wait(PATIENCE_S)
    rows = task_of(CountByKey())
    assert isinstance(saved, KeyedSnapshot)
    rows.restore(form.stream(form.whole(saved)))
    return of(rows)


def test_a_snapshot_of_a_vm_that_rests_does_not_count_yet(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    one.takes("a")
    one.counts = False
    one.store.save(one.part())
    assert one.written.wait(PATIENCE_S)
    assert one.store.under_way
    one.counts = True
    assert not one.store.under_way


@pytest.mark.parametrize("cut", [1, 9, -1])
def test_a_last_object_that_is_half_written_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    monkeypatch.setattr(far, "AGAIN_BYTES", 1)
    one = Thread(tmp_path)
    one.takes("a")
    one.saves()
    one.takes("a")
    one.saves()
    newest = objects(tmp_path)[-1]
    newest.write_bytes(newest.read_bytes()[:cut])
    assert found(tmp_path) == {"a": 1}


def test_a_whole_one_that_is_half_written_leaves_the_one_before(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    one.takes("a")
    one.saves()
    (newest,) = objects(tmp_path)
    torn = newest.with_name(newest.name.replace(".00000001.", ".00000002."))
    torn.write_bytes(newest.read_bytes()[:-3])
    assert found(tmp_path) == {"a": 1}
    again = Thread(tmp_path, life=2)
    again.takes("a")
    again.saves()
    assert found(tmp_path) == {"a": 2}


@pytest.mark.parametrize("how", ["damaged", "removed"])
def test_an_object_between_others_that_is_not_as_it_was_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(far, "AGAIN_BYTES", 1)
    one = Thread(tmp_path)
    for _ in range(4):
        one.takes("a")
        one.saves()
    middle = objects(tmp_path)[2]
    if how == "removed":
        middle.unlink()
    else:
        data = bytearray(middle.read_bytes())
        data[-1] ^= 1
        middle.write_bytes(data)
    with pytest.raises(OSError, match="damaged"):
        Thread(tmp_path, life=2)


def test_a_place_that_is_not_the_one_that_it_was_is_not_taken_for_empty(tmp_path: Path) -> None:
    one = Thread(tmp_path)
    one.takes("a")
    one.saves()
    os.rename(tmp_path / "run", tmp_path / "elsewhere")
    with pytest.raises(OSError, match="not the place"):
        far.read(place(tmp_path).open(), "t", 5)


def test_what_fails_is_written_again_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Thread(tmp_path)
    one.takes("a")
    one.saves()
    put = FolderOfFiles.put

    def full(self: ObjectFolder, name: str, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    one.takes("a")
    monkeypatch.setattr(FolderOfFiles, "put", full)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            one.saves()
    assert one.store.whole_due
    monkeypatch.setattr(FolderOfFiles, "put", put)
    one.saves()
    assert found(tmp_path) == {"a": 2}


def test_old_threads_are_cleaned_and_new_ones_stay(tmp_path: Path) -> None:
    for thread in (5, 6, 7):
        one = Thread(tmp_path, thread=thread)
        one.takes("a")
        one.saves()
    assert far.clean(place(tmp_path).open(), {6})
    assert [found(tmp_path, thread) for thread in (5, 6, 7)] == [{}, {"a": 1}, {"a": 1}]


def test_a_place_that_cannot_be_written_is_refused_before_a_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InvalidInput, match="cannot be kept"):
        far.note_run(str(tmp_path / "file"), "run")


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_objects_are_whole_and_named(tmp_path: Path, kind: str) -> None:
    folder = object_folder.object_folder(str(tmp_path) if kind == "folder" else f"memory://{tmp_path}")
    assert folder.names("a") == [] and folder.folders("") == [] and not folder.there("a/b")
    folder.put("a/b", b"1")
    folder.put("a/b", b"2")
    folder.put("a/c/d", b"")
    assert (folder.names("a"), folder.folders("a"), folder.folders("")) == (["b"], ["c"], ["a"])
    assert folder.get("a/b") == b"2" and folder.there("a/b")
    folder.remove("a/b")
    folder.remove("a/b")
    assert not folder.there("a/b")
    with pytest.raises(FileNotFoundError):
        folder.get("a/b")
