"""What controller and agents tell each other of packages. Pure.

An agent asks for the next part of what it lacks, and for another one when that has come: at most one part is on its
way to it, so a slow disk or link slows its own fetching and nothing else. It goes on where it stopped.
"""

from __future__ import annotations

import msgspec

PART_BYTES = 256 * 1024  # from the controller to an agent
BROUGHT_BYTES = 128 * 1024  # from a client: a command's bytes are counted as if each could begin a list


class PackageOffer(msgspec.Struct, frozen=True, tag="package_offer"):
    """Somebody wants it to be there: have it. Said again until the agent says how it stands."""

    digest: str


class PackagePart(msgspec.Struct, frozen=True, tag="package_part"):
    """Bytes of a package."""

    digest: str
    offset: int
    data: bytes


class PackageAt(msgspec.Struct, frozen=True, tag="package_at"):
    """How a package stands on a VM: `taken` bytes are there and more is asked for; or all of them, and what it needs is
    being installed (`busy`); or it may be run (`whole`); or it is refused and why."""

    vm: str
    boot: int
    digest: str
    taken: int = 0
    whole: bool = False
    refused: str = ""
    busy: bool = False
