"""A folder as a sink: whole files, each row once, whoever is killed at whatever point."""

from __future__ import annotations

import json
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate import topology
from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors.lake import stores
from headgate.topology_runtime.connectors.lake.folder_sink import FolderSink
from headgate.topology_runtime.connectors.lake.id_ranges import WrittenIds, ranges_of
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway


def opened(folder: Path | str, **given: Any) -> FolderSink:
    sink = FolderSink(str(folder), **given)
    sink.open(Context("store", 1, 0, 1, ""))
    return sink


def ids(positions: Sequence[int], run: str = "run") -> list[RowId]:
    return [RowId(run, "source", 0, n, 0) for n in positions]


def rows(positions: Sequence[int]) -> list[dict[str, Any]]:
    return [{"id": n, "day": f"d{n % 3}", "value": n / 2} for n in positions]


def write(sink: FolderSink, positions: Sequence[int], run: str = "run") -> None:
    sink.write(rows(positions), ids(positions, run))


def found(folder: Path) -> Counter[int]:
    """By another reader: files below the folder, those of `_headgate` left out."""
    seen: Counter[int] = Counter()
    for path in folder.rglob("*.jsonl"):
        if "_headgate" not in path.parts:
            seen.update(json.loads(line)["id"] for line in path.read_text().splitlines())
    return seen


# ── Names as ranges ─────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 2), st.integers(0, 40)), max_size=20),
        max_size=8,
    )
)
def test_ranges_hold_what_was_added_and_nothing_else(groups: list[list[tuple[str, int, int]]]) -> None:
    written, plain = WrittenIds(), set[RowId]()
    for group in groups:
        names = [RowId(run, "s", 0, position, variant) for run, variant, position in group]
        written.add(ranges_of(names))
        plain.update(names)
    for run in "ab":
        for variant in range(3):
            for position in range(42):
                name = RowId(run, "s", 0, position, variant)
                assert (name in written) == (name in plain)
    assert written.ranges == ranges_of(plain), "and in as few ranges as can be"


# ── Rows ────────────────────────────────────────────────────────────────────────────────────────────


def test_rows_that_come_again_in_other_groups_are_there_once(tmp_path: Path) -> None:
    sink = opened(tmp_path)
    write(sink, range(10))
    write(sink, range(5, 15))
    write(opened(tmp_path), range(30))  # as after a kill
    write(sink, range(40))
    assert found(tmp_path) == Counter(range(40))
    write(sink, range(2), run="another")
    assert found(tmp_path)[0] == 2


def test_two_sinks_of_a_run_may_share_a_folder(tmp_path: Path) -> None:
    for task in ("one", "other"):
        sink = FolderSink(str(tmp_path))
        sink.open(Context(task, 1, 0, 1, ""))
        write(sink, range(3))
    assert found(tmp_path) == Counter([*range(3), *range(3)])


@pytest.mark.parametrize("format", ["json", "csv", "parquet"])
def test_columns_that_the_first_row_lacks_are_written(tmp_path: Path, format: str) -> None:
    opened(tmp_path, format=format).write([{"a": 1}, {"a": 2, "b": 7}], ids([0, 1]))
    files = next(tmp_path.glob("part-*"))
    assert duckdb.sql(f"select sum(a), sum(b) from '{files}'").fetchall() == [(3, 7)]


def test_a_row_that_comes_twice_in_one_call_is_there_once(tmp_path: Path) -> None:
    write(opened(tmp_path), [0, 1, 2, 1, 0, 3])
    assert found(tmp_path) == Counter(range(4))


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_writers_at_the_same_time_do_not_write_a_row_twice(tmp_path: Path, scheme: str) -> None:
    assert opened(f"{scheme}{tmp_path}").folder == str(tmp_path)

    def writer(seed: int) -> None:
        sink, choose = opened(f"{scheme}{tmp_path}"), random.Random(seed)
        starts = list(range(0, 100, 5))
        choose.shuffle(starts)
        for first in starts:
            write(sink, range(first, first + 12))

    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found(tmp_path) == Counter(range(107))
    assert not list((tmp_path / "_headgate" / "new").iterdir())


class Killed(BaseException):
    """Stands for the end of the process at this point."""


