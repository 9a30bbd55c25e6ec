"""Snapshots are made in small steps between frames: what is durable by one is what there was when it was begun,
whatever rows do meanwhile and whenever the worker dies."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import pytest
from keyed_rows_made import HERE
from msgspec.structs import replace as replace_struct
from silent_post import SLOT, SilentPost
from test_keyed_frames import frame, task_of, whole_part
from test_states_beyond_memory import ROOM_FOR_TWO, Nested, bounded, states

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.tasks.stateful import CountByKey
from headgate.topology_runtime.wire.messages import ThreadSpec
from headgate.topology_runtime.worker.keyed_state import far_snapshots as far
from headgate.topology_runtime.worker.keyed_state import snapshot_parts
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.far_snapshots import FarPlace, FarSnapshots
from headgate.topology_runtime.worker.keyed_state.key_ranges import Standing
from headgate.topology_runtime.worker.keyed_state.keyed_rows import KeyedRows
from headgate.topology_runtime.worker.keyed_state.snapshot_files import SnapshotFiles
from headgate.topology_runtime.worker.keyed_state.snapshot_parts import (
    OF_CHANGES,
    OF_WHOLES,
    STEP_LEAST,
    STEP_MOST,
    STEP_NS,
    SnapshotParts,
    StepPace,
)
from headgate.topology_runtime.worker.keyed_state.state_snapshots import SavedPart
from headgate.topology_runtime.worker.operators.behaviours import behaviour_of
from headgate.topology_runtime.worker.operators.keyed_task import KeyedTask
from headgate.topology_runtime.worker.operators.thread_core import ThreadCore
from headgate.topology_runtime.worker.orders.thread_orders import orders_of
from headgate.topology_runtime.worker.process.called_thread import orders_for
from headgate.topology_runtime.worker.rows import row_values as wire

FILES = "headgate.topology_runtime.worker.keyed_state.snapshot_files"
KEYS: list[Any] = [*range(12), "a", b"b", (1, "c"), 1.0, True, frozenset((1, 2))]
MS, S = 1_000_000, 1_000_000_000


class Grown(Keyed[Any, Any, list[int], Any]):
    """Its states are changed in their place."""

    def new(self, key: Any) -> list[int]:
        return []

    def process(self, key: Any, row: Any, state: list[int]) -> tuple[list[int], list[Any]]:
        state.append(row[1])
        return state, [(key, len(state))]


class Worker:
    """A thread that takes rows and saves in steps of two states, and may die after any of them."""

    def __init__(self, logic: Callable[[], Keyed], folder: Path, bound: int | None, at_once: int) -> None:
        """bound: bytes of states in memory. at_once: states of a whole snapshot, each time."""
        self._made, self._folder, self._bound, self._at_once = logic, folder, bound, at_once
        self.taken: list[list[Any]] = []  # the rows of each frame
        self.begun = self.durable = 0  # frames that the part which is being made has, or the last that covers
        self._begin()

    def _begin(self) -> None:
        logic, bound = self._made(), self._bound
        self.task = task_of(logic) if bound is None else bounded(logic, self._folder / "memory", bound)
        self.store = SnapshotFiles(str(self._folder), "t", 5)
        if (saved := self.store.load()) is not None:
            self.task.restore(saved)
        self.parts = SnapshotParts(self.task, self._at_once)
        self.parts.told = dict(self.task.ranges.versions)
        self.parts.told_changes = self.task.ranges.changes

    def take(self, rows: list[Any]) -> None:
        self.taken.append(rows)
        self.task.take(frame(rows, 100 * len(self.taken)), 0)

    def step(self, begins: bool) -> None:
        if begins and self.task.dirty and self.parts.may_begin(self.store):
            self.begun = len(self.taken)
            self.parts.begin(self.store)
        if self.parts.busy(self.store) and (part := self.parts.step(2)) is not None:
            self.store.save(part)
            if part.covers:
                self.durable = self.begun
                self.task.released(0)
            if part.ends:
                self.look()

    def look(self) -> None:
        """As if it died now."""
        again, saved = task_of(self._made()), SnapshotFiles(str(self._folder), "t", 5).load()
        assert saved is not None
        again.restore(saved)
        for number in range(self.durable, len(self.taken)):
            again.take(frame(self.taken[number], 100 * (number + 1)), 0)
        assert states(again) == states(self.task)

    def die(self) -> None:
        """Rows that no snapshot covers come again; those that one may have, too."""
        again = range(max(0, self.durable - 2), len(self.taken))
        self._begin()
        for number in again:
            self.task.take(frame(self.taken[number], 100 * (number + 1)), 0)


def expected(logic: Keyed, taken: list[list[Any]]) -> list[tuple[int, str, Any]]:
    task = task_of(logic)
    for number, rows in enumerate(taken, 1):
        task.take(frame(rows, 100 * number), 0)
    return states(task)


@pytest.mark.parametrize("at_once", [0, 2])
@pytest.mark.parametrize("bound", [None, ROOM_FOR_TWO])
@pytest.mark.parametrize("logic", [CountByKey, Grown, Nested])
@pytest.mark.parametrize("seed", range(2))
def test_no_row_is_lost_or_counts_twice_whenever_the_worker_dies(
    seed: int,
    logic: Callable[[], Keyed],
    bound: int | None,
    at_once: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{FILES}.ADDED_LEAST", 200)
    monkeypatch.setattr(snapshot_parts, "PART_STATES", 6)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # no machine ends here
    choose, worker = random.Random(seed), Worker(logic, tmp_path, bound, at_once)
    for _ in range(300):
        what = choose.random()
        if what < 0.3:
            keys = KEYS[: choose.choice([3, len(KEYS)])]
            worker.take([(choose.choice(keys), choose.randint(0, 9)) for _ in range(choose.choice([1, 4]))])
        elif what < 0.985:
            worker.step(choose.random() < 0.4)
        else:
            worker.die()
            assert states(worker.task) == expected(logic(), worker.taken)
            assert not worker.task.applied.again_at_most


def test_a_change_has_what_there_was_when_it_was_begun() -> None:
    task = task_of(Grown())
    task.take(frame([(key, 1) for key in KEYS], 0), 0)
    data, _ = form.behind(None, None, whole_part(task))
    task.covered()
    task.take(frame([(key, 2) for key in KEYS], 100), 0)
    task.cut(task.ranges.versions)
    task.cover()
    before = states(task_with(data, task, task.states.keep_some_cut(3)))
    assert all(state == [1] for _, _, state in before), "nothing of it is there before all is"
    task.take(frame([(key, 3) for key in KEYS[:9]], 200), 0)
    data, _ = form.behind(data, None, SavedPart(task.was_cut()))
    assert all(state == [1, 2] for _, _, state in states(read(data)))


def task_with(data: bytes | None, task: KeyedRows, left: int) -> KeyedRows:
    assert left == len(KEYS) - 3 and task.states.cutting
    return read(data)


def read(data: bytes | None) -> KeyedRows:
    assert data is not None
    again = task_of(Grown())
    again.restore(form.stream(data))
    return again


def test_states_that_leave_while_a_change_is_made_are_in_it() -> None:
    task = task_of(Grown())
    data, _ = form.behind(None, None, whole_part(task))
    task.covered()
    task.take(frame([(key, 1) for key in KEYS], 0), 0)
    there = states(task)
    task.cut(task.ranges.versions)
    for key_range in sorted(task.states.filled):
        task.states.drop(key_range)
    data, _ = form.behind(data, None, SavedPart(task.was_cut()))
    assert states(read(data)) == there and not states(task)


@pytest.mark.parametrize("far_away", [False, True])
def test_what_was_swept_before_a_change_is_read_before_it(far_away: bool, tmp_path: Path) -> None:
    far.note_run(str(tmp_path), "run")
    place = FarPlace(str(tmp_path), "run", 1)
    store = FarSnapshots(place, "t", 5) if far_away else SnapshotFiles(str(tmp_path), "t", 5)
    task = task_of(Grown())
    task.take(frame([(key, 1) for key in KEYS], 0), 0)
    store.save(whole_part(task))
    task.covered()
    begun, applied = task.begin_whole()
    store.save(SavedPart(begun=begun, applied=applied))
    some = task.swept(len(KEYS) - 4)
    task.take(frame([(key, 2) for key in KEYS], 100), 0)
    store.save(SavedPart(task.change(task.ranges.versions), states=some))
    task.covered()
    store.save(SavedPart(states=task.swept(9), ends=True))
    again, saved = task_of(Grown()), store.load()
    assert saved is not None
    again.restore(saved)
    assert states(again) == states(task)
    again.take(frame([(key, 2) for key in KEYS], 100), 0)
    assert states(again) == states(task), "its rows are known"


def test_a_whole_one_comes_to_its_end_though_changes_are_made_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{FILES}.ADDED_LEAST", 200)
    monkeypatch.setattr(os, "fsync", lambda _: None)
    worker = Worker(CountByKey, tmp_path, None, 0)
    worker.take([(key, 1) for key in range(400)])
    worker.step(True)
    ends, swept = 0, 0
    for number in range(1000):
        worker.take([((8 * number + key) % 400, 1) for key in range(8)])
        worker.step(True)
        swept += worker.task.states.sweeping
        ends += swept > 0 and not worker.task.states.sweeping
    assert ends, "it was begun, and has ended"
    worker.look()


ROWS = [[1, "a", b"x", None], [(1, 2), (3, "b")], [[1], {"a": (1,)}, {2: 3}], [{"a": 1}, {"b": 2.5}], []]


@pytest.mark.parametrize("many", [1, 40])
def test_rows_that_were_written_in_pieces_are_read_as_one(many: int) -> None:
    for some in ([0], [1], [2], [3], [0, 2], [1, 2], [1, 0, 4, 1], []):
        pieces = [ROWS[number] * many for number in some]
        written = [(shape := wire.shape_of(rows), wire.write(rows, shape)) for rows in pieces]
        shape, data = wire.together(written, sum(map(len, pieces)))
        assert wire.read(data, shape) == [row for rows in pieces for row in rows]
    numbers = [(wire.PLAIN, wire.write(list(range(n)), wire.PLAIN)) for n in (1 << 16, many)]
    assert wire.read(wire.together(numbers, (1 << 16) + many)[1], wire.PLAIN)[1 << 16 :] == list(range(many))


# ── how fast ────────────────────────────────────────────────────────────────────────────────────


def spent(share: float, frame_ns: int, step_ns: int, frames: int) -> tuple[int, int, int]:
    """All time, that of steps, and the longest that some took together between two frames of so long."""
    pace, now_ns, all_ns, longest_ns = StepPace(), 0, 0, 0
    for _ in range(frames):
        now_ns += frame_ns
        pace.look(now_ns)
        together_ns = 0
        while pace.may(share):
            pace.did(step_ns, True)
            together_ns += step_ns
        now_ns, all_ns = now_ns + together_ns, all_ns + together_ns
        longest_ns = max(longest_ns, together_ns)
    return now_ns, all_ns, longest_ns


@pytest.mark.parametrize("share", [OF_CHANGES, OF_WHOLES])
@pytest.mark.parametrize("step_ns", [MS // 10, MS // 2, 5 * MS])
def test_steps_take_their_share_of_the_time_of_a_thread_with_rows(share: float, step_ns: int) -> None:
    now_ns, all_ns, longest_ns = spent(share, 2 * MS, step_ns, 2000)
    assert 0.8 * share < all_ns / now_ns < 1.02 * share
    assert longest_ns <= max(step_ns, STEP_NS) + share * 2 * MS + step_ns


def test_a_thread_without_rows_has_done_its_share_when_it_looks_round() -> None:
    now_ns, all_ns, _ = spent(OF_WHOLES, 100 * MS, MS // 2, 50)
    assert 0.8 * OF_WHOLES < all_ns / now_ns < 1.1 * OF_WHOLES


def test_a_clock_that_is_set_stops_nothing_for_long() -> None:
    pace = StepPace()
    pace.look(10 * S)
    pace.did(3600 * S, True)
    pace.did(-3600 * S, True)
    for later_ns in range(0, 2 * S, 100 * MS):
        pace.look(11 * S + later_ns)
    assert pace.may(OF_WHOLES)


def test_steps_are_as_large_as_their_time_allows() -> None:
    pace = StepPace()
    for _ in range(20):
        pace.did(5 * MS, True)
    assert pace.states == STEP_LEAST
    for _ in range(20):
        pace.did(0, True)
    assert pace.states == STEP_MOST


TOPOLOGY = Topology(
    "steps",
    (Task("s", kind="source", static=Static()), Task("t", kind="keyed", state="keyed"), Task("u")),
    (Edge("s", "t", grouping="fields", key="x:y"), Edge("t", "u")),
)
STATE_NS, FRAME_NS = 2000, 2 * MS


class Slow(CountByKey):
    """A state takes a while to save."""

    def __init__(self, world: Timed) -> None:
        super().__init__()
        self.world = world

    def snapshot(self, state: Any) -> Any:
        self.world.now_ns += STATE_NS
        return state


class Timed(SilentPost):
    """A thread, and a clock that goes on with what it does. longest_ns: of its looks round."""

    def __init__(self, folder: Path) -> None:
        self.now_ns, self.longest_ns, self._position = 10 * S, 0, 0
        ports = replace(self.ports(folder), key_of=lambda _: itemgetter(0))
        self.core = ThreadCore(ThreadSpec(5, "t", HERE), TOPOLOGY, ports)
        keyed = self.core.behaviour = behaviour_of(self.core, Slow(self), lambda _: None)
        assert isinstance(keyed, KeyedTask)
        self.keyed = keyed
        keyed.rows.ranges.stand(Standing(1, (5,) * KEY_RANGES, (), frozenset({5}), {}))
        keyed.rows.claim(0)

    def wall_ns(self) -> int:
        return self.now_ns

    def take(self, keys: range) -> None:
        one = frame([(key,) for key in keys], self._position)
        one.edge, self._position = 0, self._position + len(keys)
        self.keyed.take(one, self.now_ns)
        self.now_ns += FRAME_NS

    def look(self) -> None:
        begun_ns = self.now_ns
        self.keyed.on_time(begun_ns)
        self.longest_ns = max(self.longest_ns, self.now_ns - begun_ns)

    def take_all(self, keys: int) -> None:
        for first in range(0, keys, 500):
            self.take(range(first, min(keys, first + 500)))
            self.look()

    def until_saved(self) -> int:
        """Frames of one row, from when a part is begun until it is made."""
        frames, self.longest_ns = 0, 0
        while not self.keyed.parts.making:
            self.now_ns += FRAME_NS
            self.look()
        while self.keyed.parts.making:
            self.take(range(1))
            self.look()
            frames += 1
        return frames


def test_rows_come_between_the_states_of_a_change_and_of_a_whole_snapshot(tmp_path: Path) -> None:
    world = Timed(tmp_path)
    world.take_all(20_000)
    assert world.until_saved() > 20_000 * STATE_NS / FRAME_NS, "it takes its share, not all"
    assert world.longest_ns < FRAME_NS
    assert len(states(world.keyed.rows)) == 20_000 and world.keyed.rows.holding < 20_000, "it was durable"


def test_a_thread_that_is_to_end_saves_at_once(tmp_path: Path) -> None:
    world = Timed(tmp_path)
    world.take_all(20_000)
    orders = orders_for(TOPOLOGY)
    world.core.orders = orders_of(replace_struct(orders.desired, draining=True), SLOT, 1)
    world.now_ns += S
    world.look()
    assert not world.keyed.rows.holding and world.longest_ns > 19_000 * STATE_NS
