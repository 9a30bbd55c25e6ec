"""`headgate sql TRACE "select …"`: what a trace has as tables, and one query over them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headgate.topology_runtime.commands.output import FILE, Format, emit, format_options
from headgate.topology_runtime.commands.rare_settings import SettingsCommand, setting
from headgate.topology_runtime.errors import InvalidInput, UsageError
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from headgate.dashboards.analytics.storage.result_tables import LeftOut
    from headgate.dashboards.tables.trace_files import RunFiles

LEFT_SHOWN = 20
EXAMPLE = 'headgate sql traces/demo "select * from mart_epochs order by p95_s desc"'


@click.command(cls=SettingsCommand)
@click.argument("trace", metavar="TRACE")
@click.argument("query", required=False)
@click.option(
    "--file",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Read the query from a file; `-`: from stdin.",
)
@click.option(
    "--tables", "only_tables", is_flag=True, help="List tables and columns with types, units and meaning."
)
@click.option(
    "--delta",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write the answer into this new folder, as a Delta table, instead of printing it.",
)
@click.option(
    "--iceberg",
    type=click.Path(file_okay=False, path_type=Path),
    help="The same as an Iceberg table.",
)
@click.option(
    "--attach",
    type=FILE,
    metavar="FILE.duckdb",
    help="Write a new file of DuckDB with these tables, for any client of it, and ask nothing.",
)
@click.option("--spark", "on_spark", is_flag=True, help="Ask Spark instead of DuckDB: the same tables.")
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@setting(
    "--strict",
    type=bool,
    default=False,
    help="Answer nothing (exit 3) if any part of the trace is left out [no].",
)
@format_options
def sql(
    trace: str,
    query: str | None,
    file: Path | None,
    only_tables: bool,
    on_spark: bool,
    output: Format,
    **chosen: Any,
) -> None:
    """One query over the tables of TRACE: a run, all runs of a topology, all traces, or an analysis's folder.

    A query reads and never writes. Times are UTC. docs/reference/tables.md describes every table and column."""
    from headgate.dashboards.tables import trace_files
    from headgate.dashboards.tables.sql_queries import DamagedPage
    from headgate.dashboards.tables.table_catalogue import listing, needed

    if only_tables:
        emit(output, {"tables": listing()}, listing())
        return
    wanted = {kind: chosen[kind] for kind in ("delta", "iceberg", "attach") if chosen[kind] is not None}
    if len(wanted) > 1:
        raise UsageError("an answer is written as one table", hint="leave out --delta or --iceberg")
    if on_spark and wanted:
        raise UsageError(
            f"--{next(iter(wanted))} is DuckDB's answer",
            hint="leave out --spark: Spark writes such tables itself",
        )
    if "attach" in wanted and (query is not None or file is not None):
        raise UsageError("--attach writes a file and asks nothing", hint="leave out the query")
    text = "select * from left_out" if "attach" in wanted else _query(query, file)
    runs, left = trace_files.found(trace)
    left += trace_files.not_finite(runs, trace_files.read_by(text))
    _say(left)
    if chosen["strict"]:
        trace_files.refuse_incomplete(runs, left + trace_files.torn(runs, needed(text)))
    if "attach" in wanted:
        from headgate.dashboards.tables.duckdb_tables import write_database

        click.echo(f"{write_database(wanted['attach'], runs, left)} tables in {wanted['attach']}", err=True)
        return
    if on_spark:
        from headgate.dashboards.tables.spark_tables import ask

        ask(runs, left, text, chosen["master"], output)
        return
    names, batches = _begun_without_damage(runs, left, text, chosen["strict"])
    try:
        _put(names, batches, output, wanted)
    except DamagedPage as error:
        raise InvalidInput("the rest of the answer cannot be read", cause=str(error)) from error


def _query(query: str | None, file: Path | None) -> str:
    if query is not None and file is not None:
        raise UsageError("a query is given twice", hint="leave out --file or the query")
    if query is not None:
        return query
    if file is None:
        raise UsageError("no query is given", hint=f"{EXAMPLE}; or --tables, or --file query.sql")
    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{file} cannot be read", cause=str(error)) from error


def _say(left: Sequence[LeftOut]) -> None:
    for row in left[:LEFT_SHOWN]:
        click.echo(f"left out: {row.file}: {row.kind}: {row.reason}", err=True)
    if len(left) > LEFT_SHOWN:
        click.echo(
            f"left out: {counted(len(left) - LEFT_SHOWN, 'more')[:-1]}; all: select * from left_out", err=True
        )


def _put(
    names: list[str], batches: Iterator[pa.RecordBatch], output: Format, into: Mapping[str, Path]
) -> None:
    if not into:
        from headgate.dashboards.tables.sql_queries import lines_of, show

        show(output, names, lines_of(batches))
        return
    from headgate.dashboards.tables import table_folders

    for kind, folder in into.items():
        rows = counted(table_folders.write(kind, folder, batches), "row")
        click.echo(f"{rows} in the {table_folders.KINDS[kind][0]} table {folder}", err=True)


def _begun_without_damage(
    runs: Sequence[RunFiles], left: list[LeftOut], text: str, strict: bool
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """Once more without what cannot be read, if that shows before anything is printed."""
    from headgate.dashboards.tables import trace_files
    from headgate.dashboards.tables.sql_queries import DamagedPage, cannot

    try:
        return _begun(runs, left, text)
    except DamagedPage as error:
        bad = trace_files.damaged(runs)
        if not bad:
            raise cannot(str(error)) from error
    _say(bad)
    if strict:
        trace_files.refuse_incomplete(runs, bad)
    return _begun(trace_files.without(runs, {why.file for why in bad}), [*left, *bad], text)


def _begun(
    runs: Sequence[RunFiles], left: Sequence[LeftOut], text: str
) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    from headgate.dashboards.tables.duckdb_tables import connected
    from headgate.dashboards.tables.sql_queries import answer, begun
    from headgate.dashboards.tables.table_catalogue import needed

    names, batches = answer(connected(runs, left, needed(text)), text)
    return names, begun(batches)