@pytest.mark.parametrize("call", ["link", "unlink", "rename", "fsync", "sync_directory"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("number", [1, 2])
def test_whoever_is_killed_anywhere_leaves_no_row_out_and_none_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: bool, number: int
) -> None:
    module: Any = stores if hasattr(stores, call) else os
    real: Callable[..., Any] = getattr(module, call)
    left = [number]

    def dying(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise Killed  # nothing of a killed process goes on
        if left[0]:
            return real(*given)
        if after:
            real(*given)
        raise Killed

    sink = opened(tmp_path, partition_by=["day"])
    write(sink, range(6))
    with monkeypatch.context() as patched:
        patched.setattr(module, call, dying)
        try:
            write(sink, range(6, 12))
        except Killed:
            pass
        except OSError:
            pytest.fail("an error of its own")
    again = opened(tmp_path, partition_by=["day"])
    write(again, range(3, 20))
    assert found(tmp_path) == Counter(range(20))


def test_files_are_whole_and_partitioned_as_other_engines_read_them(tmp_path: Path) -> None:
    write(opened(tmp_path / "p", format="parquet", partition_by=["day"]), range(30))
    write(opened(tmp_path / "c", format="csv"), range(5))
    files = f"read_parquet('{tmp_path}/p/*/*.parquet', hive_partitioning=true)"
    query = f"select count(*), sum(value), count(distinct day) from {files}"
    assert duckdb.sql(query).fetchall() == [(30, 217.5, 3)]
    assert pq.read_table(tmp_path / "p", ignore_prefixes=["_"]).num_rows == 30
    assert duckdb.sql(f"select sum(id) from '{tmp_path}/c/*.csv'").fetchall() == [(10,)]


def test_values_do_not_lead_out_of_the_folder(tmp_path: Path) -> None:
    sink = opened(tmp_path / "in", partition_by=["day"])
    days = ["../..", "a/b", "", None, ".", "ä", "=x"]
    sink.write([{"id": n, "day": day} for n, day in enumerate(days)], ids(range(len(days))))
    assert found(tmp_path / "in") == Counter(range(len(days))) and list(tmp_path.iterdir()) == [
        tmp_path / "in"
    ]


def test_what_is_no_dict_or_fits_no_file_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    sink = opened(tmp_path, format="parquet")
    for bad in (7, {"id": "text", "value": 1}):
        with pytest.raises(BadRow):
            sink.write([{"id": 1, "value": 1}, bad], ids([0, 1]))
    assert not list((tmp_path / "_headgate" / "commits").iterdir())
    write(sink, [0])
    assert pq.read_table(next(tmp_path.glob("*.parquet"))).num_rows == 1


def test_a_folder_that_takes_nothing_is_waited_for(tmp_path: Path) -> None:
    sink = opened(tmp_path / "gone")
    os.rename(tmp_path / "gone", tmp_path / "moved")
    with pytest.raises(ServiceAway, match="takes no files"):
        write(sink, [1])
    os.rename(tmp_path / "moved", tmp_path / "gone")
    write(sink, [1])
    (tmp_path / "file").write_text("")
    with pytest.raises(ServiceAway):
        opened(tmp_path / "file")


@pytest.mark.parametrize(
    "given", [{"format": "xml"}, {"batch_rows": 0}, {"batch_age_s": 0}, {"batch_age_s": float("nan")}]
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        FolderSink("x", **given)


@pytest.mark.parametrize("scheme", ["", "file://", "s3://", "s3a://", "gs://", "az://", "abfs://"])
def test_a_folder_or_store_where_one_of_several_makes_a_file_is_taken(scheme: str) -> None:
    flow = topology("t")
    flow.source("a") >> flow.task("store", FolderSink, folder=f"{scheme}/lake")
    flow.build()


@pytest.mark.parametrize("scheme", ["sftp", "smb", "webdav", "ftp", "memory", "simplecache::s3", "none"])
@pytest.mark.parametrize("to_one", [False, True])
def test_a_store_where_several_could_make_one_file_is_refused_before_a_start(
    scheme: str, to_one: bool
) -> None:
    """One thread, too: one that was moved may write beside its heir, and one that is killed leaves half a file."""
    flow = topology("t")
    store = flow.task("store", FolderSink, folder=f"{scheme}://host/lake", options={"password": "hidden"})
    flow.source("a") >> (store.to_one() if to_one else store)
    with pytest.raises(InvalidInput) as refused:
        flow.build()
    (told,) = refused.value.faults
    assert f"{scheme}://host/lake: there two writers may" in told and "try a mounted folder, s3://" in told
    assert "hidden" not in told
    with pytest.raises(InvalidInput) as made:
        FolderSink(f"{scheme}://host/lake")
    assert made.value.cause and made.value.hint


def test_what_a_killed_writer_never_committed_is_removed_in_time(tmp_path: Path) -> None:
    opened(tmp_path)
    for name, age_s in (("old", 2e5), ("young", 10)):
        path = tmp_path / "_headgate" / "new" / name
        path.touch()
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    opened(tmp_path)
    assert [path.name for path in (tmp_path / "_headgate" / "new").iterdir()] == ["young"]
