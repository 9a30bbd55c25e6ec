"""A thread that has nothing yet goes on from the snapshots of one that is gone: they are its own without being written
once more, and wherever that ends half-way there is what there was before."""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from keyed_family import Family, all_of
from keyed_rows_made import keyed_rows
from patience import PATIENCE_S
from test_keyed_frames import frame
from test_snapshots_elsewhere import ONE, THREE, TWO, Thread, of, place
from test_timers import SOURCE, TENS, US, Bench

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES
from headgate.topology_runtime.connectors import object_folder
from headgate.topology_runtime.connectors.object_folder import FolderOfFiles
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import ELSEWHERE, Keepers
from headgate.topology_runtime.wire.state_moves import RangeCopy, Watermark
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import far_snapshots as far
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarSnapshots
from headgate.topology_runtime.worker.keyed_state.key_ranges import Layer, Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.snapshot_parts import SnapshotParts
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    KeyedSnapshot,
    NotRead,
    SavedPart,
    SavedWhole,
    SnapshotStore,
)
from headgate.topology_runtime.worker.operators.thread_core import Ports
from headgate.topology_runtime.worker.orders.thread_orders import Orders, orders_of

ALL = frozenset(range(KEY_RANGES))
GONE, OTHER, ME = 5, 9, 6


@pytest.fixture(params=[32 << 20, 200])
def saved(tmp_path: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Thread:
    """What thread 5 had: a whole snapshot, in one object or in several, and changes in objects of their own."""
    monkeypatch.setattr(far, "PIECE_BYTES", request.param)
    monkeypatch.setattr(far, "AGAIN_BYTES", 1)
    one = Thread(tmp_path, thread=GONE)
    one.takes(*(f"key {n}" for n in range(60)))
    parts, covers = SnapshotParts(one.rows, most=7), False
    while not covers:
        part = next_part(parts, one.store)
        one.written.clear()
        one.store.save(part)
        assert one.written.wait(PATIENCE_S)
        covers = part.covers
    one.rows.covered()
    for n in range(3):
        one.takes("key 1", f"key {n}")
        one.saves()
    return one


def next_part(parts: SnapshotParts, store: SnapshotStore) -> SavedPart:
    if parts.may_begin(store):
        parts.begin(store)
    while (part := parts.step(1 << 20)) is None:
        pass
    return part


class Heir:
    """Thread 6, which is to have ranges of thread 5."""

    def __init__(
        self, folder: Path, life: int = 2, ranges: Collection[int] = ALL, exactly_once: bool = True
    ) -> None:
        self.read = threading.Event()
        self.folder, self.life = folder, life
        self.store = FarSnapshots(place(folder, life), "t", ME, self.read.set)
        self.rows = rows_of_heir(ranges)
        self.parts = SnapshotParts(self.rows)
        if (found := self.store.load()) is not None:
            self.rows.restore(found)

    def asks(self, thread: int = GONE) -> KeyedSnapshot | SavedWhole | None:
        while True:
            self.read.clear()
            try:
                return self.store.of(thread, self.rows.ranges.missing)
            except NotRead:
                assert self.read.wait(PATIENCE_S)

    def goes_on(self, thread: int = GONE) -> None:
        found = self.asks(thread)
        assert isinstance(found, SavedWhole)
        self.parts.told = self.rows.go_on_from(thread, found)
        self.rows.ranges.hear(thread, self.rows.ranges.missing.copy())

    def saves(self) -> SavedPart:
        part = next_part(self.parts, self.store)
        self.store.save(part)
        self.rows.covered()
        return part

    def objects(self) -> list[Path]:
        folder = self.folder / "run" / "state" / f"t~{ME}"
        return sorted(folder.iterdir()) if folder.exists() else []


def rows_of_heir(ranges: Collection[int] = ALL, logic: Keyed | None = None) -> KeyedRows:
    """To keyed_rows it is thread 5: what it asks for is thread 9's then."""
    rows = keyed_rows(logic or CountByKey(), lambda row: row[0], True, owns=False)
    mine = [5 if at in ranges else OTHER for at in range(KEY_RANGES)]
    before = Layer(1, (GONE + 100,) * KEY_RANGES, True)
    homes = {GONE + 100: ""}
    rows.ranges.stand(Standing(2, mine, (before, Layer(2, mine)), frozenset({5, OTHER}), homes))
    return rows


def claims(heir: Heir) -> None:
    heir.rows.ranges.hear(GONE + 100, ALL)
    heir.rows.claim(0)


def found(folder: Path, thread: int = ME) -> tuple[dict[Any, Any], dict[int, int]]:
    """What is there by now: states, and versions of ranges. By range it is the same."""
    data, _ = far.read(place(folder).open(), "t", thread)
    if data is None:
        return {}, {}
    whole, by_range = (keyed_rows(CountByKey(), lambda row: row[0], True, owns=False) for _ in range(2))
    whole.restore(form.stream(data))
    by_range.restore(form.stream(form.whole(form.read(data))))
    assert of(whole) == of(by_range) and whole.ranges.versions == by_range.ranges.versions
    return of(whole), whole.ranges.versions


# ── one store ───────────────────────────────────────────────────────────────────────────────────────


def test_what_was_there_is_there_again_and_changes_go_behind_it(tmp_path: Path, saved: Thread) -> None:
    heir = Heir(tmp_path)
    heir.goes_on()
    assert of(heir.rows) == of(saved.rows) and heir.store.stands
    assert found(tmp_path) == (of(saved.rows), saved.rows.ranges.versions)
    claims(heir)
    heir.rows.take(frame([("key 1", 1), ("new", 1)], 5000), 0)
    change = heir.saves().change
    assert change is not None and change.moved is not None
    assert not change.moved.came and dict(change.moved.raised) == dict.fromkeys(ALL, 2)
    assert found(tmp_path) == (of(heir.rows), dict.fromkeys(ALL, 2))
    assert of(heir.rows) == of(saved.rows) | {"key 1": of(saved.rows)["key 1"] + 1, "new": 1}


def test_nothing_but_how_it_begins_is_written_once_more(tmp_path: Path, saved: Thread) -> None:
    heir, before = Heir(tmp_path), {path.stat().st_ino for path in tmp_path.rglob(f"t~{GONE}/*")}
    heir.goes_on()
    (fresh,) = [path for path in heir.objects() if path.stat().st_ino not in before]
    assert fresh.name.endswith("-00000000") and before


def test_a_row_that_the_other_one_had_is_known(tmp_path: Path, saved: Thread) -> None:
    heir = Heir(tmp_path)
    heir.goes_on()
    claims(heir)
    before = of(heir.rows)
    heir.rows.take(frame([(f"key {n}", 1) for n in range(60)], 1000, attempt=3), 0)
    assert of(heir.rows) == before


def test_rows_that_waited_are_counted_once_it_is_there(tmp_path: Path, saved: Thread) -> None:
    heir = Heir(tmp_path)
    heir.rows.take(frame([("key 1", 1), ("key 1", 1)], 9000), 0)
    heir.goes_on()
    claims(heir)
    heir.saves()
    assert found(tmp_path)[0]["key 1"] == of(saved.rows)["key 1"] + 2


def test_a_later_life_takes_it_up_from_its_own(tmp_path: Path, saved: Thread) -> None:
    first = Heir(tmp_path)
    first.goes_on()
    claims(first)
    first.rows.take(frame([("key 1", 1)], 5000), 0)
    first.saves()
    again = Heir(tmp_path, life=3)
    assert of(again.rows) == of(first.rows)
    again.rows.take(frame([("key 2", 1)], 6000), 0)
    covers = False
    while not covers:
        part = next_part(again.parts, again.store)
        again.store.save(part)
        covers = part.covers
    assert found(tmp_path)[0] == of(again.rows)
    assert all(path.name.startswith("0000000003") for path in again.objects()), "the rest has gone"


def test_a_whole_one_of_its_own_takes_the_place_of_what_was_copied(tmp_path: Path, saved: Thread) -> None:
    heir = Heir(tmp_path)
    heir.goes_on()
    claims(heir)
    heir.saves()
    change = heir.rows.change(heir.rows.ranges.versions)
    begun, applied = heir.rows.begin_whole()
    heir.store.save(SavedPart(change, begun, heir.rows.swept(1 << 30), True, applied))
    assert all(path.name.startswith("0000000002.00000002") for path in heir.objects())
    assert found(tmp_path) == (of(saved.rows), dict.fromkeys(ALL, 2))


def test_one_after_the_other_goes_on(tmp_path: Path, saved: Thread) -> None:
    first = Heir(tmp_path)
    first.goes_on()
    claims(first)
    first.rows.take(frame([("key 1", 1)], 5000), 0)
    first.saves()
    second = Heir(tmp_path)
    second.store = FarSnapshots(place(tmp_path, 4), "t", 7, second.read.set)
    second.goes_on(ME)
    assert of(second.rows) == of(first.rows)
    assert found(tmp_path, 7) == (of(first.rows), first.rows.ranges.versions)


def test_ranges_that_go_elsewhere_are_left_out(tmp_path: Path, saved: Thread) -> None:
    mine = frozenset(range(KEY_RANGES // 2 + 1))
    heir = Heir(tmp_path, ranges=mine)
    heir.goes_on()
    claims(heir)
    states = {key: n for key, n in of(saved.rows).items() if range_of(key) in mine}
    assert of(heir.rows) == states and heir.rows.ranges.versions.keys() == mine
    change = heir.saves().change
    assert change is not None and change.moved is not None and set(change.moved.left) == ALL - mine
    assert found(tmp_path) == (states, dict.fromkeys(mine, 2))


def test_of_what_mostly_goes_elsewhere_nothing_is_copied(tmp_path: Path, saved: Thread) -> None:
    heir = Heir(tmp_path, ranges=range(KEY_RANGES // 2 - 1))
    assert isinstance(heir.asks(), KeyedSnapshot) and not heir.objects() and not heir.store.stands


def test_of_what_has_gone_elsewhere_before_nothing_is_copied(tmp_path: Path) -> None:
    one = Thread(tmp_path, thread=GONE)
    for key_range in ALL:
        one.rows.ranges.drop(key_range)
    one.saves()
    heir = Heir(tmp_path)
    got = heir.asks()
    assert isinstance(got, KeyedSnapshot) and not got.copies and not heir.objects()


def test_a_thread_that_has_something_by_then_takes_it_by_range(
    tmp_path: Path, saved: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, asked = FolderOfFiles.put, threading.Event()

    def late(self: FolderOfFiles, name: str, data: bytes, same_as: str = "") -> None:
        assert asked.wait(PATIENCE_S), "copying ends after it was asked for, however busy the machine"
        put(self, name, data, same_as)

    heir = Heir(tmp_path)
    monkeypatch.setattr(FolderOfFiles, "put", late)
    with pytest.raises(NotRead):
        heir.store.of(GONE, ALL)
    asked.set()
    assert heir.read.wait(PATIENCE_S)
    heir.rows.ranges.hear(GONE + 100, [7])
    heir.rows.claim(0)
    begun, applied = heir.rows.begin_whole()
    heir.store.save(SavedPart(None, begun, heir.rows.swept(1), True, applied))
    reading_over(heir)
    got = heir.store.of(GONE)
    assert isinstance(got, KeyedSnapshot) and heir.store.stands
    assert found(tmp_path) == ({}, {7: 2})


def reading_over(heir: Heir) -> None:
    for thread in threading.enumerate():
        if thread.name == f"t-{GONE} read":
            thread.join(PATIENCE_S)


class Broken(OSError):
    pass


def test_wherever_copying_ends_there_is_nothing_or_all_of_it(
    tmp_path: Path, saved: Thread, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, done = FolderOfFiles.put, list[str]()
    monkeypatch.setattr(far, "READ_AGAIN_S", 3600.0)

    def some(self: FolderOfFiles, name: str, data: bytes, same_as: str = "") -> None:
        if f"~{ME}/" in name:
            assert asked.wait(PATIENCE_S)
            if not left[0]:
                ended.set()
                raise Broken
            left[0] -= 1
            done.append(name)
        put(self, name, data, same_as)

    monkeypatch.setattr(FolderOfFiles, "put", some)
    for puts in range(40):
        left, ended, asked = [puts], threading.Event(), threading.Event()
        heir = Heir(tmp_path, life=10 + puts)
        with pytest.raises(NotRead):
            heir.store.of(GONE, ALL)
        asked.set()
        while not ended.wait(0.001) and not heir.read.is_set():
            pass
        states, versions = found(tmp_path)
        if heir.read.is_set():
            break
        assert not states and not versions
        assert Heir(tmp_path, life=60 + puts).rows.states.many == 0
    assert puts > 3 and states == of(saved.rows) and versions == saved.rows.ranges.versions


# ── one thread's rows ───────────────────────────────────────────────────────────────────────────────


def gone() -> tuple[KeyedRows, bytes]:
    rows = keyed_rows(CountByKey(), lambda row: row[0], True)
    rows.take(frame([(f"key {n % 9}", 1) for n in range(30)], 0), 0)
    begun, applied = rows.begin_whole()
    data, _ = form.behind(None, None, SavedPart(None, begun, rows.swept(1 << 30), True, applied))
    assert data is not None
    return rows, data


def test_a_newer_copy_that_another_keeper_has_is_saved_as_a_whole() -> None:
    theirs, data = gone()
    rows = rows_of_heir()
    told = rows.go_on_from(GONE + 100, form.stream(data))
    newer = keyed_rows(CountByKey(), lambda row: row[0], True)
    newer.take(frame([("key 1", 1)] * 50, 0), 0)
    at = range_of("key 1")
    rows.offered(OTHER, [RangeCopy(at, 7, newer.copy(at).data)])
    rows.ranges.hear(GONE + 100, ALL)
    rows.claim(0)
    change = rows.change(told)
    assert change.moved is not None and [copy.key_range for copy in change.moved.came] == [at]
    assert dict(change.moved.raised) == dict.fromkeys(ALL - {at}, 2)
    again = keyed_rows(CountByKey(), lambda row: row[0], True, owns=False)
    again.restore(form.stream(data + form.added(change)))
    assert of(again) == of(rows) == of(theirs) | {"key 1": 50}


def test_a_range_that_came_is_in_the_change_beside_which_a_whole_one_begins() -> None:
    """That goes behind the one before, which stands until the new one is whole."""
    _, data = gone()
    rows, at = rows_of_heir(), range_of("key 1")
    told = rows.go_on_from(GONE + 100, form.stream(data))
    newer = keyed_rows(CountByKey(), lambda row: row[0], True)
    newer.take(frame([("key 1", 1)] * 50, 0), 0)
    rows.offered(OTHER, [RangeCopy(at, 7, newer.copy(at).data)])
    rows.ranges.hear(GONE + 100, ALL)
    rows.claim(0)
    rows.begin_whole()
    change = rows.change(told)
    assert change.moved is not None and [copy.key_range for copy in change.moved.came] == [at]
    again = keyed_rows(CountByKey(), lambda row: row[0], True, owns=False)
    again.restore(form.stream(data + form.added(change)))
    assert of(again) == of(rows)


def test_a_range_that_went_and_came_back_empty_is_not_what_it_was() -> None:
    _, data = gone()
    rows, at = rows_of_heir(ALL - {range_of("key 1")}), range_of("key 1")
    told = rows.go_on_from(GONE + 100, form.stream(data))
    rows.ranges.stand(Standing(3, (5,) * KEY_RANGES, (), frozenset({5})))
    rows.claim(0)
    change = rows.change(told)
    assert change.moved is not None and [copy.key_range for copy in change.moved.came] == [at]
    again = keyed_rows(CountByKey(), lambda row: row[0], True, owns=False)
    again.restore(form.stream(data + form.added(change)))
    assert "key 1" not in of(again) and of(again) == of(rows)


def test_what_the_other_one_had_lost_is_said_once() -> None:
    theirs, _ = gone()
    theirs.ranges.lost.add(3)
    theirs.applied.again_at_most = 4
    data = form.whole(theirs.begin_whole()[0])
    rows = rows_of_heir()
    rows.go_on_from(GONE + 100, form.stream(data))
    assert not rows.ranges.lost and not rows.applied.again_at_most


class Awaits(CountByKey):
    """`restore` needs something that is there only later."""

    there = False

    def restore(self, saved: Any) -> Any:
        if not self.there and saved > 3:
            raise ConnectionError("not yet")
        return saved


def test_states_that_cannot_be_restored_yet_are_waited_for() -> None:
    theirs, data = gone()
    logic = Awaits()
    rows = rows_of_heir(logic=logic)
    told = rows.go_on_from(GONE + 100, form.stream(data))
    rows.ranges.hear(GONE + 100, ALL)
    rows.claim(0)
    waits = {range_of(key) for key, n in of(theirs).items() if n > 3}
    assert rows.ranges.missing == waits and "not yet" in next(iter(rows.troubles.values()))
    logic.there = True
    rows.claim(10**9)
    assert not rows.ranges.missing and of(rows) == of(theirs)
    again = keyed_rows(CountByKey(), lambda row: row[0], True, owns=False)
    again.restore(form.stream(data + form.added(rows.change(told))))
    assert of(again) == of(rows)


def test_a_range_that_nobody_else_has_by_now_is_raised_and_not_saved_again() -> None:
    rows, data = gone()
    told = dict(rows.ranges.versions)
    rows.ranges.stand(
        Standing(4, (5,) * KEY_RANGES, (Layer(1, (OTHER,) * KEY_RANGES),), frozenset({5, OTHER}))
    )
    rows.ranges.hear(OTHER, ALL)
    rows.claim(0)
    rows.take(frame([("key 1", 1)], 500), 0)
    change = rows.change(told)
    assert change.moved is not None and not change.moved.came and len(change.moved.raised) == KEY_RANGES
    stream = form.stream(data + form.added(change))
    assert {copy.version for copy in stream.whole().copies} == {4} and stream.ranges == ALL


def test_a_version_of_a_range_that_is_not_there_is_damage() -> None:
    _, data = gone()
    moved = form.RangesMoved((), (3,), (), ((3, 9),))
    change = form.added(form.StateChange(form.states_of([], [], []), form.NO_ROWS, (), 0, (), moved))
    with pytest.raises(msgspec.DecodeError, match="has not"):
        form.read(data + change)


# ── threads ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=[False, True])
def them(request: pytest.FixtureRequest) -> Iterator[Family]:
    made = Family({ONE: "vm1", TWO: "vm2", THREE: "vm3"}, far=True, exactly_once=request.param)
    made.plan(all_of(ONE))
    made.settle()
    yield made


@pytest.mark.parametrize("at_s", [0.0, 0.1, 0.3, 0.35, 0.5, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("replayed", [False, True])
def test_whoever_is_killed_while_it_goes_on_from_another_loses_no_row(
    them: Family, at_s: float, replayed: bool
) -> None:
    them.offer(300)
    them.run(2.0)
    them.offer(100)
    them.run(0.2)
    them.lose("vm1")
    them.plan(all_of(TWO), gone=[ONE])
    them.offer(50)
    them.run(at_s)
    them.kill(TWO)
    if replayed:
        them.replay()
    them.restart(TWO)
    them.settle()
    them.offer(100)
    them.all_done()
    assert them.counts() == them.expected() and not them.lost


def test_a_thread_in_the_place_of_a_lost_one_goes_on_from_it(them: Family) -> None:
    them.offer(300)
    them.run(2.0)
    saves = them.parts
    them.lose("vm1")
    them.plan(all_of(TWO), gone=[ONE])
    them.settle()
    assert them.gone_on == 1 and them.parts == saves, "no whole snapshot was made for it"
    them.all_done()
    assert them.counts() == them.expected() and not them.lost


def test_a_vm_lost_while_another_goes_on_from_it_loses_no_row(them: Family) -> None:
    them.offer(300)
    them.run(2.0)
    them.lose("vm1")
    them.plan(all_of(TWO), gone=[ONE])
    for at_s in (0.2, 0.3, 0.5):
        them.offer(20)
        them.run(at_s)
    them.lose("vm2")
    them.plan(all_of(THREE), gone=[ONE, TWO])
    them.settle()
    them.all_done()
    assert them.counts() == them.expected() and not them.lost


class FarBench(Bench):
    """Its snapshots are elsewhere. heir: of thread 9, which is gone."""

    def __init__(self, folder: Path, incarnation: int, heir: bool) -> None:
        self.heir = heir
        super().__init__(folder, incarnation, exactly_once=True)

    def ports(self, folder: Path | str = "", exactly_once: bool = False) -> Ports:
        at = place(Path(folder), self.incarnation)
        return replace(
            super().ports(folder, exactly_once),
            snapshots=lambda task, thread: FarSnapshots(at, task, thread if self.heir else OTHER),
        )

    def orders(self) -> Orders:
        found = super().orders()
        if not self.heir:
            return found
        keepers = Keepers("tens", 1, ((OTHER, KEY_RANGES),), True, ((OTHER, ELSEWHERE),))
        desired = msgspec.structs.replace(found.desired, routes_number=2, keepers=(keepers,))
        return orders_of(desired, self.slot, self.incarnation)

    def claims(self) -> None:
        ended = threading.Event()
        for _ in range(int(PATIENCE_S / 0.005)):
            self.look(0.0)
            if not self.core.behaviour.rows.ranges.missing:
                return
            ended.wait(0.005)
        raise AssertionError("it did not come")


def test_timers_and_what_they_gave_go_along_under_the_same_names(tmp_path: Path) -> None:
    far.note_run(str(tmp_path), "run")
    first = FarBench(tmp_path, 1, heir=False)
    first.give(0, ("a", 5), ("b", 7), ("a", 6))
    first.hear(Watermark(SOURCE, TENS, 15 * US))
    first.look(0.3)
    first.look(0.3)
    sent = first.sent()
    assert [row for _, _, row in sent] == [("a", 15, 2)]
    heir = FarBench(tmp_path, 2, heir=True)
    assert not heir.sent()
    heir.give(3, ("b", 16))
    heir.claims()
    assert heir.sent() == sent, "it may not have come"
    heir.hear(Watermark(SOURCE, TENS, 20 * US))
    for _ in range(3):
        heir.look(0.3)
    ((partition, number, row),) = heir.sent()
    assert row == ("b", 17, 2) and number == 2 << 32
    for _ in range(3):
        heir.look(0.3)
    again = FarBench(tmp_path, 3, heir=True)
    again.claims()
    again.look(0.3)
    assert sorted(again.sent()) == sorted([*sent, (partition, number, row)])


# ── objects ─────────────────────────────────────────────────────────────────────────────────────────


def test_an_object_that_may_be_copied_is_the_same_file(tmp_path: Path) -> None:
    folder = FolderOfFiles(str(tmp_path))
    folder.put("a/one", b"text")
    folder.put("b/two", b"text", same_as="a/one")
    assert os.path.samefile(tmp_path / "a" / "one", tmp_path / "b" / "two")
    folder.put("a/one", b"other")
    folder.remove("a/one")
    assert folder.get("b/two") == b"text" and folder.names("b") == ["two"]


def test_where_files_have_one_name_only_or_the_other_is_gone_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*names: str) -> None:
        raise PermissionError(1, "Operation not permitted")

    folder = FolderOfFiles(str(tmp_path))
    folder.put("b/two", b"text", same_as="a/gone")
    folder.put("a/one", b"more")
    folder.put("b/two", b"more", same_as="a/one")
    assert folder.get("b/two") == b"more"
    monkeypatch.setattr(os, "link", refuses)
    folder.put("b/three", b"more", same_as="a/one")
    assert folder.get("b/three") == b"more" and folder.names("b") == ["three", "two"]


@pytest.mark.parametrize("copies", [False, True])
def test_a_store_that_copies_by_itself_is_asked_to(monkeypatch: pytest.MonkeyPatch, copies: bool) -> None:
    monkeypatch.setattr(object_folder, "COPYING", ("memory://",) if copies else ())
    folder = object_folder.object_folder(f"memory://copied-{copies}")
    folder.put("a/one", b"as it is there")
    folder.put("b/two", b"as it is told", same_as="a/one")
    assert folder.get("b/two") == (b"as it is there" if copies else b"as it is told")
    folder.put("b/three", b"as it is told", same_as="a/gone")
    assert folder.get("b/three") == b"as it is told"
