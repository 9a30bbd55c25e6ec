"""A folder of files as a sink, each row once.

    folder/part-….jsonl                what readers see: whole files, which never change
    folder/_headgate/commits/00000007  one for each write: its files, and the names of its rows as ranges
    folder/_headgate/new/…             files that are not committed yet

A write puts its files into `new`, commits them under the next free number (a link that only one writer can make), and
moves them to their places. Who finds that number taken reads that commit first: rows in it are left out. Whoever comes
next moves what a killed writer had committed; what it had not is removed when it is a day old.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.api.logic import Context, RowId, Sink
from headgate.topology_runtime.connectors.lake.id_ranges import Range, WrittenIds, ranges_of
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.platform.disk import sync_directory, write_whole

FORMATS = {"json": "jsonl", "parquet": "parquet", "csv": "csv"}
OLD_S = 86400.0
NONE = "__none__"  # the folder of rows without the value


class Commit(msgspec.Struct, frozen=True):
    """What one write added. files: relative to the folder."""

    files: list[str]
    rows: list[Range]


class FolderSink(Sink[Any]):
    """Rows (dicts) into files of a folder that all VMs of the sink see (on one VM: any folder). format: json (a line
    each), csv or parquet. batch_rows, batch_age_s: so many rows make a file, or what is so old. partition_by: columns
    whose values name sub-folders (`day=2026-11-29`), as Spark and DuckDB read them.

    >>> sink = FolderSink("/data/readings", format="parquet", partition_by=["day"])
    """

    batch_rows = 10_000
    batch_age_s = 10.0

    def __init__(
        self,
        folder: str,
        *,
        format: str = "json",
        partition_by: Sequence[str] = (),
        batch_rows: int = 10_000,
        batch_age_s: float = 10.0,
    ) -> None:
        if format not in FORMATS:
            raise InvalidInput(f"invalid format {format!r}", hint=f"one of {', '.join(FORMATS)}")
        if batch_rows < 1 or not 0 < batch_age_s <= 3600:
            raise InvalidInput("a file takes 1 row or more, and waits for up to 3600 s")
        self.folder, self.format = Path(folder).absolute(), format
        self.partition_by = [partition_by] if isinstance(partition_by, str) else list(partition_by)
        self.batch_rows, self.batch_age_s = batch_rows, batch_age_s
        self._written, self._next, self._task = WrittenIds(), 0, ""

    def open(self, context: Context) -> None:
        self._task = context.task
        try:
            for name in ("commits", "new"):
                (self.folder / "_headgate" / name).mkdir(parents=True, exist_ok=True)
            self._catch_up()
            self._clean()
        except OSError as error:
            raise self._away(error) from error

    def write(self, rows: Sequence[Any], ids: Sequence[RowId]) -> None:
        row_of = dict(zip(ids, rows, strict=True))  # a call may have a row and its copy
        try:
            self._catch_up()
            while fresh := [(row, name) for name, row in row_of.items() if name not in self._written]:
                if self._commit(fresh):
                    return
                self._catch_up()
        except OSError as error:
            raise self._away(error) from error

    def _away(self, error: OSError) -> ServiceAway:
        return ServiceAway(f"{self.folder} takes no files", cause=error.strerror or str(error))

    # ── commits ─────────────────────────────────────────────────────────────────────────────────

    @property
    def _commits(self) -> Path:
        return self.folder / "_headgate" / "commits"

    def _catch_up(self) -> None:
        """Read commits of others; move files of those who did not live to do so."""
        while True:
            try:
                data = (self._commits / f"{self._next:08}").read_bytes()
            except FileNotFoundError:
                return
            commit = msgspec.json.decode(data, type=Commit)
            self._written.add(commit.rows)
            self._move(commit.files)
            self._next += 1

    def _commit(self, fresh: Sequence[tuple[Any, RowId]]) -> bool:
        """False when another was faster: some of these may be in its commit."""
        files = self._put(fresh)
        commit = Commit(files, ranges_of(name for _, name in fresh))
        ready = self.folder / "_headgate" / "new" / f"commit-{uuid.uuid4().hex}"
        write_whole(ready, msgspec.json.encode(commit))
        try:
            os.link(ready, self._commits / f"{self._next:08}")
        except FileExistsError:
            for name in files:
                self._new(name).unlink()
            return False
        finally:
            ready.unlink()
        sync_directory(self._commits)
        self._written.add(commit.rows)
        self._next += 1
        self._move(files)
        return True

    def _new(self, name: str) -> Path:
        return self.folder / "_headgate" / "new" / os.path.basename(name)

    def _move(self, files: Iterable[str]) -> None:
        for name in files:
            place = self.folder / name
            with suppress(FileNotFoundError):  # it is there already
                place.parent.mkdir(parents=True, exist_ok=True)
                os.rename(self._new(name), place)

    def _clean(self) -> None:
        for entry in os.scandir(self.folder / "_headgate" / "new"):
            with suppress(FileNotFoundError):
                if time.time() - entry.stat().st_mtime > OLD_S:
                    os.unlink(entry.path)

    # ── files ───────────────────────────────────────────────────────────────────────────────────

    def _put(self, fresh: Sequence[tuple[Any, RowId]]) -> list[str]:
        parts: dict[str, list[dict[str, Any]]] = {}
        for row, _ in fresh:
            if not isinstance(row, dict):
                raise BadRow(f"a row for {self.folder} is no dict", cause=f"it is a {type(row).__name__}")
            parts.setdefault(self._part_of(row), []).append(row)
        files = []
        for part, some in parts.items():
            name = os.path.join(part, f"part-{uuid.uuid4().hex}.{FORMATS[self.format]}")
            write_whole(self._new(name), self._encoded(some))
            files.append(name)
        return files

    def _part_of(self, row: dict[str, Any]) -> str:
        values = ((name, row.get(name)) for name in self.partition_by)
        return (
            os.path.join(*(f"{name}={_safe(value)}" for name, value in values), "")
            if self.partition_by
            else ""
        )

    def _encoded(self, rows: list[dict[str, Any]]) -> bytes:
        rows = [{name: value for name, value in row.items() if name not in self.partition_by} for row in rows]
        if self.format == "json":
            return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
        import pyarrow as pa

        try:
            table = pa.Table.from_pylist(rows)
        except pa.ArrowException as error:
            raise BadRow(f"rows do not fit together in a file of {self.folder}", cause=str(error)) from error
        into = pa.BufferOutputStream()
        if self.format == "parquet":
            import pyarrow.parquet

            pyarrow.parquet.write_table(table, into)
        else:
            import pyarrow.csv

            pyarrow.csv.write_csv(table, into)
        return bytes(into.getvalue())


def _safe(value: Any) -> str:
    """As part of a path, as Hive writes it."""
    text = NONE if value is None else str(value)
    return "".join(
        c if c.isalnum() or (c in "-_. " and text not in (".", "..")) else f"%{ord(c):02X}" for c in text
    )
