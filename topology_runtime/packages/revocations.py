"""Packages that are not to be run any more: each said so by a signer, and kept on disk by whoever heard it.

What was said is never taken back: a list only grows, and who has been told once needs nobody to tell it again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from headgate.topology_runtime.keys.key_files import keep_whole, read_whole
from headgate.topology_runtime.packages.package_manifest import BadPackage, Revocation

LIST_SCHEMA = "headgate/revocations/v1"
FILE = "revoked.json"  # beside the packages
MOST = 1024


class RevocationsFile(msgspec.Struct, frozen=True):
    revoked: tuple[Revocation, ...] = ()
    schema: str = LIST_SCHEMA


class Revocations:
    """Those in a file that is made with the first. Raises InvalidInput when it cannot be read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        found = read_whole(path, RevocationsFile, private=False).revoked if path.exists() else ()
        self._all = {one.package: one for one in found}

    def of(self, digest: str) -> Revocation | None:
        return self._all.get(digest)

    def __iter__(self) -> Iterator[Revocation]:
        return iter(tuple(self._all.values()))

    def add(self, one: Revocation) -> bool:
        """Once its signature was found good; True when it is new. Raises BadPackage, OSError."""
        one.check()
        if one.package in self._all:
            return False
        if len(self._all) >= MOST:
            raise BadPackage(
                "no more packages can be revoked", cause=f"{MOST:,} are", hint="change the signing key"
            )
        after = {**self._all, one.package: one}
        self._path.parent.mkdir(mode=0o711, parents=True, exist_ok=True)
        keep_whole(self._path, RevocationsFile(tuple(after.values())), 0o644)
        self._all = after
        return True

    def refuse(self, digest: str) -> None:
        """Raises BadPackage for one that is revoked."""
        if (one := self.of(digest)) is not None:
            raise BadPackage(
                one.words, cause="it is not run any more", hint="build and sign what shall take its place"
            )
