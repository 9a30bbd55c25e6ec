"""How commands print data: a table for people, or JSON, JSON lines or CSV for programs. Data goes to
stdout, everything else to stderr."""

from __future__ import annotations

import csv
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TextIO, TypeVar, get_args

import click

from headgate.topology_runtime.errors import UsageError
from headgate.topology_runtime.faults.words import did_you_mean, significant

Format = Literal["table", "json", "jsonl", "csv"]
FORMATS = get_args(Format)
WIDE = 10_000  # characters, as if a terminal had no end

Row = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def format_options(command: F) -> F:
    """`-o FORMAT` and its short form `--json`; the command gets `output`."""
    return _format_options(command, "-o", "--output")


def short_format_options(command: F) -> F:
    """The same for commands whose `--output` is a place to write to."""
    return _format_options(command, "-o")


def format_or_folder(command: F) -> F:
    """`-o` and `--output`, each a format or a folder to write to, each as often as desired, and `--json`; the
    command gets `outputs`, for `split`."""
    return click.option("--json", "outputs", flag_value="json", multiple=True, help="The same as -o json.")(
        click.option(
            "-o",
            "--output",
            "outputs",
            multiple=True,
            metavar="|".join(FORMATS),
            help="How to print data (default: table); any other word is a folder, as with --to.",
        )(command)
    )


def split(outputs: Sequence[str], folder: str | None) -> tuple[Format, str | None]:
    """(how to print, the folder to write to), of the words of `format_or_folder`; the last ones count. Raises
    UsageError for what is nearly a format."""
    output: Format = "table"
    for word in outputs:
        if word in FORMATS:
            output = word  # type: ignore[assignment]
        elif near := did_you_mean(word, FORMATS):
            raise UsageError(f"{word!r} is no format{near}", hint=f"a folder of this name: --to {word}")
        else:
            folder = word
    return output, folder


def _format_options(command: F, *names: str) -> F:
    command = click.option(
        *names,
        "output",
        type=click.Choice(FORMATS),
        default="table",
        help="How to print data (default: table).",
    )(command)
    return click.option("--json", "output", flag_value="json", help="The same as -o json.")(command)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON without NaN or infinity: an undefined number must be null, not text no reader knows."""
    return json.dumps(value, allow_nan=False, ensure_ascii=False, indent=indent)


def emit(output: Format, document: Mapping[str, Any], rows: Sequence[Row], title: str = "") -> None:
    """Print `document` (json), or its `rows` (jsonl, csv, table)."""
    if output == "json":
        sys.stdout.write(to_json(document, 2) + "\n")
    elif output == "jsonl":
        for row in rows:
            emit_line(row)
    elif output == "csv":
        write_csv(sys.stdout, rows)
    else:
        write_table(rows, title)


def emit_line(row: Row) -> None:
    """One JSON line, at once."""
    sys.stdout.write(to_json(row) + "\n")
    sys.stdout.flush()


def columns_of(rows: Sequence[Row]) -> list[str]:
    """Every key of every row, in the order of first sight."""
    return list(dict.fromkeys(key for row in rows for key in row))


def write_csv(stream: TextIO, rows: Sequence[Row]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    columns = columns_of(rows)
    if columns:
        writer.writerow(columns)
    for row in rows:
        writer.writerow([_cell(row.get(column), exact=True) for column in columns])


def write_table(rows: Sequence[Row], title: str = "", spare: Sequence[str] = ()) -> None:
    """Columns aligned for people; numbers to the right. spare: columns that are left out, one after the other, where
    the terminal is too narrow for all; which, is said below."""
    columns, screen, left = columns_of(rows), console(sys.stdout), []
    table = _table(rows, columns, title)
    for column in (one for one in spare if one in columns):
        if screen.measure(table, options=screen.options.update(width=WIDE)).maximum <= screen.width:
            break
        columns.remove(column)
        left.append(column)
        table = _table(rows, columns, title)
    screen.print(table)
    if left:
        screen.print(f"(left out here: {', '.join(left)}; -o json has them)")


def _table(rows: Sequence[Row], columns: Sequence[str], title: str) -> Any:
    from rich.table import Table

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        numeric = all(isinstance(row.get(column), int | float | None) for row in rows)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row.get(column)) for column in columns))
    return table


def console(stream: TextIO) -> Any:
    """A rich console; off a terminal as wide as it takes, so that nothing is cut."""
    from rich.console import Console

    width = None if stream.isatty() or "COLUMNS" in os.environ else 200
    return Console(file=stream, highlight=False, markup=False, width=width)


def _cell(value: Any, exact: bool = False) -> str:
    if value is None:
        return "" if exact else "N/A"
    if isinstance(value, bool):
        return to_json(value) if exact else "yes" if value else "no"
    if isinstance(value, float) and not exact:
        return significant(value)
    if isinstance(value, Mapping | list | tuple):
        return to_json(value)
    return str(value)
