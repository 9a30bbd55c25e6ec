"""What a file's bytes say, record by record: text lines, JSON lines, CSV, Parquet. What is no record is a `BadRow`.

Each format is an object over one open file: `read(most)` gives the next records, fewer at the end of what there is;
`place` is a byte at which a new object goes on with the next record, None where only a file's begin is such a place.
"""

from __future__ import annotations

import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, BinaryIO, Protocol

from headgate.topology_runtime.connectors.formats.csv_format import (
    COMMA,
    DECIMAL,
    DELIMITERS,
    NUMBERS,
    TRUTH,
    TYPES,
    WHOLE,
    Reads,
    UnreadCell,
    column_faults,
    record_of,
)
from headgate.topology_runtime.connectors.formats.json_format import JsonFormat
from headgate.topology_runtime.connectors.text_files import LineReader, stream, text_of
from headgate.topology_runtime.errors import BadRow, InvalidInput
from headgate.topology_runtime.wording import counted

Record = Any  # or a BadRow


class RecordReader(Protocol):
    """The records of one file."""

    @property
    def place(self) -> int | None: ...

    def read(self, most: int) -> list[Record]: ...


class _ByLine:
    """Formats with a record on each line that is not blank."""

    def __init__(self, file: BinaryIO, name: str, at: int = 0, growing: bool = False) -> None:
        self.name, self.growing = name, growing
        if at:
            file.seek(at)
        opened, base = (io.BufferedReader(file), at) if at else stream(file, name)  # type: ignore[type-var]
        self._plain = base is not None
        self._lines = LineReader(opened, name, base or 0)

    @property
    def place(self) -> int | None:
        return self._lines.at if self._plain else None

    def read(self, most: int) -> list[Record]:
        records: list[Record] = []
        while len(records) < most and (lines := self._lines.take(most - len(records), self.growing)):
            records += [
                self._record(line, at) for at, line in lines if isinstance(line, BadRow) or line.strip()
            ]
        return records

    def _record(self, line: bytes | BadRow, at: int) -> Record:
        return line if isinstance(line, BadRow) else text_of(line, at, self.name)


class TextRecords(_ByLine):
    """Each line is a string."""


_JSON = JsonFormat()


class JsonRecords(_ByLine):
    """Each line is a JSON value."""

    def _record(self, line: bytes | BadRow, at: int) -> Record:
        if isinstance(line, BadRow):
            return line
        try:
            return _JSON.decode(line)
        except BadRow as error:
            return BadRow(
                f"the line at byte {at:,} of {self.name} is no row", cause=f"{error}: {line[:80]!r}"
            )


# ── CSV ─────────────────────────────────────────────────────────────────────────────────────────────────

SAMPLE = 256  # records by which the type of a column is told
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}(,[0-9]{3})+")
CODE = re.compile(r"[+-]?0[0-9]+")  # 007 is a name


def type_of(values: Sequence[str]) -> str:
    """The type of a column in which these values stand; empty cells say nothing.

    >>> type_of(["1", "2"]), type_of(["1", "2.5", ""]), type_of(["007", "12"]), type_of(["1,5", "2,25"])
    ('int', 'float', 'str', 'decimal-comma')
    """
    told = [value for value in values if value]
    if not told:
        return "str"
    if all(map(WHOLE.fullmatch, told)):
        return "int" if all(-(1 << 63) <= int(value) < 1 << 63 for value in told) else "str"
    if any(map(CODE.fullmatch, told)):
        return "str"
    if all(DECIMAL.fullmatch(value) or value.lower() in NUMBERS for value in told):
        return "float"
    comma = all(COMMA.fullmatch(value) or WHOLE.fullmatch(value) for value in told)
    if comma and not all(THOUSANDS.fullmatch(value) or WHOLE.fullmatch(value) for value in told):
        return "decimal-comma"  # 1,234 alone may be a thousand and more: it stays text
    return "bool" if all(value.lower() in TRUTH for value in told) else "str"


