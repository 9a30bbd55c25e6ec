"""A package as bytes: the one tar archive that its manifest determines. Pure.

    manifest.json    what is in it (package_manifest.py)
    signature.json   whose key signed the manifest (signing_keys.py)
    code/PATH …      every file of the manifest, in its order

Nothing of an archive is interpreted but its manifest: all other bytes are compared with those that the manifest asks
for. So there are no links, owners, times, modes, second names or extensions that somebody could hide something in;
`tar` reads what comes out all the same.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections.abc import Generator, Iterator
from typing import NoReturn

from headgate.topology_runtime.packages.package_manifest import (
    MANIFEST_MOST_BYTES,
    SIGNATURE_MOST_BYTES,
    BadPackage,
    PackagedFile,
    PackageManifest,
    Signature,
    digest_of,
    manifest_of,
    signature_of,
)
from headgate.topology_runtime.wording import shown

MANIFEST, SIGNATURE, CODE = "manifest.json", "signature.json", "code/"
BLOCK = 512
END = bytes(2 * BLOCK)
_SIZE = slice(124, 136)  # of a header: the member's size in octal digits

Steps = Generator[int, memoryview, None]


def header(name: str, size: int) -> bytes:
    """Of one member: a plain file that belongs to nobody and has no time."""
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o644
    return member.tobuf(tarfile.USTAR_FORMAT, "utf-8", "strict")


def padding(size: int) -> bytes:
    return bytes(-size % BLOCK)


def head(manifest: bytes, signature: bytes) -> bytes:
    """The archive up to its files."""
    parts = ((MANIFEST, manifest), (SIGNATURE, signature))
    return b"".join(header(name, len(data)) + data + padding(len(data)) for name, data in parts)


def places(manifest: bytes, signature: bytes) -> Iterator[tuple[PackagedFile, int]]:
    """Every file, and where in the archive it begins."""
    at = len(head(manifest, signature))
    for file in manifest_of(manifest).files:
        yield file, at + BLOCK
        at += BLOCK + file.size + len(padding(file.size))


class Reading:
    """Takes the bytes of a package in order, in parts of any size, and stops at the first that cannot be there.

    digest: of the package that it must be. whole: there was all of it, and nothing else. manifest, signature: known
    as soon as they were read; nothing is said here of whose signature is good enough."""

    def __init__(self, digest: str | None = None) -> None:
        self.digest = digest
        self.taken = 0
        self.manifest: PackageManifest | None = None
        self.manifest_bytes = self.signature_bytes = b""
        self.signature: Signature | None = None
        self.whole = False
        self._wrong: BadPackage | None = None
        self._steps = self._walk()
        self._desired = next(self._steps)

    def feed(self, data: bytes | memoryview) -> None:
        """Raises BadPackage; what comes after that is refused too."""
        view = memoryview(data)
        while view:
            if self._wrong is not None:
                raise self._wrong
            part, view = view[: self._desired], view[self._desired :]
            self.taken += len(part)
            try:
                self._take(part)
            except BadPackage as error:
                self._wrong, self.whole = error, False
                raise

    def _take(self, part: memoryview) -> None:
        if self.whole:
            raise BadPackage(
                "there is more than the package", cause=f"after {self.taken - len(part):,} bytes"
            )
        try:
            self._desired = self._steps.send(part)
        except StopIteration:
            self.whole = True

    def end(self) -> None:
        """There is no more. Raises BadPackage when it is not whole."""
        if not self.whole:
            cause = f"it ends after {self.taken:,} bytes"
            raise BadPackage("the package is cut short", cause=cause, hint="copy it, or pack it, once more")

    def _walk(self) -> Steps:
        self.manifest_bytes = yield from self._member(MANIFEST, MANIFEST_MOST_BYTES)
        found = digest_of(self.manifest_bytes)
        if self.digest is not None and found != self.digest:
            raise BadPackage("it is another package", cause=f"its digest is {found}, not {self.digest}")
        self.digest, manifest = found, manifest_of(self.manifest_bytes)
        self.manifest = manifest
        self.signature_bytes = yield from self._member(SIGNATURE, SIGNATURE_MOST_BYTES)
        self.signature = signature_of(self.signature_bytes)
        self.signature.check(self.manifest_bytes)
        for file in manifest.files:
            name = CODE + file.path
            yield from _same(header(name, file.size), name)
            yield from self._content(file)
            yield from _same(padding(file.size), name)
        yield from _same(END, "the end")

    def _member(self, name: str, most: int) -> Generator[int, memoryview, bytes]:
        """The content of a member whose size is known from its header alone."""
        found = yield from _exactly(BLOCK)
        try:
            size = int(found[_SIZE].rstrip(b"\0 ") or b"x", 8)
        except ValueError:
            size = -1
        if not 0 <= size <= most or found != header(name, size):
            if name == SIGNATURE:
                hint = "`headgate package build` signs what it packs"
                raise BadPackage("the package has no signature", cause="its manifest stands alone", hint=hint)
            _wrong("it is no package of headgate", f"it does not begin with {name}")
        data = yield from _exactly(size)
        yield from _same(padding(size), name)
        return data

    def _content(self, file: PackagedFile) -> Steps:
        hashed, left = hashlib.sha256(), file.size
        while left:
            part = yield left
            hashed.update(part)
            left -= len(part)
        if hashed.hexdigest() != file.sha256:
            _wrong(f"{shown(file.path)} is not the file that its manifest names", "its digest differs")


def _exactly(size: int) -> Generator[int, memoryview, bytes]:
    found = bytearray()
    while len(found) < size:
        part = yield size - len(found)
        found += part
    return bytes(found)


def _same(expected: bytes, where: str) -> Steps:
    found = yield from _exactly(len(expected))
    if found != expected:
        _wrong("the package is not written the way headgate writes it", f"at {shown(where)}")


def _wrong(what: str, cause: str) -> NoReturn:
    raise BadPackage(what, cause=cause)
