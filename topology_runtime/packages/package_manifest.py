"""What a package holds, and what may be in one. Pure.

The manifest names every file with its size and digest. Its own bytes are the package's identity: the *digest* of a
package is the SHA-256 of its manifest, and that is what is signed. So the same content has the same digest, whoever
signs it, and nothing can be added to it, taken from it or changed in it without another digest.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.api.topology import Topology
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import NAME, shown, utc_iso, utc_ns

# ── Lines of a requirements.txt: what is needed, at which version, known by which hashes. Pure ──────────

LINE = re.compile(
    r"(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)(?:\[[A-Za-z0-9._, -]+\])?"
    r" ?== ?(?P<version>[A-Za-z0-9.!+_-]+)"
    r"(?: ?;(?: (?!--)[^ ]+)+)?(?: --hash=sha256:[0-9a-f]{64})+"
)


def faults_of_lines(lines: Sequence[str]) -> Iterator[str]:
    """A requirement is one version, known by its hashes; anything else could become something else."""
    for line in lines:
        if not LINE.fullmatch(line):
            yield (
                f"requirements.txt: {shown(line)} is no NAME==VERSION --hash=sha256:…, "
                "as `pip-compile --generate-hashes` writes it"
            )


def normal(name: str) -> str:
    """A distribution's name as all its spellings share it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def missing(lines: Sequence[str], installed: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """(lines that are to be installed, faults). installed: versions of what stands beside headgate, by normal names:
    the same version does, another one cannot be had beside it."""
    wanted, faults = [], []
    for line in lines:
        found = LINE.fullmatch(line)
        assert found is not None, line
        name, version = normal(found["name"]), found["version"]
        if name not in installed:
            wanted.append(line)
        elif installed[name] != version:
            faults.append(
                f"it needs {name} {version}, and headgate stands beside {name} {installed[name]} there"
            )
    return wanted, faults


# ── ────────────────────────────────────────────────────────────────────────────────────────────────────

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
    headgate, python: of what made it. expires: from then on (UTC) it is run no more; of one that never does there is
    no word of it."""

    name: str
    files: tuple[PackagedFile, ...]
    headgate: str
    python: str
    requirements: tuple[str, ...] = ()
    expires: str | msgspec.UnsetType = msgspec.UNSET
    schema: str = SCHEMA

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(file.size for file in self.files)

    def refuse_expired(self, digest: str, wall_ns: int) -> None:
        """Raises BadPackage when its time is over."""
        if isinstance(self.expires, str) and utc_ns(self.expires) <= wall_ns:
            raise BadPackage(
                f"package {digest[:SHORT]} has expired",
                cause=f"its signer let it be run until {self.expires[:16]} UTC, by this host's clock that is over",
                hint="build and sign it again: headgate package build, or submit --ship",
            )


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
    if isinstance(manifest.expires, str) and not _is_time(manifest.expires):
        yield f"expires {shown(manifest.expires)}: no time in UTC as headgate writes it"
    yield from faults_of_lines(manifest.requirements)


def _is_time(text: str) -> bool:
    try:
        return utc_iso(utc_ns(text)) == text
    except (ValueError, TypeError, OverflowError):
        return False


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


# ── Ed25519 signatures of packages, and keys as plain values. Pure ───
#
# What is signed is the manifest as it stands in the archive, byte for byte: any implementation of Ed25519 can
# check it.

SIGNATURE_SCHEMA = "headgate/signature/v1"
SIGNATURE_MOST_BYTES = 4096
KEY, SIGNED = re.compile(r"[0-9a-f]{64}"), re.compile(r"[0-9a-f]{128}")


