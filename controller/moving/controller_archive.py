"""A controller's state directory as one file, and back.

    archive.json   what is in it: every path with its size and SHA-256
    PATH …         the files, in that order

It is a tar archive that its list determines, as packages are: nothing else of it is interpreted, so it holds no links,
owners or second names. With a passphrase all of it is locked (`keys/passphrases.py`). A directory is made of it whole
or not at all, under a new name first.

It may be taken while the controller runs: the journal is read last, up to its last whole record, so that what is beside
it is never newer, as after a kill.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import BinaryIO

import msgspec

from headgate.controller.files import journal
from headgate.controller.knowledge.journal_records import Moved, fold_all
from headgate.topology_runtime.errors import Conflict, InvalidInput
from headgate.topology_runtime.keys import passphrases
from headgate.topology_runtime.keys.keyring import KEYS, TRUST
from headgate.topology_runtime.packages.package_archive import BLOCK, END, header, padding
from headgate.topology_runtime.packages.package_manifest import DIGEST, fault_of_path
from headgate.topology_runtime.packages.revocations import FILE as REVOKED
from headgate.topology_runtime.platform.disk import sync_directory
from headgate.topology_runtime.wire.wire_version import VERSION

SCHEMA, LIST = "headgate/controller-archive/v1", "archive.json"
JOURNAL = "controller/journal.bin"
ALIVE = frozenset(["lock", "endpoint"])  # of a process, not of its run
KEPT = ("run", "topology.json", "schedule.json", "models", "machines", "packages", "controller")
LIST_MOST_BYTES, READ_BYTES = 64 << 20, 256 * 1024
FAULTS_TOLD = 20
NS = 1_000_000_000


class ArchivedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    sha256: str


class ControllerArchive(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """boot, epoch: of the controller that it was taken of. run: the id of its run."""

    run: str
    boot: int
    epoch: int
    headgate: str
    files: tuple[ArchivedFile, ...]
    schema: str = SCHEMA

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


# ── out ─────────────────────────────────────────────────────────────────────────────────────────────────

Contents = dict[
    str, bytes | Path
]  # small files, read at one moment; packages, which never change, where they are


def export(state: Path, keys: Path, to: Path, passphrase: str = "") -> ControllerArchive:
    """Write the archive, its owner's alone, whole or not at all. Raises InvalidInput, Conflict."""
    try:
        if not (state / JOURNAL).exists():
            cause, hint = (
                f"there is no {JOURNAL} in it",
                "headgate controller export FILE STATE: the archive comes first",
            )
            raise InvalidInput(f"{state} holds no controller", cause=cause, hint=hint)
        found, contents = _read_all(state, keys)
    except OSError as error:
        raise InvalidInput(f"{error.filename or state} cannot be read", cause=error.strerror) from error
    new = to.with_name(f".{to.name}.{os.getpid()}.new")
    try:
        _list_of(msgspec.json.encode(found), str(to))
        with ExitStack() as undo:
            undo.callback(new.unlink, missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
                parts: Iterable[bytes] = _parts(found, contents)
                for part in passphrases.locked(parts, passphrase) if passphrase else parts:
                    out.write(part)
                out.flush()
                os.fsync(out.fileno())
            os.link(new, to)
    except FileExistsError as error:
        raise Conflict(f"{to} exists already", hint="choose another file") from error
    except OSError as error:
        cause = error.strerror or str(error)
        raise InvalidInput(f"the archive cannot be written to {to}", cause=cause) from error
    return found


def _read_all(state: Path, keys: Path) -> tuple[ControllerArchive, Contents]:
    """Raises OSError, InvalidInput."""
    contents = _contents(state, keys)
    data, run = (state / JOURNAL).read_bytes(), contents.get("run", b"")
    records, good, _ = journal.of_bytes(data, state / JOURNAL)
    contents[JOURNAL], d = data[:good], fold_all(records)
    files = tuple(_listed(path, what) for path, what in sorted(contents.items()))
    name = run.decode("ascii").strip() if isinstance(run, bytes) else ""
    return ControllerArchive(name, d.boot, d.next_epoch - 1, VERSION, files), contents


def _contents(state: Path, keys: Path) -> Contents:
    found: Contents = {}
    places = {state / name: name for name in KEPT} | {keys: KEYS}
    for place, name in places.items():
        for path in sorted(place.rglob("*"), key=_tallies_first) if place.is_dir() else [place]:
            own = name if path == place else f"{name}/{path.relative_to(place).as_posix()}"
            if own == JOURNAL or not _is_kept(own) or path.is_symlink() or not path.is_file():
                continue
            try:
                found[own] = path if name == "packages" else path.read_bytes()
            except FileNotFoundError:
                continue  # it went just now
    return found


def _tallies_first(path: Path) -> tuple[bool, Path]:
    """Dead letters that they count are in the file that is read after them."""
    return path.name != "tallies.bin", path


def _is_kept(name: str) -> bool:
    """Is a file of that name part of a controller, and not of a process that is at work?"""
    parts = name.split("/")
    top, last = parts[0], parts[-1]
    if last.startswith(".") or last.endswith(".new") or top not in (*KEPT, KEYS):
        return False
    if top == "packages" and len(parts) > 1:
        digest, file = parts[1], parts[2:]
        return parts[1:] == [REVOKED] or (file == ["package.tar"] and DIGEST.fullmatch(digest) is not None)
    return not (top == "controller" and last in ALIVE)


def _listed(path: str, what: bytes | Path) -> ArchivedFile:
    if isinstance(what, bytes):
        return ArchivedFile(path, len(what), hashlib.sha256(what).hexdigest())
    with what.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        return ArchivedFile(path, os.fstat(file.fileno()).st_size, digest)


def _parts(found: ControllerArchive, contents: Contents) -> Iterator[bytes]:
    data = msgspec.json.encode(found)
    yield header(LIST, len(data)) + data + padding(len(data))
    for one in found.files:
        yield header(one.path, one.size)
        what = contents[one.path]
        with io.BytesIO(what) if isinstance(what, bytes) else what.open("rb") as file:
            yield from iter(partial(file.read, READ_BYTES), b"")
        yield padding(one.size)
    yield END


# ── in ──────────────────────────────────────────────────────────────────────────────────────────────────


def restore(
    file: Path, state: Path, keys: Path | None = None, ask: passphrases.Ask = passphrases.asked
) -> ControllerArchive:
    """Make the state directory, with its keys in a folder of their own if one is named. Raises InvalidInput, Conflict;
    then nothing is there that was not before."""
    if keys is not None and (keys / TRUST).exists():
        raise Conflict(f"{keys} holds keys already", hint="name another folder: --keys DIR")
    if state.exists() and (not state.is_dir() or any(state.iterdir())):
        raise Conflict(f"{state} is not empty", cause="a controller is made in a new directory only")
    new = state.with_name(f".{state.name}.{os.getpid()}.new")
    try:
        opened = file.open("rb")
    except OSError as error:
        raise InvalidInput(f"{file} cannot be read", cause=error.strerror) from error
    try:
        with opened, ExitStack() as undo:
            _make_folder(new.parent, undo)
            new.mkdir(mode=0o700)
            undo.callback(shutil.rmtree, new)
            found = _unpack(_Bytes(_unlocked(opened, file, ask), str(file)), new)
            _move_on(new)
            if keys is not None:
                _make_folder(keys.parent, undo)
                os.replace(new / KEYS, keys)
                undo.callback(shutil.rmtree, keys)
            os.replace(new, state)
            undo.pop_all()
            sync_directory(state.parent)
    except OSError as error:
        what = f"the controller cannot be made in {state}"
        hint = "nothing of it was left behind"
        raise InvalidInput(what, cause=error.strerror or str(error), hint=hint) from error
    return found


def _make_folder(folder: Path, undo: ExitStack) -> None:
    """And those round it; those that were made go again when this is undone, unless something else is in them."""

    def remove(one: Path) -> None:
        if not any(one.iterdir()):
            one.rmdir()

    for one in reversed((folder, *folder.parents)):
        if not one.exists():
            one.mkdir()
            undo.callback(remove, one)


def _unlocked(opened: BinaryIO, file: Path, ask: passphrases.Ask) -> Iterator[bytes]:
    head = opened.read(len(passphrases.MAGIC))
    if head == passphrases.MAGIC:
        return passphrases.opened(opened, ask(str(file)), str(file))
    return chain([head], iter(partial(opened.read, READ_BYTES), b""))


class _Bytes:
    """So many bytes of an archive at a time."""

    def __init__(self, parts: Iterator[bytes], name: str) -> None:
        self._parts, self._waiting, self.name = parts, b"", name

    def some(self, most: int) -> bytes:
        """At least one byte, at most so many. Raises InvalidInput."""
        if not self._waiting:
            self._waiting = next(self._parts, b"")
        if not self._waiting:
            raise InvalidInput(f"{self.name} is cut short", cause="it ends too early", hint="copy it again")
        part, self._waiting = self._waiting[:most], self._waiting[most:]
        return part

    def exactly(self, size: int) -> bytes:
        found = bytearray()
        while len(found) < size:
            found += self.some(size - len(found))
        return bytes(found)

    def expect(self, data: bytes, where: str) -> None:
        if self.exactly(len(data)) != data:
            raise InvalidInput(f"{self.name} was changed", cause=f"at {where}")


def _unpack(data: _Bytes, folder: Path) -> ControllerArchive:
    """Raises InvalidInput, OSError."""
    head = data.exactly(BLOCK)
    try:
        size = int(head[124:136].rstrip(b"\0 ") or b"x", 8)
    except ValueError:
        size = -1
    if not 0 <= size <= LIST_MOST_BYTES or head != header(LIST, size):
        raise InvalidInput(
            f"{data.name} is no archive of a controller", cause=f"it does not begin with {LIST}"
        )
    found = _list_of(data.exactly(size), data.name)
    data.expect(padding(size), LIST)
    for one in found.files:
        data.expect(header(one.path, one.size), one.path)
        path = folder / one.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(data, one, path)
        data.expect(padding(one.size), one.path)
    data.expect(END, "its end")
    return found


def _write(data: _Bytes, one: ArchivedFile, path: Path) -> None:
    """Raises InvalidInput, OSError."""
    hashed, left = hashlib.sha256(), one.size
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as out:
        while left:
            part = data.some(min(left, READ_BYTES))
            hashed.update(part)
            out.write(part)
            left -= len(part)
        out.flush()
        os.fsync(out.fileno())
    if hashed.hexdigest() != one.sha256:
        raise InvalidInput(f"{data.name} was changed", cause=f"{one.path} is not the file that was archived")


def _list_of(data: bytes, name: str) -> ControllerArchive:
    """Raises InvalidInput."""
    try:
        schema = msgspec.json.decode(data, type=dict[str, msgspec.Raw]).get("schema", msgspec.Raw(b"none"))
        if bytes(schema) != msgspec.json.encode(SCHEMA):
            told = bytes(schema)[:80].decode("ascii", "replace")
            cause = f"its schema is {told}; headgate {VERSION} reads {SCHEMA}"
            raise InvalidInput(f"{name} is of another version", cause=cause)
        found = msgspec.json.decode(data, type=ControllerArchive)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{name} is no archive of a controller", cause=str(error)) from error
    paths = [file.path for file in found.files]
    faults = [fault for path in paths if (fault := fault_of_path(path)) is not None]
    faults += [f"{path!r} is no file of a controller" for path in paths if not _is_kept(path)]
    faults += ["a path is there twice"] if len(set(paths)) < len(paths) else []
    faults += [f"{path} is missing" for path in (JOURNAL, f"{KEYS}/{TRUST}") if path not in paths]
    faults += ["a size is below zero"] if any(file.size < 0 for file in found.files) else []
    if faults:
        raise InvalidInput(f"{name} is not sound", faults=faults[:FAULTS_TOLD])
    return found


def _move_on(state: Path) -> None:
    """The journal in it reads, and says that it was moved. Raises InvalidInput, OSError."""
    one = journal.Journal(state / "controller")
    try:
        boot, now_ns = fold_all(one.records).boot, time.time_ns()
        one.append((Moved(max(boot + 1, now_ns // NS), now_ns),))
    finally:
        one.close()
    (state / "controller" / "lock").unlink()
