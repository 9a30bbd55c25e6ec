"""Ed25519 signatures of packages, and keys as plain values. Pure.

What is signed is the manifest as it stands in the archive, byte for byte: any implementation of Ed25519 can check it.
"""

from __future__ import annotations

import re

import msgspec

from headgate.topology_runtime.packages.manifest import BadPackage

SIGNATURE_SCHEMA = "headgate/signature/v1"
SIGNATURE_MOST_BYTES = 4096
KEY, SIGNED = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{128}")


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """signer: his public key; both in hexadecimal digits."""

    signer: str
    signature: str
    schema: str = SIGNATURE_SCHEMA

    def check(self, manifest: bytes) -> None:
        """Raises BadPackage when this key did not sign these bytes."""
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.signer))
            key.verify(bytes.fromhex(self.signature), manifest)
        except (InvalidSignature, ValueError) as error:
            raise BadPackage(
                "the package's signature is wrong", cause=f"key {self.signer} did not sign this manifest"
            ) from error


def signature_of(data: bytes) -> Signature:
    """Raises BadPackage."""
    try:
        found = msgspec.json.decode(data, type=Signature)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPackage("the package's signature cannot be read", cause=str(error)) from error
    sound = KEY.fullmatch(found.signer) and SIGNED.fullmatch(found.signature)
    if not sound or found.schema != SIGNATURE_SCHEMA or msgspec.json.encode(found) != data:
        raise BadPackage("the package's signature cannot be read", cause="it is not written as headgate's")
    return found


def signed(manifest: bytes, secret: str) -> bytes:
    """The signature of these bytes by a secret key, as it stands in the archive."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    public: bytes = key.public_key().public_bytes_raw()
    made: bytes = key.sign(manifest)
    return msgspec.json.encode(Signature(public.hex(), made.hex()))


def public_of(secret: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public: bytes = (
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).public_key().public_bytes_raw()
    )
    return public.hex()
