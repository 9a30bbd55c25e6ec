"""The same tables in a session of Spark: the texts of the views are those that DuckDB is given."""

from __future__ import annotations

import errno
import logging
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.analytics.storage.spark_session import FULL, MEMORY, QUICK, cause_of, session
from headgate.dashboards.tables.sql_queries import Line, begun, cannot, only_reads, show
from headgate.dashboards.tables.table_catalogue import TableColumn, TraceTable, needed, shared
from headgate.dashboards.tables.table_engines import ABSENT, EngineFailure, fill
from headgate.dashboards.tables.trace_files import RunFiles
from headgate.topology_runtime.commands.output import Format

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

MORE = {"spark.sql.runSQLOnFiles": "false"}  # no file that a query names itself
READS = re.compile(r"\s*(select|with|from|values|describe|show)\b", re.I)
RUNS_CODE = re.compile(r"\b(reflect|try_reflect|java_method)\b|\busing\s*['\"]", re.I)
SHAPES = {"describe", "show"}  # statements that no other one can hold
TIME_TEXT = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'"


def ask(runs: Sequence[RunFiles], left: Sequence[LeftOut], text: str, master: str, output: Format) -> None:
    """Answer a query. Raises InvalidInput for one that is wrong or would do more than read."""
    query = readable(text)
    with tempfile.TemporaryDirectory(prefix="headgate-sql-") as folder:
        more = MORE | (QUICK if master.startswith("local") else {})
        with session(master, MEMORY, Path(folder) / "spark.log", more) as spark:
            wanted = needed(query)
            fill(SparkEngine(spark, shared(wanted)), runs, left, wanted)
            names, lines = answered(spark, query)
            show(output, names, lines)


def readable(text: str) -> str:
    """The query as one that stands in another. Raises InvalidInput when it does not only read."""
    query = (
        re.sub(r"^\s*(--[^\n]*\n\s*|/\*.*?\*/\s*)*", "", text + "\n", flags=re.S).strip().rstrip(";").strip()
    )
    if not READS.match(query) or RUNS_CODE.search(query):
        raise only_reads(1 if query else 0)
    return query if query.split()[0].lower() in SHAPES else f"select * from (\n{query}\n) answer"


def answered(spark: SparkSession, query: str) -> tuple[list[str], Iterator[Line]]:
    """(names of the columns, rows as they come)."""
    from pyspark.errors import AnalysisException, ParseException
    from pyspark.sql import functions as f
    from pyspark.sql.types import TimestampType

    logging.getLogger("SQLQueryContextLogger").setLevel(
        logging.CRITICAL + 1
    )  # of PySpark: what is raised is enough
    try:
        frame = spark.sql(query)
    except (AnalysisException, ParseException) as error:
        raise cannot(next(line for line in str(error).splitlines() if line.strip())) from error
    names = list(frame.columns)
    frame = frame.toDF(*(f"c{n}" for n in range(len(names))))
    columns: list[Column] = [
        f.date_format(field.name, TIME_TEXT)
        if isinstance(field.dataType, TimestampType)
        else f.col(field.name)
        for field in frame.schema
    ]
    return names, begun(tuple(row) for row in frame.select(*columns).toLocalIterator())


class SparkEngine:
    """Temporary views of a session, here or on a Connect server. shared: those whose rows are kept once they were
    worked out, since Spark works a view out wherever it is named."""

    def __init__(self, spark: SparkSession, shared: Collection[str] = ()) -> None:
        self._spark, self._shared = spark, shared

    def ask(self, query: str) -> pa.Table:
        with _failing():
            return self._spark.sql(query).toArrow()

    def put(self, name: str, rows: pa.Table) -> None:
        with (
            _failing()
        ):  # from Arrow: of rows of Python it would ask a process of Python whenever the table is read
            self._spark.createDataFrame(rows).createOrReplaceTempView(name)

    def read(self, name: str, table: TraceTable, runs: Sequence[RunFiles]) -> None:
        with _failing():
            _of_files(self._spark, table, runs).createOrReplaceTempView(name)

    def define(self, name: str, query: str) -> None:
        with _failing():
            self._spark.sql(query).createOrReplaceTempView(name)
            if name in self._shared:
                self._spark.catalog.cacheTable(name)

    def keep(self, name: str, query: str) -> None:
        with _failing():
            self._spark.catalog.dropTempView(name)
            self._spark.sql(f"cache table {name} as {query}")

    def write(self, query: str, folder: DataPlace, by: Sequence[str]) -> None:
        with _failing():
            writer = self._spark.sql(query).write.mode("overwrite").partitionBy(*by)
            writer.option("compression", "zstd").parquet(folder.uri)


@contextmanager
def _failing() -> Iterator[None]:
    """What fails in Spark, as an engine's failure."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (Py4JError, PySparkException) as error:
        if FULL in str(error):
            raise OSError(errno.ENOSPC, FULL) from error
        raise EngineFailure("Spark failed", cause=cause_of(error), hint="more with --debug") from error


def _of_files(spark: SparkSession, table: TraceTable, runs: Sequence[RunFiles]) -> DataFrame:
    """All runs of a table of Parquet files; what is no number is null."""
    from pyspark.sql import functions as f

    def of_run(one: RunFiles, there: set[str], files: Sequence[str]) -> DataFrame:
        columns = [column for column in table.columns[1:] if column.name in there]  # the run is the folder
        places = [file if "://" in file else Path(file).as_uri() for file in files]
        found = spark.read.schema(_schema(columns)).parquet(*places)
        values = [
            f.expr(f"cast({ABSENT.get(c.name, 'null')} as {c.type})").alias(c.name)
            if c not in columns
            else f.when(_is_number(f.col(c.name)), f.col(c.name)).alias(c.name)
            if c.type == "double"
            else f.col(c.name)
            for c in table.columns[1:]
        ]
        return found.select(f.lit(one.run.key).alias("run"), *values)

    parts = [of_run(one, *alike) for one in runs for alike in one.alike(table.name)]
    if not parts:
        nothing = ", ".join(f"cast(null as {column.type}) as {column.name}" for column in table.columns)
        return spark.sql(f"select {nothing} where false")
    return reduce(lambda a, b: a.unionAll(b), parts)


def _is_number(column: Any) -> Any:
    from pyspark.sql import functions as f

    return ~f.isnan(column) & (f.abs(column) != float("inf"))


def _schema(columns: Sequence[TableColumn]) -> StructType:
    from pyspark.sql import types as t

    kinds: dict[str, Any] = {
        "timestamp": t.TimestampType(), "string": t.StringType(), "bigint": t.LongType(), "double": t.DoubleType(),
        "boolean": t.BooleanType(),
    }  # fmt: skip
    return t.StructType([t.StructField(column.name, kinds[column.type]) for column in columns])
