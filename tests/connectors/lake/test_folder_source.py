"""A folder that keeps getting new files: each row of each file once, whatever is read again, late, changed or gone."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headgate import topology
from headgate.topology_runtime.api.logic import Context, Exhausted, RowId
from headgate.topology_runtime.connectors.lake import folder_source
from headgate.topology_runtime.connectors.lake.folder_sink import FolderSink
from headgate.topology_runtime.connectors.lake.folder_source import FolderSource
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

Given = tuple[int, Any]


@pytest.fixture(autouse=True)
def looks_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folder_source, "LOOK_S", 0.0)
    monkeypatch.setattr(folder_source, "LOOKS_MOST", 0)


def opened(
    folder: Path | str, at: int | None = None, partition: int = 0, partitions: int = 1, **given: Any
) -> FolderSource:
    source = FolderSource(str(folder), **{"ready": 0, **given})
    source.open(Context("in", 1, partition, partitions, ""))
    source.seek(at)
    return source


def put(folder: Path, name: str, numbers: Sequence[int], mtime_s: float | None = None) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f'{{"n": {n}}}\n' for n in numbers))
    if mtime_s is not None:
        os.utime(path, (mtime_s, mtime_s))
    return path


def rows(source: FolderSource, limit: int = 7) -> list[Given]:
    """All that there are now."""
    return list(_rows(source, limit))


def _rows(source: FolderSource, limit: int) -> Iterator[Given]:
    while given := source.poll(limit):
        assert len(given) <= limit
        yield from given


def numbers(found: Sequence[Given]) -> list[int]:
    return [row["n"] for _, row in found]


# ── Rows and offsets ────────────────────────────────────────────────────────────────────────────────


def test_files_that_come_later_follow_though_their_names_and_times_are_older(tmp_path: Path) -> None:
    put(tmp_path, "m.jsonl", range(5), 1000)
    source = opened(tmp_path)
    assert numbers(rows(source)) == [*range(5)]
    put(tmp_path, "a.jsonl", range(5, 8), 10)
    put(tmp_path, "sub/z.jsonl", range(8, 10), 20)
    found = rows(source)
    assert numbers(found) == [*range(5, 10)]
    assert rows(source) == []
    assert [offset for offset, _ in found] == sorted(offset for offset, _ in found)


def test_from_every_offset_the_same_rows_follow(tmp_path: Path) -> None:
    put(tmp_path, "b.jsonl", range(3), 5)
    put(tmp_path, "empty.jsonl", [], 6)
    (tmp_path / "blank.jsonl").write_text("\n\n")
    put(tmp_path, "one.jsonl", [3], 8)
    put(tmp_path, "a.jsonl", range(4, 9), 9e9)
    found = rows(opened(tmp_path))
    assert sorted(numbers(found)) == [*range(9)]
    put(tmp_path, "0.jsonl", [9], 1)  # an older name and time changes nothing
    for place, (offset, _) in enumerate(found):
        for limit in (1, 2, 100):
            again = rows(opened(tmp_path, offset + 1), limit)
            assert again[: len(found) - place - 1] == found[place + 1 :]
            assert numbers(again[len(found) - place - 1 :]) == [9]
            assert rows(opened(tmp_path, offset), limit) == found[place:] + again[len(found) - place - 1 :]


def test_another_run_finds_the_same_order(tmp_path: Path) -> None:
    source, found = opened(tmp_path), list[Given]()
    for n, name in enumerate(["c", "a", "b"]):
        put(tmp_path, name + ".jsonl", [n], 100 - n)
        found += rows(source)
    assert rows(opened(tmp_path)) == found and numbers(found) == [0, 1, 2]


def test_threads_share_the_files(tmp_path: Path) -> None:
    for n in range(10):
        put(tmp_path, f"{n}.jsonl", [2 * n, 2 * n + 1])
    sources = [opened(tmp_path, partition=k, partitions=3) for k in range(3)]
    each = [rows(source) for source in sources]
    assert sorted(n for found in each for n in numbers(found)) == [*range(20)]
    assert all(len(found) in (6, 8) for found in each)
    for k, found in enumerate(each):
        offset = found[3][0] + 1
        assert rows(opened(tmp_path, offset, k, 3)) == found[4:]
        assert rows(opened(tmp_path, found[-1][0] + 1, k, 3)) == []


@pytest.mark.parametrize("limit", [1, 64, 1024])
def test_formats(tmp_path: Path, limit: int) -> None:
    table = [{"n": n, "t": f"row {n}"} for n in range(300)]
    pq.write_table(pa.Table.from_pylist(table[:100]), tmp_path / "0.parquet", row_group_size=30)
    text = "".join(json.dumps(row) + "\n" for row in table[100:200])
    (tmp_path / "1.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    (tmp_path / "2.csv").write_text("n,t\n" + "".join(f"{row['n']},{row['t']}\n" for row in table[200:]))
    for n, path in enumerate(sorted(tmp_path.glob("*.*"))):
        os.utime(path, (n, n))
    found = rows(opened(tmp_path), limit)
    assert [row for _, row in found] == table
    for place in (0, 50, 98, 99, 100, 150, 199, 250, 299):
        assert rows(opened(tmp_path, found[place][0] + 1), limit) == found[place + 1 :]


def test_what_a_folder_sink_wrote_is_read_with_its_partitions(tmp_path: Path) -> None:
    sink = FolderSink(str(tmp_path), format="parquet", partition_by=["day", "city"])
    sink.open(Context("out", 1, 0, 1, ""))
    table = [{"n": n, "day": f"d/{n % 2}", "city": ["Köln €", None][n % 2]} for n in range(6)]
    sink.write(table, [RowId("run", "in", 0, n, 0) for n in range(6)])
    found = [row for _, row in rows(opened(tmp_path))]
    assert sorted(found, key=lambda row: row["n"]) == table


def test_a_glob_takes_what_it_names(tmp_path: Path) -> None:
    put(tmp_path, "in/1/a.jsonl", [0])
    put(tmp_path, "in/1/a.txt", [1])
    put(tmp_path, "other/1/a.jsonl", [2])
    assert numbers(rows(opened(f"{tmp_path}/in/*/*.jsonl"))) == [0]
    assert numbers(rows(opened(f"{tmp_path}/**/a.jsonl"))) == [0, 2]
    (tmp_path / "odd[1]").mkdir()
    put(tmp_path, "odd[1]/a.jsonl", [5])
    assert numbers(rows(opened(tmp_path / "odd[1]"))) == [5]


def test_the_order_may_lie_elsewhere(tmp_path: Path) -> None:
    put(tmp_path, "in/a.jsonl", range(3))
    found = rows(opened(tmp_path / "in", order=str(tmp_path / "order")))
    assert numbers(found) == [0, 1, 2] and os.listdir(tmp_path / "in") == ["a.jsonl"]
    again = opened(tmp_path / "in", found[0][0] + 1, order=str(tmp_path / "order"))
    assert rows(again) == found[1:]


def test_a_file_elsewhere(tmp_path: Path) -> None:
    """A file system of fsspec's that is no folder of this machine: two readers could both be first there."""
    import fsspec

    flow, order = topology("t"), str(tmp_path)
    flow.source("in", FolderSource, folder="memory://lake", threads=2) >> flow.task("out")
    with pytest.raises(InvalidInput) as refused:
        flow.build()
    (told,) = refused.value.faults
    assert "the order of files" in told and "memory://lake" in told and "order=" in told
    with pytest.raises(InvalidInput, match="cannot be kept in sftp://host/order"):
        FolderSource("s3://lake/in", order="sftp://host/order")
    system = fsspec.filesystem("memory")
    try:
        for n in range(3):
            system.pipe_file(f"/lake/{n}.jsonl", json.dumps({"n": n}).encode())
        found = rows(opened("memory://lake", order=order))
        assert sorted(numbers(found)) == [0, 1, 2]
        assert rows(opened("memory://lake", found[0][0] + 1, order=order)) == found[1:]
    finally:
        system.rm("/lake", recursive=True)


