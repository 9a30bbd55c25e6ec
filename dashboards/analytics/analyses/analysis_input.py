"""What every analysis is given: the sums of the runs, an engine to ask for more, and small means to read them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from headgate.dashboards.analytics.storage.result_tables import POINTS_MOST
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.dashboards.tables.table_catalogue import tables
from headgate.dashboards.tables.table_engines import TableEngine
from headgate.dashboards.tables.trace_files import RunFiles, StretchWidths

HELD = (  # sums that every analysis reads as a whole, without the `sum_` of their names
    "groups", "task_windows", "slot_sums", "slot_errors", "memory_blocks", "slot_points",
    "rate_windows", "latency_histogram", "latency_windows", "links", "link_seconds",
)  # fmt: skip
EXTREMES = {"max": "max", "min": "min"}  # by what a column's name begins with; the others are sums
SECOND_US = 1_000_000

Span = tuple[str, int, int]  # run, from, to in µs


@dataclass(frozen=True)
class AnalysisInput:
    """`begin_us`: time of a run's first sample. held: the sums (`dashboards/tables/views`); files: of the runs; memory:
    of earlier turns of a follower, by what it was made of."""

    engine: TableEngine
    runs: Mapping[str, TraceRun]
    begin_us: Mapping[str, int]
    widths: StretchWidths
    held: Mapping[str, pa.Table]
    files: Sequence[RunFiles] = ()
    memory: dict[Any, Any] = field(default_factory=dict)

    @property
    def window_s(self) -> int:
        """Length of the stretches of samples, slots and rates."""
        return self.widths.window_s

    def ask(self, query: str) -> list[dict[str, Any]]:
        """The rows of an answer."""
        return list(self.engine.ask(query).to_pylist())

    def put(self, name: str, rows: Sequence[tuple[Any, ...]], schema: Mapping[str, pa.DataType]) -> None:
        """A small table of what is known of the runs, to join with."""
        columns = zip(*rows, strict=True) if rows else ((),) * len(schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, schema.values(), strict=True)]
        self.engine.put(name, pa.table(dict(zip(schema, arrays, strict=True))))

    def near(self, table: str, spans: Iterable[Span]) -> str:
        """Name of a table with the rows of this raw table in these spans, and some of those around them."""
        wanted = list(spans)
        mine = [
            replace(
                one,
                segments=tuple(
                    s
                    for s in one.segments
                    if any(
                        run == one.run.key and s.begin_us <= to and s.end_us >= begin
                        for run, begin, to in wanted
                    )
                ),
            )
            for one in self.files
        ]
        self.engine.read(f"{table}_near", tables()[table], mine)
        return f"{table}_near"

    def made_of(self, table: str, span: Span) -> tuple[str, ...]:
        """Changes with the files of this table in which rows of that time could be."""
        run, begin, to = span
        return tuple(
            s.digest
            for one in self.files
            for s in one.segments
            if one.run.key == run and s.table == table and s.begin_us <= to and s.end_us >= begin
        )

    def rows(self, name: str, *by: str) -> list[dict[str, Any]]:
        """Of a sum that is held, in the order of these columns."""
        table = self.held[name]
        order: Any = [(column, "ascending") for column in by]
        return list((table.sort_by(order) if by and table.num_rows else table).to_pylist())

    def sums(self, name: str, *keys: str) -> list[dict[str, Any]]:
        """The same, added up to one row for each value of the keys."""
        table = self.held[name]
        return list(added_up(table, keys).to_pylist()) if table.num_rows else []

    def at_s(self, run: str, us: float) -> float:
        """Seconds since the run's first sample."""
        return round((us - self.begin_us.get(run, 0)) / 1e6, 3)

    def window_at_s(self, run: str, number: int, seconds: int) -> float:
        """When a window began, not before the run."""
        return max(0.0, self.at_s(run, number * seconds * 1e6))


def added_up(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row for each value of the keys, in their order: sums, and the least of `min…` and the most of `max…`."""
    rules = [(c, EXTREMES.get(c[:3], "sum")) for c in table.column_names if c not in keys]
    rules = [(c, rule) for c, rule in rules if not pa.types.is_string(table.schema.field(c).type)]
    found = table.group_by(list(keys), use_threads=False).aggregate(rules)
    named = {c: found[c] for c in keys} | {c: found[f"{c}_{rule}"] for c, rule in rules}
    return pa.table(named).sort_by([(key, "ascending") for key in keys])


def number(value: Any) -> float | None:
    """None for null, NaN and infinity."""
    if value is None:
        return None
    value = float(value)
    return value if math.isfinite(value) else None


def over(a: Any, b: Any) -> float | None:
    """a / b; None when undefined."""
    x, y = number(a), number(b)
    return None if x is None or not y else x / y


Result = TypeVar("Result", bound=msgspec.Struct)


def built(kind: type[Result], row: Mapping[str, Any], **more: Any) -> Result:
    """A result by the names in the row (None for NaN and infinity), and by `more`."""
    values = {name: row[name] for name in kind.__struct_fields__ if name in row}
    known = {name: number(value) if isinstance(value, float) else value for name, value in values.items()}
    return kind(**(known | more))


def thinned(rows: Sequence[Any], most: int = POINTS_MOST) -> Sequence[Any]:
    """At most `most` of them, evenly chosen."""
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows
