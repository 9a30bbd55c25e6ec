"""A Delta table as a sink: each row once, whoever writes, and whoever is killed at whatever point."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors.lake.delta_sink import DeltaSink
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway


def opened(table: Path, task: str = "store", **given: Any) -> DeltaSink:
    sink = DeltaSink(str(table), **given)
    sink.open(Context(task, 1, 0, 1, ""))
    return sink


def write(sink: DeltaSink, positions: Sequence[int], run: str = "run") -> None:
    sink.write(
        [{"id": n, "day": f"d{n % 3}", "value": n / 2} for n in positions],
        [RowId(run, "source", 0, n, 0) for n in positions],
    )


def found(table: Path) -> Counter[int]:
    return Counter(DeltaTable(table).to_pyarrow_table()["id"].to_pylist())


# ── Each row once ───────────────────────────────────────────────────────────────────────────────────


def test_rows_that_come_again_in_other_groups_are_there_once(tmp_path: Path) -> None:
    table = tmp_path / "t"
    sink = opened(table)
    write(sink, range(10))
    write(sink, range(5, 15))
    write(opened(table), range(30))  # as after a kill
    write(sink, [*range(40), 3, 3])
    assert found(table) == Counter(range(40))
    write(sink, range(2), run="another")
    write(opened(table, task="other"), range(2, 4))
    assert found(table) == Counter([*range(40), *range(4)])


def test_writers_at_the_same_time_do_not_write_a_row_twice(tmp_path: Path) -> None:
    table, faults = tmp_path / "t", list[BaseException]()

    def writer(seed: int) -> None:
        try:
            sink, choose = opened(table), random.Random(seed)
            starts = list(range(0, 60, 5))
            choose.shuffle(starts)
            for first in starts:
                write(sink, range(first, first + 12))
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults and found(table) == Counter(range(67))


def test_others_may_append_meanwhile(tmp_path: Path) -> None:
    table = tmp_path / "t"
    one, other = opened(table), opened(table)
    for first in range(0, 40, 10):
        write(one, range(first, first + 10))
        foreign = pa.table({"id": [1000 + first], "day": ["x"], "value": [0.0]})
        write_deltalake(table, foreign, mode="append")
        write(other, range(first + 5, first + 15))
    assert found(table) == Counter([*range(45), *range(1000, 1040, 10)])


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3])
def test_whoever_is_killed_at_a_commit_leaves_no_row_out_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: bool, number: int
) -> None:
    class Killed(BaseException):
        pass

    table, real, left = tmp_path / "t", deltalake.write_deltalake, [number]

    def dying(*given: Any, **more: Any) -> None:
        left[0] -= 1
        if left[0] > 0 or after:
            real(*given, **more)
        if left[0] <= 0:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(deltalake, "write_deltalake", dying)
        with pytest.raises(Killed):
            sink = opened(table)
            for first in range(0, 30, 6):
                write(sink, range(first, first + 6))
    again = opened(table)
    write(again, range(3, 40))
    write(again, range(40))
    assert found(table) == Counter(range(40))


def test_names_are_found_again_from_few_commits(tmp_path: Path) -> None:
    """Also by who comes after 100 commits, checkpoints and all."""
    table = tmp_path / "t"
    sink = opened(table)
    for n in range(100):
        write(sink, [n])
    again, read = opened(table), list[int]()
    real = again.commit_info
    again.commit_info = lambda version: (read.append(version), real(version))[1]  # type: ignore[method-assign]
    write(again, range(101))
    assert found(table) == Counter(range(101)) and len(read) <= 8


def test_names_with_holes_are_all_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.topology_runtime.connectors.lake.delta_sink.RANGES_MOST", 12)
    table, choose = tmp_path / "t", random.Random(5)
    positions = choose.sample(range(0, 1000, 2), 120)
    sink = opened(table)
    for first in range(0, 120, 4):
        write(sink, positions[first : first + 4])
        if first % 12 == 0:
            sink = opened(table)
            write(sink, choose.sample(positions[: first + 4], 3))
    write(opened(table), positions)
    assert found(table) == Counter(positions)
    for path in (table / "_delta_log").glob("*.json"):
        info = json.loads(path.read_text().splitlines()[0])["commitInfo"]
        assert len(json.loads(info.get("headgate", '{"rows": []}'))["rows"]) <= 12


# ── Tables and rows ─────────────────────────────────────────────────────────────────────────────────


def test_a_table_is_made_with_the_columns_of_the_first_rows(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write(opened(table, partition_by="day"), range(6))
    assert DeltaTable(table).metadata().partition_columns == ["day"]
    assert found(table) == Counter(range(6))


def test_a_table_that_is_there_says_the_types(tmp_path: Path) -> None:
    table = tmp_path / "t"
    schema = pa.schema(
        [("id", pa.int32()), ("day", pa.string()), ("value", pa.float32()), ("more", pa.string())]
    )
    DeltaTable.create(str(table), schema)
    write(opened(table), range(4))
    assert found(table) == Counter(range(4))
    assert DeltaTable(table).to_pyarrow_table()["more"].to_pylist() == [None] * 4


@pytest.mark.parametrize(
    "bad", [7, {"id": 1.5}, {"id": "7"}, {"id": True}, {"id": 1, "other": 2}, {"id": -1}, {}]
)
def test_a_row_that_does_not_fit_is_refused_and_the_others_go_on(tmp_path: Path, bad: Any) -> None:
    """deltalake itself makes 1 of 1.5, 7 of "7" and 1 of True."""
    table = tmp_path / "t"
    DeltaTable.create(str(table), pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    DeltaTable(table).alter.add_constraint({"positive": "id >= 0"})
    sink = opened(table)
    with pytest.raises(BadRow):
        sink.write([{"id": 0}, bad], [RowId("run", "s", 0, n, 0) for n in (0, 9)])
    sink.write([{"id": 0}], [RowId("run", "s", 0, 0, 0)])
    assert found(table) == Counter([0])


def test_a_table_that_cannot_be_had_is_waited_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceAway, match="file"):
        write(opened(tmp_path / "file"), [1])


def test_a_table_that_goes_is_waited_for_and_not_made_anew(tmp_path: Path) -> None:
    sink = opened(tmp_path / "t")
    write(sink, [0])
    os.rename(tmp_path / "t", tmp_path / "moved")
    for _ in range(2):
        with pytest.raises(ServiceAway, match="t"):
            write(sink, [0, 1])
    os.rename(tmp_path / "moved", tmp_path / "t")
    write(sink, [0, 1])
    assert found(tmp_path / "t") == Counter([0, 1])


@pytest.mark.parametrize("given", [{"table": ""}, {"batch_rows": 0}, {"batch_age_s": float("nan")}])
def test_settings_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        DeltaSink(**{"table": "x", **given})
