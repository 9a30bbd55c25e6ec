"""The tables of a trace as the contract has them, for Arrow and for Spark. Explicit: nothing is inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

TIME, TEXT, COUNT, NUMBER = "time", "text", "count", "number"  # timestamp[us, UTC], string, int64, float64

TABLES: dict[str, dict[str, str]] = {
    "samples": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "vm": TEXT, "slot": COUNT, "task": TEXT,
        "thread": COUNT, "cpu_s": NUMBER, "run_delay_s": NUMBER, "memory_bytes": COUNT,
        "tuples_in": COUNT, "tuples_out": COUNT, "queue": COUNT, "latency_mean_s": NUMBER,
        "latency_p50_s": NUMBER, "latency_p99_s": NUMBER, "busy_s": NUMBER, "wait_s": NUMBER,
        "bytes_in": COUNT, "bytes_out": COUNT,
    },
    "slots": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "vm": TEXT, "slot": COUNT, "cpu": NUMBER,
        "memory": NUMBER, "predicted_cpu": NUMBER, "predicted_memory": NUMBER,
    },
    "rates": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "source": TEXT, "offered_tps": NUMBER,
        "emitted_tps": NUMBER, "acked_tps": NUMBER, "planned_tps": NUMBER, "predicted_tps": NUMBER,
    },
    "latency": {
        "time": TIME, "epoch": COUNT, "source": TEXT, "sink": TEXT, "latency_s": NUMBER,
        "error_s": NUMBER, "tuples": NUMBER,
    },
    "links": {
        "time": TIME, "window_s": NUMBER, "epoch": COUNT, "from_task": TEXT, "from_thread": COUNT,
        "to_task": TEXT, "to_thread": COUNT, "tuples": COUNT, "bytes": COUNT, "frames": COUNT,
        "buffer_latency_s": NUMBER, "channel_latency_s": NUMBER,
    },
}  # fmt: skip

OPTIONAL = {"latency": ("tuples",)}  # not in the contract's list: 1 each when a trace has no such column
PARTITIONS = ("topology", "run", "date")  # folders of a curated table


def arrow_schema(table: str) -> pa.Schema:
    import pyarrow as pa

    types: dict[str, Any] = {
        TIME: pa.timestamp("us", tz="UTC"),
        TEXT: pa.string(),
        COUNT: pa.int64(),
        NUMBER: pa.float64(),
    }
    return pa.schema([(name, types[kind]) for name, kind in TABLES[table].items()])


def spark_schema(table: str) -> StructType:
    """Of the curated table: its columns and those of its folders."""
    from pyspark.sql import types as t

    of: dict[str, Any] = {
        TIME: t.TimestampType(),
        TEXT: t.StringType(),
        COUNT: t.LongType(),
        NUMBER: t.DoubleType(),
    }
    columns = [t.StructField(name, of[kind]) for name, kind in TABLES[table].items()]
    return t.StructType([*columns, *(t.StructField(name, t.StringType()) for name in PARTITIONS)])


def fits(kind: str, found: pa.DataType) -> bool:
    """Can a column of this Arrow type be read as one of ours without a change of meaning?"""
    import pyarrow as pa

    is_a = pa.types
    if is_a.is_dictionary(found):
        found = found.value_type
    if kind == TEXT:
        return bool(is_a.is_string(found) or is_a.is_large_string(found))
    if kind == COUNT:
        return bool(is_a.is_integer(found) and found != pa.uint64())
    if kind == NUMBER:
        return bool(is_a.is_floating(found))
    return bool(is_a.is_timestamp(found) and found.tz == "UTC")


def column_faults(table: str, found: pa.Schema) -> tuple[list[str], list[str], int]:
    """(what makes it unreadable, unknown columns, how many of our columns it has)."""
    faults, known = [], TABLES[table]
    for name, kind in known.items():
        at = found.get_all_field_indices(name)
        if not at:
            if name not in OPTIONAL.get(table, ()):
                faults.append(f"column {name!r} is missing")
        elif len(at) > 1:
            faults.append(f"column {name!r} is there {len(at)} times")
        elif not fits(kind, found.field(at[0]).type):
            faults.append(f"column {name!r} is {found.field(at[0]).type}, not {kind}")
    unknown = [name for name in found.names if name not in known]
    return faults, unknown, len(set(found.names) & set(known))
