"""The same tables in a session of Spark: the texts of the views are those that DuckDB is given."""

from __future__ import annotations

import logging
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.results import LeftOut
from headgate.dashboards.tables.answers import Line, begun, show
from headgate.dashboards.tables.catalogue import TableColumn, TraceTable, needed, tables
from headgate.dashboards.tables.heads import head_tables
from headgate.dashboards.tables.queries import cannot, only_reads
from headgate.dashboards.tables.trace_files import RunFiles
from headgate.topology_runtime.output import Format
from headgate.topology_runtime.trace_tables import TABLES

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
    from headgate.dashboards.analytics.spark import MEMORY, QUICK, session

    query = readable(text)
    with tempfile.TemporaryDirectory(prefix="headgate-sql-") as folder:
        more = MORE | (QUICK if master.startswith("local") else {})
        with session(master, MEMORY, Path(folder) / "spark.log", more) as spark:
            registered(spark, runs, left, needed(query))
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


def registered(
    spark: SparkSession, runs: Sequence[RunFiles], left: Sequence[LeftOut], wanted: set[str]
) -> None:
    """Make these tables of the catalogue views of the session."""
    heads = head_tables(runs, left, wanted)
    for table in tables().values():
        if table.name in wanted:
            _frame(spark, table, runs, heads).createOrReplaceTempView(table.name)


def _frame(
    spark: SparkSession, table: TraceTable, runs: Sequence[RunFiles], heads: Mapping[str, pa.Table]
) -> DataFrame:
    if table.sql is not None:
        return spark.sql(table.sql)
    if table.name in TABLES:
        return _of_files(spark, table, runs)
    rows = [tuple(row.values()) for row in heads[table.name].to_pylist()]
    return spark.createDataFrame(rows, _schema(table.columns))


def _of_files(spark: SparkSession, table: TraceTable, runs: Sequence[RunFiles]) -> DataFrame:
    """All runs of a table of Parquet files; what is no number is null."""
    from pyspark.sql import functions as f

    schema, inside = _schema(table.columns), _schema(table.columns[1:])  # the run is the folder

    def of_run(one: RunFiles) -> DataFrame:
        found = spark.read.schema(inside).parquet(*(Path(file).as_uri() for file in one.files[table.name]))
        columns = [
            f.when(_is_number(f.col(c.name)), f.col(c.name)).alias(c.name)
            if c.type == "double"
            else f.col(c.name)
            for c in table.columns[1:]
        ]
        return found.select(f.lit(one.run.key).alias("run"), *columns)

    parts = [of_run(one) for one in runs if one.files[table.name]]
    return reduce(lambda a, b: a.unionAll(b), parts) if parts else spark.createDataFrame([], schema)


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
