"""Keys as JSON files, of which those with a secret half are their owner's alone."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.platform.disk import write_private

FILE_MOST_BYTES = 16 * 1024 * 1024

T = TypeVar("T", bound=msgspec.Struct)


def keep_whole(path: Path, what: msgspec.Struct, mode: int = 0o600, over: bool = True) -> None:
    """Raises OSError; FileExistsError unless `over` another one."""
    write_private(path, msgspec.json.format(msgspec.json.encode(what), indent=1) + b"\n", mode, over)


def read_whole(path: Path, kind: type[T], private: bool = True, hint: str | None = None) -> T:
    """Raises InvalidInput when it is not there (hint: how one is made), no such file, or others may read it though
    it is `private`."""
    schema = kind.__struct_defaults__[-1]
    try:
        status = path.stat()
        if private and status.st_mode & 0o077:
            raise InvalidInput(f"others may read {path}", hint=f"chmod 600 {path}")
        if status.st_size > FILE_MOST_BYTES:
            raise InvalidInput(f"{path} is no {schema}", cause=f"{status.st_size:,} bytes")
        found = msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", cause=error.strerror, hint=hint) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is no {schema}", cause=str(error)) from error
    if (told := getattr(found, "schema", schema)) != schema:
        raise InvalidInput(f"{path} is no {schema}", cause=f"its schema is {told!r}")
    return found
