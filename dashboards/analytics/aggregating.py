"""The aggregates, brought up to date: what was made of the same segments by the same code is not made again.

Each pass writes one folder for each aggregate, and what is fused is a pass of its own; the manifest says which rows of
which passes count. Small aggregates
are brought to the driver once, so that what is asked of them reads no file and needs no shuffle.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING

from dashboards.analytics import aggregate_parts, aggregates
from dashboards.analytics.aggregate_parts import AggregatedPart, AggregateManifest, FusedParts, pass_of
from dashboards.analytics.asked import AnalysisInput
from dashboards.analytics.curate import Curated
from dashboards.analytics.data_places import DataPlace
from dashboards.analytics.judging import Segment
from dashboards.analytics.spark import side_by_side
from dashboards.analytics.trace_runs import TraceRun
from dashboards.analytics.unchanged import code_mark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Tell = Callable[[str], None]
Found = Sequence[tuple[TraceRun, Sequence[Segment]]]

SMALL_BYTES = 4 << 20  # of an aggregate on disk, which the driver holds
ADDED_UP = {  # those without a time: what one part has of a key is added to what another has
    "latency_histogram": ("run", "epoch", "source", "sink", "bucket"),
    "threads": ("run", "epoch", "task", "vm", "slot", "thread"),
    "link_sums": ("run", "epoch", "from_task", "to_task", "from_thread", "to_thread"),
    "link_seconds": ("run", "epoch"),
}


def asked_of(
    spark: SparkSession, to: DataPlace, found: Found, curated: Curated, tell: Tell, apart: bool = False
) -> AnalysisInput:
    """What the analyses are given: all aggregates, once those are made that have to be. `apart`: of runs that go on."""
    times = {one.key: (min(s.begin_us for s in of), max(s.end_us for s in of)) for one, of in found}
    span_s = max((end - begin) / 1e6 for begin, end in times.values())
    first = {one.key: [s.begin_us for s in of if s.table == "samples"] for one, of in found}
    folder = to / "aggregates"
    tables = aggregates.CuratedTables(
        spark, to / "curated", [one for one, _ in found], curated, span_s, [], False
    )
    known = aggregate_parts.read(folder, f"{code_mark()} {tables.window_s} {tables.bin_s}")
    spans = {
        one.key: aggregate_parts.spans_of(known.spans.get(one.key, {}), curated.manifests[one.key], of)
        for one, of in found
    }
    kept, fresh = aggregate_parts.planned(known, spans, apart)
    cut = aggregate_parts.is_cut(kept, fresh)
    tables = aggregates.CuratedTables(spark, tables.curated, tables.runs, curated, span_s, fresh, cut)
    if fresh:
        _make(tables, folder, pass_of(fresh[0]), tell)
    passes, parts = pass_of(fresh[0]) if fresh else known.passes, [*kept, *fresh]
    if fused := aggregate_parts.fusable(passes, spans, kept, fresh):
        fuse(tables, folder, fused, tell)
        gone = {part for each in fused for part in each.of}
        passes, parts = passes + 1, [p for p in parts if p not in gone] + [each.part for each in fused]
    now = AggregateManifest(known.schema, known.of, passes, spans, parts)
    aggregate_parts.write(folder, now)
    _delete_old(folder, now.parts)
    tell("reading aggregates")
    frames = {name: read_aggregate(spark, folder / name, name, now.parts) for name in makers(tables)}
    frames |= {name: tables.read(name) for name in ("samples", "slots", "latency")}
    frames.setdefault("latency_bins", frames["latency_windows"])
    begin_us = {key: min(first[key], default=begin) for key, (begin, _) in times.items()}
    by_key = {one.key: one for one, _ in found}
    return AnalysisInput(spark, by_key, begin_us, tables.window_s, tables.bin_s, frames)


def makers(tables: aggregates.CuratedTables) -> dict[str, Callable[[], DataFrame]]:
    """Name → what makes it of the curated rows, but for `neighbours`, which are made of bundles."""
    found: dict[str, Callable[[], DataFrame]] = {
        "bundles": lambda: aggregates.bundles(tables),
        "neighbours": lambda: aggregates.neighbours(aggregates.bundles(tables)),
        "threads": lambda: aggregates.threads(tables),
        "slot_windows": lambda: aggregates.slot_windows(tables),
        "rate_windows": lambda: aggregates.rate_windows(tables),
        "latency_histogram": lambda: aggregates.latency_histogram(tables),
        "latency_windows": lambda: aggregates.latency_bins(tables, aggregates.STABILITY_WINDOW_S),
        "latency_bins": lambda: aggregates.latency_bins(tables, tables.bin_s),
        "link_sums": lambda: aggregates.link_sums(tables),
        "link_seconds": lambda: aggregates.link_seconds(tables),
    }
    if tables.bin_s == aggregates.STABILITY_WINDOW_S:
        del found["latency_bins"]
    return found


def _make(tables: aggregates.CuratedTables, folder: DataPlace, number: int, tell: Tell) -> None:
    """Write what this pass makes."""

    def keep(name: str, frame: DataFrame) -> None:
        tell(f"aggregating: {name.replace('_', ' ')}")
        frame.write.mode("overwrite").parquet(_folder(folder / name, number).uri)

    def bundles() -> None:
        frame = aggregates.bundles(tables)
        keep("bundles", frame)
        at = _folder(folder / "bundles", number).uri
        keep("neighbours", aggregates.neighbours(tables.spark.read.schema(frame.schema).parquet(at)))

    def made(name: str, make: Callable[[], DataFrame]) -> None:
        keep(name, make())

    rest = {name: make for name, make in makers(tables).items() if name not in ("bundles", "neighbours")}
    side_by_side(tables.spark, [bundles, *(partial(made, name, make) for name, make in rest.items())])


def fuse(
    tables: aggregates.CuratedTables, folder: DataPlace, fused: Sequence[FusedParts], tell: Tell
) -> None:
    """Write parts that are made of others."""
    from pyspark.sql import functions as f

    tell("fusing aggregates")

    def keep(name: str) -> None:
        frames = [
            read_aggregate(tables.spark, folder / name, name, each.of).withColumn(
                "part", f.lit(each.part.number)
            )
            for each in fused
        ]
        whole = reduce(lambda a, b: a.unionByName(b), frames)
        at = _folder(folder / name, pass_of(fused[0].part))
        whole.coalesce(1).write.mode("overwrite").parquet(at.uri)

    side_by_side(tables.spark, [partial(keep, name) for name in makers(tables)])


def _folder(of: DataPlace, number: int) -> DataPlace:
    return of / f"pass-{number}"


def read_aggregate(
    spark: SparkSession, folder: DataPlace, name: str, parts: Sequence[AggregatedPart]
) -> DataFrame:
    """Its rows that count; a small one from the driver's memory."""
    from pyspark.sql import functions as f

    folders = [_folder(folder, number) for number in sorted({pass_of(part) for part in parts})]
    runs: dict[int, list[str]] = {}
    for part in parts:
        runs.setdefault(part.number, []).append(part.run)
    adds = name in ADDED_UP and len(parts) > len({part.run for part in parts})
    if sum(map(_size, folders)) <= SMALL_BYTES:
        return _held(spark, folders, runs, ADDED_UP[name] if adds else ())
    frame = spark.read.parquet(*(each.uri for each in folders))
    counts = [(f.col("part") == number) & f.col("run").isin(*of) for number, of in runs.items()]
    frame = frame.where(reduce(lambda a, b: a | b, counts)).drop("part")
    if adds:
        keys = ADDED_UP[name]
        sums = [(f.max if c.startswith("max") else f.sum)(c).alias(c) for c in frame.columns if c not in keys]
        frame = frame.groupBy(*keys).agg(*sums)
    return frame


