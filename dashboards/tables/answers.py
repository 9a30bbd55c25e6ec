"""Rows of an answer as JSON, JSON lines, CSV or a table. Times are UTC, what is no number is null."""

from __future__ import annotations

import csv
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from headgate.topology_runtime.output import Format, to_json, write_table

if TYPE_CHECKING:
    import pyarrow as pa

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
