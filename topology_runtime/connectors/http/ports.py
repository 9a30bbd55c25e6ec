"""The port of each partition of a source that listens."""

from __future__ import annotations

import socket
from typing import Any

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.wording import shown

BACKLOG = 64


def listen(host: str, port: int) -> socket.socket:
    """Raises ServiceAway: the port may be another worker's still, which is about to end."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=BACKLOG
        )
    except OSError as error:
        cause = error.strerror or str(error)
        raise ServiceAway(f"cannot listen at {host}:{port}", cause=cause) from error


def checked_port(port: Any) -> list[str]:
    """What is wrong with it."""
    good = isinstance(port, int) and not isinstance(port, bool) and 0 < port < 65536
    return [] if good else [f"port is {shown(port)}, and should be 1 to 65535"]


def port_of(port: int, context: Context) -> int:
    """Of this partition. Raises InvalidInput."""
    if port + context.partition > 65535:
        raise InvalidInput(f"partition {context.partition} would listen on port {port + context.partition}")
    return port + context.partition
