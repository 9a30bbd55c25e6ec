"""Packages made for tests, by the product's own builder or byte by byte."""

from __future__ import annotations

import hashlib
from pathlib import Path

from msgspec import UNSET

from headgate.topology_runtime.keys.signing_keys import SigningKey
from headgate.topology_runtime.packages import package_archive as archive
from headgate.topology_runtime.packages import package_building as building
from headgate.topology_runtime.packages.package_manifest import (
    PackagedFile,
    PackageManifest,
    encoded,
    public_of,
    signed,
)

SECRET = hashlib.sha256(b"a key for tests").hexdigest()
KEY = SigningKey("test", public_of(SECRET), SECRET)
FILES = {
    "pkg/__init__.py": b"",
    "pkg/data.bin": bytes(range(256)) * 9,
    "words.py": b"def count(x): return len(x)\n",
}


def folder(where: Path, files: dict[str, bytes] = FILES) -> Path:
    for path, data in files.items():
        (where / path).parent.mkdir(parents=True, exist_ok=True)
        (where / path).write_bytes(data)
    return where


def built(where: Path, files: dict[str, bytes] = FILES) -> building.Packed:
    """Written by the builder, from a folder."""
    contents = building.contents_of(folder(where / "code", files))
    return building.build(contents, SECRET, where / "made.package", "0.1.0")


def package_of(
    files: dict[str, bytes], key: SigningKey = KEY, name: str = "made", expires: str = ""
) -> bytes:
    """Put together here, whatever is in it."""
    listed = tuple(PackagedFile(p, len(d), hashlib.sha256(d).hexdigest()) for p, d in sorted(files.items()))
    manifest = encoded(PackageManifest(name, listed, "0.1.0", "3.11", (), expires or UNSET))
    return archive_of(manifest, signed(manifest, key.secret), files)


def archive_of(manifest: bytes, signature: bytes, files: dict[str, bytes]) -> bytes:
    parts = [archive.head(manifest, signature)]
    for path, data in sorted(files.items()):
        parts += [archive.header(f"code/{path}", len(data)), data, archive.padding(len(data))]
    return b"".join([*parts, archive.END])


def digest_of(package: bytes) -> str:
    reading = archive.Reading()
    reading.feed(package)
    assert reading.whole and reading.digest is not None
    return reading.digest