def delimiter_of(line: str) -> str:
    """What stands between the cells of a header: the one of `,;⇥|` that stands there most."""
    return max(DELIMITERS, key=lambda mark: (line.count(mark), -DELIMITERS.index(mark)))


class CsvRecords:
    """Each record below the header is a dict; cells that are empty are None. types: column → int, float, decimal-comma,
    bool or str, for columns of which the first records do not say it."""

    def __init__(
        self, file: BinaryIO, name: str, types: Mapping[str, str] | None = None, delimiter: str | None = None
    ) -> None:
        self.name = name
        opened, base = stream(file, name)
        self._lines = LineReader(opened, name, base or 0)
        self._begins, self._bad = -1, list[BadRow]()  # of the record that is read now
        lines = self._texts()
        header = next((line for line in lines if line.strip() and not line.startswith("#")), None)
        if header is None:
            raise InvalidInput(
                f"cannot read {name}", cause="it has no header", hint="the first line names columns"
            )
        self._cells = csv.reader(lines, delimiter=delimiter or delimiter_of(header), strict=True)
        self._columns = [
            cell.strip() for cell in next(csv.reader([header], delimiter=delimiter or delimiter_of(header)))
        ]
        self._check(types or {})
        self._sampled: deque[tuple[int, list[str] | BadRow]] = deque(islice(self._raw(), SAMPLE))
        self._types = self._told(types or {})

    place = None

    def _check(self, types: Mapping[str, str]) -> None:
        names, faults = self._columns, column_faults(self._columns, types)
        if faults:
            hint = f"columns: {', '.join(names[:20])}; types: {', '.join(TYPES)}"
            raise InvalidInput(f"cannot read {self.name} as CSV", faults=faults, hint=hint)

    def _told(self, types: Mapping[str, str]) -> list[Reads]:
        whole = [cells for _, cells in self._sampled if not isinstance(cells, BadRow)]
        columns = zip(*(cells for cells in whole if len(cells) == len(self._columns)), strict=True)
        found = dict(
            zip(self._columns, (type_of([c.strip() for c in column]) for column in columns), strict=False)
        )
        return [TYPES[types.get(name) or found.get(name, "str")] for name in self._columns]

    def _texts(self) -> Iterator[str]:
        """The file's lines, for csv; a record may take several."""
        while taken := self._lines.take(1):
            at, line = taken[0]
            if self._begins < 0:
                self._begins = at
            text = line if isinstance(line, BadRow) else text_of(line, at, self.name)
            if isinstance(text, BadRow):
                self._bad.append(text)
                text = ""
            yield text + "\n"

    def _raw(self) -> Iterator[tuple[int, list[str] | BadRow]]:
        """(where it begins, its cells) of each record that is not blank."""
        while True:
            self._begins, self._bad = -1, []
            try:
                cells = next(self._cells)
            except StopIteration:
                return
            except csv.Error as error:
                yield (
                    self._begins,
                    BadRow(f"the record at byte {self._begins:,} of {self.name} is no CSV: {error}"),
                )
                continue
            if self._bad:
                yield self._begins, self._bad[0]
            elif any(cells):
                yield self._begins, cells

    def read(self, most: int) -> list[Record]:
        taken = [self._sampled.popleft() for _ in range(min(most, len(self._sampled)))]
        taken += islice(self._raw(), most - len(taken))
        return [self._record(at, cells) for at, cells in taken]

    def _record(self, at: int, cells: list[str] | BadRow) -> Record:
        if isinstance(cells, BadRow):
            return cells
        columns = self._columns
        where = f"the record at byte {at:,} of {self.name}"
        if len(cells) != len(columns):
            return BadRow(
                f"{where} has {counted(len(cells), 'cell')}, the header {len(columns)}",
                cause=str(cells)[:200],
            )
        try:
            return record_of(columns, self._types, cells)
        except UnreadCell as error:
            return BadRow(f"{where}: column {error.column!r} is {error.text[:80]!r}, and a number or truth value above",
                          hint=f'types={{"{error.column}": "str"}} takes it as text')  # fmt: skip


# ── Parquet ─────────────────────────────────────────────────────────────────────────────────────────────

