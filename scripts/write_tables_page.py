"""Writes what docs/reference/tables.md says of every table, from `dashboards/tables`. A test holds the page to it.

.venv/bin/python -P scripts/write_tables_page.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from textwrap import fill

from dashboards.tables.catalogue import TableColumn, TraceTable, tables

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "tables.md"
BEGINS = "<!-- from here on written by scripts/write_tables_page.py -->\n"
WIDTH = 100
OFTEN = 3  # a column with one meaning in so many tables is explained once
UNTOLD = (
    "Names end in their units. Other counts are of rows, CPU and memory are fractions of a slot. "
    "`headgate sql TRACE --tables` explains each column of these and of the raw tables."
)
UNITS = {"_s": "s", "_bytes": "bytes", "_tps": "tuples/s", "_ms": "ms"}


def written(text: str) -> str:
    """The page with its part about tables as they are now."""
    by_hand, mark, _ = text.partition(BEGINS)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {BEGINS!r}")
    every = sorted(tables().values(), key=lambda table: table.name)
    raw = [table for table in every if not table.sql]
    answers = [table for table in every if table.sql and table.name.startswith("mart_")]
    views = [table for table in every if table.sql and table not in answers]
    often = frequent(every)
    parts = [
        by_hand + mark,
        "## Columns of several tables\n",
        bullets(often),
        "\n## Answers\n",
        *(explained(table, set(often)) for table in answers),
        "## Descriptions and measurements\n",
        wrapped(UNTOLD),
        "",
        *map(listed, views),
        "\n## Raw tables\n",
        *map(listed, raw),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def frequent(every: Iterable[TraceTable]) -> list[TableColumn]:
    """Columns that mean the same in several tables, most frequent first."""
    count = Counter(column for table in every for column in table.columns)
    return [column for column, n in count.most_common() if n >= OFTEN and column.about != column.name]


def explained(table: TraceTable, known: set[TableColumn]) -> str:
    """One table: what a row is, its columns that are explained above, and the meaning of the others."""
    shared = [column for column in table.columns if column in known]
    own = [column for column in table.columns if column not in known]
    names = ", ".join(f"`{column.name}`" for column in shared if column.name != "run")
    lead = f"{table.about} {names}; and:" if names else table.about
    return "\n".join([f"### {table.name}\n", wrapped(lead), "", bullets(own), ""])


def listed(table: TraceTable) -> str:
    """One table: what a row is, and its columns."""
    names = ", ".join(f"`{column.name}`" for column in table.columns if column.name != "run")
    return wrapped(f"- **{table.name}**: {table.about} {names}", "  ")


def bullets(columns: Iterable[TableColumn]) -> str:
    return "\n".join(wrapped(f"- `{c.name}`{unit(c)}: {c.about}", "  ") for c in columns)


def unit(column: TableColumn) -> str:
    """In brackets, where the name does not say it."""
    ends = any(column.name.endswith(end) and column.unit == told for end, told in UNITS.items())
    return "" if ends or column.unit in ("", column.name) else f" ({column.unit})"


def wrapped(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
