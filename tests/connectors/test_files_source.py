"""Files as a source: which records, at which position, for which thread; files that change while they are read."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from headgate.topology_runtime.api.logic import Context, Exhausted
from headgate.topology_runtime.connectors.files import FilesSource
from headgate.topology_runtime.connectors.record_formats import type_of
from headgate.topology_runtime.errors import BadRow, InvalidInput

OPENED: list[FilesSource] = []


@pytest.fixture(autouse=True)
def closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


def opened(
    where: Path, path: Path | str, partition: int = 0, partitions: int = 1, **more: Any
) -> FilesSource:
    source = FilesSource(str(path), **more)
    OPENED.append(source)
    where.mkdir(exist_ok=True)
    source.open(Context("in", 1, partition, partitions, str(where)))
    return source


def forgotten(where: Path) -> None:
    for kept in where.glob("files-*"):
        kept.unlink()


def all_of(source: FilesSource, step: int = 3) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            found += source.read(len(found), step)
        except Exhausted:
            source.close()
            return found


# ── formats ─────────────────────────────────────────────────────────────────────────────────────────────


def test_each_format_gives_its_records(tmp_path: Path) -> None:
    rows = [{"id": number, "name": f"n{number}", "value": number / 4} for number in range(10)]
    out = io.StringIO()
    writer = csv.DictWriter(out, ["id", "name", "value"])
    writer.writeheader()
    writer.writerows(rows)
    (tmp_path / "a.csv").write_text(out.getvalue())
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(out.getvalue().encode()))
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    (tmp_path / "a.log").write_text("one\n\ntwo\r\n \nthree")
    for name in ("a.csv", "a.csv.gz", "a.jsonl", "a.parquet"):
        assert all_of(opened(tmp_path / "kept", tmp_path / name)) == rows, name
        forgotten(tmp_path / "kept")
    assert all_of(opened(tmp_path / "kept", tmp_path / "a.log")) == ["one", "two", "three"]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2", ""], "int"),
        (["1", "2.5", "1e3", "NaN"], "float"),
        (["007", "12"], "str"),
        (["1,5", "2"], "decimal-comma"),
        (["1,234", "2,345"], "str"),  # 1.234 or 1234: nobody knows
        (["9223372036854775808"], "str"),
        (["true", "False"], "bool"),
        (["1", "n/a"], "str"),
        (["", ""], "str"),
        (["0x10"], "str"),
        (["1_000"], "str"),
        (["٣"], "str"),
    ],
)
def test_the_type_of_a_column(values: list[str], kind: str) -> None:
    assert type_of(values) == kind


def test_csv_as_instruments_write_it(tmp_path: Path) -> None:
    text = '# logger 5\nid;v;code;note\r\n1;1,5;007;"a;b"\r\n2;-2,25;008;"two\nlines"\r\n\r\n3;;009;\r\n'
    (tmp_path / "a.csv").write_bytes(b"\xef\xbb\xbf" + text.encode())
    assert all_of(opened(tmp_path, tmp_path / "a.csv")) == [
        {"id": 1, "v": 1.5, "code": "007", "note": "a;b"},
        {"id": 2, "v": -2.25, "code": "008", "note": "two\nlines"},
        {"id": 3, "v": None, "code": "009", "note": None},
    ]


def test_a_record_that_is_none_says_where_it_is_and_costs_no_other(tmp_path: Path) -> None:
    text = b'a,b\n1,x\n2,y,z\nq,x\n4,"never ends\n'
    (tmp_path / "a.csv").write_bytes(text)
    first, cells, number, quote = all_of(opened(tmp_path, tmp_path / "a.csv", types={"a": "int"}))
    assert first == {"a": 1, "b": "x"}
    for bad, at, word in ((cells, 8, "3 cells"), (number, 14, "'q'"), (quote, 18, "no CSV")):
        assert isinstance(bad, BadRow) and f"byte {at} " in str(bad) and word in str(bad), bad
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\nnope\n\xff\n2')
    forgotten(tmp_path)
    one, nope, binary, two = all_of(opened(tmp_path, tmp_path / "a.jsonl"))
    assert (one, two) == ({"a": 1}, 2) and all(isinstance(bad, BadRow) for bad in (nope, binary))


@pytest.mark.parametrize(
    ("text", "word"),
    [("", "no header"), ("a,,b\n", "column 2 has no name"), ("a,b,a\n", "'a' is there twice")],
)
def test_headers_that_name_no_columns(tmp_path: Path, text: str, word: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    with pytest.raises(InvalidInput) as refused:
        all_of(opened(tmp_path, tmp_path / "a.csv"))
    assert word in "\n".join(refused.value.lines())


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_of_parquet_is_found_by_its_row_group(tmp_path: Path) -> None:
    """Those before it are not read again."""
    count, group = 60_000, 5_000
    rows = pa.table({"id": range(count), "text": [f"row {number} of {count}" for number in range(count)]})
    parquet.write_table(rows, tmp_path / "a.parquet", row_group_size=group, compression="none")
    source = opened(tmp_path, tmp_path / "a.parquet")
    assert [row["id"] for row in all_of(source, 7_000)] == list(range(count))
    before = bytes_read()
    assert [row["id"] for row in source.read(50_003, 3)] == [50_003, 50_004, 50_005]
    assert bytes_read() - before < (tmp_path / "a.parquet").stat().st_size // 3
    assert source.read(0, 1) == [{"id": 0, "text": f"row 0 of {count}"}]


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    groups=st.lists(st.integers(0, 2500), max_size=5),
    asked=st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), max_size=6),
)
def test_any_row_of_parquet_can_be_read_again(
    tmp_path: Path, groups: list[int], asked: list[tuple[int, int]]
) -> None:
    with parquet.ParquetWriter(tmp_path / "a.parquet", pa.schema([("id", pa.int64())])) as writer:
        for number, rows in enumerate(groups):
            begin = sum(groups[:number])
            writer.write_table(pa.table({"id": pa.array(range(begin, begin + rows), pa.int64())}))
    ids, source = list(range(sum(groups))), opened(tmp_path, tmp_path / "a.parquet")
    forgotten(tmp_path)
    for position, limit in asked:
        try:
            assert [row["id"] for row in source.read(position, limit)] == ids[position : position + limit]
        except Exhausted:
            assert position >= len(ids)


def test_times_of_parquet_are_python_s_own(tmp_path: Path) -> None:
    """As pandas writes them: to the nanosecond."""
    times = {
        "stamp": pa.array([1_700_000_000_123_456_789], pa.timestamp("ns", "UTC")),
        "took": pa.array([1_500], pa.duration("ns")),
        "clock": pa.array([3_600_000_001_999], pa.time64("ns")),
        "none": pa.array([None], pa.timestamp("ns")),
    }
    parquet.write_table(pa.table(times), tmp_path / "a.parquet")
    (row,) = all_of(opened(tmp_path, tmp_path / "a.parquet"))
    assert row == {
        "stamp": datetime.fromtimestamp(1_700_000_000, UTC).replace(microsecond=123_456),
        "took": timedelta(microseconds=1),
        "clock": time(1, 0, 0, 1),
        "none": None,
    }
    assert {type(value) for value in row.values()} == {datetime, timedelta, time, type(None)}


def test_parquet_that_is_damaged_or_none_or_followed_is_refused(tmp_path: Path) -> None:
    table = pa.table({"id": range(20_000)})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=10_000, compression="none")
    with pytest.raises(InvalidInput, match="cannot follow"):
        opened(tmp_path, tmp_path / "a.parquet", follow=True).read(0, 1)
    forgotten(tmp_path)
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    second = parquet.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0)
    at = second.dictionary_page_offset or second.data_page_offset
    data[at : at + 16] = b"\xff" * 16
    (tmp_path / "a.parquet").write_bytes(data)
    source = opened(tmp_path, tmp_path / "a.parquet")
    assert source.read(0, 2) == [{"id": 0}, {"id": 1}]
    with pytest.raises(InvalidInput, match="from about row 8,192 on"):
        source.read(2, 19_998)
    forgotten(tmp_path)
    parquet.write_table(pa.table([[1], [2]], names=["a", "a"]), tmp_path / "a.parquet")
    with pytest.raises(InvalidInput) as refused:
        opened(tmp_path, tmp_path / "a.parquet").read(0, 1)
    assert refused.value.faults == ("column 'a' is there twice",)
    forgotten(tmp_path)
    (tmp_path / "a.parquet").write_text("a,b\n1,2\n")
    with pytest.raises(InvalidInput, match="as Parquet"):
        opened(tmp_path, tmp_path / "a.parquet").read(0, 1)


# ── files elsewhere ─────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def elsewhere() -> Iterator[Any]:
    """A file system of fsspec's that is no folder of this machine."""
    system = fsspec.filesystem("memory")
    yield system
    system.rm("/in", recursive=True)


