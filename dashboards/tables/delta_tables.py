"""Rows as a Delta table: Parquet files with a log, which Spark, DuckDB, Polars and others read as one."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import deltalake

from headgate.topology_runtime.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa


def put(folder: Path, reader: pa.RecordBatchReader) -> None:
    """Raises InvalidInput when the disk or Delta does not take them."""
    try:
        deltalake.write_deltalake(folder, reader)
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise InvalidInput(f"{folder} cannot be written", cause=str(error).splitlines()[0]) from error
