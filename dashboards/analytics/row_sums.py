"""Rows of samples put together, in Spark's tasks, on whichever machine they are. By Arrow: a tenth of what Spark's own
rows cost. A task has whole windows, so what it writes of them is final.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics import held
from headgate.dashboards.analytics.data_places import DataPlace, place

if TYPE_CHECKING:
    import pyarrow as pa

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
Row = tuple[str, int, list[RowGroups], int | None, int | None, int, str, str]


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

    def row(self) -> Row:
        """What `summed` takes."""
        ends = self.from_us, self.to_us
        return (
            self.run,
            self.part,
            list(self.inputs),
            *ends,
            self.width_us,
            self.bundles.uri,
            self.threads.uri,
        )


def summed(
    run: str,
    part: int,
    inputs: Sequence[RowGroups],
    from_us: int | None,
    to_us: int | None,
    width_us: int,
    *outputs: str,
) -> int:
    """Do a job; how many rows were put together."""
    import pyarrow as pa

    rows = read(inputs, from_us, to_us)
    of = {"run": pa.scalar(run), "part": pa.scalar(part, pa.int32())}
    for table, uri in zip((bundles(rows, width_us), threads(rows)), outputs, strict=True):
        named = {name: pa.repeat(value, table.num_rows) for name, value in of.items()}
        held.write(
            pa.table({**named, **dict(zip(table.column_names, table.columns, strict=True))}), place(uri)
        )
    return int(rows.num_rows)


def read(inputs: Sequence[RowGroups], from_us: int | None, to_us: int | None) -> pa.Table:
    """COLUMNS of the rows in this stretch, `time` in µs; of rows without a time those that begin with all."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

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
    import pyarrow.compute as pc

    inside = pc.greater_equal(us, -1 if from_us is None else from_us)
    return inside if to_us is None else pc.and_(inside, pc.less(us, to_us))


def bundles(rows: pa.Table, width_us: int) -> pa.Table:
    """Threads of a task in a slot in a window `w`: sums over them, the `seconds` they cover, how many they were."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow as pa

    found = rows.group_by(list(keys), use_threads=False).aggregate(list(made.values()))
    columns = {key: found[key].cast(pa.string()) if key in TEXTS else found[key] for key in keys}
    names = ("count_all" if how == "count_all" else f"{of}_{how}" for of, how in made.values())
    return pa.table(columns | dict(zip(made, (found[name] for name in names), strict=True)))