def _held(
    spark: SparkSession, folders: Sequence[DataPlace], runs: Mapping[int, Sequence[str]], keys: Sequence[str]
) -> DataFrame:
    """The same of a small one, read here; `keys`: of what is added up. Of one partition: nothing has to be shuffled."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    files = [child for each in folders for child, _ in each.children() if child.name.endswith(".parquet")]
    table = pa.concat_tables(
        [pq.read_table(file.path, filesystem=file.files()) for file in files], promote_options="default"
    )
    counts = [
        pc.and_(pc.equal(table["part"], number), pc.is_in(table["run"], pa.array(of)))
        for number, of in runs.items()
    ]
    table = table.filter(reduce(pc.or_, counts)).drop_columns(["part"])
    if keys:
        sums = [(c, "max" if c.startswith("max") else "sum") for c in table.column_names if c not in keys]
        found = table.group_by(list(keys), use_threads=False).aggregate(sums)
        table = pa.table({c: found[c if c in keys else f"{c}_{dict(sums)[c]}"] for c in table.column_names})
    return spark.createDataFrame(table).coalesce(1)


def _size(folder: DataPlace) -> int:
    from pyarrow import fs

    return sum(info.size or 0 for info in folder.files().get_file_info(fs.FileSelector(folder.path)))


def _delete_old(folder: DataPlace, parts: Sequence[AggregatedPart]) -> None:
    """What no part is in: of earlier passes, or of one that was cut off."""
    there = {f"pass-{pass_of(part)}" for part in parts}
    for name, is_folder in folder.children():
        for old, inside in name.children() if is_folder else []:
            if inside and old.name not in there:
                old.delete_folder()
            elif not inside:
                old.delete()


def forget_aggregates(to: DataPlace) -> None:
    """All of them are made anew."""
    if (to / "aggregates").is_folder():
        (to / "aggregates").delete_folder()
