"""Fills the services with blobs and rows. What is there already is not written again."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from emulated_services.contents import BLOB_BYTES, COLUMNS, REAL, WHOLE, blob_bytes, row_of, values_of
from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.progress import Step
from headgate.topology_runtime.services.addresses import Address
from headgate.topology_runtime.services.azure_sdk import BLOB_SDK, TABLE_SDK, connection_string, sdk
from headgate.topology_runtime.services.names import (
    CONTAINER,
    ROWS_A_PARTITION,
    TABLE,
    blob_name,
    partition_of,
    row_key,
)

ROWS_A_COMMIT = 20_000


# ── Azurite, through the SDKs ───────────────────────────────────────────────────────────────────


def seed_azure_blobs(address: Address, blobs: int, step: Step) -> None:
    """`blobs` blobs in the container, written straight to the emulator."""
    storage = sdk(BLOB_SDK)
    from azure.core.exceptions import AzureError, ResourceExistsError

    with storage.ContainerClient.from_connection_string(connection_string(address), CONTAINER) as container:
        try:
            with suppress(ResourceExistsError):
                container.create_container()
            there = {blob.name for blob in container.list_blobs() if blob.size == BLOB_BYTES}
            for number in range(blobs):
                absent = blob_name(number) not in there
                if absent:
                    container.upload_blob(blob_name(number), blob_bytes(number), overwrite=True)
                step(number + 1, absent)
        except AzureError as error:
            raise HeadgateError("could not fill the blob container", cause=str(error)) from error


def seed_azure_rows(address: Address, rows: int, step: Step) -> None:
    """`rows` rows, whole partitions of 100 a batch."""
    tables = sdk(TABLE_SDK)
    from azure.core.exceptions import AzureError, ResourceExistsError

    with tables.TableClient.from_connection_string(connection_string(address), TABLE) as table:
        try:
            with suppress(ResourceExistsError):
                table.create_table()
            for first in range(_azure_rows(table, rows), rows, ROWS_A_PARTITION):
                keys = range(first, min(rows, first + ROWS_A_PARTITION))
                table.submit_transaction([("upsert", _entity(key)) for key in keys])
                step(keys.stop, len(keys))
        except AzureError as error:
            raise HeadgateError("could not fill the table", cause=str(error)) from error


def _entity(key: int) -> dict[str, Any]:
    return {"PartitionKey": partition_of(key), "RowKey": row_key(key), **row_of(key)}


def _azure_rows(table: Any, rows: int) -> int:
    """The first row to write: rows are written in order, so the first partition whose last row is absent
    is found by halves."""
    from azure.core.exceptions import ResourceNotFoundError

    low, high = 0, -(-rows // ROWS_A_PARTITION)
    while low < high:
        middle = (low + high) // 2
        last = min(rows, (middle + 1) * ROWS_A_PARTITION) - 1
        try:
            table.get_entity(partition_of(last), row_key(last))
            low = middle + 1
        except ResourceNotFoundError:
            high = middle
    return min(rows, low * ROWS_A_PARTITION)


# ── files and SQLite ────────────────────────────────────────────────────────────────────────────


def blob_folder(directory: Path) -> Path:
    return directory / "blobs"


def table_file(directory: Path) -> Path:
    return directory / "rows.sqlite"


def seed_files(directory: Path, blobs: int, step: Step) -> None:
    """`blobs` files, each whole or not there."""
    folder = blob_folder(directory)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(blobs):
        path = folder / blob_name(number)
        absent = not path.exists() or path.stat().st_size != BLOB_BYTES
        if absent:
            part = path.with_suffix(".part")
            part.write_bytes(blob_bytes(number))
            part.replace(path)
        step(number + 1, absent)


def seed_sqlite(directory: Path, rows: int, step: Step) -> None:
    """`rows` rows by key from 0 on."""
    directory.mkdir(parents=True, exist_ok=True)
    kinds = {**dict.fromkeys(WHOLE, "INTEGER"), **dict.fromkeys(REAL, "REAL")}
    columns = ", ".join(f"{name} {kinds.get(name, 'TEXT')}" for name in COLUMNS)
    places = ", ".join("?" * (1 + len(COLUMNS)))
    try:
        with closing(sqlite3.connect(table_file(directory))) as database:
            database.execute("PRAGMA synchronous = OFF")  # it can be made again
            database.execute(f"CREATE TABLE IF NOT EXISTS rows (key INTEGER PRIMARY KEY, {columns})")
            (there,) = database.execute("SELECT coalesce(max(key) + 1, 0) FROM rows").fetchone()
            for first in range(there, rows, ROWS_A_COMMIT):
                stop = min(rows, first + ROWS_A_COMMIT)
                with database:
                    database.executemany(f"INSERT INTO rows VALUES ({places})", _with_keys(first, stop))
                step(stop, stop - first)
    except sqlite3.Error as error:
        raise HeadgateError(f"could not fill {table_file(directory)}", cause=str(error)) from error


def _with_keys(first: int, stop: int) -> Iterator[tuple[Any, ...]]:
    return ((key, *values_of(key)) for key in range(first, stop))
