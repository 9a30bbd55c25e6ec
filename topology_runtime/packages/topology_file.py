"""The topology that was signed with its code."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headgate.topology_runtime.packages.manifest import BadPackage
from headgate.topology_runtime.packages.params import TOPOLOGY
from headgate.topology_runtime.topology import Topology


def topology_in(code: Path) -> Topology:
    """Of an unpacked package. Raises BadPackage, OSError."""
    try:
        return msgspec.json.decode((code / TOPOLOGY).read_bytes(), type=Topology)
    except FileNotFoundError as error:
        raise BadPackage(
            "the package holds no topology, so what it would run is not signed",
            cause="`headgate package DIR --topology REFERENCE` puts it in, and `headgate submit --ship` does",
        ) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadPackage("the topology in the package cannot be read", cause=str(error)) from error