BATCH_ROWS = 4096


class ParquetRecords:
    """Each row is a dict; times are to the microsecond. place: the number of the next row: the row group that it is in
    is begun again."""

    def __init__(self, file: BinaryIO, name: str, at: int = 0) -> None:
        import pyarrow
        from pyarrow import parquet

        self.name, self.place = name, at
        self._broken = (pyarrow.ArrowException, OSError)
        try:
            table = parquet.ParquetFile(file)
        except self._broken as error:
            raise InvalidInput(f"cannot read {name} as Parquet", cause=str(error).splitlines()[0]) from error
        names = table.schema_arrow.names
        if twice := sorted({column for column in names if names.count(column) > 1}):
            faults = [f"column {column!r} is there twice" for column in twice]
            raise InvalidInput(f"cannot read {name} as Parquet", faults=faults)
        group, groups = 0, table.num_row_groups
        while group < groups and at >= (rows := table.metadata.row_group(group).num_rows):
            at, group = at - rows, group + 1
        left = range(group, groups)
        self._batches = iter(
            table.iter_batches(BATCH_ROWS, row_groups=left, use_threads=False) if left else ()
        )
        self._skip, self.rows = at, table.metadata.num_rows
        self._ready: list[Record] = []

    def read(self, most: int) -> list[Record]:
        while len(self._ready) < most and (rows := self._more()):
            self._skip, skipped = max(0, self._skip - len(rows)), self._skip
            self._ready += rows[skipped:]
        given, self._ready = self._ready[:most], self._ready[most:]
        self.place += len(given)
        return given

    def _more(self) -> list[Record]:
        """The next rows of the file; nothing at its end. Raises InvalidInput."""
        try:
            batch = next(self._batches, None)
            return [] if batch is None else list(_to_microseconds(batch).to_pylist())
        except self._broken as error:
            what = f"cannot read {self.name} from about row {self.place + len(self._ready):,} on"
            raise InvalidInput(what, cause=str(error).splitlines()[0], hint="get a whole copy") from error


def _to_microseconds(batch: Any) -> Any:
    """Of nanoseconds, which Python's own times cannot hold."""
    from pyarrow import types

    for number, field in enumerate(batch.schema):
        kind = field.type
        if types.is_temporal(kind) and getattr(kind, "unit", "") == "ns":
            coarse = types.lib.timestamp("us", kind.tz) if types.is_timestamp(kind) else None
            coarse = coarse or (
                types.lib.duration("us") if types.is_duration(kind) else types.lib.time64("us")
            )
            batch = batch.set_column(number, field.name, batch.column(number).cast(coarse, safe=False))
    return batch


# ── by name ─────────────────────────────────────────────────────────────────────────────────────────────

ENDINGS = {
    "csv": "csv",
    "tsv": "csv",
    "jsonl": "json",
    "ndjson": "json",
    "json": "json",
    "parquet": "parquet",
    "pq": "parquet",
}
PACKED = ("gz", "zst", "zstd", "bz2", "xz")
FORMATS = ("text", "csv", "json", "parquet")


def format_of(name: str) -> str:
    """By the end of a file's name.

    >>> format_of("a/b.csv.gz"), format_of("log")
    ('csv', 'text')
    """
    parts = name.lower().rsplit("/", 1)[-1].split(".")[1:]
    while parts and parts[-1] in PACKED:
        parts.pop()
    return ENDINGS.get(parts[-1], "text") if parts else "text"


def reader_of(
    kind: str,
    file: BinaryIO,
    name: str,
    at: int = 0,
    growing: bool = False,
    types: Mapping[str, str] | None = None,
    delimiter: str | None = None,
) -> RecordReader:
    """Of an open file. at: a place that a reader of it gave; of CSV its begin. Raises InvalidInput."""
    if kind == "csv":
        return CsvRecords(file, name, types, delimiter)
    if kind == "parquet":
        return ParquetRecords(file, name, at)
    return (JsonRecords if kind == "json" else TextRecords)(file, name, at, growing)
