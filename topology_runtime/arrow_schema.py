"""The tables of a trace as Arrow schemas."""

from __future__ import annotations

import pyarrow as pa

from headgate.topology_runtime.trace_tables import COUNT, NUMBER, TABLES, TEXT, TIME


def arrow_schema(table: str) -> pa.Schema:
    """The Arrow schema of one of `TABLES`."""
    types = {
        TIME: pa.timestamp("us", tz="UTC"),
        TEXT: pa.string(),
        COUNT: pa.int64(),
        NUMBER: pa.float64(),
    }
    return pa.schema([(name, types[kind]) for name, kind in TABLES[table].items()])
