"""What a package holds, and what may be in one. Pure.

The manifest names every file with its size and digest. Its own bytes are the package's identity: the *digest* of a
package is the SHA-256 of its manifest, and that is what is signed. So the same content has the same digest, whoever
signs it, and nothing can be added to it, taken from it or changed in it without another digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.faults.words import NAME, shown
from headgate.topology_runtime.packages.requirements import faults_of_lines

SCHEMA = "headgate/package/v1"
FILES_MOST = 4096
PACKAGE_MOST_BYTES = 64 * 1024 * 1024  # of all files together
MANIFEST_MOST_BYTES = 1024 * 1024
PATH_MOST_BYTES, NAME_MOST_BYTES, PARTS_MOST = 150, 100, 32  # of a path; of a name in it; how deep
FAULTS_TOLD = 20
DIGEST = re.compile(r"[0-9a-f]{64}")
SHORT = 12  # characters of a digest that people read


class BadPackage(InvalidInput):
    """What was given is no package, not a whole one, or not one that may run here."""

    code = "HG-PACKAGE"


class PackagedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    sha256: str


class PackageManifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """files: in the order of their paths. requirements: the lines of its requirements.txt, each with its hashes.
    headgate, python: of what made it."""

    name: str
    files: tuple[PackagedFile, ...]
    headgate: str
    python: str
    requirements: tuple[str, ...] = ()
    schema: str = SCHEMA

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)


def encoded(manifest: PackageManifest) -> bytes:
    """The one way in which it is written."""
    return msgspec.json.encode(manifest)


def digest_of(data: bytes) -> str:
    """Of a manifest's bytes: the package's."""
    return hashlib.sha256(data).hexdigest()


def manifest_of(data: bytes) -> PackageManifest:
    """Raises BadPackage with every fault."""
    try:
        manifest = msgspec.json.decode(data, type=PackageManifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPackage("the package's manifest cannot be read", cause=str(error)) from error
    found = list(faults_of(manifest))
    if not found and encoded(manifest) != data:
        found = ["it is not written the way headgate writes it"]
    if found:
        raise BadPackage("the package's manifest is not sound", faults=found[:FAULTS_TOLD])
    return manifest


def faults_of(manifest: PackageManifest) -> Iterator[str]:
    """What is wrong with it, one sentence each."""
    if manifest.schema != SCHEMA:
        yield f"schema {shown(manifest.schema)}: this headgate reads {SCHEMA}"
    if not NAME.fullmatch(manifest.name):
        yield f"name {shown(manifest.name)}: names are 1 to 64 of A-Z a-z 0-9 _ . - and not only dots"
    for what, text in (("headgate", manifest.headgate), ("python", manifest.python)):
        if not NAME.fullmatch(text):
            yield f"{what} {shown(text)}: no version"
    if not 0 < len(manifest.files) <= FILES_MOST:
        yield f"{len(manifest.files):,} files: a package has 1 to {FILES_MOST:,}"
    for file in manifest.files:
        if (fault := fault_of_path(file.path)) is not None:
            yield fault
        if not DIGEST.fullmatch(file.sha256) or file.size < 0:
            yield f"{shown(file.path)}: no size and digest of a file"
    yield from _order_faults([file.path for file in manifest.files])
    if manifest.size > PACKAGE_MOST_BYTES:
        yield f"{manifest.size:,} bytes: a package has at most {PACKAGE_MOST_BYTES:,}"
    yield from faults_of_lines(manifest.requirements)


def fault_of_path(path: str) -> str | None:
    """What is wrong with a path inside a package."""
    parts = path.split("/")
    if not path.isprintable() or "\\" in path:
        return f"{shown(path)}: a path has printable characters and no backslash"
    if path.startswith("/") or any(part in ("", ".", "..") for part in parts):
        return f"{shown(path)}: a path leads nowhere but down from the package"
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return f"{shown(path)}: a path is Unicode text"
    if len(path.encode()) > PATH_MOST_BYTES or max(sizes) > NAME_MOST_BYTES or len(parts) > PARTS_MOST:
        most = f"{PATH_MOST_BYTES} bytes, {NAME_MOST_BYTES} of each name and {PARTS_MOST} names"
        return f"{shown(path)}: a path has at most {most}"
    return None


def _order_faults(paths: Sequence[str]) -> Iterator[str]:
    """Ascending, none twice, and no file where another needs a folder."""
    for before, path in pairwise(paths):
        if path <= before:
            yield f"{shown(path)}: it does not come after {shown(before)}"
    files = set(paths)
    for path in paths:
        parts = path.split("/")
        if any("/".join(parts[:n]) in files for n in range(1, len(parts))):
            yield f"{shown(path)}: another file stands where it needs a folder"
