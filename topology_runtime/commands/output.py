"""How commands print data: a table for people, or JSON, JSON lines or CSV for programs. Data goes to
stdout, everything else to stderr.
"""

from __future__ import annotations

import csv
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO, TypeVar, get_args

import click

from headgate.topology_runtime.wording import UNSEEN, one_line, significant, visible

Format = Literal["table", "json", "jsonl", "csv"]
FORMATS = get_args(Format)
UTF8 = ("utf-8", "utf8")
WIDE = 10_000  # characters, as if a terminal had no end

FILE = click.Path(path_type=Path)  # the type of options that name a file or a folder

Row = Mapping[str, Any]
F = TypeVar("F", bound=Callable[..., Any])


def format_options(command: F) -> F:
    """`-o FORMAT`; the command gets `output`. Where something is written to is `--output`."""
    return click.option(
        "-o",
        "output",
        type=click.Choice(FORMATS),
        default="table",
        help="How to print data (default: table).",
    )(command)


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON without NaN or infinity: an undefined number must be null, not text no reader knows."""
    ascii_only = (sys.stdout.encoding or "ascii").lower() not in UTF8
    text = json.dumps(value, allow_nan=False, ensure_ascii=ascii_only, indent=indent)
    return UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


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


def answer(
    output: Format, schema: str, document: Mapping[str, Any], words: str, rows: Sequence[Row] | None = None
) -> None:
    """Print `words` for people, else `document` with its schema, or its `rows` (default: itself)."""
    if output == "table":
        click.echo(visible(words))
    else:
        emit(output, {"schema": schema, **document}, [document] if rows is None else rows)


def emit_line(row: Row) -> None:
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
    return visible(str(value)) if exact else one_line(str(value))


# ── On stderr how far a long wait is ────────────────────────────────────────────────────────────────────


class Bars:
    """A bar for each name while the `with` block lasts, where stderr is a terminal; nothing elsewhere. stay: at the
    end, too."""

    def __init__(self, stay: bool = False) -> None:
        self.there, self._stay = sys.stderr.isatty(), stay
        self._progress: Any = None
        self._rows: dict[str, Any] = {}

    def __enter__(self) -> Bars:
        return self

    def __exit__(self, *_: object) -> None:
        if self._progress is not None:
            self._progress.stop()

    def show(self, name: str, text: str, done: float, total: float, left: str = "") -> None:
        if not self.there:
            return
        if self._progress is None:
            from rich.progress import BarColumn, Progress, TextColumn

            columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[left]}")
            self._progress = Progress(*columns, console=console(sys.stderr), transient=not self._stay)
            self._progress.start()
        if name not in self._rows:
            self._rows[name] = self._progress.add_task("", left="")
        self._progress.update(self._rows[name], description=text, completed=done, total=total, left=left)


Step = Callable[[int, int], None]  # told how many of the things are there, and how many were made just now


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Step]:
    """A bar on a terminal, one line at the end everywhere. Gives `step`. total: of the things asked for; None when
    nobody knows how many there are. Nothing is said where all of them were there."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    screen, began_s = console(sys.stderr), time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    made = 0
    with Progress(*columns, console=screen, transient=True, disable=not screen.is_terminal) as progress:
        task = progress.add_task(what, total=total)

        def step(there: int, made_now: int) -> None:
            nonlocal made
            made += made_now
            progress.update(task, completed=there)

        yield step
    if total is None or made:
        count = f"{made:,} " if made else ""
        print(f"{count}{what} in {time.monotonic() - began_s:.1f} s", file=sys.stderr)
