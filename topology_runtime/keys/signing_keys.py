"""Keys that sign packages, as files: the secret one is its owner's alone, the public one goes to every host.

signing.key   headgate/signing-key/v1, 0600: whoever has it can have any code run on hosts that trust it; with a
                  passphrase, whoever has both
signing.pub   headgate/signer/v1: whose packages a host runs (`headgate agent run --trust-signer FILE`;
                  in a folder of `headgate keys` the keys of agents name it)
"""

from __future__ import annotations

import getpass
import secrets
from pathlib import Path

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.errors import Conflict, HeadgateError, InvalidInput
from headgate.topology_runtime.keys.key_files import keep_whole, read_whole
from headgate.topology_runtime.keys.passphrases import Ask, asked, lock, unlock
from headgate.topology_runtime.packages.package_manifest import KEY, public_of
from headgate.topology_runtime.wording import name_faults

KEY_SCHEMA, SIGNER_SCHEMA = "headgate/signing-key/v1", "headgate/signer/v1"
SECRET, PUBLIC = "signing.key", "signing.pub"


class SigningKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Both halves in hexadecimal digits; what prints it prints its public half."""

    name: str
    public: str
    secret: str = ""
    locked: str = ""  # the secret half, under a passphrase
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


def make(folder: Path, name: str, passphrase: str = "") -> Path:
    """A new key in this folder; the file of its public half. Raises Conflict when there is one, InvalidInput."""
    if faults := list(name_faults("--name", name)):
        raise InvalidInput("there is no such name of a signer", faults=faults)
    secret = secrets.token_hex(32)
    key = _under(SigningKey(name, public_of(secret), secret), passphrase)
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_whole(folder / SECRET, key, over=False)
        keep_whole(folder / PUBLIC, Signer(name, key.public), 0o644)
    except FileExistsError as error:
        hint = f"its public half: {folder / PUBLIC}"
        raise Conflict(f"{folder} holds a signing key already", hint=hint) from error
    except OSError as error:
        raise InvalidInput(f"no key can be written to {folder}", cause=error.strerror) from error
    return folder / PUBLIC


def read_key(path: Path, ask: Ask = asked) -> SigningKey:
    """ask: for its passphrase, if it has one. Raises InvalidInput when it is none, or others may read it."""
    key = read_whole(path, SigningKey, hint="`headgate package key init` makes one")
    if key.locked and not key.secret:
        try:
            data = bytes.fromhex(key.locked)
        except ValueError as error:
            raise InvalidInput(f"{path} is no signing key", cause=str(error)) from error
        key = replace(key, secret=unlock(data, ask(str(path)), str(path)).decode("ascii"), locked="")
    if not KEY.fullmatch(key.secret) or key.public != public_of(key.secret):
        raise InvalidInput(f"{path} is no signing key", cause="its halves do not belong together")
    return key


def lock_key(path: Path, key: SigningKey, passphrase: str) -> None:
    """Keep it there under this passphrase; "": under none. Raises InvalidInput; then the file is as it was."""
    try:
        keep_whole(path, _under(key, passphrase))
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written", cause=error.strerror) from error


def _under(key: SigningKey, passphrase: str) -> SigningKey:
    """As it stands in its file."""
    if not passphrase:
        return key
    return replace(key, secret="", locked=lock(key.secret.encode("ascii"), passphrase).hex())


def read_signer(path: Path) -> Signer:
    """Raises InvalidInput."""
    signer = read_whole(path, Signer, private=False)
    if not KEY.fullmatch(signer.public):
        raise InvalidInput(f"{path} is no signer's public key", cause="64 hexadecimal digits are one")
    return signer
