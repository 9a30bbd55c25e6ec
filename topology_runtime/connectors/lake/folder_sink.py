"""A folder of files as a sink, each row once.

    folder/part-….jsonl                what readers see: whole files, which never change
    folder/_headgate/commits/00000007  one for each write: its files, and the names of its rows as ranges
    folder/_headgate/new/…             files that are not committed yet

A write puts its files into `new`, commits them under the next free number (a link that only one writer can make), and
moves them to their places. Who finds that number taken reads that commit first: rows in it are left out. Whoever comes
next moves what a killed writer had committed; what it had not is removed when it is a day old. On an object store the
link is a put that fails where there is one (If-None-Match), and a move is a copy.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.lake.arrow_rows import table_of
from headgate.topology_runtime.connectors.lake.id_ranges import Range, WrittenIds, ranges_of
from headgate.topology_runtime.connectors.lake.stores import NEW, NONE, OWN, refuse_unsure, store_of
from headgate.topology_runtime.errors import BadRow, InvalidInput

FORMATS = {"json": "jsonl", "parquet": "parquet", "csv": "csv"}
COMMITS = f"{OWN}/commits"
OLD_S = 86400.0


class Commit(msgspec.Struct, frozen=True):
    """What one write added. files: relative to the folder."""

    files: list[str]
    rows: list[Range]


class FolderSink(Sink[Any]):
    """Rows (dicts) into files of a folder that all VMs of the sink see (on one VM: any folder), or of an object store
    (`s3://…`, `gs://…`, `az://…`; options: of its package for fsspec), and of no other store. format: json (a line
    each), csv or parquet. batch_rows, batch_age_s: so many rows make a file, or what is so old. partition_by: columns
    whose values name sub-folders (`day=2026-11-29`), as Spark and DuckDB read them.

    >>> sink = FolderSink("/data/readings", format="parquet", partition_by=["day"])
    """

    batch_rows = 10_000
    batch_age_s = 10.0
    made_to_check = True

    def __init__(
        self,
        folder: str,
        *,
        format: str = "json",
        partition_by: Sequence[str] = (),
        batch_rows: int = 10_000,
        batch_age_s: float = 10.0,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if format not in FORMATS:
            raise InvalidInput(f"invalid format {format!r}", hint=f"one of {', '.join(FORMATS)}")
        if batch_rows < 1 or not 0 < batch_age_s <= 3600:
            raise InvalidInput("a file takes 1 row or more, and waits for up to 3600 s")
        self._store, self.format = store_of(folder, options), format
        self.folder = self._store.address
        refuse_unsure(self._store, "rows of FolderSink", "a mounted folder, s3://…, gs://… or az://…")
        self.partition_by = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        self.batch_rows, self.batch_age_s = batch_rows, batch_age_s
        self._written, self._next, self._task = WrittenIds(), 0, ""

    def open(self, context: Context) -> None:
        self._task = context.task
        self._store.prepare(COMMITS, NEW)
        self._catch_up()
        self._clean()

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        # A call may have a row and its copy. Sinks of a run that share a folder have names of their own.
        row_of = {
            name._replace(run=f"{self._task}/{name.run}"): row for name, row in zip(ids, rows, strict=True)
        }
        self._catch_up()
        while fresh := [(row, name) for name, row in row_of.items() if name not in self._written]:
            if self._commit(fresh):
                return
            self._catch_up()

    # ── commits ─────────────────────────────────────────────────────────────────────────────────

    def _catch_up(self) -> None:
        """Read commits of others; move files of those who did not live to do so."""
        while (data := self._store.read(f"{COMMITS}/{self._next:08}")) is not None:
            commit = msgspec.json.decode(data, type=Commit)
            self._move(commit.files)
            self._written.add(commit.rows)
            self._next += 1

    def _commit(self, fresh: Sequence[tuple[Any, RowId]]) -> bool:
        """False when another was faster: some of these may be in its commit."""
        files = self._put(fresh)
        commit = Commit(files, ranges_of(name for _, name in fresh))
        if not self._store.create(f"{COMMITS}/{self._next:08}", msgspec.json.encode(commit)):
            for name in files:
                self._store.remove(_new(name))
            return False
        self._move(files)
        self._written.add(commit.rows)
        self._next += 1
        return True

    def _move(self, files: Iterable[str]) -> None:
        for name in files:
            self._store.move(_new(name), name)

    def _clean(self) -> None:
        for name, seen in self._store.listing(NEW).items():
            if time.time() - seen.mtime_s > OLD_S:
                self._store.remove(name)

    # ── files ───────────────────────────────────────────────────────────────────────────────────

    def _put(self, fresh: Sequence[tuple[Any, RowId]]) -> list[str]:
        parts: dict[str, list[dict[str, Any]]] = {}
        for row, _ in fresh:
            if not isinstance(row, dict):
                raise BadRow(f"a row for {self.folder} is no dict", cause=f"it is a {type(row).__name__}")
            parts.setdefault(self._part_of(row), []).append(row)
        encoded = {
            f"{part}part-{uuid.uuid4().hex}.{FORMATS[self.format]}": self._encoded(some)
            for part, some in parts.items()
        }
        for name, data in encoded.items():
            self._store.write(_new(name), data)
        return list(encoded)

    def _part_of(self, row: dict[str, Any]) -> str:
        return "".join(f"{name}={_safe(row.get(name))}/" for name in self.partition_by)

    def _encoded(self, rows: list[dict[str, Any]]) -> bytes:
        rows = [{name: value for name, value in row.items() if name not in self.partition_by} for row in rows]
        if self.format == "json":
            return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        import pyarrow as pa

        table = table_of(rows, self.folder)
        into = pa.BufferOutputStream()
        if self.format == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, into)
        else:
            import pyarrow.csv

            pyarrow.csv.write_csv(table, into)
        return bytes(into.getvalue())


def _new(name: str) -> str:
    return f"{NEW}/{name.rpartition('/')[2]}"


def _safe(value: Any) -> str:
    """As part of a path, as Hive writes it."""
    text = NONE if value is None else str(value)
    if text in (".", ".."):
        return text.replace(".", "%2E")
    return quote(text, safe=" ") if not text.isalnum() else text
