"""One table of a trace as rotated Parquet files, each complete on its own.

A segment is gathered in memory, written under a name that begins with `_`, synced and renamed: whoever
reads sees whole files only, and a full disk or a kill costs one segment at most (a Parquet file that meets a
full disk is wholly lost). Used by the recorder's thread alone; pyarrow is imported there, on first use.
"""

from __future__ import annotations

import os
from pathlib import Path

from headgate.controller.recording.block_rows import Columns
from headgate.topology_runtime.disk import sync_directory
from headgate.topology_runtime.trace_tables import TABLES

ROTATE_S = 10.0  # what a kill or a full disk costs at most
ROTATE_BYTES = 200_000_000  # of a table, in memory: rows of some 120,000 threads in that time
ROW_BYTES = 8  # per column, roughly


class Segments:
    """The segments of `table` in `directory`/`table`; `life` tells apart the files of one controller."""

    def __init__(self, directory: Path, table: str, life: str) -> None:
        self.table = table
        self._directory = directory / table
        self._life = life
        self._number = 0
        self._parts: list[Columns] = []
        self._rows = 0
        self._began_s: float | None = None

    @property
    def rows(self) -> int:
        """Rows gathered and not yet written."""
        return self._rows

    def add(self, columns: Columns, now_s: float) -> None:
        """Gather these rows."""
        rows = len(columns["time"])
        if rows:
            self._parts.append(columns)
            self._rows += rows
            self._began_s = now_s if self._began_s is None else self._began_s

    def is_due(self, now_s: float) -> bool:
        """Is it time to write the segment?"""
        if self._began_s is None:
            return False
        size = self._rows * ROW_BYTES * len(TABLES[self.table])
        return size >= ROTATE_BYTES or now_s - self._began_s >= ROTATE_S

    def write(self) -> int:
        """Write what is gathered; how many rows. Raises OSError when the disk does not take it: the rows
        are gone then, and no part of a file stays."""
        parts, rows = self._parts, self._rows
        self._parts, self._rows, self._began_s = [], 0, None
        if not rows:
            return 0
        name = f"{self._life}-{self._number:06d}.parquet"
        self._number += 1
        self._directory.mkdir(parents=True, exist_ok=True)
        unfinished = self._directory / f"_{name}"
        try:
            self._write(unfinished, parts)
            os.rename(unfinished, self._directory / name)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync_directory(self._directory)
        return rows

    def _write(self, path: Path, parts: list[Columns]) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        from headgate.topology_runtime.arrow_schema import arrow_schema

        schema = arrow_schema(self.table)
        pieces = [pa.table([pa.array(part[f.name], f.type) for f in schema], schema=schema) for part in parts]
        with open(path, "wb") as file:
            pq.write_table(pa.concat_tables(pieces), file)
            file.flush()
            os.fsync(file.fileno())
