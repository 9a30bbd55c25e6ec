"""A connection of DuckDB in which the tables of a trace can be read, and nothing else: no other file, no writing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.tables.catalogue import TraceTable, tables
from headgate.dashboards.tables.heads import head_tables
from headgate.dashboards.tables.trace_files import RunFiles
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.trace_tables import TABLES

if TYPE_CHECKING:
    import duckdb

TYPES = {
    "timestamp": "timestamptz",
    "string": "varchar",
    "bigint": "bigint",
    "double": "double",
    "boolean": "boolean",
}


def connected(
    runs: Sequence[RunFiles], left: Sequence[LeftOut], wanted: set[str]
) -> duckdb.DuckDBPyConnection:
    """A connection with these tables of the catalogue. Raises HeadgateError when DuckDB is not there."""
    try:
        import duckdb
    except ImportError as error:
        raise HeadgateError(
            "DuckDB is not installed",
            cause="`sql` runs on it",
            hint="pip install 'headgate[sql]', or --spark",
        ) from error
    connection = duckdb.connect(":memory:")
    connection.execute("set timezone = 'UTC'")
    connection.execute("create macro unix_micros(t) as epoch_us(t)")  # as Spark calls it
    files = [file for one in runs for of in one.files.values() for file in of]
    connection.execute(f"set allowed_paths = [{', '.join(map(_text, files))}]")
    for name, rows in head_tables(runs, left, wanted).items():
        connection.register(name, rows)
    for table in tables().values():
        if table.name in wanted and table.name in TABLES:
            connection.execute(f"create view {table.name} as {_of_files(table, runs)}")
        elif table.name in wanted and table.sql is not None:
            connection.execute(f"create view {table.name} as {table.sql}")
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def _of_files(table: TraceTable, runs: Sequence[RunFiles]) -> str:
    """All runs of a table of Parquet files: columns that these do not have are null, and so is what is no number."""
    parts = [_of_run(table, one) for one in runs if one.files[table.name]]
    nothing = ", ".join(f"cast(null as {TYPES[c.type]}) as {c.name}" for c in table.columns)
    return " union all ".join(parts) if parts else f"select {nothing} where false"


def _of_run(table: TraceTable, one: RunFiles) -> str:
    files = one.files[table.name]
    there = names_in(files)
    columns = [f"{_text(one.run.key)} as run"]
    for column in table.columns[1:]:
        value = column.name if column.name in there else "null"
        if column.type == "double" and value != "null":
            value = f"case when isfinite({value}) then {value} end"
        columns.append(f"cast({value} as {TYPES[column.type]}) as {column.name}")
    listed = ", ".join(map(_text, files))
    return f"select {', '.join(columns)} from read_parquet([{listed}], union_by_name = true, hive_partitioning = false)"


def names_in(files: Sequence[str]) -> set[str]:
    """The columns that any of these files has."""
    import pyarrow.parquet as pq

    return {name for file in files for name in pq.read_schema(file).names}


def _text(value: str) -> str:
    """As SQL has it."""
    return "'" + value.replace("'", "''") + "'"
