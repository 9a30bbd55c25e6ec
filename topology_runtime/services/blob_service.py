"""Clients of blob services: the same contract for Azure's SDK and for plain HTTP. One per thread."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.services.addresses import BLOB_PORT, Address, absent, address_of
from headgate.topology_runtime.services.azure_sdk import BLOB_SDK, connection_string, sdk
from headgate.topology_runtime.services.keep_alive import TIMEOUT_S, KeepAlive
from headgate.topology_runtime.services.names import CONTAINER

WHAT = "blob service"


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
            raise absent(WHAT, self._address, error) from error
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
            raise absent(WHAT, self._address, error) from error
        if status == 404:
            raise no_blob(self._address, self._container, name)
        if status != 200:
            raise absent(WHAT, self._address, f"what is there answers {status}")
        return data

    def close(self) -> None:
        self._http.close()


def no_blob(address: Address, container: str, name: str) -> InvalidInput:
    more = "`scripts/services start --blobs N` makes more"
    return InvalidInput(f"{address} has no blob {name!r} in {container!r}; {more}")
