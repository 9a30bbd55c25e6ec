"""Which task of Spark puts together which rows of samples: stretches of some million rows, each of whole windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headgate.dashboards.analytics import held
from headgate.dashboards.analytics.aggregate_parts import SECOND_US, is_cut
from headgate.dashboards.analytics.aggregates import CuratedTables
from headgate.dashboards.analytics.clocks import us_of
from headgate.dashboards.analytics.data_places import DataPlace
from headgate.dashboards.analytics.manifest import folder_of
from headgate.dashboards.analytics.row_sums import SumJob, summed
from headgate.dashboards.analytics.spark import in_tasks
from headgate.dashboards.analytics.trace_runs import TraceRun

if TYPE_CHECKING:
    import pyarrow as pa

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
    in_tasks(tables.spark, summed, [job.row() for job in jobs], "long")
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
    import pyarrow.parquet as pq

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
    import pyarrow as pa

    names = tables[0].column_names
    return held.added_up(
        pa.concat_tables(table.select(names) for table in tables), (*held.KEYS["threads"], "part")
    )
