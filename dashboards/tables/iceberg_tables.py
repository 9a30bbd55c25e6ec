"""Rows as an Iceberg table: Parquet files in `data`, and in `metadata` what they are, which any catalog can register.

The catalog it is written by is of this process alone: the folder is the table. `metadata/version-hint.text` says which
metadata counts, as readers without a catalog have it, and comes last.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import ValidationError
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

from headgate.topology_runtime.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

NAMESPACE, TABLE = "headgate", "answer"


def put(folder: Path, reader: pa.RecordBatchReader) -> None:
    """Raises InvalidInput when the disk does not take them, or Iceberg has no such type."""
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
