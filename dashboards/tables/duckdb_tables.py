"""DuckDB: in this process, no server. For a query of a user's, a connection in which the tables of a trace can be read,
and nothing else: no other file, no writing."""

from __future__ import annotations

import errno
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headgate.dashboards.analytics.curation.trace_segments import Segment
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.tables import trace_files
from headgate.dashboards.tables.sql_queries import answer, lines_of, plain, reading, unique
from headgate.dashboards.tables.table_catalogue import TraceTable, tables
from headgate.dashboards.tables.table_engines import ABSENT, EngineFailure, fill
from headgate.dashboards.tables.trace_files import RunFiles, head_tables
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.wording import significant

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

TYPES = {
    "timestamp": "timestamptz",
    "string": "varchar",
    "bigint": "bigint",
    "double": "double",
    "boolean": "boolean",
}
MACROS = (  # functions as Spark calls them
    "unix_micros(t) as epoch_us(t)",
    "timestamp_micros(us) as make_timestamptz(us)",
    "sort_array(these) as list_sort(these)",
    "array_join(these, between) as array_to_string(these, between)",
)
MEMORY_SHARE = 0.6  # of what the process may take
AGAIN_S = 0.1  # between two attempts to end what runs
FULL = "No space left on device"
T = TypeVar("T")


class DuckdbEngine:
    """A connection with views and tables of its own. `database`: the file that holds them [memory]."""

    def __init__(self, database: str = ":memory:") -> None:
        try:
            import duckdb
        except ImportError as error:
            raise HeadgateError(
                "DuckDB is not installed",
                cause="`sql` and `analyze` run on it",
                hint="pip install 'headgate[sql]', or Spark: `sql --spark`, `analyze --master URL`",
            ) from error
        try:
            self.connection = duckdb.connect(database)
        except duckdb.Error as error:
            raise _failure(error) from error
        self.connection.execute("set timezone = 'UTC'")
        for macro in MACROS:
            self.connection.execute(f"create or replace temp macro {macro}")

    def ask(self, query: str) -> pa.Table:
        return self._worked(lambda: self.connection.sql(query).to_arrow_table())

    def put(self, name: str, rows: pa.Table) -> None:
        self.connection.register(name, rows)

    def read(self, name: str, table: TraceTable, runs: Sequence[RunFiles]) -> None:
        self.define(name, of_files(table, runs))

    def define(self, name: str, query: str) -> None:
        self.run(f"create or replace temp view {name} as {query}")

    def keep(self, name: str, query: str) -> None:
        self.run(f"create or replace table {name} as {query}")

    def write(self, query: str, folder: DataPlace, by: Sequence[str]) -> None:
        Path(folder.path).mkdir(parents=True, exist_ok=True)
        how = f"format parquet, compression zstd, partition_by ({', '.join(by)}), overwrite_or_ignore"
        self.run(f"copy ({query}) to {text(folder.path)} ({how})")

    def run(self, statement: str) -> None:
        """One that gives no rows."""
        self._worked(lambda: self.connection.execute(statement))

    def close(self) -> None:
        self.connection.close()

    def _worked(self, do: Callable[[], T]) -> T:
        """In a thread of its own: DuckDB does not hear of Ctrl-C while it works."""
        found: list[T] = []
        raised: list[BaseException] = []
        over = threading.Event()

        def work() -> None:
            try:
                found.append(do())
            except BaseException as error:  # told to whoever waits
                raised.append(error.with_traceback(None))
            over.set()

        try:
            threading.Thread(target=work, name="query", daemon=True).start()
            over.wait()
        finally:
            while not over.wait(AGAIN_S):  # it may just have begun: then there is nothing to interrupt yet
                self.connection.interrupt()
        for error in raised:
            raise _failure(error) from error
        return found[0]


def _failure(error: BaseException) -> BaseException:
    import duckdb

    if not isinstance(error, duckdb.Error):
        return error
    said = str(error)
    if FULL in said:
        return OSError(errno.ENOSPC, FULL)
    hint = "more of it: --set memory=4g" if isinstance(error, duckdb.OutOfMemoryException) else None
    return EngineFailure("DuckDB failed", cause=said.splitlines()[0], hint=hint)


class DatabaseFile(DuckdbEngine):
    """One whose tables stay in its file, for other clients."""

    def __init__(self, database: str) -> None:
        super().__init__(database)
        for macro in MACROS:
            self.run(f"create macro {macro}")

    def put(self, name: str, rows: pa.Table) -> None:
        super().put("rows_of_head", rows)
        self.keep(name, "select * from rows_of_head")
        self.connection.unregister("rows_of_head")

    def define(self, name: str, query: str) -> None:
        self.run(f"create view {name} as {query}")


def limited(engine: DuckdbEngine, folder: Path, memory: str) -> None:
    """`memory` is that of the whole process: a part of it goes to Python and Arrow."""
    engine.run(f"set memory_limit = '{int(MEMORY_SHARE * bytes_of(memory))}B'")
    engine.run(f"set temp_directory = {text(str(folder / 'spill'))}")
    engine.run("set preserve_insertion_order = false")


def bytes_of(memory: str) -> int:
    """As `2g` and `512m` say. Raises UsageError."""
    units = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
    number, unit = memory[:-1], memory[-1:].lower()
    if unit not in units or not number.isdecimal() or not int(number):
        raise UsageError(f"invalid memory {memory!r}", hint="--set memory=2g")
    return int(number) * units[unit]


