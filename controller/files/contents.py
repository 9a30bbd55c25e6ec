"""Contents of files that others wrote: regular ones only, and only so many bytes."""

from __future__ import annotations

import json
import os
import stat
from typing import Any


def content_of(path: str | os.PathLike[str], most_bytes: int) -> tuple[bytes, str | None]:
    """(content, fault) of a regular file of at most so many bytes."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # opening a named pipe would wait for its writer
            return b"", "is not a regular file"
        with open(path, "rb") as file:
            content = file.read(most_bytes + 1)
    except OSError as error:
        return b"", f"cannot be read: {error.strerror}"
    return content, f"is larger than {most_bytes:,} bytes" if len(content) > most_bytes else None


def json_of(path: str | os.PathLike[str], most_bytes: int) -> tuple[Any, str | None]:
    """(plain data, fault) of a JSON file of at most so many bytes."""
    content, fault = content_of(path, most_bytes)
    if fault is not None:
        return None, fault
    try:
        return json.loads(content), None
    except (ValueError, RecursionError) as error:
        return None, f"is not JSON: {error}"
