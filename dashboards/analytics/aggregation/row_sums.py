"""Rows of samples put together, in Spark's tasks, on whichever machine they are. By Arrow: a tenth of what Spark's own
rows cost. A task has whole windows, so what it writes of them is final.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headgate.dashboards.analytics.storage.data_folders import DataPlace, place

if TYPE_CHECKING:
    import numpy as np


# ── Aggregates that the driver holds: files of one pass each, of which some parts count; what several parts
# say of one key is added up. By Arrow: they are small, and Spark takes longer to plan this than it
# takes.

KEYS: dict[str, tuple[str, ...]] = {  # of those that are added up; the rows of others stand beside each other
    "latency_histogram": ("run", "epoch", "source", "sink", "bucket"),
    "threads": ("run", "epoch", "task", "vm", "slot", "thread"),
    "link_sums": ("run", "epoch", "from_task", "to_task"),
    "link_seconds": ("run", "epoch"),
    "groups": ("run", "first_w", "epoch", "task", "vm", "slot", "beside"),
    "presence": ("run", "epoch", "vm"),
    "slot_sums": ("run", "epoch", "vm", "slot"),
    "slot_errors": ("run", "epoch", "vm", "slot", "of", "bucket"),
    "memory_blocks": ("run", "vm", "slot", "level", "block"),
}
EXTREMES = {"max": "max", "min": "min"}  # by what a column's name begins with; the others are sums


def write(table: pa.Table, file: DataPlace) -> None:
    """Whole or not at all."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    file.write(sink.getvalue().to_pybytes())


def write_all(tables: Iterable[pa.Table], file: DataPlace) -> None:
    """One after the other, whole or not at all."""
    files, draft, writer = file.files(), file.draft, None
    files.create_dir(file.parent.path, recursive=True)
    with files.open_output_stream(draft.path) as stream:
        for table in tables:
            writer = writer or pq.ParquetWriter(stream, table.schema, compression="zstd")
            writer.write_table(table.cast(writer.schema))
        if writer is not None:
            writer.close()
    file.finish(draft)


def read_whole(file: DataPlace) -> pa.Table:
    """All of it."""
    with file.files().open_input_file(file.path) as stream:
        return pq.read_table(stream)


def read(files: Iterable[DataPlace], counts: Mapping[int, Sequence[str]]) -> pa.Table:
    """Rows of the parts that count: number → runs."""
    tables = []
    for file in files:
        table = read_whole(file)
        for number in pc.unique(table["part"]).to_pylist():
            if number in counts:
                its = pc.and_(
                    pc.equal(table["part"], number), pc.is_in(table["run"], pa.array(counts[number]))
                )
                tables.append(table.filter(its))
        if not tables:
            tables.append(table.slice(0, 0))
    return pa.concat_tables(tables, promote_options="permissive").drop_columns(["part"])


def merged(name: str, table: pa.Table) -> pa.Table:
    """What parts say of one key, added up."""
    if name == "groups":
        table = _from_one_window(table)
    if name == "memory_blocks":
        table = _of_one_level(table)
    return added_up(table, KEYS[name]) if name in KEYS else table


