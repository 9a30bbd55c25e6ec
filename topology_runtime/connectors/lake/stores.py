"""Where files lie, with what sinks and sources of folders need of it: a folder, or a prefix of an object store.

Names are relative to it, with `/`. In folders and `atomic` stores what is written appears whole, and `create` lets one
of several writers win; elsewhere neither is sure. Whatever fails comes out as ServiceAway.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from headgate.topology_runtime.connectors.remote_files import (
    details_of,
    is_remote,
    remote_file,
    system_of,
    without_file_scheme,
)
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, ServiceAway
from headgate.topology_runtime.platform.disk import sync_directory

OWN = "_headgate"  # what is ours in a folder; readers leave it out
NEW = f"{OWN}/new"  # files that have not found their places
NONE = "__none__"  # the folder of rows without the value
ATOMIC = frozenset(
    {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss"}
)  # s3fs, gcsfs, adlfs: a PUT, and "create" is a condition of it
TAGS = ("ETag", "etag", "md5Hash")
TIMES = ("LastModified", "last_modified", "mtime", "updated", "created")


class ListedFile(NamedTuple):
    """One file as a listing says it. mtime_s: by the store's clock. version: what tells its content from another."""

    size: int
    mtime_s: float
    version: str


class FolderStore(Protocol):
    """address: as users name it. atomic: a file appears when all of it is there, and is created by one of several.
    local: asking costs nothing."""

    address: str
    atomic: bool
    local: bool

    def prepare(self, *folders: str) -> None:
        """Make folders of ours, where there is such a thing."""

    def read(self, name: str) -> bytes | None:
        """None: there is none."""

    def write(self, name: str, data: bytes) -> None:
        """A new name."""

    def create(self, name: str, data: bytes) -> bool:
        """False when the name is taken."""

    def move(self, name: str, to: str) -> None:
        """To its place; nothing when it is there already. Of folders and atomic stores."""

    def remove(self, name: str) -> None: ...

    def seen(self, name: str, file: BinaryIO | None = None) -> ListedFile | None:
        """As it is now; file: as what was opened is."""

    def listing(self, under: str = "") -> dict[str, ListedFile]:
        """All plain files below."""

    def open(self, name: str) -> BinaryIO | None:
        """None: there is none."""


def store_of(address: str, options: Mapping[str, Any] | None = None) -> FolderStore:
    address = without_file_scheme(address)
    return RemoteStore(address, options) if is_remote(address) else LocalStore(address)


def refuse_unsure(store: FolderStore, what: str, hint: str) -> None:
    """Of one that two writers could each make a file in. what: that it is refused for. Raises InvalidInput."""
    if not (store.local or store.atomic):
        cause = "there two writers may both make one file, and a killed one leaves half of it"
        raise InvalidInput(f"{what} cannot be kept in {store.address}", cause=cause, hint=hint)


@contextmanager
def _told(what: str) -> Iterator[None]:
    try:
        yield
    except HeadgateError:
        raise
    except Exception as error:  # each package of fsspec has its own
        cause = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise ServiceAway(what, cause=cause) from error


