"""An answer written into a new folder as a table that other programs read: Delta or Iceberg, both Parquet with a record
of which files count."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from headgate.topology_runtime.errors import HeadgateError, InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

KINDS = {"delta": ("Delta", "deltalake"), "iceberg": ("Iceberg", "pyiceberg")}


def write(kind: str, folder: Path, batches: Iterator[pa.RecordBatch]) -> int:
    """Write a new table, batch by batch; how many rows. It is there whole or not at all.

    Raises InvalidInput when something is in the folder, or there is nothing to write, HeadgateError without the
    library."""
    name, library = KINDS[kind]
    try:
        __import__(library)
    except ImportError as error:
        raise HeadgateError(
            f"{library} is not installed",
            cause=f"{name} tables need it",
            hint=f"pip install 'headgate[{kind}]'",
        ) from error
    import pyarrow as pa

    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is not empty", hint=f"a table of {name} is written into a new folder")
    first = next(batches, None)
    if first is None:
        raise InvalidInput("the answer has no rows", hint=f"a table of {name} of none would have no columns")
    rows, made = 0, not folder.exists()

    def counted() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in chain((first,), batches):
            rows += batch.num_rows
            yield batch

    try:
        WRITERS[kind](folder, pa.RecordBatchReader.from_batches(first.schema, counted()))
    except BaseException:
        for each in folder.iterdir() if folder.exists() else ():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        if made and folder.exists():
            folder.rmdir()
        raise
    return rows


def _delta(folder: Path, reader: pa.RecordBatchReader) -> None:
    import deltalake

    try:
        deltalake.write_deltalake(folder, reader)
    except (OSError, deltalake.exceptions.DeltaError) as error:
        raise InvalidInput(f"{folder} cannot be written", cause=str(error).splitlines()[0]) from error


NAMESPACE, TABLE = "headgate", "answer"


def _iceberg(folder: Path, reader: pa.RecordBatchReader) -> None:
    """Files in `data`, and in `metadata` what they are, which any catalog can register. The catalog that writes it is
    of this process alone: the folder is the table. `metadata/version-hint.text` says which metadata counts, as readers
    without a catalog have it, and comes last."""
    from pyiceberg.catalog.memory import InMemoryCatalog
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    where = folder.absolute()
    catalog = InMemoryCatalog("headgate", warehouse=where.as_uri())
    try:
        catalog.create_namespace(NAMESPACE)
        with catalog.create_table_transaction(
            (NAMESPACE, TABLE), reader.schema, location=where.as_uri()
        ) as transaction:
            transaction.append(reader)
        current = catalog.load_table((NAMESPACE, TABLE)).metadata_location
    except (OSError, TypeError, ValueError, UnsupportedPyArrowTypeException, ValidationError) as error:
        raise InvalidInput(f"{folder} cannot be written", cause=str(error).splitlines()[0]) from error
    finally:
        catalog.close()
    name = Path(current).name.removesuffix(".metadata.json")
    (where / "metadata" / "version-hint.text").write_text(name, "utf-8")


WRITERS = {"delta": _delta, "iceberg": _iceberg}
