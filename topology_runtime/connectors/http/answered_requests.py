"""Keys of requests that were answered, in a file that outlives the worker: a repeated request is known by its key."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from headgate.topology_runtime.connectors.http.posted_rows import KEYS_MOST, Posted, PostedRows
from headgate.topology_runtime.platform.disk import append_whole, write_whole


class AnsweredRequests:
    """A line each: digest, number of rows, key. Raises OSError when the disk does not take one."""

    def __init__(self, path: Path, waiting: PostedRows) -> None:
        """Reads what is there into `waiting`."""
        self._path, self._fd, self._lines = path, -1, 0
        found = path.read_bytes().split(b"\n")[:-1] if path.exists() else []  # half a line was never answered
        kept = []
        for line in found[-KEYS_MOST:]:
            match line.decode("latin-1").split(" ", 2):
                case [digest, rows, key] if rows.isdecimal():
                    kept.append(Posted(key, digest, int(rows)))
                    waiting.remember(kept[-1])
        self._write_anew(kept)

    def add(self, posted: Sequence[Posted]) -> None:
        lines = [_line(one) for one in posted if one.key]
        if not lines:
            return
        append_whole(self._fd, b"".join(lines))
        self._lines += len(lines)
        if self._lines >= 2 * KEYS_MOST:
            with suppress(OSError):  # the file is good as it is, only longer
                self._shorten()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _shorten(self) -> None:
        lines = self._path.read_bytes().split(b"\n")[:-1][-KEYS_MOST:]
        self._replace(b"".join(line + b"\n" for line in lines), len(lines))

    def _write_anew(self, posted: Sequence[Posted]) -> None:
        self._replace(b"".join(map(_line, posted)), len(posted))

    def _replace(self, data: bytes, lines: int) -> None:
        write_whole(self._path, data)
        self.close()
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._fd, self._lines = os.open(self._path, flags, 0o600), lines


def _line(posted: Posted) -> bytes:
    return f"{posted.digest} {posted.rows} {posted.key}\n".encode("latin-1")
