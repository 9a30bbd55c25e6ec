"""Hosts and endpoints as words. Pure.

*listen*: the address of this machine that a socket is bound to. *advertise*: the one under which others reach it, where
that is another (0.0.0.0, a port mapped by a router).
"""

from __future__ import annotations

import ipaddress
import re

import msgspec

from headgate.topology_runtime.errors import UsageError

LOOPBACK = "127.0.0.1"
NAME = re.compile(r"(?=.{1,253}$)[A-Za-z0-9]([A-Za-z0-9-]{0,62})(\.[A-Za-z0-9]([A-Za-z0-9-]{0,62}))*")
ENDPOINT = re.compile(r"tcp://(\[[0-9A-Fa-f:.]+\]|[^\s:/\[\]#]+):(\d{1,5})")


class Listening(msgspec.Struct, frozen=True):
    """Where something listens, and where others find it. port: 0: any."""

    listen: str = LOOPBACK
    advertise: str = LOOPBACK
    port: int = 0

    @property
    def off_loopback(self) -> bool:
        """Can another machine reach it?"""
        return not is_loopback(self.listen)


def listening(
    listen: str | None, advertise: str | None, here: str = "--listen ", told_as: str = "--advertise "
) -> Listening:
    """Of the two options. Raises UsageError for what is no host, and when nobody could find who listens everywhere."""
    found = listen or LOOPBACK
    told = {here: found, told_as: advertise or found}
    faults = [
        f"{option.rstrip(' =')}: {host!r} is no host" for option, host in told.items() if not is_host(host)
    ]
    if faults:
        raise UsageError(
            "these addresses cannot be", faults=faults, hint="a name or an address: 10.0.0.1, fd00::1"
        )
    if advertise is None and is_everywhere(found):
        raise UsageError(f"{here}{found} is no address that others could connect to", hint=f"{told_as}HOST")
    if advertise is not None and is_everywhere(advertise):
        raise UsageError(f"{told_as}{advertise} is no address that others could connect to")
    return Listening(found, advertise or found)


def is_address(text: str) -> bool:
    return _address(text) is not None


def is_host(text: str) -> bool:
    return is_address(text) or NAME.fullmatch(text) is not None


def is_loopback(host: str) -> bool:
    """A name counts as one only when it is localhost: what it leads to may change."""
    address = _address(host)
    return address.is_loopback if address is not None else host == "localhost"


def is_everywhere(host: str) -> bool:
    address = _address(host)
    return address is not None and address.is_unspecified


def tcp(host: str, port: int | str) -> str:
    """`tcp://10.0.0.1:4711`, `tcp://[fd00::1]:4711`."""
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"


def parted(endpoint: str) -> tuple[str, int]:
    """Host and port. Raises UsageError."""
    found = ENDPOINT.fullmatch(endpoint)
    if found is None or not 0 < int(found[2]) < 65536:
        raise UsageError(f"{endpoint!r} is not tcp://HOST:PORT")
    return found[1].strip("[]"), int(found[2])


def endpoint_fault(endpoint: str) -> str:
    """Why nobody may connect there, whoever says it: only TCP leads to another process, and only a host and a port of
    its own name one. Empty when one may."""
    try:
        host, _ = parted(endpoint)
    except UsageError as error:
        return error.what
    if (
        not is_host(host)
        or is_everywhere(host)
        or ((found := _address(host)) is not None and found.is_multicast)
    ):
        return f"{host!r} is no host that one could connect to"
    return ""


def _address(text: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
