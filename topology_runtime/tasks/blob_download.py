"""Downloads a blob for each row: a task that waits for a service and the network (paper 0, section 5.2)."""

from __future__ import annotations

from typing import Any

from headgate.topology_runtime.logic import Context
from headgate.topology_runtime.services.blob_service import Blobs, open_blobs
from headgate.topology_runtime.services.names import BLOBS, CONTAINER, blob_name
from headgate.topology_runtime.tasks.event_number import number_of, scattered


class BlobDownload:
    """Gives {id, bytes}: the size of the blob of 2 MB that was brought into memory.

    `service`: `azurite://host:port` (Azure's SDK) or `embedded://host:port`; `azurite` and `embedded` alone
    are where `scripts/services start` puts them. `blobs`: how many the container has. One client per thread,
    its connection kept; a service that is absent fails the thread at its start with one line."""

    def __init__(
        self,
        service: str = "azurite",
        blobs: int = BLOBS,
        container: str = CONTAINER,
        timeout_s: float = 30.0,
    ) -> None:
        if blobs < 1:
            raise ValueError("blobs: at least 1")
        self._where = service, container, timeout_s
        self._blobs = blobs
        self._client: Blobs | None = None

    def open(self, context: Context) -> None:
        self._ready().get(blob_name(context.thread % self._blobs))

    def __call__(self, row: Any) -> dict[str, int]:
        number = number_of(row)
        data = self._ready().get(blob_name(scattered(number, self._blobs)))
        return {"id": number, "bytes": len(data)}

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _ready(self) -> Blobs:
        if self._client is None:
            self._client = open_blobs(*self._where)
        return self._client