def test_files_elsewhere_are_read_as_those_here(tmp_path: Path, elsewhere: Any) -> None:
    for name, first in (("b.parquet", 3), ("a.parquet", 0)):
        out = io.BytesIO()
        parquet.write_table(pa.table({"id": range(first, first + 3)}), out)
        elsewhere.pipe(f"/in/{name}", out.getvalue())
    elsewhere.pipe("/in/.hidden", b"")
    elsewhere.pipe("/in/more/c.csv.gz", gzip.compress(b"id\n6\n7\n"))
    rows = [{"id": number} for number in range(6)]
    for path in ("memory://in", "memory://in/*.parquet"):
        source = opened(tmp_path, path)
        assert all_of(source, 4) == rows and source.read(2, 2) == rows[2:4]
        forgotten(tmp_path)
    assert all_of(opened(tmp_path, "memory://in/more/c.csv.gz")) == [{"id": 6}, {"id": 7}]
    with pytest.raises(InvalidInput, match="cannot read memory://in/none") as none:
        opened(tmp_path, "memory://in/none*")
    assert none.value.cause == "there is no such file"
    with pytest.raises(InvalidInput, match="cannot follow"):
        FilesSource("memory://in/a.parquet", follow=True)


def test_a_file_elsewhere_that_changes_gives_no_wrong_row(
    tmp_path: Path, elsewhere: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.topology_runtime.connectors.files.LOOK_S", 0.0)
    elsewhere.pipe("/in/a.txt", b"".join(b"%d\n" % number for number in range(100_000)))
    source = opened(tmp_path, "memory://in/a.txt")
    assert source.read(0, 2) == ["0", "1"]
    elsewhere.pipe("/in/a.txt", b"other\n")
    for again in (source, opened(tmp_path, "memory://in/a.txt")):
        with pytest.raises(InvalidInput, match="changed while it was read"):
            again.read(2, 2)


def test_what_fsspec_lacks_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"cannot read odd://bucket/a.csv") as unknown:
        opened(tmp_path, "odd://bucket/a.csv")
    assert "odd" in str(unknown.value.cause)


