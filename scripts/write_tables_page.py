"""Writes what docs/tables.md says of every table and column, from `dashboards/tables`. A test holds the page to it.

.venv/bin/python -P scripts/write_tables_page.py
"""

from __future__ import annotations

from pathlib import Path

from headgate.dashboards.tables.catalogue import page, tables

PAGE = Path(__file__).parents[1] / "docs" / "tables.md"
BEGINS = "<!-- from here on written by scripts/write_tables_page.py -->\n"


def written(text: str) -> str:
    """The page with its part about tables as they are now."""
    by_hand, mark, _ = text.partition(BEGINS)
    if not mark:
        raise SystemExit(f"{PAGE} has no line {BEGINS!r}")
    every = tables().values()
    views, raw = [table for table in every if table.sql], [table for table in every if not table.sql]
    views.sort(key=lambda table: table.name)
    parts = [by_hand + mark, "## Views", page(views), "## As it was recorded", page(raw)]
    return "\n".join(parts).rstrip("\n") + "\n"


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text("utf-8")), "utf-8")
