"""A task's object that cannot be built is built again until it can; a thread whose state is spoilt starts again alone;
a key whose state cannot be restored costs its own rows."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from patience import until
from test_snapshots_at_a_close import frame_of, keyed, made_thread, thread_of

from headgate.topology_runtime.api.logic import Keyed
from headgate.topology_runtime.worker.keyed_state.snapshot_files import path_of, read
from headgate.topology_runtime.worker.keyed_state.state_snapshots import contents_of, of_range
from headgate.topology_runtime.worker.operators.keyed_task import PATIENT_TRIES, KeyedTask
from headgate.topology_runtime.worker.process import task_thread
from headgate.topology_runtime.worker.process.task_thread import TaskThread

away: dict[str, Any] = {
    "open": 0,
    "restore": lambda saved: False,
}  # how often it still raises; of which states
opened: list[str] = []
may_open = threading.Event()
later = itertools.count(10**10, 10**10)


class Lists(Keyed):
    """The rows of a key, in a list that is changed in its place."""

    def open(self, context: object) -> None:
        may_open.wait(10)
        if away["open"]:
            away["open"] -= 1
            raise ConnectionResetError("no database")
        opened.append("open")

    def close(self) -> None:
        opened.append("close")

    def new(self, key: Hashable) -> list[Any]:
        return []

    def process(self, key: Hashable, row: Any, state: list[Any]) -> tuple[list[Any], Iterable[Any]]:
        state.append(row[1])
        return state, []

    def snapshot(self, state: list[Any]) -> Any:
        if "odd" in state:
            raise OSError("no answer")
        return tuple(state)

    def restore(self, saved: Any) -> list[Any]:
        if away["restore"](saved):
            raise ConnectionError("no database")
        return list(saved)


RUN = f"{__name__}:Lists"


@pytest.fixture(autouse=True)
def all_there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(task_thread, "BUILD_AGAIN_S", 0.01)
    monkeypatch.setattr(task_thread, "BUILD_AGAIN_MOST_S", 0.01)
    opened.clear()
    may_open.set()
    yield
    away.update(open=0, restore=lambda saved: False)


def states(thread: TaskThread) -> dict[Any, Any]:
    of = keyed(thread).rows.states
    return {key: state for at in of.filled for key, state in of.of(at).items()}


def saved(thread: TaskThread) -> dict[Any, Any]:
    """What is on disk once a snapshot was due."""
    until(lambda: not keyed(thread).store.under_way)  # one from before
    thread.core.on_time(time.monotonic_ns() + next(later))
    until(lambda: not keyed(thread).store.under_way)
    snapshot = read(path_of(thread.host.directory, "sums", 2))
    assert snapshot is not None
    return {k: list(v) for copy in snapshot.copies for k, v in of_range(contents_of(copy).states)}


def settled(thread: TaskThread) -> None:
    thread.stopping = True
    thread.wake()
    thread.join(10)
    assert not thread.is_alive()


def built(tmp_path: Path, true: Callable[[TaskThread], bool]) -> TaskThread:
    """A thread that runs, once this is true of it."""
    thread = made_thread(tmp_path, RUN)
    thread.start()
    until(lambda: true(thread), lambda: thread.failed)
    return thread


def test_an_object_that_does_not_open_is_built_again_and_its_frames_wait(tmp_path: Path) -> None:
    away["open"] = 10**9
    thread = built(tmp_path, lambda thread: bool(thread.failed))
    assert thread.failed.startswith("ConnectionResetError: no database (")
    assert f"{Path(__file__).name}:" in thread.failed and "in open" in thread.failed
    thread.inbox.put((0, frame_of(("a", 5)), 0))
    away["open"] = 0
    until(lambda: not thread.failed and thread.core.may_work and thread.inbox.empty())
    settled(thread)
    assert keyed(thread).rows.side or states(thread), "the frame was taken once it ran"
    assert opened == ["open", "close"]


def test_it_says_that_its_object_is_being_built_until_there_is_one_or_it_failed(tmp_path: Path) -> None:
    may_open.clear()
    away["open"] = 10**9
    thread = built(tmp_path, lambda thread: thread.core.tries == 1)
    assert thread.now().building
    may_open.set()
    until(lambda: bool(thread.now().failed))
    assert not thread.now().building
    away["open"] = 0
    until(lambda: not thread.now().failed)
    assert thread.built and not thread.now().building
    settled(thread)


def test_a_thread_that_is_to_end_waits_for_nothing(tmp_path: Path) -> None:
    away["open"] = 10**9
    settled(built(tmp_path, lambda thread: bool(thread.failed)))


def ready(tmp_path: Path, *rows: Any) -> TaskThread:
    """A thread that owns all keys and has these rows in a snapshot; its turns are taken by the test."""
    thread = thread_of(tmp_path, RUN)
    keyed(thread).rows.claim(0)
    thread.core.take(frame_of(*rows), 0)
    saved(thread)
    return thread


def test_what_restore_needs_is_away_for_a_while(tmp_path: Path) -> None:
    ready(tmp_path, ("a", 1), ("b", 2))
    away["restore"] = lambda saved: True
    thread = built(tmp_path, lambda thread: thread.core.tries > 2 * PATIENT_TRIES)
    assert thread.failed.startswith("ConnectionError: no database (")
    last = opened.count("open")  # none of this try is restored: of some alone, the others would be set aside
    away["restore"] = lambda saved: opened.count("open") <= last
    until(lambda: not thread.failed)
    settled(thread)
    assert states(thread) == {"a": [1], "b": [2]}
    assert opened.count("open") == opened.count("close") + 1, "each that was opened is closed"


def test_a_key_whose_state_is_not_restored_is_set_aside_and_costs_its_own_rows(tmp_path: Path) -> None:
    ready(tmp_path, ("a", 1), ("b", 2))
    away["restore"] = lambda saved: 1 in saved
    with pytest.raises(ConnectionError):
        thread_of(tmp_path, RUN)
    thread = made_thread(tmp_path, RUN)
    thread.core.tries = PATIENT_TRIES
    thread.startup()
    thread.inbox.put(None)
    thread.work.turn()
    letters: list[Any] = []
    thread.host.letters = letters.append
    thread.core.take(frame_of(("a", 3), ("b", 4), position=10), 0)
    assert [letter.position for letter in letters] == [10]
    assert saved(thread) == {"a": [1], "b": [2, 4]}, "what was saved of it is not lost"
    away["restore"] = lambda saved: False
    thread.core.take(frame_of(("a", 5), position=20), 0)
    assert saved(thread) == {"a": [1, 5], "b": [2, 4]}


@pytest.mark.parametrize("bad", ["odd", 1j], ids=["raises", "unsupported"])
def test_a_thread_whose_state_is_spoilt_starts_again_alone_and_finds_the_row(
    bad: Any, tmp_path: Path
) -> None:
    thread = ready(tmp_path, ("a", 1), ("b", 2))
    letters: list[Any] = []
    thread.host.letters = letters.append
    rows = ("a", 3), ("a", bad), ("b", 4), ("a", 5)
    thread.core.take(frame_of(*rows, position=10), 0)
    assert keyed(thread).started_again == 1 and not letters
    assert states(thread) == {"a": [1], "b": [2]}, "as it was saved"
    thread.core.take(frame_of(*rows, position=10), 0)
    assert [letter.position for letter in letters] == [11]
    assert saved(thread) == {"a": [1, 3, 5], "b": [2, 4]}
    assert keyed(thread).started_again == 1


def test_a_snapshot_that_raises_later_starts_again_and_goes_on(tmp_path: Path) -> None:
    """Of a state that was passed over, or a `snapshot` that raises now and then."""
    thread = ready(tmp_path, ("a", 1))
    behaviour = thread.core.behaviour
    assert isinstance(behaviour, KeyedTask)
    thread.core.take(frame_of(("a", 3), position=10), 0)
    states(thread)["a"].append("odd")
    until(lambda: not keyed(thread).store.under_way)
    thread.core.on_time(time.monotonic_ns() + next(later))
    assert behaviour.started_again == 1 and "key 'a' cannot be saved" in behaviour.said
    assert states(thread) == {"a": [1]}
