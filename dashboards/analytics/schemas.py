"""The tables of a trace as Spark has them, and which files fit them. Explicit: nothing is inferred."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headgate.topology_runtime.trace_tables import COUNT, NUMBER, TABLES, TEXT, TIME

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OPTIONAL = {
    "latency": ("tuples",),  # not in the contract's list: 1 each when a trace has no such column
    "rates": ("offered", "emitted", "acked"),  # of older traces unknown
}
PARTITIONS = ("topology", "run", "date")  # folders of a curated table


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
