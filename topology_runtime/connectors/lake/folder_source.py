"""A folder that keeps getting new files, here or in an object store, as a source: each row of each file once.

An offset is (number of the file in the folder's order, row in it); that order is kept beside the files
(`file_order.py`), as a listing changes. The last row of a file has the last offset that it may have: whoever goes on
behind it does not need that file any more. Thread k of n reads the files k, k + n, …; thread 0 lists the folder.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, BinaryIO

import msgspec

from headgate.topology_runtime.api.logic import Context, Exhausted, OffsetSource
from headgate.topology_runtime.connectors.lake.file_order import FileOrder, OrderedFile
from headgate.topology_runtime.connectors.lake.new_files import NewFiles, columns_in, parts_of
from headgate.topology_runtime.connectors.lake.stores import NEW, OWN, refuse_unsure, store_of
from headgate.topology_runtime.connectors.record_formats import (
    FORMATS,
    ParquetRecords,
    RecordReader,
    format_of,
    reader_of,
)
from headgate.topology_runtime.connectors.remote_files import is_remote, without_file_scheme
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

ROW_BITS = 32
LAST = (1 << ROW_BITS) - 1  # the row of an offset behind which its file has no more
READY_S = 2.0  # where files do not appear whole
LOOK_S, LOOKS_MOST = 1.0, 10  # between two looks; and so many times as long as a look takes
CALL_S = 1.0  # of rows that are passed over, or read, in one call
CALL_ROWS, CALL_BYTES = 64, 4 << 20  # read at once; given by one call, about
MARK_MOST = 200  # characters of a marker's name
NOTHING = object()


class FolderSource(OffsetSource[Any]):
    """Records of all files below a folder or of a glob, and of those that come later; here or elsewhere (`s3://…`;
    options: of its package for fsspec). format: text, csv, json (lines) or parquet, or its options (`types`,
    `delimiter` of csv) with its name as `format`; left out, each file's name says it. gzip, bzip2, xz and zstd are
    told. Folders such as `day=1` are columns of their rows.

    ready: a file is whole once unchanged for so many seconds (2; in object stores 0), or, by name, when such a marker
    lies beside it (`_SUCCESS`). end: `now` ends with the files that are there at the start. on_gap: `fail` waits when a
    file was replaced or removed before it was read, `skip` says so, counts it (metric `gaps`) and goes on. order: a
    folder for the order of files, where the one that is read takes none, or is neither a folder nor an object store.

    A look lists all files (1,000 for each request to S3), once a second or, where that takes long, a tenth of the time.
    Raises InvalidInput, and ServiceAway while the store does not answer.

    >>> source = FolderSource("s3://readings/in/*.parquet", ready="_SUCCESS")
    """

    made_to_check = True

    def __init__(
        self,
        folder: str,
        *,
        format: str | Mapping[str, Any] | None = None,
        ready: float | str | None = None,
        end: str | None = None,
        on_gap: str = "fail",
        order: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        reads = dict(format) if isinstance(format, Mapping) else {"format": format}
        marks = isinstance(ready, str)
        checks = {
            f"format: one of {', '.join(FORMATS)}": reads.get("format") in (None, *FORMATS),
            "format: its options are `types` and `delimiter`": reads.keys()
            <= {"format", "types", "delimiter"},
            "ready: seconds from 0 to 3600, or the name of a file": ready is None
            or (0 < len(str(ready)) <= MARK_MOST and "/" not in str(ready) if marks else _seconds(ready)),
            "end: `now`, or left out": end in (None, "now"),
            "on_gap: fail or skip": on_gap in ("fail", "skip"),
            "folder: a name is due": isinstance(folder, str) and folder != "",
        }
        if faults := [fault for fault, right in checks.items() if not right]:
            raise InvalidInput("invalid FolderSource", faults=faults)
        folder = without_file_scheme(folder)
        self.address = folder if is_remote(folder) else os.path.abspath(folder)
        here = os.path.isdir(self.address)  # whatever its name has in it
        self._root, self._pattern = (self.address, "") if here else parts_of(self.address)
        self._kind, self._reads = reads.pop("format", None), reads
        self._ends, self._skips = end == "now", on_gap == "skip"
        self._store = store_of(self._root, options)
        key = self._pattern if order is None else self.address
        self._folder = f"{OWN}/order-{sha256(key.encode()).hexdigest()[:12]}"
        self._kept = self._store if order is None else store_of(order, options)
        hint = "order= a folder that all VMs see, or one in s3://…, gs://… or az://…"
        refuse_unsure(self._kept, "the order of files", hint)
        self._order = FileOrder(self._kept, self._folder)
        if ready is None:
            ready = 0.0 if self._store.atomic else READY_S
        self._new = NewFiles(self._pattern, ready)
        self._first = self._number = 0  # number: of the file to read
        self._row = self._from = 0  # of that file: the next row, and the first one to give
        self._stride = 1
        self._file: BinaryIO | None = None
        self._records: RecordReader | None = None
        self._held: Any = NOTHING  # the next record: is it the last one?
        self._look_s = 0.0  # when to look again
        self._there: frozenset[str] | None = None  # with an end: what has to be whole before it is known
        self._end: int | None = None
        self._read_bytes = self._read_rows = 0  # of files that are over, for `lag`

    def open(self, context: Context) -> None:
        self._first, self._stride = context.partition, context.partitions
        self._number = self._first
        self._metrics = context.metrics
        self._gaps = context.metrics.counter("gaps")
        if not is_remote(self._root) and self._store.seen("") is None:
            raise ServiceAway(f"there is no folder {self._root}", cause="it is waited for")
        self._kept.prepare(NEW, self._folder)
        self._order.catch_up()

    def close(self) -> None:
        self._close_file()

    def seek(self, offset: int | None) -> None:
        number, row = divmod(offset or 0, 1 << ROW_BITS)
        if number > len(self._order.files):
            self._order.catch_up()
        if number > len(self._order.files):
            cause = f"the order of its files, {self._folder} in {self._kept.address}, ends before"
            raise InvalidInput(f"cannot go on with file {number:,} of {self.address}", cause=cause)
        own = number + (self._first - number) % self._stride
        self._close_file()
        self._number, self._from = own, row if own == number else 0

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        found: list[tuple[int, Any]] = []
        self._look()
        until_s, size = time.monotonic() + CALL_S, 0
        try:
            while len(found) < limit and size < CALL_BYTES and time.monotonic() < until_s:
                if self._records is None and not self._open_next():
                    if self._over and not found:
                        raise Exhausted
                    break
                some = self._take(min(CALL_ROWS, limit - len(found)))
                size += _bytes_of(some)
                found += some
        except (InvalidInput, ServiceAway):
            self._close_file()  # it is opened again, and what was given passed over
            if not found:
                raise
        return found

    def lag(self) -> int | None:
        """About: by the bytes of the rows that it has read."""
        waiting = list(islice(self._order.files, self._number, self._end, self._stride))
        left = sum(file.size for file in waiting)
        self._metrics.gauge("files_waiting").set(len(waiting))
        self._metrics.gauge("bytes_waiting").set(left)
        oldest_s = max(0.0, time.time() - waiting[0].mtime_s) if waiting else 0.0
        self._metrics.gauge("oldest_waiting_s").set(oldest_s)
        if not waiting:
            return 0
        done, rows, held = self._read_bytes, self._read_rows, 0
        if self._records is not None:
            held = self._held is not NOTHING
            here = self._bytes_here(waiting[0].size, self._row + held)
            left -= here
            done, rows = done + here, rows + (self._row + held if here else 0)
        return round(left * rows / done) + held if done else None

    def _bytes_here(self, size: int, rows: int) -> int:
        """Of the open file, for so many rows of it."""
        assert self._records is not None
        place = self._records.place
        if isinstance(self._records, ParquetRecords):
            return size * int(self._records.place) // max(1, int(self._records.rows))
        if place is not None:
            return place
        return min(size, rows * self._read_bytes // self._read_rows) if self._read_rows else 0

    # ── files ───────────────────────────────────────────────────────────────────────────────────

    @property
    def _over(self) -> bool:
        return self._end is not None and self._number >= self._end

    def _look(self) -> None:
        """For new files, when it is time."""
        began_s = time.monotonic()
        if began_s < self._look_s or self._end is not None:
            return
        self._order.catch_up()
        if self._first == 0 or (self._ends and self._end is None):
            while True:
                listing = self._store.listing()
                new = self._new.look(listing, self._order.number_of, time.monotonic())
                if not new or self._order.add(new):
                    break
                self._order.catch_up()
            self._find_end()
            changed = sum(
                file.version != listing[file.name].version
                for file in self._order.files
                if file.name in listing
            )
            self._metrics.gauge("files_changed").set(changed)
        now_s = time.monotonic()
        self._look_s = now_s + max(LOOK_S, LOOKS_MOST * (now_s - began_s))

    def _find_end(self) -> None:
        if not self._ends or self._end is not None:
            return
        if self._there is None:
            self._there = self._new.waiting
        if not self._there & self._new.waiting:
            self._end = len(self._order.files)

    def _open_next(self) -> bool:
        """The file to read, if there is one."""
        while self._number < len(self._order.files) and not self._over:
            wanted = self._order.files[self._number]
            try:
                if wanted.size:
                    self._open(wanted)
                    return True
            except InvalidInput as error:
                self._close_file()
                if not self._skips:
                    raise
                self._gaps.add()
                print(f"{error}: going on without it", file=sys.stderr, flush=True)
            self._next(0, 0)
        return False

    def _open(self, wanted: OrderedFile) -> None:
        """Raises InvalidInput when it is not what it was."""
        name = f"{self._store.address}/{wanted.name}"
        self._file, self._held, self._row = self._store.open(wanted.name), NOTHING, 0
        self._still(wanted)
        assert self._file is not None
        try:
            kind = self._kind or format_of(wanted.name)
            self._records = reader_of(kind, self._file, name, **self._reads)
        except InvalidInput as error:  # it will not get better
            self._records = _Broken(error)
        self._columns = columns_in(wanted.name)

    def _still(self, wanted: OrderedFile) -> None:
        seen = self._store.seen(wanted.name, self._file) if self._file is not None else None
        if seen is not None and (seen.size, seen.version) == (wanted.size, wanted.version):
            return
        cause = "it is there no more" if seen is None else "it was replaced, or written to, since it was new"
        hint = "bring it back as it was, give new content a new name, or go on without it: on_gap='skip'"
        raise InvalidInput(f"cannot read {self._store.address}/{wanted.name}", cause=cause, hint=hint)

    def _next(self, size: int, rows: int) -> None:
        self._close_file()
        self._read_bytes, self._read_rows = self._read_bytes + size, self._read_rows + rows
        self._number, self._from = self._number + self._stride, 0

    def _close_file(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = self._records = None
        self._held = NOTHING

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def _take(self, most: int) -> list[tuple[int, Any]]:
        """Rows of the open file behind their offsets. Raises InvalidInput when it changes meanwhile."""
        assert self._records is not None
        wanted = self._order.files[self._number]
        rows = [] if self._held is NOTHING else [self._held]
        try:
            rows += self._records.read(most + 1 - len(rows))
        except InvalidInput as error:  # damaged from here on
            self._records = _Broken(error)
            rows += self._records.read(1)
        if self._store.local:
            self._still(wanted)
        over = len(rows) <= most
        self._held = NOTHING if over else rows.pop()
        base = self._number << ROW_BITS
        given = [(base + self._row + n, self._whole(row)) for n, row in enumerate(rows)]
        if over and given:
            given[-1] = base + LAST, given[-1][1]
        given = [one for one in given if one[0] >= base + self._from]
        self._row += len(rows)
        self._from = max(self._from, self._row)
        if over:
            self._next(wanted.size, self._row)
        return given

    def _whole(self, row: Any) -> Any:
        return {**row, **self._columns} if self._columns and isinstance(row, dict) else row


class _Broken:
    """In place of the records of a file that has none: one that says so."""

    place = None

    def __init__(self, error: InvalidInput) -> None:
        cause = "; ".join([*error.faults, error.cause or ""]).strip("; ")
        self._left = [BadRow(error.what, cause=cause, hint=error.hint)]

    def read(self, most: int) -> list[Any]:
        given, self._left = self._left[:most], self._left[most:]
        return given


def _seconds(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 3600


def _bytes_of(rows: Sequence[tuple[int, Any]]) -> int:
    """About, by the first of them."""
    return len(msgspec.msgpack.encode(rows[0][1], enc_hook=str)) * len(rows) if rows else 0
