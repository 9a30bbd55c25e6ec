"""Whole objects under names, in a directory or in an object store (`s3://bucket/folder`, through fsspec). An object is
there whole or not at all, and is durable once `put` returns; what a folder that is cut off says is never taken for
"there is nothing"."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from headgate.topology_runtime.connectors.remote_files import is_remote, system_of, without_file_scheme
from headgate.topology_runtime.errors import HeadgateError

T = TypeVar("T")
WRITING = ".writing-"  # begins the names of files that are not whole yet
COPYING = ("s3://", "s3a://", "gs://", "gcs://")  # they copy objects, which are there by their answer


class ObjectFolder(Protocol):
    """Objects below one place. Names have `/` between their parts. All methods raise OSError."""

    url: str

    def put(self, name: str, data: bytes, same_as: str = "") -> None:
        """Durable when this returns. same_as: an object with these bytes, to be copied if that is cheaper."""

    def get(self, name: str) -> bytes:
        """Raises FileNotFoundError where there is none of this name."""

    def names(self, under: str) -> list[str]:
        """Of the objects right below this name, without it; none if there are none."""

    def folders(self, under: str) -> list[str]:
        """Below this name, without it."""

    def there(self, name: str) -> bool: ...

    def remove(self, name: str) -> None:
        """Also where there is none."""


def object_folder(url: str) -> ObjectFolder:
    """The folder at a path or a URL. Raises InvalidInput where its package is not there.

    >>> import tempfile
    >>> folder = object_folder(tempfile.mkdtemp())
    >>> folder.put("a/b", b"text")
    >>> folder.names("a"), folder.get("a/b")
    (['b'], b'text')
    """
    url = without_file_scheme(url)
    return StoredObjects(url) if is_remote(url) else FolderOfFiles(url)


def absolute(url: str) -> str:
    """A path as every process understands it; URLs, and nothing, as they are."""
    return os.path.abspath(os.path.expanduser(url)) if url and not is_remote(url) else url


class FolderOfFiles:
    """A directory: of one host, or shared by all (NFS)."""

    def __init__(self, url: str) -> None:
        self.url = absolute(url)

    def _at(self, name: str) -> str:
        return os.path.join(self.url, *name.split("/"))

    def put(self, name: str, data: bytes, same_as: str = "") -> None:
        path = self._at(name)
        folder = os.path.dirname(path)
        os.makedirs(folder, exist_ok=True)
        if not (same_as and _linked(self._at(same_as), path)):
            self._write(path, folder, data)
        at = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(at)
        finally:
            os.close(at)

    def _write(self, path: str, folder: str, data: bytes) -> None:
        handle, writing = tempfile.mkstemp(prefix=WRITING, dir=folder)
        try:
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            os.replace(writing, path)
        except BaseException:
            with contextlib.suppress(OSError):  # it is no object, and the first error is the one to tell
                os.unlink(writing)
            raise

    def get(self, name: str) -> bytes:
        with open(self._at(name), "rb") as file:
            return file.read()

    def names(self, under: str) -> list[str]:
        return self._listed(under, os.DirEntry.is_file)

    def folders(self, under: str) -> list[str]:
        return self._listed(under, os.DirEntry.is_dir)

    def _listed(self, under: str, wanted: Callable[[os.DirEntry[str]], bool]) -> list[str]:
        try:
            with os.scandir(self._at(under) if under else self.url) as found:
                return sorted(one.name for one in found if wanted(one) and not one.name.startswith(WRITING))
        except FileNotFoundError:
            return []

    def there(self, name: str) -> bool:
        try:
            os.stat(self._at(name))
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        path = self._at(name)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)
        with contextlib.suppress(OSError):  # others are in it
            os.rmdir(os.path.dirname(path))


def _linked(there: str, path: str) -> bool:
    """A second name for a file, which nobody ever writes into. False: not every file system has such."""
    try:
        os.link(there, path)
    except OSError:
        return False
    return True


class StoredObjects:
    """An object store, through fsspec: a PUT there is whole or not at all. Used by one thread at a time."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")
        self._system, self._root = system_of(self.url, {})

    def _told(self, call: Callable[..., T], *arguments: Any, **more: Any) -> T:
        """Each package has errors of its own."""
        try:
            return call(*arguments, **more)
        except (FileNotFoundError, HeadgateError):
            raise
        except Exception as error:
            raise OSError(f"{self.url} cannot be used: {type(error).__name__}: {error}") from error

    def put(self, name: str, data: bytes, same_as: str = "") -> None:
        if not (same_as and self._copied(f"{self._root}/{same_as}", f"{self._root}/{name}")):
            self._told(self._system.pipe_file, f"{self._root}/{name}", data)

    def _copied(self, there: str, path: str) -> bool:
        """By the store itself. False: it does not, or not this one."""
        if not self.url.startswith(COPYING):
            return False
        try:
            self._told(self._system.cp_file, there, path)
        except OSError:
            return False
        return True

    def get(self, name: str) -> bytes:
        return bytes(self._told(self._system.cat_file, f"{self._root}/{name}"))

    def names(self, under: str) -> list[str]:
        return self._listed(under, "file")

    def folders(self, under: str) -> list[str]:
        return self._listed(under, "directory")

    def _listed(self, under: str, kind: str) -> list[str]:
        place = f"{self._root}/{under}".rstrip("/")
        try:
            found = self._told(self._system.ls, place, detail=True)
        except FileNotFoundError:
            return []
        paths = (one["name"].rstrip("/") for one in found if one["type"] == kind)
        return sorted(
            path.rpartition("/")[2] for path in paths if path != self._system._strip_protocol(place)
        )

    def there(self, name: str) -> bool:
        try:
            self._told(self._system.info, f"{self._root}/{name}")
        except FileNotFoundError:
            return False
        return True

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._told(self._system.rm_file, f"{self._root}/{name}")
