"""An answer as a Delta table: Parquet files with a log, which Spark, DuckDB, Polars and others read as one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from topology_runtime.errors import HeadgateError, InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa


def write(folder: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write a new table, batch by batch; how many rows. It is there whole or not at all.

    Raises InvalidInput when something is in the folder, or there is nothing to write."""
    try:
        import deltalake
    except ImportError as error:
        raise HeadgateError(
            "deltalake is not installed", cause="Delta tables need it", hint="pip install 'headgate[delta]'"
        ) from error
    import pyarrow as pa

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is not empty", hint="a Delta table is written into a new folder")
    first = next(batches, None)
    if first is None:
        raise InvalidInput("the answer has no rows", hint="a Delta table of none would have no columns")
    rows = 0

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in chain((first,), batches):
            rows += batch.num_rows
            yield batch

    try:
        deltalake.write_deltalake(folder, pa.RecordBatchReader.from_batches(first.schema, counted()))
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise InvalidInput(f"{folder} cannot be written", cause=str(error).splitlines()[0]) from error
    return rows
