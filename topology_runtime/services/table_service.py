"""Clients of table services: the same contract for Azure's SDK and for plain HTTP. One per thread."""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.services.addresses import TABLE_PORT, Address, absent, address_of
from headgate.topology_runtime.services.azure_sdk import TABLE_SDK, connection_string, sdk
from headgate.topology_runtime.services.keep_alive import TIMEOUT_S, KeepAlive
from headgate.topology_runtime.services.names import TABLE, Row, partition_of, row_key

WHAT = "table service"
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
            raise absent(WHAT, self._address, error) from error
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
            raise absent(WHAT, self._address, error) from error
        if status == 404:
            raise no_row(self._address, self._name, key)
        if status != 200:
            raise absent(WHAT, self._address, f"what is there answers {status}")
        return msgspec.json.decode(data, type=dict[str, int | float | str])

    def close(self) -> None:
        self._http.close()


def no_row(address: Address, table: str, key: int) -> InvalidInput:
    more = "`scripts/services start --rows N` makes more"
    return InvalidInput(f"{address} has no row {key} in {table!r}; {more}")
