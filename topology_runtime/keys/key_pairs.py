"""Keys and names as plain values. Pure.

A key pair is Curve25519; both halves are 32 bytes, written as 40 characters of Z85. The public half names somebody,
the secret half proves it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.addresses import endpoint_fault

Role = Literal["controller", "agent", "operator", "viewer", "worker"]
GIVEN: tuple[Role, ...] = (
    "agent",
    "operator",
    "viewer",
)  # roles that a person gives; the others come by themselves
ENDPOINT_SHOWN = 80  # characters of what somebody said
Z85 = re.compile(r"[0-9a-zA-Z.\-:+=^!/*?&<>()\[\]{}@%$#]{40}")


class KeyPair(msgspec.Struct, frozen=True):
    """Never shown: what prints it prints its public half."""

    public: str
    secret: str

    def __repr__(self) -> str:
        return f"KeyPair({self.public!r})"


class Who(msgspec.Struct, frozen=True):
    """Whose key it is. name: of an agent its VM's; of a worker VM/SLOT#INCARNATION. key: the public half, where it is
    told."""

    role: Role
    name: str
    key: str = ""

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


class Contact(msgspec.Struct, frozen=True):
    """How a client reaches a server: where it listens, the client's own pair, and the server's public key: it speaks to
    nobody else. before: the server's key until it was rotated, which it may still have; "" when it may not. forwarded:
    what listens there is on another machine, though the address is this one's."""

    endpoint: str
    own: KeyPair
    server: str
    before: str = ""
    forwarded: bool = False

    def to(self, endpoint: str) -> Contact:
        """To another endpoint of the same server."""
        return msgspec.structs.replace(self, endpoint=endpoint)


Admits = Callable[[str], Who | None]  # a public key → whose it is; None: nobody's who may come in


class KeyGuard(msgspec.Struct, frozen=True):
    """What a server needs: its own pair, and who may come in. later: whom nobody knows is told to come again, because
    he may be known in a moment (a worker's peers learn of each other one after the other)."""

    own: KeyPair
    admits: Admits
    later: bool = False


def keyed(endpoint: str, public: str) -> str:
    """An endpoint with the public key of who listens there: `tcp://127.0.0.1:4711#KEY`."""
    return f"{endpoint}#{public}"


def contact_at(endpoint: str, own: KeyPair) -> Contact:
    """To who listens at an endpoint with a key. Raises InvalidInput when it has none, or is none."""
    if fault := keyed_fault(endpoint):
        raise InvalidInput(fault)
    where, _, public = endpoint.partition("#")
    return Contact(where, own, public)


def keyed_fault(endpoint: str) -> str:
    """Why nobody may connect to this endpoint with a key; empty when one may."""
    where, _, public = endpoint.partition("#")
    if not Z85.fullmatch(public):
        return f"{where[:ENDPOINT_SHOWN]!r} comes without the key of who listens there"
    return endpoint_fault(where)


def key_of(endpoint: str) -> str:
    """The key of who listens there; "" when none is told."""
    public = endpoint.partition("#")[2]
    return public if Z85.fullmatch(public) else ""
