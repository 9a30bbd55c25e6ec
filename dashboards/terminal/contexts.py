"""Which controllers somebody works with: names for an address and a key, and the one in use. One file, his alone."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.keys.keyring import KeyFile, keep_whole, read_whole
from headgate.topology_runtime.keys.pairs import Contact
from headgate.topology_runtime.settings_folder import settings_folder

SCHEMA = "headgate/contexts/v1"


class KnownController(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A controller and the key to speak to it with."""

    address: str
    key: KeyFile

    def contact(self) -> Contact:
        return self.key.contact(self.address)


class ContextsFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    use: str = ""
    contexts: dict[str, KnownController] = {}
    schema: str = SCHEMA


def path() -> Path:
    """`HEADGATE_CONTEXTS`, or where a user's settings are."""
    told = os.environ.get("HEADGATE_CONTEXTS")
    return Path(told) if told else settings_folder() / "contexts.json"


def read() -> ContextsFile:
    """Raises InvalidInput when it is no such file, or others may read it."""
    return read_whole(path(), ContextsFile) if path().exists() else ContextsFile()


def write(whole: ContextsFile) -> None:
    """Raises InvalidInput when the disk does not take it."""
    try:
        path().parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        keep_whole(path(), whole)
    except OSError as error:
        raise InvalidInput(f"{path()} cannot be written", cause=error.strerror) from error


def remember(name: str, known: KnownController) -> None:
    """Under this name, and in use from now on. Raises InvalidInput."""
    whole = read()
    if whole.use != name or whole.contexts.get(name) != known:
        write(ContextsFile(name, {**whole.contexts, name: known}))


def forget(name: str) -> None:
    """Raises InvalidInput."""
    whole = read()
    if name in whole.contexts:
        rest = {other: one for other, one in whole.contexts.items() if other != name}
        write(ContextsFile("" if whole.use == name else whole.use, rest))


def contexts() -> dict[str, KnownController]:
    return read().contexts


def named(name: str) -> KnownController | None:
    return contexts().get(name)


def in_use() -> KnownController | None:
    whole = read()
    return whole.contexts.get(whole.use)