# ── The end, and what waits ─────────────────────────────────────────────────────────────────────────


def test_it_ends_with_the_files_of_the_start(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", range(3))
    put(tmp_path, "b.jsonl", range(3, 6))
    source = opened(tmp_path, end="now")
    found = [*source.poll(2)]
    put(tmp_path, "c.jsonl", [9])
    found += source.poll(100)
    assert sorted(numbers(found)) == [*range(6)]
    with pytest.raises(Exhausted):
        source.poll(100)


def test_the_end_waits_for_a_file_that_was_there_and_not_whole(tmp_path: Path) -> None:
    put(tmp_path, "day=1/a.jsonl", [0])
    source = opened(tmp_path, end="now", ready="_SUCCESS")
    assert source.poll(10) == []
    put(tmp_path, "day=2/a.jsonl", [1])
    (tmp_path / "day=1/_SUCCESS").touch()
    assert numbers(source.poll(10)) == [0]
    with pytest.raises(Exhausted):
        source.poll(10)


def test_an_empty_folder_ends_at_once(tmp_path: Path) -> None:
    with pytest.raises(Exhausted):
        opened(tmp_path, end="now").poll(10)


def test_lag_is_about_the_rows_that_wait(tmp_path: Path) -> None:
    for n in range(4):
        (tmp_path / f"{n}.jsonl").write_text("".join(f'{{"n": {k:4}}}\n' for k in range(100)))
    (tmp_path / "_hidden").write_text("x" * 10_000)
    source = opened(tmp_path)
    assert source.lag() == 0
    source.poll(1)
    assert source.lag() == 399
    rows_left = 399
    while given := source.poll(37):
        rows_left -= len(given)
        assert source.lag() == rows_left
    assert rows_left == 0


# ── Bad rows, bad files ─────────────────────────────────────────────────────────────────────────────


def test_a_row_or_a_file_that_cannot_be_read_is_an_error_in_its_place(tmp_path: Path) -> None:
    put(tmp_path, "0.jsonl", [0], 1)
    (tmp_path / "1.jsonl").write_text('{"n": \n{"n": 1}\n')
    (tmp_path / "2.parquet").write_bytes(b"PAR1 is not all of it")
    (tmp_path / "3.csv").write_text("n,n\n1,2\n")
    whole = gzip.compress("".join(f'{{"n": {n}}}\n' for n in range(50_000)).encode())
    (tmp_path / "4.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    for n in range(1, 5):
        path = next(tmp_path.glob(f"{n}.*"))
        os.utime(path, (n + 1, n + 1))
    put(tmp_path, "5.jsonl", [7], 9)
    found = rows(opened(tmp_path), 1024)
    bad = [place for place, (_, row) in enumerate(found) if isinstance(row, BadRow)]
    assert [found[n][1].what.split(" of ")[0].split(f"{tmp_path}/")[-1] for n in bad[1:3]] == [
        "2.parquet as Parquet", "3.csv as CSV",
    ]  # fmt: skip
    assert bad[0] == 1 and numbers([found[0], found[2], found[-1]]) == [0, 1, 7] and bad[3] == len(found) - 2
    for place in bad:
        assert [o for o, _ in rows(opened(tmp_path, found[place][0] + 1), 1024)] == [
            o for o, _ in found[place + 1 :]
        ]


# ── Files that change ───────────────────────────────────────────────────────────────────────────────


def replaced(path: Path) -> None:
    path.with_suffix(".tmp").write_text('{"n": 99}\n' * 3)
    os.replace(path.with_suffix(".tmp"), path)


def test_a_file_that_is_done_may_go(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", range(5), 1)
    put(tmp_path, "b.jsonl", [5], 2)
    found = rows(opened(tmp_path))
    path.unlink()
    assert rows(opened(tmp_path, found[4][0] + 1)) == found[5:]
    with pytest.raises(InvalidInput, match="cannot read"):
        opened(tmp_path, found[3][0] + 1).poll(10)


@pytest.mark.parametrize("change", [Path.unlink, replaced, lambda path: path.write_text('{"n": 1}\n' * 9)])
def test_a_file_that_changed_before_it_was_read_is_told_or_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: Any
) -> None:
    path = put(tmp_path, "a.jsonl", range(5), 1)
    put(tmp_path, "b.jsonl", range(5, 8), 2)
    at = opened(tmp_path).poll(2)[-1][0] + 1
    before = path.read_bytes()
    change(path)
    source = opened(tmp_path, at)
    for _ in range(2):
        with pytest.raises(InvalidInput, match=r"cannot read .*a\.jsonl"):
            source.poll(10)
    assert numbers(rows(opened(tmp_path, at, on_gap="skip"))) == [5, 6, 7]
    assert "a.jsonl" in capsys.readouterr().err
    path.write_bytes(before)
    os.utime(path, (1, 1))
    assert numbers(rows(source)) == [*range(2, 8)], "it is back as it was"


def test_a_file_that_is_written_to_while_it_is_read_is_told(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", range(200), 1)
    source = opened(tmp_path)
    found = [*source.poll(10)]
    with path.open("a") as file:
        file.write('{"n": 200}\n')
    with pytest.raises(InvalidInput, match="cannot read"):
        found += rows(source, 10)
    assert numbers(found) == [*range(len(found))]


def test_a_file_that_goes_while_it_is_read_is_read_to_its_end(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", range(200))
    source = opened(tmp_path)
    found = [*source.poll(10)]
    path.unlink()
    assert numbers(found + rows(source)) == [*range(200)]


def test_a_file_that_is_replaced_after_it_was_read_is_not_read_again(tmp_path: Path) -> None:
    path = put(tmp_path, "a.jsonl", range(5))
    source = opened(tmp_path)
    assert len(rows(source)) == 5
    replaced(path)
    assert rows(source) == []


def test_an_order_that_is_gone_is_told(tmp_path: Path) -> None:
    put(tmp_path, "a.jsonl", range(5))
    put(tmp_path, "b.jsonl", range(5))
    found = rows(opened(tmp_path))
    for path in tmp_path.glob("_headgate/order-*/*"):
        path.unlink()
    with pytest.raises(InvalidInput, match="cannot go on with file 1"):
        opened(tmp_path, found[-2][0] + 1)


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_folder_that_is_not_there_is_waited_for_and_not_made(tmp_path: Path, scheme: str) -> None:
    with pytest.raises(ServiceAway, match="nosuch"):
        opened(f"{scheme}{tmp_path}/nosuch")
    assert not os.listdir(tmp_path)
    put(tmp_path, "in/a.jsonl", [1])
    source = opened(f"{scheme}{tmp_path}/in")
    os.rename(tmp_path / "in", tmp_path / "moved")
    with pytest.raises(ServiceAway, match="cannot be read"):
        source.poll(10)
    os.rename(tmp_path / "moved", tmp_path / "in")
    assert numbers(rows(source)) == [1]


@pytest.mark.parametrize(
    "given",
    [
        {"format": "xml"},
        {"format": {"format": "csv", "columns": 1}},
        {"ready": -1},
        {"ready": True},
        {"ready": "a/b"},
        {"ready": ""},
        {"ready": float("nan")},
        {"end": "later"},
        {"on_gap": "retry"},
        {"folder": ""},
    ],
)
def test_settings_that_cannot_be_are_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        FolderSource(**{"folder": "x", **given})
