"""Files elsewhere (`s3://…`, `gs://…`, `https://…`), through fsspec and the package that it has for each of these."""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
from typing import Any, BinaryIO
from zlib import crc32

from headgate.topology_runtime.errors import InvalidInput, ServiceAway

BLOCK_BYTES, BUFFER_BYTES = 8 << 20, 1 << 18  # asked of the store, and of fsspec, at once
S3_CONFIG = {"connect_timeout": 2, "read_timeout": 5, "retries": {"max_attempts": 0}}
TOLD_BY = ("ETag", "etag", "md5Hash", "ino", "mtime", "LastModified", "last_modified", "updated", "created")


def is_remote(path: str) -> bool:
    return "://" in path


def without_file_scheme(address: str) -> str:
    """The path of a `file://` URL; any other address as it is."""
    return address.removeprefix("file://")


def found_at(path: str) -> list[str]:
    """The files that a URL names: one, those of a folder, or those of a glob. Raises InvalidInput."""
    with _Told(path):
        system, inside = _system(path)
        if not any(mark in inside for mark in "*?[") and system.isdir(inside):
            inside = f"{inside.rstrip('/')}/*"
        names = sorted(system.glob(inside)) if any(mark in inside for mark in "*?[") else [inside]
        return [
            str(system.unstrip_protocol(name))
            for name in names
            if not name.rsplit("/", 1)[-1].startswith(".") and system.isfile(name)
        ]


def version_of(path: str) -> tuple[int, int]:
    """(what tells this content from another one's, size). Raises InvalidInput."""
    with _Told(path):
        system, inside = _system(path)
        about: dict[str, Any] = system.info(inside)
    told = [str(about[name]) for name in TOLD_BY if about.get(name) is not None]
    return crc32("|".join(told).encode()), int(about.get("size") or 0)


def opened_at(path: str) -> BinaryIO:
    """Raises InvalidInput."""
    with _Told(path):
        system, inside = _system(path)
        return remote_file(system, inside, path)


def remote_file(system: Any, inside: str, name: str) -> BinaryIO:
    return io.BufferedReader(_Remote(system.open(inside, "rb", block_size=BLOCK_BYTES), name), BUFFER_BYTES)


def details_of(file: BinaryIO | None) -> Mapping[str, Any] | None:
    """What was told of it when it was opened, if that was asked."""
    under = getattr(file, "raw", None)
    return under.details if isinstance(under, _Remote) else None


class _Remote(io.RawIOBase):
    """An open file elsewhere. What fails there is no fault of its content: it comes out as ServiceAway."""

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name
        self.details: Mapping[str, Any] | None = getattr(file, "details", None)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # each package has its own
            cause = f"{type(error).__name__}: {error}"
            raise ServiceAway(f"{self._name} cannot be read", cause=cause) from error
        buffer[: len(data)] = data
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return int(self._file.seek(offset, whence))

    def tell(self) -> int:
        return int(self._file.tell())

    def close(self) -> None:
        if not self.closed:
            self._file.close()
        super().close()


_MAKING = threading.Lock()  # fsspec imports what a URL needs: sinks of many threads begin together


def system_of(url: str, options: Mapping[str, Any]) -> tuple[Any, str]:
    """fsspec's object for a URL, which no other thread has, and the path there. Raises InvalidInput, and what its
    package raises."""
    try:
        import fsspec

        more = {"skip_instance_cache": True, "use_listings_cache": False, **options}
        if url.startswith(("s3://", "s3a://")):
            more["config_kwargs"] = S3_CONFIG | dict(options.get("config_kwargs") or {})
        with _MAKING:
            system, inside = fsspec.core.url_to_fs(url, **more)
    except (ImportError, TypeError, ValueError) as error:
        hint = "pip install 'headgate[files,s3]', or what the cause names"
        raise InvalidInput(
            f"cannot read {url}", cause=f"{type(error).__name__}: {error}", hint=hint
        ) from error
    if hasattr(system, "retries"):
        system.retries = 1  # of s3fs: the call comes again, and says meanwhile that it waits
    return system, str(inside)


def _system(path: str) -> tuple[Any, str]:
    import fsspec

    system, inside = fsspec.core.url_to_fs(path)
    system.invalidate_cache()  # of listings: what is there now counts
    return system, inside


class _Told:
    """What fsspec and its packages raise, as one error of ours."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, Exception) or isinstance(error, InvalidInput):
            return
        missing = isinstance(error, ImportError)
        hint = "pip install 'headgate[files]', and what the cause names" if missing else None
        raise InvalidInput(
            f"cannot read {self._path}", cause=f"{type(error).__name__}: {error}", hint=hint
        ) from error
