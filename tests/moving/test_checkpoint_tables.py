"""A checkpoint's state as Parquet, read by DuckDB."""

from __future__ import annotations

import json
import sys
from collections import defaultdict
from collections.abc import Hashable, Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest
from click.testing import CliRunner

from headgate.controller.moving import checkpoint_commands, checkpoint_tables
from headgate.topology_runtime.api.topology import KEY_RANGES, Edge, Static, Task, Topology
from headgate.topology_runtime.connectors.object_folder import object_folder
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.wire.messages import Keepers
from headgate.topology_runtime.wire.state_moves import RangeCopy
from headgate.topology_runtime.worker.calls.router import range_of
from headgate.topology_runtime.worker.keyed_state import checkpoints
from headgate.topology_runtime.worker.keyed_state import state_snapshots as form
from headgate.topology_runtime.worker.keyed_state.applied_rows import Applied
from headgate.topology_runtime.worker.keyed_state.checkpoints import Checkpoint, CheckpointRun
from headgate.topology_runtime.worker.keyed_state.state_snapshots import (
    Contents,
    KeyedSnapshot,
    timers_written,
)
from headgate.topology_runtime.worker.keyed_state.state_tables import key_of, key_text
from headgate.topology_runtime.worker.rows import row_values as wire

HALF = KEY_RANGES // 2
States = Sequence[tuple[Hashable, Any]]


def copies_of(states: States) -> list[RangeCopy]:
    by_range = defaultdict(list)
    for key, state in states:
        by_range[range_of(key)].append([key, state])
    return [
        form.copied(n, 1, Contents(wire.write(by_range[n], wire.NESTED), Applied().pack(n)))
        if n in by_range
        else RangeCopy(n, 1)
        for n in range(KEY_RANGES)
    ]


def kept(folder: Path, states: States, timed: bool = False, threads: int = 2) -> Any:
    """A checkpoint in which each of the threads had a part of the ranges, and old copies of others'."""
    tasks = (
        Task("source", kind="source", static=Static(1, 0.1, 0.1)),
        Task("count", kind="keyed", state="keyed", timed=timed),
    )
    topology = Topology("counted", tasks, (Edge("source", "count", grouping="fields", key=0),))
    part, copies = KEY_RANGES // threads, copies_of(states)
    old = [copy for copy in copies_of([(key, None) for key, _ in states]) if copy.data]
    data = {}
    for thread in range(threads):
        mine = range(thread * part, (thread + 1) * part)
        others = [copy for copy in old if copy.key_range not in mine]
        data["count", thread] = form.whole(KeyedSnapshot((*copies[mine.start : mine.stop], *others[:3])))
    keepers = Keepers("count", 1, tuple((thread, part) for thread in range(threads)), True)
    run = CheckpointRun("run-1", "run-1", 1, False, threads, 2, (keepers,))
    place = object_folder(str(folder / "states"))
    checkpoints.write(place, "one", Checkpoint("", checkpoints.shape_of(topology), (), run, data))
    return checkpoints.opened(place, "one")


def exported(folder: Path, states: States, timed: bool = False) -> Any:
    file = folder / "states.parquet"
    checkpoint_tables.export(kept(folder, states, timed), "count", file)
    return duckdb.sql(f"from '{file}'")


def types(table: Any) -> dict[str, str]:
    return {name: str(kind) for name, kind in zip(table.columns, table.types, strict=True)}