# ── positions ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three(tmp_path: Path) -> tuple[Path, list[str]]:
    """A folder with files of which one is empty and one is packed, and all their lines."""
    (tmp_path / "in").mkdir()
    lines = [
        [f"{name}{number}" for number in range(count)] for name, count in (("a", 2500), ("b", 0), ("c", 1700))
    ]
    for name, some in zip(("a.txt", "b.txt", "c.txt.gz"), lines, strict=True):
        data = "\n".join(some).encode()
        (tmp_path / "in" / name).write_bytes(gzip.compress(data) if name.endswith("gz") else data)
    return tmp_path / "in", [line for some in lines for line in some]


@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_threads_share_the_records_of_a_folder(
    tmp_path: Path, three: tuple[Path, list[str]], partitions: int
) -> None:
    folder, lines = three
    for path in (folder, f"{folder}/*.txt*"):
        parts = [all_of(opened(tmp_path / str(k), path, k, partitions), 999) for k in range(partitions)]
        assert parts == [lines[k::partitions] for k in range(partitions)]


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(asked=st.lists(st.tuples(st.integers(0, 4300), st.integers(1, 1500), st.booleans()), max_size=8))
def test_any_position_can_be_read_again(
    tmp_path: Path, three: tuple[Path, list[str]], asked: list[tuple[int, int, bool]]
) -> None:
    """Also by another worker, from what its folder has kept."""
    folder, lines = three
    source = opened(tmp_path, folder)
    for position, limit, anew in asked:
        if anew:
            source = opened(tmp_path, folder)
        try:
            assert source.read(position, limit) == lines[position : position + limit]
        except Exhausted:
            assert position >= len(lines)


