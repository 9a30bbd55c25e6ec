"""From a folder of modules, or a wheel, to a signed package.

The same content gives the same digest: paths are sorted, and times, owners and modes are not kept. What is never
user code stays behind by itself (hidden files, caches, traces); what looks like a secret stays behind and is named;
a link is refused, because what it leads to may be another thing on another host.
"""

from __future__ import annotations

import hashlib
import io
import os
import re
import stat
import sys
import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, cast

import msgspec
from msgspec import UNSET

from headgate.topology_runtime.api.topology import Topology, document_of
from headgate.topology_runtime.packages import package_archive as archive
from headgate.topology_runtime.packages import package_manifest as mf
from headgate.topology_runtime.packages.package_manifest import (
    TOPOLOGY,
    BadPackage,
    PackagedFile,
    PackageManifest,
    signed,
)

SUFFIX = ".package"
REQUIREMENTS = "requirements.txt"
CACHES = ("__pycache__", "node_modules", "traces", "*.egg-info", "*.pyc", f"*{SUFFIX}")
SECRETS = (
    "*.key",
    "*.pem",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "id_rsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "credentials*",
    "secrets.*",
)
PRIVATE_KEY = re.compile(rb"-----BEGIN [A-Z ]*PRIVATE KEY-----")
CHUNK_BYTES = 256 * 1024
Open = Callable[[], BinaryIO]


@dataclass(frozen=True)
class PackageContents:
    """What is to be packed: path → how it is opened. left_out: what stays behind although it might be missed. expires:
    when it is run no more (UTC); "": never."""

    name: str
    files: dict[str, Open]
    left_out: tuple[str, ...] = ()
    expires: str = ""


@dataclass(frozen=True)
class Packed:
    """A package that was written."""

    manifest: PackageManifest
    digest: str
    path: Path
    left_out: tuple[str, ...]


def contents_of(place: Path) -> PackageContents:
    """Of a folder or a wheel. Raises BadPackage with every fault."""
    if place.is_dir():
        if place.resolve() in (Path.home().resolve(), Path("/")):
            hint = "put the modules into a folder of their own"
            raise BadPackage(
                f"{place} is not packed", cause="it holds more than a topology's code", hint=hint
            )
        return _of_folder(place)
    if place.suffix == ".whl" and place.is_file():
        return _of_wheel(place)
    raise BadPackage(f"{place} cannot be packed", cause="it is neither a folder nor a wheel (FILE.whl)")


def build(contents: PackageContents, secret: str, to: Path | None, headgate: str) -> Packed:
    """Write the package, signed with a secret key, by rename; `to` nothing: under its name, here. Raises BadPackage,
    also when files change meanwhile, and OSError."""
    manifest = manifest_of(contents, headgate)
    data = mf.encoded(manifest)
    mf.manifest_of(data)
    signature = signed(data, secret)
    reading = archive.Reading(mf.digest_of(data))
    to = to or Path(f"{contents.name}-{mf.digest_of(data)[: mf.SHORT]}{SUFFIX}")
    new = to.with_name(f".{to.name}.{os.getpid()}.new")
    with ExitStack() as undo:
        undo.callback(new.unlink, missing_ok=True)
        with new.open("wb") as out:
            for part in _parts(manifest, archive.head(data, signature), contents.files):
                reading.feed(part)
                out.write(part)
            reading.end()
            out.flush()
            os.fsync(out.fileno())
        os.replace(new, to)
        undo.pop_all()
    return Packed(manifest, mf.digest_of(data), to, contents.left_out)


def manifest_of(contents: PackageContents, headgate: str) -> PackageManifest:
    """Reads every file once. Raises BadPackage."""
    total, files = 0, []
    for path in sorted(contents.files):
        hashed, size = hashlib.sha256(), 0
        for part in _read(path, contents.files[path]):
            hashed.update(part)
            size += len(part)
            if total + size > mf.PACKAGE_MOST_BYTES:
                raise BadPackage(
                    f"{contents.name} is too large for a package",
                    cause=f"more than {mf.PACKAGE_MOST_BYTES:,} bytes, with {path}",
                    hint="data that tasks read belongs beside the code: on each host, or in a service",
                )
        total += size
        files.append(PackagedFile(path, size, hashed.hexdigest()))
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    requirements = _requirements(contents)
    expires = contents.expires or UNSET
    return PackageManifest(contents.name, tuple(files), headgate, python, requirements, expires)


def _parts(manifest: PackageManifest, head: bytes, files: dict[str, Open]) -> Iterator[bytes]:
    yield head
    for file in manifest.files:
        yield archive.header(archive.CODE + file.path, file.size)
        yield from _read(file.path, files[file.path])
        yield archive.padding(file.size)
    yield archive.END


def _read(path: str, opened: Open) -> Iterator[bytes]:
    try:
        with opened() as file:
            while part := file.read(CHUNK_BYTES):
                yield part
    except (OSError, zipfile.BadZipFile) as error:
        raise BadPackage(f"{path} cannot be read", cause=str(error)) from error