def test_flat_states_have_columns_of_their_own(tmp_path: Path) -> None:
    states = [(f"key {n}", {"sum": n / 2, "rows": n, "last": None if n % 2 else "x"}) for n in range(1000)]
    found = exported(tmp_path, states)
    assert types(found) == {
        "range": "INTEGER", "thread": "INTEGER", "key": "VARCHAR", "state": "VARCHAR",
        "state_sum": "DOUBLE", "state_rows": "BIGINT", "state_last": "VARCHAR",
    }  # fmt: skip
    rows = found.fetchall()
    assert {row[2]: row[4:] for row in rows} == {key: tuple(state.values()) for key, state in states}
    assert {row[2]: json.loads(row[3]) for row in rows} == dict(states)
    assert all(row[0] == range_of(row[2]) and row[1] == row[0] // HALF for row in rows)
    assert len(rows) == 1000  # none of those that lie with a thread whose they are not any more


@pytest.mark.parametrize(
    ("keys", "kind"),
    [
        ([1, -5, 1 << 60], "BIGINT"),
        ([1, (1 << 64) - 1], "DECIMAL(20,0)"),
        ([1.5, -2.0], "DOUBLE"),
        ([True, False], "BOOLEAN"),
        ([b"a", b"\xff"], "BLOB"),
        ([date(2026, 1, 2), date(1970, 1, 1)], "DATE"),
        ([datetime(2026, 1, 2, 3, tzinfo=UTC)], "TIMESTAMP WITH TIME ZONE"),
        ([datetime(2026, 1, 2, 3)], "TIMESTAMP"),
        ([Decimal("1.50")], "VARCHAR"),
    ],
)
def test_keys_of_one_type_are_a_column_of_it(tmp_path: Path, keys: list[Any], kind: str) -> None:
    found = exported(tmp_path, [(key, 1) for key in keys])
    assert types(found)["key"] == kind and types(found)["value"] == "BIGINT"
    if kind not in ("VARCHAR", "TIMESTAMP WITH TIME ZONE"):
        assert {row[0] for row in found.select("key").fetchall()} == set(keys)
    assert len(found.fetchall()) == len(keys)


def test_keys_of_several_types_are_json_that_can_be_told_back(tmp_path: Path) -> None:
    keys = [1, 1.0, True, "1", ("a", 1), ("a", (date(2026, 1, 2), None)), b"1", Decimal("1.0"), None]
    found = exported(tmp_path, [(key, n) for n, key in enumerate(keys)])
    told = {text: value for text, value in found.select("key", "value").fetchall()}
    assert len(told) == len(keys)
    for text, value in told.items():
        key = key_of(text)
        assert (key, type(key)) == (keys[value], type(keys[value])) and key_text(key) == text


def test_nested_states_are_json_alone(tmp_path: Path) -> None:
    states = [("a", {"seen": {1, 2}, "by": {(1, "x"): b"y"}}), ("b", {"seen": set(), "by": {}}), ("c", [])]
    found = exported(tmp_path, states)
    assert found.columns == ["range", "thread", "key", "state"]
    got = {row[2]: json.loads(row[3]) for row in found.fetchall()}
    assert got == {"a": {"seen": [1, 2], "by": [[[1, "x"], "eQ=="]]}, "b": {"seen": [], "by": {}}, "c": []}


def test_timers_of_a_timed_task_are_a_list_and_what_it_forgot_is_not_there(tmp_path: Path) -> None:
    states = [
        (
            "a",
            [
                {"n": 1},
                timers_written([(2_000_000, "late"), (1_000_000, "")]),
                timers_written([(3_000_000, "t")]),
            ],
        ),
        ("b", [{"n": 2}, b"", b""]),
        ("gone", None),
    ]
    found = exported(tmp_path, states, timed=True)
    assert found.select("key", "state_n").order("key").fetchall() == [("a", 1), ("b", 2)]
    asked = duckdb.sql(
        "select key, epoch(t.at), t.name, t.by_clock from (select key, unnest(timers) as t from found) order by 2"
    )
    assert asked.fetchall() == [("a", 1.0, "", False), ("a", 2.0, "late", False), ("a", 3.0, "t", True)]


def test_a_task_without_a_key_is_a_table_without_rows(tmp_path: Path) -> None:
    found = exported(tmp_path, [])
    assert found.columns == ["range", "thread", "key", "state"] and found.fetchall() == []


def test_large_states_are_written_in_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint_tables, "GROUP_BYTES", 100_000)
    states, file = [(n, "x" * 1000) for n in range(2000)], tmp_path / "large.parquet"
    told = checkpoint_tables.export(kept(tmp_path, states, threads=4), "count", file)
    groups = duckdb.sql(
        f"select row_group_id, any_value(row_group_num_rows) from parquet_metadata('{file}') group by all"
    ).fetchall()
    rows = [rows for _, rows in groups]
    assert told.row_groups == len(rows) >= 19 and max(rows) <= 102 and told.rows == sum(rows) == 2000


def test_what_cannot_be_exported_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, file = kept(tmp_path, [("a", 1)]), tmp_path / "out.parquet"
    for task, what in (("none", "there is no task none"), ("source", "source has no state per key")):
        with pytest.raises(InvalidInput, match=what):
            checkpoint_tables.export(found, task, file)
    file.write_text("mine")
    with pytest.raises(Conflict, match="exists already"):
        checkpoint_tables.export(found, "count", file)
    assert file.read_text() == "mine"
    file.unlink()
    state = tmp_path / "states" / "checkpoints" / "one" / "state" / "count~1"
    state.write_bytes(state.read_bytes()[:-1] + b"?")
    with pytest.raises(InvalidInput, match="damaged"):
        checkpoint_tables.export(found, "count", file)
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(InvalidInput, match="Parquet cannot be written"):
        checkpoint_tables.export(found, "count", file)
    assert not file.exists() and not list(tmp_path.glob("*.writing"))


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    kept(tmp_path, [("a", 1), ("b", 2)])
    words = ["one", str(tmp_path / "out.parquet"), "--state", str(tmp_path / "states"), "-o", "json"]
    done = CliRunner().invoke(checkpoint_commands.export, words, catch_exceptions=False)
    told = json.loads(done.output)
    assert (told["task"], told["rows"], told["columns"]) == (
        "count",
        2,
        ["range", "thread", "key", "state", "value"],
    )