def test_repeated_files_begin_again(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("x\ny\nz\n")
    source = opened(tmp_path, tmp_path / "a", repeat=True)
    assert source.read(0, 8) == list("xyzxyzxy") and source.read(1_000_001, 2) == list("zx")


@pytest.mark.parametrize("name", ["nowhere", "none/*.csv", "fifo"])
def test_what_is_no_file_is_refused(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(InvalidInput, match="cannot read"):
        opened(tmp_path, tmp_path / name)


@pytest.mark.parametrize("more", [{"format": "yaml"}, {"follow": True, "repeat": True}])
def test_options_that_do_not_fit(tmp_path: Path, more: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        FilesSource(str(tmp_path / "a"), **more)


# ── files that change ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("how", ["append", "empty", "replace", "rewrite"])
@pytest.mark.parametrize("anew", [False, True], ids=["same worker", "new worker"])
def test_a_file_that_changes_fails_and_gives_no_wrong_row(tmp_path: Path, how: str, anew: bool) -> None:
    file = tmp_path / "a.txt"
    file.write_text("one\ntwo\nthree\n" * 2000)
    source = opened(tmp_path, file)
    assert source.read(0, 2) == ["one", "two"]
    if how == "append":
        with file.open("a") as more:
            more.write("four\n")
    elif how == "empty":
        file.write_text("")
    elif how == "replace":
        (tmp_path / "b").write_text("other\n")
        (tmp_path / "b").rename(file)
    else:
        with file.open("r+") as other:
            other.write("ONE")
        os.utime(file, ns=(1, 1))
    if anew:
        source = opened(tmp_path, file)
    elif how == "replace":
        assert source.read(2, 2) == ["three", "one"]  # the file that is open is as it was
        return
    with pytest.raises(InvalidInput, match="changed while it was read"):
        source.read(2, 2)


def test_other_code_may_name_another_file(tmp_path: Path) -> None:
    """As `headgate replace` brings it: what was kept of one file is not taken for another."""
    (tmp_path / "a").write_text("one\n")
    (tmp_path / "b").write_text("two\n")
    assert all_of(opened(tmp_path / "kept", tmp_path / "a")) == ["one"]
    assert all_of(opened(tmp_path / "kept", tmp_path / "b")) == ["two"]


Step = tuple[str, int]
DONE = ["append", "rotate", "empty", "restart", "read"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["append", "rotate", "empty", "restart", "read"]), st.integers(0, 9)),
        max_size=25,
    )
)
def test_a_followed_file_gives_every_line_once(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step]
) -> None:
    """Whatever is done to it between reads; what was read before can be read again, or is said to be gone."""
    folder = tmp_path_factory.mktemp("followed")
    file, number, rotated = folder / "log", 0, 0
    file.write_text("")
    source = opened(folder / "kept", file, follow=True)
    written: list[str] = []
    gone = 0  # lines below are of content that is gone
    found: list[str] = []
    for what, size in steps:
        if what == "append":
            lines = [f"line {number + k}" for k in range(size)]
            number += size
            with file.open("a") as out:
                out.writelines(line + "\n" for line in lines)
            written += lines
        elif what == "restart":
            source.close()
            source = opened(folder / "kept", file, follow=True)
        else:
            found += source.read(len(found), 1000)
            if what == "rotate":
                rotated += 1
                file.rename(folder / f"log.{rotated}")
                file.write_text("")
            elif what == "empty" and file.stat().st_size:
                os.truncate(file, 0)
                gone = len(written)
    for _ in range(3):
        found += source.read(len(found), 1000)
    assert found == written
    again = source.read(0, 1000) if written else []
    assert [isinstance(row, BadRow) or row == line for row, line in zip(again, written, strict=False)] == [
        True
    ] * len(again)
    assert not any(isinstance(row, BadRow) for row in source.read(gone, 1000))


def test_the_last_line_of_a_followed_file_waits_for_its_end(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntw")
    source = opened(tmp_path / "kept", file, follow=True)
    assert source.read(0, 9) == ["one"] and source.read(1, 9) == []
    with file.open("a") as out:
        out.write("o\nthr")
    assert source.read(1, 9) == ["two"]
    file.rename(tmp_path / "log.1")
    file.write_text("four\n")
    assert source.read(2, 9) == ["thr", "four"]


def test_a_file_that_is_rotated_away_is_said_to_be_gone(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\n")
    source = opened(tmp_path / "kept", file, follow=True)
    assert source.read(0, 9) == ["one"]
    file.unlink()
    file.write_text("two\n")
    assert source.read(1, 9) == ["two"]
    source.close()
    source = opened(tmp_path / "kept", file, follow=True)
    (gone,) = source.read(0, 9)
    assert isinstance(gone, BadRow) and "cannot be read again" in str(gone) and source.read(1, 9) == ["two"]


def bytes_read() -> int:
    """By this process, ever."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_going_back_in_a_long_file_does_not_read_it_from_the_beginning(tmp_path: Path) -> None:
    count = 1_000_000
    (tmp_path / "a").write_text("".join(f"{number}\n" for number in range(count)))
    source = opened(tmp_path, tmp_path / "a")
    assert len(all_of(source, 100_000)) == count
    before = bytes_read()
    assert source.read(count - 50_000, 2) == [str(count - 50_000), str(count - 49_999)]
    assert bytes_read() - before < 1 << 20 < (tmp_path / "a").stat().st_size // 4
