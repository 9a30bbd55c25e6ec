"""Where a service is: `azurite://127.0.0.1:10000`, `embedded://127.0.0.1:10002`, or just `azurite`."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit

from headgate.topology_runtime.errors import InvalidInput, Unreachable
from headgate.topology_runtime.faults.words import did_you_mean, shown

HOST = "127.0.0.1"
BLOB_PORT, TABLE_PORT = 10000, 10002  # where `scripts/services start` puts them unless told otherwise
BACKENDS = ("azurite", "embedded")


@dataclass(frozen=True)
class Address:
    """`backend`: azurite (the real Azure SDKs speak to it) or embedded (plain HTTP)."""

    backend: str
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.backend}://{self.host}:{self.port}"


def address_of(service: str, port: int) -> Address:
    """The address that `service` names; host and port may be left out (then loopback and `port`).

    Raises InvalidInput."""
    backend, _, place = service.partition("://")
    if backend not in BACKENDS:
        near = did_you_mean(backend, BACKENDS)
        raise InvalidInput(f"service {shown(service)}: {shown(backend)} is not azurite or embedded{near}")
    try:
        parts = urlsplit(f"//{place}")
        found = Address(backend, parts.hostname or HOST, port if parts.port is None else parts.port)
    except ValueError as error:
        raise InvalidInput(
            f"service {shown(service)} is not {backend}://host:port", cause=str(error)
        ) from error
    if parts.path or parts.query or parts.fragment or parts.username or not found.port:
        raise InvalidInput(f"service {shown(service)} is not {backend}://host:port")
    return found


def absent(what: str, address: Address, cause: BaseException | str) -> Unreachable:
    """One line for a service that does not answer; all in `what`, which is what a failed thread shows."""
    start = "scripts/services start" + (" --embedded" if address.backend == "embedded" else "")
    return Unreachable(f"no {what} at {address} ({_said(cause)}); `{start}` starts one")


def _said(cause: BaseException | str) -> str:
    """The first line of an error, without the objects that some libraries print in it."""
    if isinstance(cause, OSError) and cause.strerror:
        return cause.strerror
    words = str(cause).splitlines()
    first = words[0].rpartition(">: ")[2] if words else ""
    return first or type(cause).__name__
