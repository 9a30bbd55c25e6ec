"""What the tables of a trace are asked through: DuckDB in this process, or a session of Spark. One SQL for both."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from headgate.dashboards.analytics.curation.trace_segments import OPTIONAL
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.result_tables import LeftOut
from headgate.dashboards.tables.table_catalogue import TraceTable, tables
from headgate.dashboards.tables.trace_files import RunFiles, head_tables
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.traces.trace_tables import TABLES

if TYPE_CHECKING:
    import pyarrow as pa

ABSENT = dict.fromkeys(
    (name for names in OPTIONAL.values() for name in names), "1e0"
)  # for a column that is not there


class EngineFailure(HeadgateError):
    """An engine could not answer. A file may be damaged though its footer is fine: `trace_files.damaged` finds it."""


class TableEngine(Protocol):
    """Tables by name, and answers as Arrow. Raises EngineFailure, and OSError for a disk that takes no more."""

    def ask(self, query: str) -> pa.Table:
        """All rows of the answer, in memory."""

    def put(self, name: str, rows: pa.Table) -> None:
        """A small table of ours."""

    def read(self, name: str, table: TraceTable, runs: Sequence[RunFiles]) -> None:
        """The rows of the files of a raw table; what is no number is null."""

    def define(self, name: str, query: str) -> None:
        """A view."""

    def keep(self, name: str, query: str) -> None:
        """The rows of this query, worked out once."""

    def write(self, query: str, folder: DataPlace, by: Sequence[str]) -> None:
        """The answer as files of Parquet in `by`=VALUE folders."""


def fill(
    engine: TableEngine,
    runs: Sequence[RunFiles],
    left: Sequence[LeftOut],
    wanted: Collection[str],
    kept: Collection[str] = (),
) -> None:
    """Make these tables of the catalogue known to an engine; those in `kept` are worked out now."""
    heads = head_tables(runs, left, set(wanted))
    for table in tables().values():
        if table.name not in wanted:
            continue
        if table.sql is not None:
            (engine.keep if table.name in kept else engine.define)(table.name, table.sql)
        elif table.name in TABLES:
            engine.read(table.name, table, runs)
        else:
            engine.put(table.name, heads[table.name])