class LocalStore:
    """A folder. A file is on the disk before its name is."""

    atomic, local = False, True

    def __init__(self, address: str) -> None:
        self._folder = Path(address).absolute()
        self.address = str(self._folder)

    def prepare(self, *folders: str) -> None:
        with self._writing():
            for name in folders:
                (self._folder / name).mkdir(parents=True, exist_ok=True)

    def read(self, name: str) -> bytes | None:
        with self._reading():
            try:
                return (self._folder / name).read_bytes()
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        with self._writing(), open(self._folder / name, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def create(self, name: str, data: bytes) -> bool:
        ready, place = f"{NEW}/create-{uuid.uuid4().hex}", self._folder / name
        self.write(ready, data)
        with self._writing():
            try:
                os.link(self._folder / ready, place)
            except FileExistsError:
                return False
            finally:
                os.unlink(self._folder / ready)
            sync_directory(place.parent)
        return True

    def move(self, name: str, to: str) -> None:
        place = self._folder / to
        with self._writing(), suppress(FileNotFoundError):
            place.parent.mkdir(parents=True, exist_ok=True)
            os.rename(self._folder / name, place)

    def remove(self, name: str) -> None:
        with self._writing(), suppress(FileNotFoundError):
            os.unlink(self._folder / name)

    def seen(self, name: str, file: BinaryIO | None = None) -> ListedFile | None:
        with self._reading():
            try:
                return _seen(os.stat(self._folder / name) if file is None else os.fstat(file.fileno()))
            except (FileNotFoundError, NotADirectoryError):
                return None

    def listing(self, under: str = "") -> dict[str, ListedFile]:
        with self._reading():
            return dict(_files(str(self._folder / under), f"{under}/" if under else ""))

    def open(self, name: str) -> BinaryIO | None:
        with self._reading():
            try:
                return open(self._folder / name, "rb")
            except FileNotFoundError:
                return None

    def _writing(self) -> Any:
        return _told(f"{self.address} takes no files")

    def _reading(self) -> Any:
        return _told(f"{self.address} cannot be read")


def _seen(about: os.stat_result) -> ListedFile:
    return ListedFile(about.st_size, about.st_mtime, str(about.st_mtime_ns))


def _files(folder: str, prefix: str) -> Iterator[tuple[str, ListedFile]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # it is gone again
                if entry.is_dir(follow_symlinks=False):
                    yield from _files(entry.path, f"{prefix}{entry.name}/")
                elif entry.is_file():
                    yield f"{prefix}{entry.name}", _seen(entry.stat())


class RemoteStore:
    """What fsspec knows: s3://, gs:// and more. options: of its package, such as key, secret, endpoint_url."""

    local = False

    def __init__(self, address: str, options: Mapping[str, Any] | None = None) -> None:
        self.address, self._options = address.rstrip("/"), dict(options or {})
        self.atomic = address.partition("://")[0].lower() in ATOMIC
        self._found: tuple[Any, str] | None = None

    def prepare(self, *folders: str) -> None:
        system, root = self._system()
        if not self.atomic:
            with _told(f"{self.address} takes no files"):
                for name in folders:
                    system.makedirs(f"{root}/{name}", exist_ok=True)

    def read(self, name: str) -> bytes | None:
        with self._call(name) as (system, path):
            try:
                return bytes(system.cat_file(path))
            except FileNotFoundError:
                return None

    def write(self, name: str, data: bytes) -> None:
        with self._call(name, "takes no files") as (system, path):
            system.pipe_file(path, data)

    def create(self, name: str, data: bytes) -> bool:
        with self._call(name, "takes no files") as (system, path):
            try:
                system.pipe_file(path, data, mode="create")
            except FileExistsError:
                return self.read(name) == data  # by a call of ours that seemed to fail
        return True

    def move(self, name: str, to: str) -> None:
        """A copy and a removal: the copy appears whole, and whoever comes next does both again."""
        with self._call(name, "takes no files") as (system, path), suppress(FileNotFoundError):
            system.cp_file(path, self._path(to))
            system.rm_file(path)

    def remove(self, name: str) -> None:
        with self._call(name, "takes no files") as (system, path), suppress(FileNotFoundError):
            system.rm_file(path)

    def seen(self, name: str, file: BinaryIO | None = None) -> ListedFile | None:
        with self._call(name) as (system, path):
            try:
                return _seen_there(details_of(file) or system.info(path))
            except FileNotFoundError:
                return None

    def listing(self, under: str = "") -> dict[str, ListedFile]:
        with self._call(under) as (system, path):
            found = system.find(path, detail=True)
            cut = len(self._path("")) + 1
            return {name[cut:]: _seen_there(about) for name, about in found.items() if not name.endswith("/")}

    def open(self, name: str) -> BinaryIO | None:
        with self._call(name) as (system, path):
            try:
                return remote_file(system, path, f"{self.address}/{name}")
            except FileNotFoundError:
                return None

    def _system(self) -> tuple[Any, str]:
        if self._found is None:
            with _told(f"{self.address} cannot be read"):
                self._found = system_of(self.address, self._options)
        return self._found

    def _path(self, name: str) -> str:
        root = self._system()[1].rstrip("/")
        return f"{root}/{name}" if name else root

    @contextmanager
    def _call(self, name: str, what: str = "cannot be read") -> Iterator[tuple[Any, str]]:
        system, path = self._system()[0], self._path(name)
        with _told(f"{self.address} {what}"):
            system.invalidate_cache()  # of listings: what is there now counts
            yield system, path


def _seen_there(about: Mapping[str, Any]) -> ListedFile:
    time = next((about[name] for name in TIMES if about.get(name) is not None), 0.0)
    if isinstance(time, str):
        time = datetime.fromisoformat(time)
    mtime_s = time.timestamp() if isinstance(time, datetime) else float(time)
    tag = next((str(about[name]).strip('"') for name in TAGS if about.get(name)), None)
    return ListedFile(int(about.get("size") or 0), mtime_s, tag or repr(mtime_s))
