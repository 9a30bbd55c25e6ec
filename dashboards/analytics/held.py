"""Aggregates that the driver holds: files of one pass each, of which some parts count; what several parts say of one
key is added up. By Arrow: they are small, and Spark takes longer to plan this than it takes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headgate.dashboards.analytics.data_places import DataPlace

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

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
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, compression="zstd")
    file.write(sink.getvalue().to_pybytes())


def write_all(tables: Iterable[pa.Table], file: DataPlace) -> None:
    """One after the other, whole or not at all."""
    import pyarrow.parquet as pq

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
    import pyarrow.parquet as pq

    with file.files().open_input_file(file.path) as stream:
        return pq.read_table(stream)


def read(files: Iterable[DataPlace], counts: Mapping[int, Sequence[str]]) -> pa.Table:
    """Rows of the parts that count: number → runs."""
    import pyarrow as pa
    import pyarrow.compute as pc

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
    import pyarrow as pa

    rules = [(c, EXTREMES.get(c[:3], "sum")) for c in table.column_names if c not in keys]
    rules = [(c, rule) for c, rule in rules if not pa.types.is_string(table.schema.field(c).type)]
    found = table.group_by(list(keys), use_threads=False).aggregate(rules)
    named = {c: found[c] for c in keys} | {c: found[f"{c}_{rule}"] for c, rule in rules}
    return pa.table(named).sort_by([(key, "ascending") for key in keys])


def _from_one_window(table: pa.Table) -> pa.Table:
    """x counts from the first window of the run in place of that of its part."""
    import pyarrow as pa

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
    import pyarrow as pa

    from headgate.dashboards.analytics.sums import BLOCKS_MOST

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
    import pyarrow as pa

    return column.to_numpy() if isinstance(column, pa.ChunkedArray) else np.asarray(column, np.int64)
