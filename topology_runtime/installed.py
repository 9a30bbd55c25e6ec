"""Which headgate this is."""

from __future__ import annotations

from functools import cache
from importlib import metadata

import msgspec

from topology_runtime.requests import Request
from topology_runtime.wire_version import WIRE


@cache
def installed_version() -> str:
    try:
        return metadata.version("headgate")
    except metadata.PackageNotFoundError:
        return "unknown"


def from_here(request: Request) -> Request:
    """With what this headgate speaks."""
    return msgspec.structs.replace(request, protocol=WIRE, version=installed_version())
