"""A disk that takes no more: what failed is known, said and forgotten once it works again; nothing ends of it.

Whoever writes says how it went; whoever watches reads `texts`. Full, out of files, read-only and broken disks
are all the same here: an OSError.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from headgate.topology_runtime.platform.processes import call

NOTE_BYTES = 4096
AT_CWD, RENAME_EXCHANGE = -100, 2  # of Linux


class DiskTroubles:
    """What is wrong at the moment, by what is written. Any thread may call."""

    def __init__(self) -> None:
        self._now: dict[str, str] = {}

    def failed(self, what: str, path: str | os.PathLike[str], error: OSError) -> bool:
        """True when that is news."""
        text = words_of(what, path, error)
        news, self._now[what] = self._now.get(what) != text, text
        return news

    def has(self, what: str) -> bool:
        return what in self._now

    def works(self, what: str) -> None:
        self._now.pop(what, None)

    @contextmanager
    def writing(self, what: str, path: str | os.PathLike[str]) -> Iterator[None]:
        """Something best-effort is written here: an OSError is noted and goes no further."""
        try:
            yield
        except OSError as error:
            self.failed(what, path, error)
        else:
            self.works(what)

    def texts(self) -> tuple[str, ...]:
        return tuple(text for _, text in sorted(self._now.copy().items()))


def words_of(what: str, path: str | os.PathLike[str], error: OSError) -> str:
    """`WHAT cannot be written: No space left on device (PATH, on the disk at MOUNT)`."""
    return f"{what} cannot be written: {error.strerror or error} ({path}, on the disk at {mount_of(path)})"


def mount_of(path: str | os.PathLike[str]) -> str:
    """Where the file system that holds `path` begins."""
    at = os.path.abspath(path)
    while not os.path.ismount(at) and at != os.path.dirname(at):
        at = os.path.dirname(at)
    return at


def write_whole(path: Path, data: bytes) -> None:
    """By rename, so that nobody reads half of it."""
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    os.replace(new, path)


def append_whole(fd: int, data: bytes) -> None:
    """At the end of a file of one writer, opened to append: all of it, or OSError and nothing, so that what follows is
    readable."""
    size, left = os.fstat(fd).st_size, memoryview(data)
    try:
        while left:
            left = left[os.write(fd, left) :]
    except OSError:
        os.ftruncate(fd, size)
        raise


def write_private(path: Path, data: bytes, mode: int = 0o600, over: bool = True) -> None:
    """Whole and on the disk, with its mode from the first byte on. over: in place of another one, else FileExistsError.
    Raises OSError."""
    new = path.with_name(f"{path.name}.{os.getpid()}.new")
    new.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        (os.replace if over else os.link)(new, path)
    finally:
        new.unlink(missing_ok=True)


def write_note(path: str, text: str) -> None:
    """A small file into a folder where others may write too: whole, and never through a link that they put there.
    Raises OSError."""
    new = f"{path}.new"
    with suppress(FileNotFoundError):
        os.unlink(new)
    with open(new, "x", encoding="utf-8") as file:  # a link that comes between is no place for it
        file.write(text)
    os.replace(new, path)


def open_plain(path: str | os.PathLike[str]) -> BinaryIO:
    """A file that others have written, to be read: no link, and nothing that one would wait for. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return open(fd, "rb")


def exchange(one: Path, other: Path) -> None:
    """Two folders or files change names, in one step. Raises OSError, also where the file system cannot."""
    call("renameat2", AT_CWD, os.fsencode(one), AT_CWD, os.fsencode(other), RENAME_EXCHANGE)


def sync_directory(directory: str | os.PathLike[str]) -> None:
    """Makes the names in it durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def text_of(path: str | os.PathLike[str]) -> str:
    """What a small file says; nothing when there is none. Raises OSError."""
    try:
        with open_plain(path) as file:
            return file.read(NOTE_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
