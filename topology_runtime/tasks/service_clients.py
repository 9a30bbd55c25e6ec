"""Clients of blob and table services: the same contract for Azure's SDK and for plain HTTP. One per thread."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeVar
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


class HttpReply(NamedTuple):
    status: int
    body: bytes
    headers: Mapping[str, str]


class KeepAlive:
    """Requests to one host. OSError when it does not answer. tls: True for the trust of this system, or a context."""

    def __init__(
        self, host: str, port: int, timeout_s: float = TIMEOUT_S, tls: bool | ssl.SSLContext = False
    ) -> None:
        self._connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
        if tls:
            context = None if tls is True else tls
            self._connection = http.client.HTTPSConnection(host, port, timeout=timeout_s, context=context)

    def connect(self) -> None:
        self._connection.connect()

    def get(self, path: str) -> tuple[int, bytes]:
        return self.ask("GET", path)

    def ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> tuple[int, bytes]:
        """(status, body); as `exchange`."""
        return self.exchange(method, path, body, headers)[:2]

    def exchange(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
        most: int | None = None,
    ) -> HttpReply:
        """A server may close an idle connection, so a kept one is tried once more: what is asked may come there
        twice. most: bytes of the body that are wanted."""
        kept = self._connection.sock is not None
        try:
            return self._ask(method, path, body, headers, most)
        except ConnectionError:
            if not kept:
                raise
            return self._ask(method, path, body, headers, most)

    def _ask(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], most: int | None
    ) -> HttpReply:
        try:
            self._connection.request(method, path, body, dict(headers))
            answer = self._connection.getresponse()
            reply = HttpReply(answer.status, answer.read(most), dict(answer.headers.items()))
            if not answer.isclosed():
                self.close()
            return reply
        except OSError:
            self.close()
            raise
        except http.client.HTTPException as error:  # no HTTP, or a body cut short
            self.close()
            raise ConnectionError(f"{type(error).__name__}: {error}") from error

    def close(self) -> None:
        self._connection.close()


# ── The services' clients ───────────────────────────────────────────────────────────────────────────────

KEYS = ("PartitionKey", "RowKey")
Key = TypeVar("Key", contravariant=True)
Found = TypeVar("Found", covariant=True)


class ServiceClient(Protocol[Key, Found]):
    """get: a blob's bytes, or the row of a key; InvalidInput when there is none, Unreachable when there is no
    service."""

    def get(self, key: Key) -> Found: ...

    def close(self) -> None: ...


def open_blobs(
    service: str, container: str = CONTAINER, timeout_s: float = TIMEOUT_S
) -> ServiceClient[str, bytes]:
    """A client of the service at this address (see `address_of`); it connects on first use."""
    address = address_of(service, BLOB_PORT)
    kind = AzureBlobs if address.backend == "azurite" else HttpBlobs
    return kind(address, container, timeout_s)


def open_table(service: str, table: str = TABLE, timeout_s: float = TIMEOUT_S) -> ServiceClient[int, Row]:
    """A client of the service at this address (see `address_of`); it connects on first use."""
    address = address_of(service, TABLE_PORT)
    kind = AzureTable if address.backend == "azurite" else HttpTable
    return kind(address, table, timeout_s)


class _OfBlobs:
    what = "blob service"

    @staticmethod
    def absent(address: Address, container: str, name: object) -> InvalidInput:
        more = "`scripts/services start --blobs N` makes more"
        return InvalidInput(f"{address} has no blob {name!r} in {container!r}; {more}")


class _OfRows:
    what = "table service"

    @staticmethod
    def absent(address: Address, table: str, key: object) -> InvalidInput:
        return InvalidInput(
            f"{address} has no row {key} in {table!r}; `scripts/services start --rows N` makes more"
        )


class _Azure:
    """Through one of Azure's SDKs, its session kept. It does not try again: the runtime does."""

    what: str
    absent: Callable[[Address, str, object], InvalidInput]

    def __init__(self, address: Address, name: str, timeout_s: float) -> None:
        self._address, self._name = address, name
        self._client = self._connected(
            connection_string(address),
            retry_total=0,
            connection_timeout=timeout_s,
            read_timeout=timeout_s,
        )

    def _connected(self, text: str, **options: Any) -> Any:
        raise NotImplementedError

    def _got(self, key: object, call: Callable[[], Any]) -> Any:
        from azure.core.exceptions import AzureError, ResourceNotFoundError

        try:
            return call()
        except ResourceNotFoundError as error:
            raise self.absent(self._address, self._name, key) from error
        except AzureError as error:
            raise absent(self.what, self._address, error) from error

    def close(self) -> None:
        self._client.close()


class AzureBlobs(_OfBlobs, _Azure):
    def _connected(self, text: str, **options: Any) -> Any:
        service = sdk(BLOB_SDK).BlobServiceClient.from_connection_string(text, **options)
        self._blobs = service.get_container_client(self._name)
        return service

    def get(self, key: str) -> bytes:
        data: bytes = self._got(key, lambda: self._blobs.download_blob(key, max_concurrency=1).readall())
        return data


class AzureTable(_OfRows, _Azure):
    def _connected(self, text: str, **options: Any) -> Any:
        return sdk(TABLE_SDK).TableClient.from_connection_string(text, self._name, **options)

    def get(self, key: int) -> Row:
        entity = self._got(key, lambda: self._client.get_entity(partition_of(key), row_key(key)))
        return {name: value for name, value in entity.items() if name not in KEYS}


class _Http:
    """`GET /NAME/KEY` of the embedded stand-in."""

    what: str
    absent: Callable[[Address, str, object], InvalidInput]

    def __init__(self, address: Address, name: str, timeout_s: float) -> None:
        self._address, self._name = address, name
        self._http = KeepAlive(address.host, address.port, timeout_s)

    def _got(self, key: object) -> bytes:
        try:
            status, data = self._http.get(f"/{quote(self._name, safe='')}/{key}")
        except OSError as error:
            raise absent(self.what, self._address, error) from error
        if status == 404:
            raise self.absent(self._address, self._name, key)
        if status != 200:
            raise absent(self.what, self._address, f"what is there answers {status}")
        return data

    def close(self) -> None:
        self._http.close()


class HttpBlobs(_OfBlobs, _Http):
    def get(self, key: str) -> bytes:
        return self._got(key)


class HttpTable(_OfRows, _Http):
    def get(self, key: int) -> Row:
        return msgspec.json.decode(self._got(key), type=Row)
