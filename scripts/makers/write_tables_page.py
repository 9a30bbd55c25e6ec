"""Writes what docs/reference/tables.md says of every table, from `dashboards/tables`. A test holds the page to it.

.venv/bin/python -P scripts/makers/write_tables_page.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from headgate.dashboards.tables.table_catalogue import TableColumn, TraceTable, tables

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "tables.md"
BEGINS = "<!-- from here on written by scripts/makers/write_tables_page.py -->\n"
WIDTH = 100
DIMENSIONS = "What runs, tasks and VMs are: "
RAW = "As recorded, a row for each line of a file of the trace; `--tables` has their columns: "


def written(text: str) -> str:
    """The page with its part about tables as they are now."""
    by_hand, mark, _ = text.partition(BEGINS)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {BEGINS!r}")
    every = sorted(tables().values(), key=lambda table: table.name)
    views = [table for table in every if table.sql and not table.name.startswith("sum_")]
    raw = [table for table in every if not table.sql]
    described = [table for table in views if table.name.startswith("dim_")]
    parts = [
        by_hand + mark,
        "## Views\n",
        *(listed(table) for table in views if table not in described),
        wrapped("\n" + DIMENSIONS + named(described) + "."),
        "\n## Raw tables\n",
        wrapped(RAW + named(raw) + "."),
    ]
    return "\n".join(parts).rstrip("\n") + "\n"


def listed(table: TraceTable) -> str:
    """One view: what a row is; of answers the columns too. `headgate sql TRACE --tables` has those of all others, and
    says what they mean."""
    if not table.name.startswith("mart_"):
        return wrapped(
            f"- **{table.name}**: {table.about.partition('. ')[0].partition(':')[0].rstrip('.')}.", "  "
        )
    columns = [column for column in table.columns if column.name != "run"]
    return wrapped(f"- **{table.name}**: {table.about} {named(columns)}", "  ")


def named(things: Sequence[TraceTable] | Sequence[TableColumn]) -> str:
    return ", ".join(f"`{thing.name}`" for thing in things)


def wrapped(text: str, indent: str = "") -> str:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
