"""Keys that sign packages, as files: the secret one is its owner's alone, the public one goes to every host.

signing.key   headgate/signing-key/v1, 0600: whoever has it can have any code run on hosts that trust it
signing.pub   headgate/signer/v1: whose packages a host runs (`headgate agent run --trust-signer FILE`;
                  in a folder of `headgate keys` the keys of agents name it)
"""

from __future__ import annotations

import getpass
import os
import secrets
from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.faults.words import name_faults
from headgate.topology_runtime.packages.signing import KEY, public_of

KEY_SCHEMA, SIGNER_SCHEMA = "headgate/signing-key/v1", "headgate/signer/v1"
SECRET, PUBLIC = "signing.key", "signing.pub"
FILE_MOST_BYTES = 16 * 1024

T = TypeVar("T")


class SigningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both halves in hexadecimal digits; what prints it prints its public half."""

    name: str
    public: str
    secret: str
    schema: str = KEY_SCHEMA

    def __repr__(self) -> str:
        return f"SigningKey({self.name} {self.public!r})"


class Signer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Somebody whose packages are run."""

    name: str
    public: str
    schema: str = SIGNER_SCHEMA


def own_name() -> str:
    """The name of whoever runs this. Raises HeadgateError."""
    try:
        return getpass.getuser()
    except (OSError, KeyError) as error:
        raise HeadgateError("nobody knows who you are", cause=str(error), hint="--name NAME") from error


def make(folder: Path, name: str) -> Path:
    """A new key in this folder; the file of its public half. Raises Conflict when there is one, InvalidInput."""
    if faults := list(name_faults("--name", name)):
        raise InvalidInput("there is no such name of a signer", faults=faults)
    secret = secrets.token_hex(32)
    key = SigningKey(name, public_of(secret), secret)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / SECRET, key, 0o600)
        (folder / PUBLIC).unlink(missing_ok=True)  # of a secret half that is no more
        _write(folder / PUBLIC, Signer(name, key.public), 0o644)
    except FileExistsError as error:
        hint = f"its public half: {folder / PUBLIC}"
        raise Conflict(f"{folder} holds a signing key already", hint=hint) from error
    except OSError as error:
        raise InvalidInput(f"no key can be written to {folder}", cause=error.strerror) from error
    return folder / PUBLIC


def _write(path: Path, what: msgspec.Struct, mode: int) -> None:
    """Never over another one; never half of it. Raises OSError."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(what), indent=1) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(new, path)
    finally:
        new.unlink()


def read_key(path: Path) -> SigningKey:
    """Raises InvalidInput when it is none, or others may read it."""
    try:
        shared = path.stat().st_mode & 0o077
    except OSError as error:
        hint = "`headgate package key init` makes one"
        raise InvalidInput(
            f"the signing key {path} cannot be read", cause=error.strerror, hint=hint
        ) from error
    if shared:
        raise InvalidInput(f"others may read the signing key {path}", hint=f"chmod 600 {path}")
    key = _read(path, SigningKey, KEY_SCHEMA)
    if not KEY.fullmatch(key.secret) or key.public != public_of(key.secret):
        raise InvalidInput(f"{path} is no signing key", cause="its halves do not belong together")
    return key


def read_signer(path: Path) -> Signer:
    """Raises InvalidInput."""
    signer = _read(path, Signer, SIGNER_SCHEMA)
    if not KEY.fullmatch(signer.public):
        raise InvalidInput(f"{path} is no signer's public key", cause="64 hexadecimal digits are one")
    return signer


def _read(path: Path, kind: type[T], schema: str) -> T:
    try:
        if path.stat().st_size > FILE_MOST_BYTES:
            raise InvalidInput(f"{path} is no key", cause=f"more than {FILE_MOST_BYTES:,} bytes")
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", cause=error.strerror) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no {schema}", cause=str(error)) from error
    if getattr(found, "schema", "") != schema:
        raise InvalidInput(f"{path} is no {schema}", cause=f"its schema is {getattr(found, 'schema', '')!r}")
    return found