def _requirements(contents: PackageContents) -> tuple[str, ...]:
    """The lines of requirements.txt, those that go on put together, comments left out."""
    if REQUIREMENTS not in contents.files:
        return ()
    data = b"".join(_read(REQUIREMENTS, contents.files[REQUIREMENTS]))
    text = data.decode("utf-8", "replace").replace("\\\n", " ")
    lines = (" ".join(line.partition("#")[0].split()) for line in text.splitlines())
    return tuple(line for line in lines if line)


def with_topology(contents: PackageContents, topology: Topology) -> PackageContents:
    """The topology beside its code. Raises BadPackage when something of that name is there."""
    if TOPOLOGY in contents.files:
        raise BadPackage(f"{contents.name} holds a {TOPOLOGY} already")
    data = msgspec.json.encode(document_of(topology))
    return replace(contents, files={**contents.files, TOPOLOGY: lambda: io.BytesIO(data)})


# ── what is packed ──────────────────────────────────────────────────────────────────────────────


def named(place: Path) -> str:
    """A package's name: the folder's, or the wheel's."""
    stem = place.resolve().name if place.is_dir() else place.name.partition("-")[0]
    return re.sub(r"[^A-Za-z0-9_.-]+", "-", stem).strip("-.")[:64] or "code"


def _of_folder(folder: Path) -> PackageContents:
    files: dict[str, Open] = {}
    left_out, faults = [], []
    for path, entry in _walk(folder, ""):
        if entry.is_symlink():
            faults.append(f"{path} is a link to {os.readlink(entry.path)}: put the file itself there")
        elif not entry.is_file(follow_symlinks=False):
            faults.append(f"{path} is neither a file nor a folder")
        elif any(fnmatch(entry.name, pattern) for pattern in SECRETS) or _holds_a_key(entry.path):
            left_out.append(f"{path}: it looks like a secret")
        else:
            files[path] = _opened(entry.path)
        if len(files) > mf.FILES_MOST:
            raise BadPackage(
                f"{folder} has too many files for a package", cause=f"more than {mf.FILES_MOST:,}"
            )
    if faults:
        raise BadPackage(f"{folder} cannot be packed", faults=faults[: mf.FAULTS_TOLD])
    if not files:
        raise BadPackage(f"{folder} cannot be packed", cause="there is nothing in it")
    return PackageContents(named(folder), files, tuple(left_out))


def _walk(folder: Path, above: str) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Whatever is no folder, with its path inside the package."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        raise BadPackage(f"{folder} cannot be read", cause=error.strerror) from error
    for entry in entries:
        if entry.name.startswith(".") or any(fnmatch(entry.name, pattern) for pattern in CACHES):
            continue
        if not entry.is_dir(follow_symlinks=False):
            yield above + entry.name, entry
        elif not os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
            yield from _walk(Path(entry.path), f"{above}{entry.name}/")


def _opened(path: str) -> Open:
    """The file itself, never what a link leads to that took its place."""

    def opened() -> BinaryIO:
        return os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb")

    return opened


def _holds_a_key(path: str) -> bool:
    try:
        with _opened(path)() as file:
            return PRIVATE_KEY.search(file.read(CHUNK_BYTES)) is not None
    except OSError as error:
        raise BadPackage(f"{path} cannot be read", cause=error.strerror) from error


def _of_wheel(wheel: Path) -> PackageContents:
    """What pip would unpack beside other modules; scripts and data, which go elsewhere, are refused."""
    files: dict[str, Open] = {}
    faults = []
    try:
        whole = zipfile.ZipFile(wheel)
        entries = [entry for entry in whole.infolist() if not entry.is_dir()]
    except (OSError, zipfile.BadZipFile) as error:
        raise BadPackage(f"{wheel} cannot be read", cause=str(error)) from error
    for entry in entries:
        if stat.S_ISLNK(entry.external_attr >> 16):
            faults.append(f"{entry.filename} is a link")
        elif entry.filename.partition("/")[0].endswith(".data"):
            faults.append(
                f"{entry.filename}: a wheel that puts files elsewhere cannot be imported from a folder"
            )
        elif entry.filename in files:
            faults.append(f"{entry.filename} is there twice")
        elif (fault := mf.fault_of_path(entry.filename)) is not None:
            faults.append(fault)
        elif not entry.filename.endswith(".pyc"):
            files[entry.filename] = _opened_in(whole, entry)
    if faults or not files:
        raise BadPackage(
            f"{wheel} cannot be packed", faults=(faults or ["there is nothing in it"])[: mf.FAULTS_TOLD]
        )
    return PackageContents(named(wheel), files)


def _opened_in(whole: zipfile.ZipFile, entry: zipfile.ZipInfo) -> Open:
    return lambda: cast(BinaryIO, whole.open(entry))
