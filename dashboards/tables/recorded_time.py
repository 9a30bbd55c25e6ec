"""How long each run was, and the gaps of its record, by the views: what reports and `history` say of it. Both come from
small tables: samples are not read."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from headgate.topology_runtime.errors import InvalidInput

RUNS = "select run, seconds from dim_run where seconds is not null"
GAPS = "select run, epoch, seconds, text, acked from fct_gaps order by run, from_s"


@dataclass(frozen=True)
class RecordGap:
    """text: as fct_gaps has it; counted: the trace says what was counted meanwhile."""

    epoch: int
    seconds: float
    text: str
    counted: bool


@dataclass(frozen=True)
class RecordedTime:
    """Of a run: how long it was, and the gaps of its record of over 2 s."""

    seconds: float
    gaps: tuple[RecordGap, ...]

    @property
    def missing_s(self) -> float:
        return sum(gap.seconds for gap in self.gaps)


def recorded_time(trace: Path) -> dict[str, RecordedTime]:
    """By run, of what `headgate sql` takes for a TRACE; nothing where DuckDB is not installed, or where nothing was
    recorded that can be read (who asks for its tables is told which files)."""
    if find_spec("duckdb") is None:
        return {}
    from headgate.dashboards.tables.duckdb_tables import Traces
    from headgate.dashboards.tables.sql_queries import DamagedPage

    gaps: dict[str, list[RecordGap]] = {}
    try:
        traces = Traces(str(trace))
        told, runs = traces.ask(GAPS), traces.ask(RUNS)
    except (InvalidInput, DamagedPage):
        return {}
    for row in told:
        gap = RecordGap(row["epoch"], row["seconds"], row["text"], row["acked"] is not None)
        gaps.setdefault(row["run"], []).append(gap)
    return {row["run"]: RecordedTime(row["seconds"], tuple(gaps.get(row["run"], ()))) for row in runs}
