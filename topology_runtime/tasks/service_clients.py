"""Clients of blob services: the same contract for Azure's SDK and for plain HTTP. One per thread."""

from __future__ import annotations

import http.client
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.tasks.ready_made import CONTAINER, TABLE, Row, partition_of, row_key
from headgate.topology_runtime.tasks.service_addresses import (
    BLOB_PORT,
    BLOB_SDK,
    TABLE_PORT,
    TABLE_SDK,
    Address,
    absent,
    address_of,
    connection_string,
    sdk,
)

# ── One HTTP connection per thread, kept open between requests ──────────────────────────────────────────

TIMEOUT_S = 30.0


class KeepAlive:
    """GET requests to one host. OSError when it does not answer."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S, tls: bool = False) -> None:
        kind = http.client.HTTPSConnection if tls else http.client.HTTPConnection
        self._connection = kind(host, port, timeout=timeout_s)

    def connect(self) -> None:
        self._connection.connect()

    def get(self, path: str) -> tuple[int, bytes]:
        """(status, body). A server may close an idle connection, so a kept one is tried once more."""
        kept = self._connection.sock is not None
        try:
            return self._get(path)
        except ConnectionError:
            if not kept:
                raise
            return self._get(path)

    def _get(self, path: str) -> tuple[int, bytes]:
        try:
            self._connection.request("GET", path)
            answer = self._connection.getresponse()
            return answer.status, answer.read()
        except OSError:
            self.close()
            raise
        except http.client.HTTPException as error:  # no HTTP, or a body cut short
            self.close()
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

BLOB_SERVICE = "blob service"


class Blobs(Protocol):
    """get: a blob's bytes; InvalidInput when there is no such blob, Unreachable when there is no service."""

    def get(self, name: str) -> bytes: ...

    def close(self) -> None: ...


def open_blobs(service: str, container: str = CONTAINER, timeout_s: float = TIMEOUT_S) -> Blobs:
    """A client of the service at this address (see `addresses`); it connects on first use."""
    address = address_of(service, BLOB_PORT)
    kind = AzureBlobs if address.backend == "azurite" else HttpBlobs
    return kind(address, container, timeout_s)


class AzureBlobs:
    """Through azure-storage-blob, its session kept. The SDK does not try again: the runtime does."""

    def __init__(self, address: Address, container: str, timeout_s: float) -> None:
        self._address, self._container = address, container
        module = sdk(BLOB_SDK)
        self._service: Any = module.BlobServiceClient.from_connection_string(
            connection_string(address), retry_total=0, connection_timeout=timeout_s, read_timeout=timeout_s
        )
        self._blobs: Any = self._service.get_container_client(container)

    def get(self, name: str) -> bytes:
        from azure.core.exceptions import AzureError, ResourceNotFoundError

        try:
            data: bytes = self._blobs.download_blob(name, max_concurrency=1).readall()
        except ResourceNotFoundError as error:
            raise no_blob(self._address, self._container, name) from error
        except AzureError as error:
            raise absent(BLOB_SERVICE, self._address, error) from error
        return data

    def close(self) -> None:
        self._service.close()


class HttpBlobs:
    """`GET /CONTAINER/NAME` of the embedded stand-in."""

    def __init__(self, address: Address, container: str, timeout_s: float) -> None:
        self._address, self._container = address, container
        self._http = KeepAlive(address.host, address.port, timeout_s)

    def get(self, name: str) -> bytes:
        try:
            status, data = self._http.get(f"/{quote(self._container, safe='')}/{name}")
        except OSError as error:
            raise absent(BLOB_SERVICE, self._address, error) from error
        if status == 404:
            raise no_blob(self._address, self._container, name)
        if status != 200:
            raise absent(BLOB_SERVICE, self._address, f"what is there answers {status}")
        return data

    def close(self) -> None:
        self._http.close()


def no_blob(address: Address, container: str, name: str) -> InvalidInput:
    more = "`scripts/services start --blobs N` makes more"
    return InvalidInput(f"{address} has no blob {name!r} in {container!r}; {more}")


# ── Clients of table services: the same contract for Azure's SDK and for plain HTTP. One per thread ─────

TABLE_SERVICE = "table service"
KEYS = ("PartitionKey", "RowKey")


class TableClient(Protocol):
    """get: the row of a key, its 20 columns; InvalidInput when there is no such row, Unreachable when
    there is no service."""

    def get(self, key: int) -> Row: ...

    def close(self) -> None: ...


def open_table(service: str, table: str = TABLE, timeout_s: float = TIMEOUT_S) -> TableClient:
    """A client of the service at this address (see `addresses`); it connects on first use."""
    address = address_of(service, TABLE_PORT)
    kind = AzureTable if address.backend == "azurite" else HttpTable
    return kind(address, table, timeout_s)


class AzureTable:
    """Through azure-data-tables, its session kept. The SDK does not try again: the runtime does."""

    def __init__(self, address: Address, table: str, timeout_s: float) -> None:
        self._address, self._name = address, table
        module = sdk(TABLE_SDK)
        self._table: Any = module.TableClient.from_connection_string(
            connection_string(address),
            table,
            retry_total=0,
            connection_timeout=timeout_s,
            read_timeout=timeout_s,
        )

    def get(self, key: int) -> Row:
        from azure.core.exceptions import AzureError, ResourceNotFoundError

        try:
            entity = self._table.get_entity(partition_of(key), row_key(key))
        except ResourceNotFoundError as error:
            raise no_row(self._address, self._name, key) from error
        except AzureError as error:
            raise absent(TABLE_SERVICE, self._address, error) from error
        return {name: value for name, value in entity.items() if name not in KEYS}

    def close(self) -> None:
        self._table.close()


class HttpTable:
    """`GET /TABLE/KEY` of the embedded stand-in."""

    def __init__(self, address: Address, table: str, timeout_s: float) -> None:
        self._address, self._name = address, table
        self._http = KeepAlive(address.host, address.port, timeout_s)

    def get(self, key: int) -> Row:
        try:
            status, data = self._http.get(f"/{quote(self._name, safe='')}/{key}")
        except OSError as error:
            raise absent(TABLE_SERVICE, self._address, error) from error
        if status == 404:
            raise no_row(self._address, self._name, key)
        if status != 200:
            raise absent(TABLE_SERVICE, self._address, f"what is there answers {status}")
        return msgspec.json.decode(data, type=dict[str, int | float | str])

    def close(self) -> None:
        self._http.close()


def no_row(address: Address, table: str, key: int) -> InvalidInput:
    more = "`scripts/services start --rows N` makes more"
    return InvalidInput(f"{address} has no row {key} in {table!r}; {more}")