@contextmanager
def working(folder: Path, memory: str) -> Iterator[DuckdbEngine]:
    """An engine whose tables are in this folder, as is what does not fit in `memory`; both are gone at the end."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        engine = DuckdbEngine(str(folder / "tables.duckdb"))
        try:
            limited(engine, folder, memory)
            yield engine
        finally:
            engine.close()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def connected(
    runs: Sequence[RunFiles], left: Sequence[LeftOut], wanted: set[str]
) -> duckdb.DuckDBPyConnection:
    """A connection with these tables of the catalogue. Raises HeadgateError when DuckDB is not there."""
    engine = DuckdbEngine()
    connection = engine.connection
    files = [segment.place.path for one in runs for segment in one.segments]
    connection.execute(f"set allowed_paths = [{', '.join(map(text, files))}]")
    fill(engine, runs, left, wanted)
    connection.execute("set enable_external_access = false")
    connection.execute("set lock_configuration = true")
    return connection


def write_database(file: Path, runs: Sequence[RunFiles], left: Sequence[LeftOut]) -> int:
    """A new file of DuckDB with every table: views over the segments where they are, what comes of JSON as rows; how
    many tables. It is there whole or not at all. Raises InvalidInput."""
    if file.exists():
        raise InvalidInput(f"{file} is there already", hint="name a new file, or remove it")
    draft = file.with_name(f".{file.name}.new")
    try:
        draft.unlink(missing_ok=True)
        engine = DatabaseFile(str(draft))
        try:
            fill(engine, [_absolute(one) for one in runs], left, set(tables()))
        finally:
            engine.close()
        draft.replace(file)
    except (OSError, EngineFailure) as error:
        draft.unlink(missing_ok=True)
        raise InvalidInput(f"{file} cannot be written", cause=str(error).splitlines()[0]) from error
    return len(tables())


def _absolute(one: RunFiles) -> RunFiles:
    def whole(segment: Segment) -> Segment:
        return replace(segment, place=place(str(Path(segment.place.path).absolute())))

    return replace(one, segments=tuple(map(whole, one.segments)))


def of_files(table: TraceTable, runs: Sequence[RunFiles]) -> str:
    """All runs of a table of Parquet files: columns that these do not have are null, and so is what is no number."""
    parts = [_of_run(table, one, *alike) for one in runs for alike in one.alike(table.name)]
    nothing = ", ".join(f"cast(null as {TYPES[c.type]}) as {c.name}" for c in table.columns)
    return " union all ".join(parts) if parts else f"select {nothing} where false"


def _of_run(table: TraceTable, one: RunFiles, there: set[str], files: Sequence[str]) -> str:
    columns = [f"{text(one.run.key)} as run"]
    for column in table.columns[1:]:
        value = column.name if column.name in there else ABSENT.get(column.name, "null")
        if column.type == "double" and column.name in there:
            value = f"case when isfinite({value}) then {value} end"
        columns.append(f"cast({value} as {TYPES[column.type]}) as {column.name}")
    listed = ", ".join(map(text, files))
    return f"select {', '.join(columns)} from read_parquet([{listed}], hive_partitioning = false)"


def text(value: str) -> str:
    """As SQL has it."""
    return "'" + value.replace("'", "''") + "'"


# ── Traces asked from Python, as from a notebook: one connection, any number of queries, rows that show
# themselves

SHOWN = 200  # rows of an answer that a notebook shows


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """All rows of an answer, in memory, as a table of Arrow. `rows["name"]` is a column as a list, `for row in rows`
    gives dicts, both with values as JSON has them; others take it as it is (`polars.DataFrame(rows)`)."""

    _table: pa.Table

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        lines = lines_of(self._table.to_batches())
        return [dict(zip(self.columns, map(plain, line), strict=True)) for line in lines]

    def arrow(self) -> pa.Table:
        return self._table

    def df(self) -> Any:
        """A DataFrame of pandas."""
        _needed("pandas")
        return self._table.to_pandas()

    def pl(self) -> Any:
        """A DataFrame of polars."""
        return _needed("polars").DataFrame(self._table)

    to_arrow, to_pandas, to_polars = arrow, df, pl  # as other libraries name them

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)

    def __getitem__(self, column: str) -> list[Any]:
        return [plain(value) for value in self._table[column].to_pylist()]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows)

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _repr_html_(self) -> str:
        """As notebooks show it."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(_cell(value))}</td>" for value in row.values()) + "</tr>"
            for row in self.rows[:SHOWN]
        )
        more = f"<p>{SHOWN:,} of {len(self):,} rows</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


class Traces:
    """What `headgate sql TRACE` asks. `left_out`: files that no table has a row of, and columns of the tables asked so
    far in which values are no numbers; strict: then nothing is answered. Raises InvalidInput."""

    def __init__(self, trace: str, strict: bool = False) -> None:
        self._runs, self.left_out = trace_files.found(trace)
        self._strict, self._read = strict, set[str]()
        self._connection = connected(self._runs, self.left_out, set(tables()))

    def ask(self, query: str) -> AnswerRows:
        """The answer to one query. Raises InvalidInput."""
        import pyarrow as pa

        self._look(trace_files.read_by(query) - self._read)
        names, batches = answer(self._connection, query)
        found = list(batches)
        whole = pa.Table.from_batches(found) if found else reading(self._connection, query).to_arrow_table()
        return AnswerRows(whole.rename_columns(unique(names)))

    def _look(self, fresh: set[str]) -> None:
        """For values that are no numbers, in tables that were not asked before."""
        self._read |= fresh
        if found := trace_files.not_finite(self._runs, fresh):
            self.left_out += found
            rows = head_tables(self._runs, self.left_out, {"left_out"})["left_out"]
            self._connection.register("left_out", rows)
        if self._strict:
            trace_files.refuse_incomplete(self._runs, self.left_out)


def _needed(library: str) -> Any:
    try:
        return import_module(library)
    except ImportError as error:
        raise HeadgateError(f"{library} is not installed", hint=f"pip install {library}") from error


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return significant(value) if isinstance(value, float) else str(value)