class Signature(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """signer: his public key; both in hexadecimal digits."""

    signer: str
    signature: str
    schema: str = SIGNATURE_SCHEMA

    def check(self, manifest: bytes) -> None:
        """Raises BadPackage when this key did not sign these bytes."""
        if signature_fault(manifest, self.signer, self.signature):
            raise BadPackage(
                "the package's signature is wrong", cause=f"key {self.signer} did not sign this manifest"
            )


def signature_of(data: bytes) -> Signature:
    """Raises BadPackage."""
    try:
        found = msgspec.json.decode(data, type=Signature)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadPackage("the package's signature cannot be read", cause=str(error)) from error
    sound = KEY.fullmatch(found.signer) and SIGNED.fullmatch(found.signature)
    if not sound or found.schema != SIGNATURE_SCHEMA or msgspec.json.encode(found) != data:
        raise BadPackage("the package's signature cannot be read", cause="it is not written as headgate's")
    return found


def signed(manifest: bytes, secret: str) -> bytes:
    """The signature of these bytes by a secret key, as it stands in the archive."""
    return msgspec.json.encode(Signature(*signature_by(manifest, secret)))


def signature_by(data: bytes, secret: str) -> tuple[str, str]:
    """(public key, signature) in hexadecimal digits."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret))
    public: bytes = key.public_key().public_bytes_raw()
    made: bytes = key.sign(data)
    return public.hex(), made.hex()


def signature_fault(data: bytes, signer: str, signature: str) -> str:
    """Why this is no signature of these bytes by this key; "" when it is one."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(signer)).verify(bytes.fromhex(signature), data)
    except (InvalidSignature, ValueError):
        return f"key {signer} did not sign it"
    return ""


def public_of(secret: str) -> str:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    public: bytes = (
        Ed25519PrivateKey.from_private_bytes(bytes.fromhex(secret)).public_key().public_bytes_raw()
    )
    return public.hex()


# ── Packages that are not to be run any more, each said so by a signer ──────────────────────────────────

REVOCATION_SCHEMA = "headgate/revocation/v1"
TIME_MOST = 40  # characters


class Revocation(msgspec.Struct, frozen=True):
    """time: when it was said (UTC). signer, signature: hexadecimal digits."""

    package: str
    time: str
    signer: str
    signature: str

    def check(self) -> None:
        """Raises BadPackage when nobody has signed this."""
        sound = (
            DIGEST.fullmatch(self.package) and KEY.fullmatch(self.signer) and SIGNED.fullmatch(self.signature)
        )
        fault = "it is not written as headgate's" if not sound or len(self.time) > TIME_MOST else ""
        if fault := fault or signature_fault(_said(self.package, self.time), self.signer, self.signature):
            raise BadPackage("the revocation is not signed by who it names", cause=fault)

    @property
    def words(self) -> str:
        return f"package {self.package[:SHORT]} was revoked on {self.time[:16]} by key {self.signer[:SHORT]}"


def revocation_of(package: str, time: str, secret: str) -> Revocation:
    """Signed by a secret key."""
    return Revocation(package, time, *signature_by(_said(package, time), secret))


def _said(package: str, time: str) -> bytes:
    return f"{REVOCATION_SCHEMA}\n{package}\n{time}\n".encode()


# ── Files that a topology's params name: `package:PATH` is a file of the package, wherever that is
# unpacked. Pure

IN_PACKAGE = "package:"
TOPOLOGY = ".headgate-topology.json"  # the topology itself, so that it is signed with the code

Changed = Callable[[str, str], str]  # (TASK.PARAM, text) → text


def changed(topology: Topology, change: Changed) -> Topology:
    """The same with every text in its params changed."""
    tasks = tuple(
        replace(
            task,
            params={key: _changed(f"{task.name}.{key}", value, change) for key, value in task.params.items()},
        )
        if task.params
        else task
        for task in topology.tasks
    )
    return replace(topology, tasks=tasks)


def placed(topology: Topology, folder: str) -> Topology:
    """With the files of its package where they are on this host."""

    def place(_: str, text: str) -> str:
        return f"{folder}/{text.removeprefix(IN_PACKAGE)}" if text.startswith(IN_PACKAGE) else text

    return changed(topology, place)


def _changed(place: str, value: Any, change: Changed) -> Any:
    if isinstance(value, str):
        return change(place, value)
    if isinstance(value, list | tuple):
        return type(value)([_changed(place, one, change) for one in value])
    if isinstance(value, dict):
        return {key: _changed(place, one, change) for key, one in value.items()}
    return value
