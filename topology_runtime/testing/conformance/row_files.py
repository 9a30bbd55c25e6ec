"""Rows in files, for a source and a sink whose rows a test outside gives and counts."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.logic import Context, Row, RowId, Sink, Source
from headgate.topology_runtime.errors import ServiceAway
from headgate.topology_runtime.worker.rows import row_values

LENGTH_BYTES = 4
GIVEN, AWAY, KEPT = "given", "away", "kept-"


def append(path: Path, rows: Sequence[Any]) -> None:
    """At one stroke."""
    each = [row_values.write([row], row_values.NESTED) for row in rows]
    with open(path, "ab", buffering=0) as file:
        file.write(b"".join(len(data).to_bytes(LENGTH_BYTES) + data for data in each))


class RowFile:
    """Rows that come at the end of a file, read on and on."""

    def __init__(self, path: Path) -> None:
        self._path, self._at = path, 0

    def new(self) -> Iterator[Any]:
        """Whole rows that are new."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._at)
            while len(head := file.read(LENGTH_BYTES)) == LENGTH_BYTES:
                data = file.read(int.from_bytes(head))
                if len(data) < int.from_bytes(head):
                    return
                self._at = file.tell()
                yield row_values.read(data, row_values.NESTED)[0]


class RowsOfFile(Source[Any]):
    """Rows that a test puts into `folder`/given."""

    def __init__(self, folder: str) -> None:
        self._file, self._rows = RowFile(Path(folder) / GIVEN), list[Any]()

    def read(self, position: int, limit: int) -> Sequence[Any]:
        self._rows.extend(self._file.new())
        return self._rows[position : position + limit]


class KeptRows(Sink[Any]):
    """Rows with their names into `folder`/kept-PID-THREAD; away while there is `folder`/away."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    def open(self, context: Context) -> None:
        self._path = self._folder / f"{KEPT}{os.getpid()}-{threading.get_native_id()}"

    def write(self, rows: Sequence[Row], ids: Sequence[RowId]) -> None:
        if (self._folder / AWAY).exists():
            raise ServiceAway("the sink of this test was told to wait")
        append(self._path, [(str(name), row) for name, row in zip(ids, rows, strict=True)])


class KeptFiles:
    """What such sinks have kept."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._files = folder, dict[str, RowFile]()

    def new(self) -> Iterator[tuple[str, Row]]:
        """(name, row) of what has come since this was asked last."""
        for entry in sorted(os.scandir(self._folder), key=lambda entry: entry.name):
            if entry.name.startswith(KEPT):
                file = self._files.setdefault(entry.name, RowFile(Path(entry.path)))
                yield from ((name, row) for name, row in file.new())
