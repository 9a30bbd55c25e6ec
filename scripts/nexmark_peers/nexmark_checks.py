"""What a system gave, beside DuckDB's batch answer, row for row, both in DuckDB: so millions of rows are compared in
seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
from auction_answers import SQL

HIDDEN = (".", "_")


def answer(tables: Any, query: str) -> int:
    """Makes DuckDB's answer, as table `want`; how many rows it has."""
    tables.execute(f"create or replace table want as {(SQL / f'{query}.sql').read_text('utf-8')}")
    return int(tables.execute("select count(*) from want").fetchone()[0])


def compared(tables: Any, query: str, folder: Path) -> dict[str, int]:
    """Rows that are missing, there again, or never were. Of q12 sums are compared, as its windows are the clock's."""
    columns = {name: kind for name, kind, *_ in tables.execute("describe want").fetchall()}
    _found(tables, folder, columns | {"diff": "bigint", "id_": "bigint"})
    names = ", ".join(columns)
    if query == "q12":
        tables.execute(
            "create or replace table found as "
            "select bidder, sum(bids * coalesce(diff, 1)) as bids, null as diff from found group by 1"
        )
    tables.execute(
        f"create or replace table given as select {names}, sum(coalesce(diff, 1)) as n from found group by all "
        "having n <> 0"
    )
    tables.execute(f"create or replace table due as select {names}, count(*) as n from want group by all")
    same = " and ".join(f"due.{name} = given.{name}" for name in columns)
    lost, twice, wrong = tables.execute(
        "select coalesce(sum(greatest(due.n - coalesce(given.n, 0), 0)), 0), "
        "coalesce(sum(greatest(given.n - due.n, 0)), 0), coalesce(sum(given.n) filter (due.n is null), 0) "
        f"from due full join given on {same}"
    ).fetchone()
    return {"lost": int(lost), "twice": int(twice), "wrong": int(wrong)}


def rows_there(folder: Path) -> int:
    """Lines and rows in visible files."""
    return sum(path.read_bytes().count(b"\n") for path in visible(folder) if path.suffix != ".arrows") + sum(
        batch.num_rows for batch in _batches(folder)
    )


def _found(tables: Any, folder: Path, columns: dict[str, str]) -> None:
    """Makes the table `found`. A line that a kill has cut short is no row."""
    if batches := list(_batches(folder)):
        tables.register("batches", pa.Table.from_batches(batches))
        tables.execute("create or replace table found as select *, null as diff from batches")
        tables.unregister("batches")
        return
    files = [str(path) for path in visible(folder) if path.stat().st_size]
    kinds = ", ".join(f"{name}: '{kind}'" for name, kind in columns.items())
    source = (
        "read_json($files, format = 'newline_delimited', ignore_errors = true, columns = {" + kinds + "})"
    )
    if files:
        tables.execute(f"create or replace table found as from {source}", {"files": files})
        if "id" in columns:
            tables.execute("update found set id = coalesce(id, id_)")
    else:
        tables.execute("create or replace table found as select *, null as diff from want limit 0")


def visible(folder: Path) -> Iterator[Path]:
    """Files that readers see; of Spark's file sink those that its log names, as `spark.read` does."""
    log = folder / "_spark_metadata"
    told = {
        Path(unquote(urlsplit(json.loads(line)["path"]).path))
        for path in log.glob("[0-9]*")
        for line in path.read_text("utf-8").splitlines()
        if line.startswith("{")
    }
    for path in sorted(folder.rglob("*")):
        seen = path.is_file() and not any(part.startswith(HIDDEN) for part in path.relative_to(folder).parts)
        if seen and (path in told or not log.exists()):
            yield path


def _batches(folder: Path) -> Iterator[pa.RecordBatch]:
    """Of files of streams of Arrow, each behind its length."""
    for path in visible(folder):
        data = path.read_bytes() if path.suffix == ".arrows" else b""
        at = 0
        while at + 8 <= len(data) and (end := at + 8 + int.from_bytes(data[at : at + 8], "little")) <= len(
            data
        ):
            yield from pa.ipc.open_stream(pa.py_buffer(data)[at + 8 : end])
            at = end
