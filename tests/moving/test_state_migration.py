"""States of a checkpoint for code of another version: each is migrated, or nothing begins and nothing has changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest

from headgate.controller.files.state_migration import migrated
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wire.messages import Keepers
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import checkpoints
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied
from headgate.topology_runtime.worker.keyed_state.checkpoints import Checkpoint, CheckpointRun
from headgate.topology_runtime.worker.keyed_state.state_snapshots import Contents, KeyedSnapshot
from headgate.topology_runtime.worker.rows import row_values as wire

CODE = """
from headgate import Keyed, Timed

class Count(Keyed):
    state_version = {version}
    def new(self, key):
        return {{"rows": 0}}
    def process(self, key, row, state):
        return state, []
    {migrate}

class Quiet(Timed):
    at = 0
    state_version = {version}
    def new(self, key):
        return {{"rows": 0}}
    def process(self, key, row, state, time):
        return state, []
    {migrate}
"""
WRAPS = 'def migrate(self, old, version):\n        return {"rows": old, "from": version}'


def topology(version: int, timed: bool = False) -> Topology:
    tasks = (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task(
            "count",
            kind="keyed",
            state="keyed",
            run=f"my_states:{'Quiet' if timed else 'Count'}",
            timed=timed,
            state_version=version,
        ),
    )
    return Topology("counted", tasks, (Edge("source", "count", grouping="fields", key=0),))


def made(states: dict[Hashable, Any], timed: bool = False, version: int = 1) -> Checkpoint:
    by_range = defaultdict(list)
    for key, state in states.items():
        by_range[range_of(key)].append([key, state])
    copies = tuple(
        form.copied(n, 3, Contents(wire.write(by_range[n], wire.NESTED), Applied().pack(n), (), b"beside"))
        for n in range(KEY_RANGES)
    )
    keepers = Keepers("count", 1, ((4, KEY_RANGES),), True)
    run = CheckpointRun("run-1", "run-1", 1, False, 5, 2, (keepers,))
    shape = checkpoints.shape_of(topology(version, timed))
    data = form.whole(KeyedSnapshot(copies, (), ((0, 0, 7),), 5, True))
    return Checkpoint("far/one", shape, (), run, {("count", 4): data})


def states_of(found: Checkpoint) -> dict[Hashable, Any]:
    ((_, _, snapshot),) = found.snapshots()
    return {k: s for copy in snapshot.copies for k, s in form.of_range(form.contents_of(copy).states)}


@pytest.fixture
def code(tmp_path: Path) -> Any:
    def write(version: int, migrate: str) -> list[str]:
        (tmp_path / "my_states.py").write_text(CODE.format(version=version, migrate=migrate))
        return [str(tmp_path)]

    return write


def refused(found: Checkpoint, topology: Topology, paths: list[str]) -> InvalidInput:
    before = dict(found.states)
    with pytest.raises(InvalidInput) as error:
        migrated(found, topology, paths)
    assert found.states == before
    assert error.value.cause and error.value.hint
    return error.value


def test_each_state_is_migrated_and_all_else_stays(code: Any) -> None:
    keys: list[Hashable] = [*range(1000), "a", ("b", 1)]
    found = made({key: n for n, key in enumerate(keys)})
    new = migrated(found, topology(3), code(3, WRAPS))
    assert states_of(new) == {key: {"rows": n, "from": 1} for n, key in enumerate(keys)}
    ((_, _, before),), ((_, _, after),) = found.snapshots(), new.snapshots()
    assert (after.below, after.applied_again, after.exact) == (
        before.below,
        before.applied_again,
        before.exact,
    )
    for one, other in zip(before.copies, after.copies, strict=True):
        assert (one.key_range, one.version) == (other.key_range, other.version)
        rest, same = form.contents_of(one), form.contents_of(other)
        assert (rest.applied, rest.below, rest.beside) == (same.applied, same.below, same.beside)
    assert states_of(found) == {key: n for n, key in enumerate(keys)}


def test_of_a_timed_task_timers_stay_and_none_forgets(code: Any) -> None:
    timers = [[[5, "x"]], [[6, ""]]]
    found = made({"a": [1, *timers], "b": [2, *timers], "gone": None}, timed=True)
    migrate = "def migrate(self, old, version):\n        return None if old == 2 else -old"
    assert states_of(migrated(found, topology(2, timed=True), code(2, migrate))) == {"a": [-1, *timers]}


def test_of_the_same_version_nothing_is_called() -> None:
    found = made({"a": 1}, version=2)
    assert migrated(found, topology(2), ["/nowhere"]) is found


def test_back_to_an_older_version_is_a_migration_too(code: Any) -> None:
    found = made({"a": 1}, version=7)
    assert states_of(migrated(found, topology(1), code(1, WRAPS))) == {"a": {"rows": 1, "from": 7}}


def test_code_without_migrate_is_refused(code: Any) -> None:
    error = refused(made({"a": 1}), topology(2), code(2, ""))
    assert error.what == "the states of task count are of version 1, and its code is of version 2"
    assert "Count has no migrate" in str(error.cause) and "migrate(self, old, version)" in str(error.hint)


def test_one_that_raises_at_the_thousandth_key_is_refused_with_the_key_and_the_line(code: Any) -> None:
    found = made({f"key {n}": n for n in range(1500)})
    ((_, _, snapshot),) = found.snapshots()
    keys = [k for copy in snapshot.copies for k, _ in form.of_range(form.contents_of(copy).states)]
    bad = int(keys[999].split()[1])
    migrate = f"def migrate(self, old, version):\n        return 1 / (old - {bad})"
    error = refused(found, topology(2), code(2, migrate))
    assert error.what == f"the state of key 'key {bad}' of task count cannot be migrated from version 1 to 2"
    assert "ZeroDivisionError" in str(error.cause) and "key number 1,000" in str(error.cause)
    assert "my_states.py:11 in migrate" in str(error.cause)
    assert "the checkpoint is as it was" in str(error.hint)


@pytest.mark.parametrize(
    ("migrate", "cause"),
    [
        ("def migrate(self, old, version):\n        return object()", "cannot be saved"),
        ("def migrate(self, old, version):\n        import sys; sys.exit('enough')", "SystemExit"),
        ("def migrate(self, old, version):\n        import os; os._exit(7)", "exit code 7"),
    ],
)
def test_whatever_it_does_nothing_begins(code: Any, migrate: str, cause: str) -> None:
    assert cause in str(refused(made({"a": 1}), topology(2), code(2, migrate)).cause)


def test_code_that_cannot_be_imported_is_refused(code: Any, tmp_path: Path) -> None:
    paths = code(2, WRAPS)
    (tmp_path / "my_states.py").write_text("1 / 0")
    error = refused(made({"a": 1}), topology(2), paths)
    assert "ZeroDivisionError" in f"{error.what} {error.cause}"
