"""What only a passphrase opens: bytes under AES-256-GCM, with a key that scrypt makes of it.

    MAGIC, 16 bytes of salt, then parts of 1 MiB, each with its own tag

The nonce of a part is its number, and whether it is the last: none can be changed, moved, left out or cut off unseen.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from headgate.topology_runtime.errors import InvalidInput, UsageError

MAGIC = b"headgate/locked/v1\n"
SALT_BYTES, TAG_BYTES, PART_BYTES = 16, 16, 1 << 20
COST, BLOCKS, LANES = 1 << 15, 8, 3  # of scrypt: 32 MiB, as OWASP advises
LEAST = 8  # characters of a new one
FILE = "HEADGATE_PASSPHRASE_FILE"  # names the file whose first line it is
FILE_MOST_BYTES = 4096

Ask = Callable[[str], str]  # what for → the passphrase


def locked(parts: Iterable[bytes], passphrase: str) -> Iterator[bytes]:
    """These bytes, so that only the passphrase opens them."""
    salt = os.urandom(SALT_BYTES)
    cipher, number, waiting = _cipher(passphrase, salt), 0, bytearray()
    yield MAGIC + salt
    for part in parts:
        waiting += part
        while len(waiting) > PART_BYTES:
            yield cipher.encrypt(_nonce(number, last=False), bytes(waiting[:PART_BYTES]), None)
            number += 1
            del waiting[:PART_BYTES]
    yield cipher.encrypt(_nonce(number, last=True), bytes(waiting), None)


def opened(file: BinaryIO, passphrase: str, name: str) -> Iterator[bytes]:
    """What was locked, from behind MAGIC on; nothing of a part before all of it is known to be sound. Raises
    InvalidInput."""
    from cryptography.exceptions import InvalidTag

    cipher = _cipher(passphrase, file.read(SALT_BYTES))
    read, number = partial(file.read, PART_BYTES + TAG_BYTES), 0
    part = read()
    while part:
        after = read()
        try:
            yield cipher.decrypt(_nonce(number, last=not after), part, None)
        except InvalidTag as error:
            cause = (
                "it is another one, or the file was changed" if number == 0 else "the file was changed or cut"
            )
            hint = f"it is asked for, or the first line of {FILE}=FILE"
            raise InvalidInput(f"the passphrase does not open {name}", cause=cause, hint=hint) from error
        part, number = after, number + 1
    if not number:
        raise InvalidInput(f"{name} is cut short", cause="there is nothing behind its head")


def lock(data: bytes, passphrase: str) -> bytes:
    return b"".join(locked([data], passphrase))


def unlock(data: bytes, passphrase: str, name: str) -> bytes:
    """Raises InvalidInput."""
    if not data.startswith(MAGIC):
        raise InvalidInput(f"{name} is not locked as headgate locks", cause="it begins otherwise")
    return b"".join(opened(io.BytesIO(data[len(MAGIC) :]), passphrase, name))


def _cipher(passphrase: str, salt: bytes) -> Any:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return AESGCM(Scrypt(salt, 32, COST, BLOCKS, LANES).derive(passphrase.encode()))


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])


# ── where one comes from: the file that is named, or whoever sits at the terminal; never a command line ─


def asked(what: str) -> str:
    """The passphrase of what is there. Raises InvalidInput, UsageError."""
    return _of_file() or _of_terminal(f"Passphrase of {what}", what, twice=False)


def chosen(what: str) -> str:
    """A new one, "" for none. Raises InvalidInput, UsageError."""
    found = _of_file() or _of_terminal(f"New passphrase of {what} (empty: none)", what, twice=True)
    if found and len(found) < LEAST:
        raise InvalidInput(f"the passphrase of {what} is short", cause=f"it has less than {LEAST} characters")
    return found


def _of_file() -> str:
    if (named := os.environ.get(FILE)) is None:
        return ""
    path = Path(named)
    try:
        if path.stat().st_mode & 0o077:
            raise InvalidInput(f"others may read {path}", hint=f"chmod 600 {path}")
        with path.open("rb") as file:
            text = file.read(FILE_MOST_BYTES).decode("utf-8").partition("\n")[0].rstrip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"the passphrase cannot be read from {path}", cause=str(error)) from error
    if not text:
        raise InvalidInput(f"there is no passphrase in {path}", cause="its first line is empty")
    return text


def _of_terminal(prompt: str, what: str, twice: bool) -> str:
    import sys

    if not sys.stdin.isatty():
        hint = f"{FILE}=FILE, whose first line it is, or a terminal"
        raise UsageError(f"no passphrase for {what}", cause="nobody can be asked", hint=hint)
    import click

    found: str = click.prompt(
        prompt, hide_input=True, confirmation_prompt=twice, err=True, default="" if twice else None, show_default=False
    )  # fmt: skip
    return found