def added_up(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """One row for each value of the keys, in their order: sums, and the least of `min…` and the most of `max…`."""
    rules = [(c, EXTREMES.get(c[:3], "sum")) for c in table.column_names if c not in keys]
    rules = [(c, rule) for c, rule in rules if not pa.types.is_string(table.schema.field(c).type)]
    found = table.group_by(list(keys), use_threads=False).aggregate(rules)
    named = {c: found[c] for c in keys} | {c: found[f"{c}_{rule}"] for c, rule in rules}
    return pa.table(named).sort_by([(key, "ascending") for key in keys])


def _from_one_window(table: pa.Table) -> pa.Table:
    """x counts from the first window of the run in place of that of its part."""
    firsts = table.select(["run", "first_w"]).group_by("run").aggregate([("first_w", "min")])
    first = dict(zip(firsts["run"].to_pylist(), firsts["first_w_min"].to_pylist(), strict=True))
    base = np_of([first[run] for run in table["run"].to_pylist()])
    far = np_of(table["first_w"]) - base
    n, x, xx, y, xy = (np_of(table[name]) for name in ("windows", "x", "xx", "y", "xy"))
    columns = {"first_w": base, "x": x + far * n, "xx": xx + 2 * far * x + far * far * n, "xy": xy + far * y}
    for name, values in columns.items():
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def _of_one_level(table: pa.Table) -> pa.Table:
    """The blocks of a slot, at most 48, all of one length: as they would have been made at once."""
    import numpy as np

    from headgate.dashboards.analytics.aggregation.time_sums import BLOCKS_MOST

    if not table.num_rows:
        return table
    slots = table.select(["run", "vm", "slot", "min_w", "max_w"]).group_by(["run", "vm", "slot"])
    ends = slots.aggregate([("min_w", "min"), ("max_w", "max")])
    low, high = np_of(ends["min_w_min"]), np_of(ends["max_w_max"])
    level = np.zeros(len(low), np.int64)
    while (more := (high >> level) - (low >> level) >= BLOCKS_MOST).any():
        level += more
    ends = ends.append_column("to", pa.array(level))
    table = table.join(ends.select(["run", "vm", "slot", "to"]), ["run", "vm", "slot"], use_threads=False)
    to = np_of(table["to"])
    block = np_of(table["block"]) >> (to - np_of(table["level"]))
    columns = {c: table[c] for c in table.column_names if c != "to"}
    return pa.table(columns | {"level": pa.array(to), "block": pa.array(block)})


def np_of(column: Any) -> np.ndarray[Any, Any]:
    """A column without nulls."""
    import numpy as np

    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else np.asarray(column, np.int64)


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

SECOND_US = 1_000_000
SUMS = ("window_s", "cpu_s", "tuples_in", "tuples_out", "queue", "busy_s", "memory_bytes")
COLUMNS = ("time", "epoch", "vm", "slot", "task", "thread", *SUMS)
TEXTS = ("vm", "task")
BUNDLES = (  # as Spark has them
    "run string, part int, epoch long, vm string, slot long, task string, w long, n long, first_us long, last_us long,"
    " window_s double, cpu_s double, tuples_in long, tuples_out long, queue long, busy_s double, memory_bytes long,"
    " seconds double, threads double"
)

RowGroups = tuple[str, list[int]]  # of a file's URI


@dataclass(frozen=True)
class SumJob:
    """Rows of a run from `from_us` to before `to_us` (None: all that are before or after), for one part, in windows
    of `width_us`; where to write bundles and threads."""

    run: str
    part: int
    inputs: tuple[RowGroups, ...]
    from_us: int | None
    to_us: int | None
    width_us: int
    bundles: DataPlace
    threads: DataPlace


def summed(job: SumJob) -> int:
    """Do a job; how many rows were put together."""
    rows = read_groups(job.inputs, job.from_us, job.to_us)
    of = {"run": pa.scalar(job.run), "part": pa.scalar(job.part, pa.int32())}
    for table, file in ((bundles(rows, job.width_us), job.bundles), (threads(rows), job.threads)):
        named = {name: pa.repeat(value, table.num_rows) for name, value in of.items()}
        write(pa.table({**named, **dict(zip(table.column_names, table.columns, strict=True))}), file)
    return int(rows.num_rows)


def read_groups(inputs: Sequence[RowGroups], from_us: int | None, to_us: int | None) -> pa.Table:
    """COLUMNS of the rows in this stretch, `time` in µs; of rows without a time those that begin with all."""
    tables = []
    for uri, groups in inputs:
        file = place(uri)
        with (
            file.files().open_input_file(file.path) as stream,
            pq.ParquetFile(stream, read_dictionary=list(TEXTS)) as parquet,
        ):
            for group in groups:
                table = parquet.read_row_group(group, columns=list(COLUMNS), use_threads=False)
                us = table["time"].cast(pa.int64())
                table = table.set_column(table.column_names.index("time"), "time", us)
                tables.append(table.filter(_inside(pc.fill_null(us, -1), from_us, to_us)))
    return pa.concat_tables(tables).unify_dictionaries().combine_chunks()


def _inside(us: Any, from_us: int | None, to_us: int | None) -> Any:
    inside = pc.greater_equal(us, -1 if from_us is None else from_us)
    return inside if to_us is None else pc.and_(inside, pc.less(us, to_us))


def bundles(rows: pa.Table, width_us: int) -> pa.Table:
    """Threads of a task in a slot in a window `w`: sums over them, the `seconds` they cover, how many they were."""
    rows = rows.append_column("w", pc.divide(rows["time"], width_us))
    found = _grouped(
        rows,
        ("epoch", "vm", "slot", "task", "w"),
        {"n": ([], "count_all"), "first_us": ("time", "min"), "last_us": ("time", "max")}
        | {name: (name, "sum") for name in SUMS},
    )
    spanned_s = pc.divide(pc.cast(pc.subtract(found["last_us"], found["first_us"]), pa.float64()), SECOND_US)
    seconds = pc.add(spanned_s, pc.divide(found["window_s"], pc.cast(found["n"], pa.float64())))
    known = pc.if_else(pc.equal(seconds, 0.0), pa.scalar(None, pa.float64()), seconds)
    many = pc.round(pc.divide(found["window_s"], known), round_mode="half_towards_infinity")
    threads = pc.max_element_wise(many, 1.0)  # at least one, also where nobody knows
    return found.append_column("seconds", seconds).append_column("threads", threads)


def threads(rows: pa.Table) -> pa.Table:
    """A thread in an epoch: rows taken in, and seconds it was there for."""
    sums = {name: (name, "sum") for name in ("tuples_in", "window_s")}
    return _grouped(rows, ("epoch", "task", "vm", "slot", "thread"), sums)


def _grouped(rows: pa.Table, keys: Sequence[str], made: dict[str, tuple[Any, str]]) -> pa.Table:
    """made: name → (of which column, what)."""
    found = rows.group_by(list(keys), use_threads=False).aggregate(list(made.values()))
    columns = {key: found[key].cast(pa.string()) if key in TEXTS else found[key] for key in keys}
    names = ("count_all" if how == "count_all" else f"{of}_{how}" for of, how in made.values())
    return pa.table(columns | dict(zip(made, (found[name] for name in names), strict=True)))
