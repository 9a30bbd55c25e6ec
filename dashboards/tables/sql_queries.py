"""One query: only reading, in a thread of its own so that Ctrl-C is heard, and its errors in words."""

from __future__ import annotations

import csv
import math
import queue
import re
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.dashboards.tables.table_catalogue import tables
from headgate.topology_runtime.commands.output import Format, to_json, write_table
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.wording import did_you_mean

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BATCH_ROWS = 5_000
AHEAD = 4  # batches that wait to be printed
LISTS_THEM = "`headgate sql TRACE --tables` lists tables and columns"
UNKNOWN = re.compile(
    r'(?:Table with name|Referenced (?:column|table)|column (?:with name|named))\s+"?([^\s"!]+)"?', re.I
)


OF_QUERIES = (
    "Parser",
    "Binder",
    "Catalog",
    "Permission",
    "Conversion",
    "OutOfRange",
    "NotImplemented",
    "Syntax",
)


class DamagedPage(Exception):
    """It may be that a file cannot be read, though its footer could: the query itself is not at fault."""


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """(names of the columns, rows in batches as they are worked out). Raises InvalidInput, DamagedPage."""
    relation = reading(connection, query)
    return list(relation.columns), _batches(connection, relation, query)


def reading(connection: duckdb.DuckDBPyConnection, query: str) -> duckdb.DuckDBPyRelation:
    """What a query that reads will find. Raises InvalidInput, DamagedPage."""
    import duckdb

    try:
        found = connection.extract_statements(query)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise only_reads(len(found))
        return connection.sql(f"select * from (\n{found[0].query.strip().rstrip(';')}\n) answer")
    except duckdb.Error as error:
        raise _in_words(error, query) from error


def only_reads(statements: int) -> InvalidInput:
    what = "there is no query in it" if statements == 0 else "only one query that reads is answered"
    return InvalidInput(
        what,
        cause=None if statements == 0 else "a trace is never written to, and one answer has one table",
        hint="begin with `select`, `with`, `describe` or `summarize`",
    )


def _batches(
    connection: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation, query: str
) -> Iterator[pa.RecordBatch]:
    """Worked out by a thread: DuckDB itself does not hear of Ctrl-C while it works."""
    import duckdb

    waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(AHEAD)
    over = threading.Event()

    def put(item: pa.RecordBatch | BaseException | None) -> None:
        while not over.is_set():
            try:
                return waiting.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for batch in relation.to_arrow_reader(BATCH_ROWS):
                put(batch)
                if over.is_set():
                    return
            put(None)
        except BaseException as error:  # told to whoever waits for the rows
            put(error)

    thread = threading.Thread(target=work, name="query", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, duckdb.Error | OSError):
                raise _in_words(item, query) from item
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
        connection.interrupt()
        thread.join()


def _in_words(error: Exception, query: str) -> HeadgateError | DamagedPage:
    """What DuckDB says, with near names where one is not known."""
    text = str(error)
    kind, _, rest = text.partition(": ")
    lines = [line for line in rest.splitlines() if line.strip()]
    cause = lines[0] if lines else text
    if not type(error).__name__.startswith(OF_QUERIES):
        return DamagedPage(cause)
    at = next((n for n, line in enumerate(lines) if line.startswith("LINE ")), None)
    where = f", at {lines[at].partition(': ')[2].strip()[:80]!r}" if at is not None else ""
    hint = LISTS_THEM
    if "PermissionException" in type(error).__name__ or kind == "Permission Error":
        hint = "a query reads the trace's tables, and no other file"
    elif match := UNKNOWN.search(cause):
        word = match.group(1).rpartition(".")[2]
        hint = f"{near_name(word, query)}{LISTS_THEM}"
    return cannot(cause + where, hint)


def cannot(cause: str, hint: str = LISTS_THEM) -> InvalidInput:
    return InvalidInput("the query cannot be answered", cause=cause, hint=hint)


def near_name(word: str, query: str) -> str:
    """` did you mean …?` of the tables, and of the columns of those that the query names."""
    every = tables()
    words = set(re.findall(r"\w+", query.lower()))
    known = [*every, *(c.name for name in every.keys() & words for c in every[name].columns)]
    near = did_you_mean(word, known).strip(" ;,")
    return f"{near}; " if near else ""


# ── Rows of an answer as JSON, JSON lines, CSV or a table. Times are UTC, what is no number is null ─────

TABLE_ROWS = 1_000  # that a table shows: it has to be in memory to be aligned
WIDE, FEW = 10, 5  # a table of more columns and no more rows is shown on its side
DAY_S = 86_400

Line = Sequence[Any]
T = TypeVar("T")


def show(output: Format, names: Sequence[str], lines: Iterator[Line]) -> None:
    """All rows, or the first of a table with a word on stderr. No row is kept but those of a table."""
    columns, lines = unique(names), ([plain(value) for value in line] for line in lines)
    if output == "json":
        _json(columns, lines)
    elif output == "jsonl":
        for line in lines:
            sys.stdout.write(to_json(dict(zip(columns, line, strict=True))) + "\n")
    elif output == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([_cell(value) for value in line] for line in lines)
    else:
        _table(columns, lines)


def unique(names: Sequence[str]) -> list[str]:
    """Names that are there twice get a number: `n`, `n_2`."""
    found: list[str] = []
    for name in names:
        number, free = 1, name
        while free in found:
            number += 1
            free = f"{name}_{number}"
        found.append(free)
    return found


def lines_of(batches: Iterable[pa.RecordBatch]) -> Iterator[Line]:
    """The rows of Arrow's batches; whole numbers that are decimals to DuckDB are told apart in `plain`."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def plain(value: Any) -> Any:
    """What JSON knows: whole numbers exact, NaN and infinity null, times as text."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, datetime):
        known = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
        return known.isoformat(timespec="microseconds") + ("Z" if value.tzinfo else "")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, tuple):  # an interval: months, days, nanoseconds; a month has no fixed length
        months, days, nanoseconds = value
        return f"{months} months" * bool(months) or days * DAY_S + nanoseconds / 1e9
    if isinstance(value, dict):
        return {str(key): plain(of) for key, of in value.items()}
    if isinstance(value, list):
        return [plain(of) for of in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def _json(columns: Sequence[str], lines: Iterator[Line]) -> None:
    before = "[\n"
    for line in lines:
        sys.stdout.write(before + to_json(dict(zip(columns, line, strict=True))))
        before = ",\n"
    sys.stdout.write("[]\n" if before == "[\n" else "\n]\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return to_json(value) if isinstance(value, bool | dict | list) else str(value)


def _table(columns: Sequence[str], lines: Iterator[Line]) -> None:
    first = list(islice(lines, TABLE_ROWS))
    more = next(lines, None) is not None
    rows = [dict(zip(columns, line, strict=True)) for line in first]
    if len(columns) > WIDE and 0 < len(rows) <= FEW:
        write_table(
            [{"column": name} | {str(n): row[name] for n, row in enumerate(rows, 1)} for name in columns]
        )
    elif rows:
        write_table(rows)
    else:
        click.echo("no rows", err=True)
    if more:
        click.echo(f"the first {TABLE_ROWS:,} rows of more: -o csv, json or jsonl has all", err=True)


def begun(lines: Iterator[T]) -> Iterator[T]:
    """The same, but the first one is worked out now: what a query cannot do shows before anything is printed."""
    first = next(lines, None)
    return iter(()) if first is None else chain((first,), lines)
