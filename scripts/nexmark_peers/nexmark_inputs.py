"""Nexmark's events as files, for systems that read files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from auction_events import KINDS, Auctions
from auction_tasks import side_input
from pyarrow import csv, parquet


def write(events: Auctions, kinds: tuple[str, ...], form: str, files: int, folder: Path) -> None:
    """form: csv, plain (csv without a header) or parquet; in so many files for each kind, in the order of arrival."""
    for kind in (*kinds, "side_input") if form == "plain" else kinds:
        (folder / kind).mkdir(parents=True)
        if kind == "side_input":
            tables = [pa.table({"key": range(len(side_input())), "value": side_input()})]
        else:
            there = events.count((kind,))
            size = max(1, -(-there // files))
            tables = [pa.table(events.columns(kind, at, size)) for at in range(0, max(there, 1), size)]
        for number, table in enumerate(tables):
            path = folder / kind / f"part-{number:04d}"
            if form == "csv":  # pathway takes no column that is called id
                table = table.rename_columns([{"id": "id_"}.get(name, name) for name in table.column_names])
            if form == "parquet":
                parquet.write_table(table, path.with_suffix(".parquet"))
            else:
                options = csv.WriteOptions(include_header=form == "csv", quoting_style="none")
                csv.write_csv(table, path.with_suffix(".csv"), options)
    for kind in set(KINDS) - set(kinds) if form == "plain" else ():
        (folder / kind).mkdir()
