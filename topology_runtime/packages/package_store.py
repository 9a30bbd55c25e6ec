"""Packages on disk, versions side by side: `STORE/DIGEST/`, each there as a whole or not at all.

    DIGEST/package.tar   as it came
    DIGEST/code/…        its files, unpacked, if this store unpacks
    parts/DIGEST         one that is still coming; it goes on where it stopped, also after a restart

A package gets its name by a rename, when every byte of it was checked and is on the disk. Nothing else is ever read
under that name: once in the life of whoever uses it, it is checked again, and what is damaged goes and is fetched anew.
One process has a store to itself, by a lock.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import BinaryIO, NamedTuple

from headgate.topology_runtime.errors import Conflict
from headgate.topology_runtime.packages import package_archive as archive
from headgate.topology_runtime.packages.package_archive import Reading
from headgate.topology_runtime.packages.package_manifest import DIGEST, BadPackage, PackageManifest
from headgate.topology_runtime.platform.disk import sync_directory

PACKAGE, CODE, PARTS, NEW = "package.tar", "code", "parts", "new-"
KEPT_MOST, KEPT_NS = 8, 30 * 24 * 3600 * 1_000_000_000  # packages that nobody uses
PARTS_MOST = 4  # that are coming at once …
IDLE_NS = 60 * 1_000_000_000  # … and of which something has come in this time
READ_BYTES = 256 * 1024


class IncomingPackage(NamedTuple):
    file: BinaryIO
    reading: Reading


class PackageStore:
    """The folder; made when it is not there. unpacks: for whoever imports from it. Raises Conflict, OSError."""

    def __init__(self, folder: Path, unpacks: bool) -> None:
        self.folder, self._unpacks = folder, unpacks
        self._sound: dict[str, PackageManifest] = {}
        self._coming: dict[str, IncomingPackage] = {}
        if not folder.exists():
            folder.mkdir(parents=True, exist_ok=True)
            folder.chmod(0o711)  # who is to read a package knows its digest
        (folder / PARTS).mkdir(mode=0o700, exist_ok=True)
        self._lock = os.open(folder / PARTS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            hint = "give each agent a folder of its own: --set packages=DIR"
            raise Conflict(f"another process uses the packages in {folder}", hint=hint) from error
        for left in folder.glob(f"{NEW}*"):  # of a process that ended meanwhile
            shutil.rmtree(left)

    def close(self) -> None:
        for coming in self._coming.values():
            coming.file.close()
        self._coming.clear()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    # ── what is here ────────────────────────────────────────────────────────────────────────────

    def manifest(self, digest: str) -> PackageManifest | None:
        """Of a package that is here and sound. Raises OSError."""
        if digest not in self._sound and DIGEST.fullmatch(digest) and (self.folder / digest).is_dir():
            reading = self._checked(digest)
            if reading is None:
                shutil.rmtree(self.folder / digest)
            elif reading.manifest is not None:
                self._sound[digest] = reading.manifest
        return self._sound.get(digest)

    def signer(self, digest: str) -> str:
        """Whose key signed a package that is here. Raises OSError."""
        reading = Reading(digest)
        with (self.folder / digest / PACKAGE).open("rb") as file:
            while reading.signature is None and (part := file.read(READ_BYTES)):
                reading.feed(part)
        return reading.signature.signer if reading.signature is not None else ""

    def code(self, digest: str) -> Path:
        return (self.folder / digest / CODE).absolute()

    def size(self, digest: str) -> int:
        return (self.folder / digest / PACKAGE).stat().st_size

    def read(self, digest: str, offset: int, most: int) -> bytes:
        """Some of a package that is here. Raises OSError."""
        with (self.folder / digest / PACKAGE).open("rb") as file:
            return os.pread(file.fileno(), most, offset)

    def used(self, digest: str) -> None:
        """Somebody runs it now. Raises OSError."""
        os.utime(self.folder / digest)

    def _checked(self, digest: str) -> Reading | None:
        """It is read once; files that the manifest does not name (what Python compiled) go. None: it is damaged."""
        reading = Reading(digest)
        try:
            with (self.folder / digest / PACKAGE).open("rb") as file:
                while part := file.read(READ_BYTES):
                    reading.feed(part)
            reading.end()
        except (BadPackage, FileNotFoundError):
            return None
        assert reading.manifest is not None
        return reading if not self._unpacks or _as_named(reading.manifest, self.code(digest)) else None

    # ── what comes ──────────────────────────────────────────────────────────────────────────────

    def taken(self, digest: str) -> int:
        """How much of it has come. Raises Conflict when too many come at once, OSError."""
        return self._part(digest).reading.taken

    def coming(self, digest: str) -> Reading:
        """What is known of it so far. Raises Conflict, OSError."""
        return self._part(digest).reading

    def add(self, digest: str, offset: int, data: bytes) -> bool:
        """The next bytes of it; True when it is whole and here. Bytes that are here already, or come too early, change
        nothing; with all of them here and no name yet, as after a full disk, the last step is tried again.

        Raises BadPackage, then all of it is gone; Conflict; OSError."""
        coming = self._part(digest)
        try:
            if not coming.reading.whole:
                if offset != coming.reading.taken:
                    return False
                coming.reading.feed(data)
                _write(coming.file, data)
            if coming.reading.whole:
                self._settle(digest, coming)
        except BadPackage:
            self.forget(digest)
            raise
        except OSError:
            self._leave(digest)  # what is on the disk is read again
            raise
        return coming.reading.whole

    def forget(self, digest: str) -> None:
        """What has come of it goes."""
        self._leave(digest)
        (self.folder / PARTS / digest).unlink(missing_ok=True)

    def _leave(self, digest: str) -> None:
        if (coming := self._coming.pop(digest, None)) is not None:
            coming.file.close()

    def _part(self, digest: str) -> IncomingPackage:
        if digest not in self._coming:
            if not DIGEST.fullmatch(digest):
                raise BadPackage("a package is named by its digest", cause="64 hexadecimal digits")
            self._make_room(digest)
            self._coming[digest] = self._taken_up(digest)
        return self._coming[digest]

    def _make_room(self, digest: str) -> None:
        """For one more that comes: one of which nothing has come for a while makes way."""
        others = [part for part in (self.folder / PARTS).iterdir() if part.name != digest]
        if len(others) < PARTS_MOST:
            return
        oldest = min(others, key=lambda part: part.stat().st_mtime_ns)
        if time.time_ns() - oldest.stat().st_mtime_ns < IDLE_NS:
            raise Conflict(
                f"{PARTS_MOST} packages are coming already", hint="wait until one of them is there"
            )
        self.forget(oldest.name)

    def _taken_up(self, digest: str) -> IncomingPackage:
        """What came in an earlier life, as far as it is sound."""
        path, reading = self.folder / PARTS / digest, Reading(digest)
        file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), "r+b", buffering=0)
        try:
            while part := file.read(READ_BYTES):
                reading.feed(part)
        except BadPackage:
            reading = Reading(digest)
        file.seek(reading.taken)
        file.truncate()
        return IncomingPackage(file, reading)

    def _settle(self, digest: str, coming: IncomingPackage) -> None:
        """The archive onto the disk, then the name."""
        manifest, new = coming.reading.manifest, self.folder / f"{NEW}{digest}"
        assert manifest is not None
        os.fsync(coming.file.fileno())
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o755)
        if self._unpacks:
            new.chmod(0o755)
            _unpack(coming, new / CODE)
        os.replace(self.folder / PARTS / digest, new / PACKAGE)
        self._leave(digest)
        sync_directory(new)
        shutil.rmtree(self.folder / digest, ignore_errors=True)
        os.replace(new, self.folder / digest)
        sync_directory(self.folder)
        self._sound[digest] = manifest

    # ── what goes ───────────────────────────────────────────────────────────────────────────────

    def collect(self, kept: AbstractSet[str]) -> list[str]:
        """Packages that nobody has used for long, or that are too many, go; never one that is `kept`. Those that
        went. Raises OSError."""
        used = sorted(
            (
                (path.stat().st_mtime_ns, path.name)
                for path in self.folder.iterdir()
                if DIGEST.fullmatch(path.name)
            ),
            reverse=True,
        )
        spare = [(at_ns, digest) for at_ns, digest in used if digest not in kept]
        gone = [
            digest
            for n, (at_ns, digest) in enumerate(spare)
            if n >= KEPT_MOST or time.time_ns() - at_ns > KEPT_NS
        ]
        for digest in gone:
            self._sound.pop(digest, None)
            doomed = self.folder / f"{NEW}{digest}"  # by rename: half of it is never seen under its name
            os.replace(self.folder / digest, doomed)
            shutil.rmtree(doomed)
        for part in (self.folder / PARTS).iterdir():
            if part.name not in self._coming and time.time_ns() - part.stat().st_mtime_ns > KEPT_NS:
                part.unlink()
        return gone


def _write(file: BinaryIO, data: bytes) -> None:
    """All of it: a raw write may be short. Raises OSError."""
    view = memoryview(data)
    while view:
        view = view[file.write(view) :]


def _unpack(coming: IncomingPackage, folder: Path) -> None:
    """The files where they belong. Whether all of them outlived a power cut, the check of the next life tells. Raises
    OSError."""
    folder.mkdir()
    for file, at in archive.places(coming.reading.manifest_bytes, coming.reading.signature_bytes):
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444), "wb") as out:
            for start in range(at, at + file.size, READ_BYTES):
                out.write(os.pread(coming.file.fileno(), min(READ_BYTES, at + file.size - start), start))
    open_to_readers(folder)


def open_to_readers(folder: Path) -> None:
    """Whoever comes as far as this folder may read all that is in it, however private what its agent makes is: workers
    may be of another user. Raises OSError."""
    for above, _, names in os.walk(folder):
        for path in (above, *(os.path.join(above, name) for name in names)):
            if not os.path.islink(path):
                os.chmod(path, os.stat(path).st_mode & 0o777 | (0o555 if path == above else 0o444))


def _as_named(manifest: PackageManifest, folder: Path) -> bool:
    """Are all files there and as the manifest says? Others go."""
    expected = {file.path: file for file in manifest.files}
    for above, folders, names in os.walk(folder, topdown=False):
        for name in names:
            path = Path(above, name)
            file = expected.pop(path.relative_to(folder).as_posix(), None)
            if file is None:
                path.unlink()
            elif path.is_symlink() or _sha256(path) != file.sha256:
                return False
        for name in folders:
            path = Path(above, name)
            if path.is_symlink():
                path.unlink()
            elif not any(path.iterdir()):
                path.rmdir()
    return not expected


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
