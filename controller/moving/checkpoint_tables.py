"""The keyed state of a task of a checkpoint as a Parquet file, one row per key. The states are read twice, thread by
thread: which columns there are is known once all were seen. So what is in memory is the snapshot of one thread, and of
its states those of one key range beside the rows of a row group."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.worker.keyed_state.checkpoints import OpenCheckpoint, TaskShape
from headgate.topology_runtime.worker.keyed_state.state_tables import (
    StateColumn,
    StateRow,
    TableShape,
    rows_by_range,
)

GROUP_ROWS, GROUP_BYTES = 50_000, 16 << 20  # of a row group; bytes of states as JSON
WRITING = ".writing"


@dataclass(frozen=True)
class Exported:
    """What a file has. columns: their names."""

    rows: int
    row_groups: int
    bytes: int
    columns: tuple[str, ...]


def export(found: OpenCheckpoint, task: str, to: Path) -> Exported:
    """Raises InvalidInput, Conflict, OSError. The file is whole, or not there."""
    try:
        import pyarrow.parquet as pq
    except ImportError as error:
        raise InvalidInput(
            "Parquet cannot be written", cause=f"pyarrow is not there: {error}", hint="pip install pyarrow"
        ) from error
    about = found.task(task)
    if to.exists():
        raise Conflict(f"{to} exists already", hint="choose another file")
    shape = TableShape(about.timed)
    for rows in _ranges(found, about):
        for row in rows:
            shape.look(row)
    columns = [*_places(), *shape.columns(), *([_timers()] if about.timed else [])]
    writing = to.with_name(to.name + WRITING)
    try:
        schema = _schema(columns, {"task": task, "checkpoint": found.name, "run": found.run.run})
        with pq.ParquetWriter(writing, schema, compression="zstd") as writer:
            groups = 0
            for table in _tables(_ranges(found, about), columns, schema):
                writer.write_table(table)
                groups += 1
        os.replace(writing, to)
    except BaseException:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            writing.unlink()
        raise
    return Exported(shape.rows, groups, to.stat().st_size, tuple(column.name for column in columns))


def _ranges(found: OpenCheckpoint, task: TaskShape) -> Iterator[list[StateRow]]:
    for thread, kept, snapshot in found.snapshots(task.name):
        try:
            yield from rows_by_range(snapshot, thread, kept, task.timed)
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"checkpoint {found.name} is damaged",
                cause=f"a state of {task.name} cannot be read: {error}",
                hint="export another one",
            ) from error


# ── Arrow ───────────────────────────────────────────────────────────────────────────────────────────


def _places() -> list[StateColumn]:
    return [
        StateColumn("range", "place", lambda row: row.key_range),
        StateColumn("thread", "place", lambda row: row.thread),
    ]


def _timers() -> StateColumn:
    return StateColumn(
        "timers",
        "timers",
        lambda row: [{"at": at, "name": name, "by_clock": by_clock} for at, name, by_clock in row.timers],
    )


def _schema(columns: Sequence[StateColumn], about: dict[str, str]) -> Any:
    import pyarrow as pa

    instant = pa.timestamp("us", "UTC")
    timer = pa.struct([("at", instant), ("name", pa.string()), ("by_clock", pa.bool_())])
    kinds = {
        "bool": pa.bool_(), "int": pa.int64(), "large": pa.decimal128(20), "float": pa.float64(),
        "text": pa.string(), "json": pa.string(), "bytes": pa.binary(), "instant": instant,
        "moment": pa.timestamp("us"), "date": pa.date32(), "place": pa.int32(), "timers": pa.list_(timer),
    }  # fmt: skip
    fields = [pa.field(column.name, kinds[column.kind]) for column in columns]
    return pa.schema(fields, metadata={f"headgate.{name}": text for name, text in about.items()})


def _tables(ranges: Iterator[list[StateRow]], columns: Sequence[StateColumn], schema: Any) -> Iterator[Any]:
    """Row groups."""
    state = next(number for number, column in enumerate(columns) if column.name == "state")
    values: list[list[Any]] = [[] for _ in columns]
    size = 0
    for rows in ranges:
        for row in rows:
            for column, into in zip(columns, values, strict=True):
                into.append(column.of(row))
            size += len(values[state][-1])
            if len(values[state]) >= GROUP_ROWS or size >= GROUP_BYTES:
                yield _table(values, schema)
                values, size = [[] for _ in columns], 0
    if values[state]:
        yield _table(values, schema)


def _table(values: Sequence[list[Any]], schema: Any) -> Any:
    import pyarrow as pa

    arrays = [pa.array(column, field.type) for column, field in zip(values, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)
