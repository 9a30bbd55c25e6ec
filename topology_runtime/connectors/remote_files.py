"""Files elsewhere (`s3://…`, `gs://…`, `https://…`), through fsspec and the package that it has for each of these."""

from __future__ import annotations

from typing import Any, BinaryIO
from zlib import crc32

from headgate.topology_runtime.errors import InvalidInput

TOLD_BY = ("ETag", "etag", "md5Hash", "ino", "mtime", "LastModified", "last_modified", "updated", "created")


def is_remote(path: str) -> bool:
    return "://" in path


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
        file: BinaryIO = system.open(inside, "rb")
    return file


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
