"""The aggregates, brought up to date: what was made of the same segments by the same code is not made again.

Each pass writes what it makes of each aggregate, and what is fused is a pass of its own; the manifest says which rows
of which passes count. Two aggregates grow with slots and windows: they stay in Spark, as folders. What is made of
those, and all others, the driver holds, as one file each.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from headgate.dashboards.analytics.aggregation import aggregate_parts, row_sums
from headgate.dashboards.analytics.aggregation import aggregate_tables as aggregates
from headgate.dashboards.analytics.aggregation import row_sums as held
from headgate.dashboards.analytics.aggregation import time_sums as sums
from headgate.dashboards.analytics.aggregation.aggregate_parts import (
    SECOND_US,
    AggregatedPart,
    AggregateManifest,
    FusedParts,
    is_cut,
    pass_of,
)
from headgate.dashboards.analytics.aggregation.aggregate_tables import CuratedTables
from headgate.dashboards.analytics.aggregation.analysis_input import AnalysisInput
from headgate.dashboards.analytics.aggregation.row_sums import SumJob, summed
from headgate.dashboards.analytics.curation.clock_jumps import us_of
from headgate.dashboards.analytics.curation.curated_tables import Curated
from headgate.dashboards.analytics.curation.trace_segments import Segment, folder_of
from headgate.dashboards.analytics.curation.unchanged_inputs import code_mark
from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.spark_session import in_tasks, side_by_side
from headgate.dashboards.analytics.storage.trace_runs import TraceRun

# ── Which task of Spark puts together which rows of samples: stretches of some million rows, each of whole
# windows

TASK_ROWS = 1_000_000  # 150 MB in memory
TABLE = "samples"
MERGED_AT_ONCE = 8


@dataclass(frozen=True)
class RowGroup:
    """Of a curated file; times of its first and last row in µs, None: not known."""

    uri: str
    number: int
    rows: int
    begin_us: int | None
    end_us: int | None

    def meets(self, from_us: int | None, to_us: int | None) -> bool:
        if self.begin_us is None or self.end_us is None:
            return True
        return (to_us is None or self.begin_us < to_us) and (from_us is None or self.end_us >= from_us)


def sum_rows(tables: CuratedTables, bundles: DataPlace, partial: DataPlace) -> pa.Table:
    """Write bundles of the parts to be made; the threads of each part, of which every task leaves what it has in
    `partial`."""
    for folder in (bundles, partial):
        if folder.is_folder():  # of a pass of that number which was cut off
            folder.delete_folder()
    jobs = jobs_of(tables, bundles, partial)
    in_tasks(tables.spark, summed, jobs, "long")
    return merged(job.threads for job in jobs)


def jobs_of(tables: CuratedTables, bundles: DataPlace, partial: DataPlace) -> list[SumJob]:
    """Of all parts to be made, in order of time."""
    parts = tables.parts(TABLE)
    cut = is_cut([part for part in tables.kept if part.table == TABLE], parts)
    span_us, width_us = tables.stretch_s * SECOND_US, tables.window_s * SECOND_US
    jobs: list[SumJob] = []
    for run in tables.runs:
        mine = [part for part in parts if part.run == run.key]
        groups = list(_row_groups(tables, run)) if mine else []
        for part in mine:
            begin_us, end_us = (part.begin * span_us, part.end * span_us) if cut else (None, None)
            for from_us, to_us in stretches(groups, begin_us, end_us, width_us):
                inputs = _inputs(groups, from_us, to_us)
                if inputs:
                    name = f"{len(jobs)}.parquet"
                    outputs = bundles / name, partial / name
                    jobs.append(SumJob(run.key, part.number, inputs, from_us, to_us, width_us, *outputs))
    return jobs


def stretches(
    groups: Iterable[RowGroup], from_us: int | None, to_us: int | None, width_us: int
) -> list[tuple[int | None, int | None]]:
    """This stretch, cut at windows into some with as many rows each, TASK_ROWS at most unless one window has more."""
    mine = sorted(
        (group.begin_us, group.end_us, group.rows)
        for group in groups
        if group.begin_us is not None and group.end_us is not None and group.meets(from_us, to_us)
    )
    if not mine:
        return [(from_us, to_us)]
    low = max(mine[0][0], mine[0][0] if from_us is None else from_us)
    high = max(end for _, end, _ in mine) + 1 if to_us is None else to_us
    rows = sum(many * _part_of((begin, end + 1), (low, high)) for begin, end, many in mine)
    windows = max(1, -(-high // width_us) - low // width_us)
    tasks = min(windows, max(1, math.ceil(rows / TASK_ROWS)))
    first = low // width_us
    edges = [(first + windows * n // tasks) * width_us for n in range(1, tasks)]
    return list(zip([from_us, *edges], [*edges, to_us], strict=True))


def _part_of(span: tuple[int, int], within: tuple[int, int]) -> float:
    return max(0, min(span[1], within[1]) - max(span[0], within[0])) / (span[1] - span[0])


def _row_groups(tables: CuratedTables, run: TraceRun) -> Iterator[RowGroup]:
    for part in tables.done.manifests[run.key].parts:
        if part.table == TABLE:
            folder = folder_of(tables.curated, TABLE, run)
            yield from row_groups(folder / f"date={part.date}" / part.file)


def row_groups(file: DataPlace) -> Iterator[RowGroup]:
    """By its footer."""
    with file.files().open_input_file(file.path) as stream:
        metadata = pq.read_metadata(stream)
    at = metadata.schema.names.index("time")
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        times = group.column(at).statistics
        if times is None or not times.has_min_max or times.null_count:
            yield RowGroup(file.uri, number, group.num_rows, None, None)
        else:
            yield RowGroup(file.uri, number, group.num_rows, us_of(times.min), us_of(times.max))


def _inputs(
    groups: Iterable[RowGroup], from_us: int | None, to_us: int | None
) -> tuple[tuple[str, list[int]], ...]:
    by_file: dict[str, list[int]] = {}
    for group in groups:
        if group.meets(from_us, to_us):
            by_file.setdefault(group.uri, []).append(group.number)
    return tuple(by_file.items())


def merged(files: Iterable[DataPlace]) -> pa.Table:
    """What tasks say of one thread in one part, added up."""
    waiting: list[pa.Table] = []
    for file in files:
        waiting.append(held.read_whole(file))
        if len(waiting) > MERGED_AT_ONCE:
            waiting = [_added_up(waiting)]
    return _added_up(waiting)


def _added_up(tables: Sequence[pa.Table]) -> pa.Table:
    names = tables[0].column_names
    return held.added_up(
        pa.concat_tables(table.select(names) for table in tables), (*held.KEYS["threads"], "part")
    )


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

Tell = Callable[[str], None]
Found = Sequence[tuple[TraceRun, Sequence[Segment]]]
Maker = Callable[[], "DataFrame"]

WINDOWS = {"bundles": "samples", "slot_windows": "slots"}  # that stay in Spark, and what they are made of


@dataclass(frozen=True)
class HeldAggregate:
    """One that the driver holds: of which table of the trace, and how it is made: of the rows, or of `windows`."""

    table: str
    windows: str | None
    make: Callable[[CuratedTables, DataFrame], DataFrame]


def _of_rows(table: str, make: Callable[[CuratedTables], DataFrame]) -> HeldAggregate:
    return HeldAggregate(table, None, lambda tables, _: make(tables))


def _of_windows(windows: str, make: Callable[[DataFrame], DataFrame]) -> HeldAggregate:
    return HeldAggregate(WINDOWS[windows], windows, lambda _, frame: make(frame))


MADE = {
    "groups": _of_windows("bundles", sums.groups),
    "presence": HeldAggregate("samples", "bundles", lambda of, frame: sums.presence(frame, of.window_s)),
    "task_windows": _of_windows("bundles", sums.task_windows),
    "peaks": HeldAggregate("samples", "bundles", lambda of, frame: sums.peaks(frame, of.window_s)),
    "slot_sums": _of_windows("slot_windows", sums.slot_sums),
    "slot_errors": _of_windows("slot_windows", sums.slot_errors),
    "memory_blocks": _of_windows("slot_windows", sums.memory_blocks),
    "slot_points": _of_windows("slot_windows", sums.slot_points),
    "rate_windows": _of_rows("rates", aggregates.rate_windows),
    "latency_histogram": _of_rows("latency", aggregates.latency_histogram),
    "latency_windows": _of_rows(
        "latency", lambda of: aggregates.latency_bins(of, aggregates.STABILITY_WINDOW_S)
    ),
    "latency_bins": _of_rows("latency", lambda of: aggregates.latency_bins(of, of.bin_s)),
    "link_sums": _of_rows("links", aggregates.link_sums),
    "link_seconds": _of_rows("links", aggregates.link_seconds),
}
HELD = {"threads": "samples"} | {name: made.table for name, made in MADE.items()}


def asked_of(
    spark: SparkSession,
    to: DataPlace,
    found: Found,
    curated: Curated,
    tell: Tell,
    apart: bool = False,
    memory: dict[Any, Any] | None = None,
) -> AnalysisInput:
    """What the analyses are given: all aggregates, once those are made that have to be. `apart`: of runs that go on;
    `memory`: of their earlier turns."""
    times = {one.key: (min(s.begin_us for s in of), max(s.end_us for s in of)) for one, of in found}
    span_s = max((end - begin) / 1e6 for begin, end in times.values())
    first = {one.key: [s.begin_us for s in of if s.table == "samples"] for one, of in found}
    folder = to / "aggregates"
    tables = CuratedTables(spark, to / "curated", [one for one, _ in found], curated, span_s)
    of_all = f"{code_mark()} {tables.window_s} {tables.bin_s} {tables.stretch_s}"
    known = aggregate_parts.read(folder, of_all)
    spans = {
        one.key: aggregate_parts.spans_of(known.spans.get(one.key, {}), curated.manifests[one.key], of)
        for one, of in found
    }
    plan = aggregate_parts.planned(known, spans, tables.stretch_s, apart)
    passes, parts = known.passes, [*plan.kept, *plan.fresh]
    if plan.fresh:
        passes += 1
        made_of = CuratedTables(spark, tables.curated, tables.runs, curated, span_s, plan.kept, plan.fresh)
        make(made_of, folder, passes, tell)
    if plan.fused:
        passes += 1
        tell("fusing aggregates")
        fuse(folder, passes, plan.fused)
        gone = {part for each in plan.fused for part in each.of}
        parts = [part for part in parts if part not in gone] + [each.part for each in plan.fused]
    aggregate_parts.write(folder, AggregateManifest(known.schema, of_all, passes, spans, parts))
    _delete_old(folder, parts)
    tell("reading aggregates")
    frames = {name: partial(read_windows, spark, folder, name, parts) for name in WINDOWS}
    frames |= {name: partial(tables.read, name) for name in ("samples", "slots", "latency")}
    begin_us = {key: min(first[key], default=begin) for key, (begin, _) in times.items()}
    by_key = {one.key: one for one, _ in found}
    own = {name: read_held(folder, name, parts) for name in HELD if name != "latency_bins"}
    fine = tables.bin_s != aggregates.STABILITY_WINDOW_S
    own["latency_bins"] = read_held(folder, "latency_bins", parts) if fine else own["latency_windows"]
    return AnalysisInput(
        spark, by_key, begin_us, tables.window_s, tables.bin_s, frames, own, tables.stretch_s, plan.stretches,
        {} if memory is None else memory,
    )  # fmt: skip


def _of(parts: Sequence[AggregatedPart], table: str) -> list[AggregatedPart]:
    return [part for part in parts if part.table == table]


def make(tables: CuratedTables, folder: DataPlace, number: int, tell: Tell) -> None:
    """Write what this pass makes."""

    def keep(name: str, made: HeldAggregate, frame: Any = None) -> None:
        tell(f"aggregating: {name.replace('_', ' ')}")
        held.write(made.make(tables, frame).toArrow(), _file(folder / name, number))

    def more(windows: str, schema: Any) -> None:
        written = tables.spark.read.schema(schema).parquet(_folder(folder / windows, number).uri)
        for name, made in MADE.items():
            if made.windows == windows:
                keep(name, made, written)

    def of_samples() -> None:
        tell("aggregating: bundles and threads")
        threads = sum_rows(tables, _folder(folder / "bundles", number), folder / "partial" / f"pass-{number}")
        held.write(threads, _file(folder / "threads", number))
        more("bundles", row_sums.BUNDLES)

    def of_slots() -> None:
        tell("aggregating: slot windows")
        frame = aggregates.slot_windows(tables)
        frame.write.mode("overwrite").parquet(_folder(folder / "slot_windows", number).uri)
        more("slot_windows", frame.schema)

    same = tables.bin_s == aggregates.STABILITY_WINDOW_S  # then latency_bins are latency_windows
    works: list[Callable[[], None]] = [
        work for table, work in (("samples", of_samples), ("slots", of_slots)) if tables.parts(table)
    ]
    works += [
        partial(keep, name, made)
        for name, made in MADE.items()
        if made.windows is None and tables.parts(made.table) and not (same and name == "latency_bins")
    ]
    side_by_side(tables.spark, works)


def fuse(folder: DataPlace, number: int, fused: Sequence[FusedParts]) -> None:
    """Write parts that are made of others."""
    for name, table in (HELD | WINDOWS).items():
        if not (folder / name).is_folder():
            continue  # latency_bins that are latency_windows
        mine = [each for each in fused if each.part.table == table]
        if mine and name in HELD:
            held.write(_fused(folder / name, name, mine), _file(folder / name, number))
        elif mine:  # one after the other: they are not small for long
            at = _folder(folder / name, number)
            if at.is_folder():  # of a pass of that number which was cut off
                at.delete_folder()
            tables = (_fused(folder / name, name, [one]) for one in _one_by_one(mine))
            held.write_all(tables, at / "0.parquet")


def _one_by_one(fused: Sequence[FusedParts]) -> list[FusedParts]:
    return [FusedParts(each.part, (part,)) for each in fused for part in each.of]


def _fused(folder: DataPlace, name: str, fused: Sequence[FusedParts]) -> pa.Table:
    """With the numbers of the parts that these make."""
    tables = []
    for each in fused:
        table = held.merged(name, held.read(_files(folder, name, each.of), _counts(each.of)))
        number = pa.array([each.part.number] * table.num_rows, pa.int32())
        tables.append(table.append_column("part", number))
    return pa.concat_tables(tables, promote_options="permissive")


def _files(folder: DataPlace, name: str, parts: Sequence[AggregatedPart]) -> list[DataPlace]:
    passes = sorted({pass_of(part) for part in parts})
    if name in HELD:
        return [_file(folder, number) for number in passes]
    inside = [child for number in passes for child, _ in _folder(folder, number).children()]
    return [child for child in inside if child.name.endswith(".parquet")]


def _counts(parts: Sequence[AggregatedPart]) -> dict[int, list[str]]:
    """Number → runs."""
    found: dict[int, list[str]] = {}
    for part in parts:
        found.setdefault(part.number, []).append(part.run)
    return found


def _folder(of: DataPlace, number: int) -> DataPlace:
    return of / f"pass-{number}"


def _file(of: DataPlace, number: int) -> DataPlace:
    return of / f"pass-{number}.parquet"


def read_held(folder: DataPlace, name: str, parts: Sequence[AggregatedPart]) -> pa.Table:
    """Its rows that count, put together; without columns when nothing was made of that table."""
    mine = _of(parts, HELD[name])
    if not mine:
        return pa.table({})
    return held.merged(name, held.read(_files(folder / name, name, mine), _counts(mine)))


def read_windows(
    spark: SparkSession, folder: DataPlace, name: str, parts: Sequence[AggregatedPart]
) -> DataFrame:
    """Its rows that count."""
    mine = _of(parts, WINDOWS[name])
    at = [_folder(folder / name, number).uri for number in sorted({pass_of(part) for part in mine})]
    counts = [(f.col("part") == number) & f.col("run").isin(*of) for number, of in _counts(mine).items()]
    return spark.read.parquet(*at).where(reduce(lambda a, b: a | b, counts)).drop("part")


def _delete_old(folder: DataPlace, parts: Sequence[AggregatedPart]) -> None:
    """What no part is in: of earlier passes, or of one that was cut off."""
    there = {(part.table, pass_of(part)) for part in parts}
    made_of = HELD | WINDOWS
    names = {
        name: {f"pass-{number}" for table, number in there if table == of} for name, of in made_of.items()
    }
    for name, is_folder in folder.children():
        for old, inside in name.children() if is_folder else []:
            if old.name.removesuffix(".parquet") in names.get(name.name, set()):
                continue
            if inside:
                old.delete_folder()
            else:
                old.delete()


def forget_aggregates(to: DataPlace) -> None:
    """All of them are made anew."""
    if (to / "aggregates").is_folder():
        (to / "aggregates").delete_folder()
