"""Who had a controller do what, on its disk: lines that are only appended (`keys/audit_lines.py`)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from headgate.topology_runtime.errors import HeadgateError
from headgate.topology_runtime.keys.audit_lines import (
    TOLD_MOST,
    AuditLine,
    document,
    encode_line,
    head_of,
    lines_of,
    sealed,
)
from headgate.topology_runtime.keys.key_pairs import Who
from headgate.topology_runtime.platform.disk import DiskTroubles, append_whole
from headgate.topology_runtime.wire.messages import Reply

WHAT = "the audit log"
LONG, LISTED = 200, 20  # longer values are named by their size and digest
AGAIN_NS = 60 * 1_000_000_000  # a key that is not let in is recorded at once, then once in this time
KEYS_MOST = 16  # of strangers in this time; more are counted together
SECRET = re.compile(r"passw|passphrase|secret|token|credential|dsn", re.IGNORECASE)
USERINFO = re.compile(r"://[^/@\s]+@")
# asked over and over by who waits for something: how it stands is no deed
POLLED = frozenset(["package_at", "deadletter_replaying"])


class AuditLog:
    """The file at `path`; one writer. What the disk does not take waits, in order."""

    def __init__(self, path: Path, disk: DiskTroubles) -> None:
        """Raises OSError."""
        self.path, self._disk = path, disk
        self._waiting: list[bytes] = []
        found, size, self.fault = lines_of(self._data())
        if path.exists():
            os.truncate(path, size)  # a line that was never whole
        self._number, self._head = (found[-1].n, found[-1].hash) if found else (0, "")

    def _data(self) -> bytes:
        return self.path.read_bytes() if self.path.exists() else b""

    def asked(self, time: str, who: Who, command: str, arguments: Mapping[str, Any]) -> int:
        """The line's number."""
        shown = without_secrets(arguments) if isinstance(arguments, Mapping) else {}
        return self._add(AuditLine(0, time, str(who), who.key, command[:LONG], shown))

    def answered(self, time: str, number: int, reply: Reply) -> None:
        self._add(AuditLine(0, time, of=number, result=result_of(reply)))

    def noted(self, time: str, who: str, key: str, what: str, result: str, arguments: dict[str, Any]) -> None:
        """What was no command of somebody who was let in."""
        self._add(AuditLine(0, time, who, key, what, arguments, result=result))

    def _add(self, line: AuditLine) -> int:
        whole = sealed(replace(line, n=self._number + 1, before=self._head))
        self._number, self._head = whole.n, whole.hash
        self._waiting.append(encode_line(whole) + b"\n")
        self.write()
        return whole.n

    def write(self) -> None:
        """What waits; a disk that does not take it is said, and it waits on."""
        if not self._waiting:
            return
        with self._disk.writing(WHAT, self.path):
            fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                append_whole(fd, b"".join(self._waiting))
                self._waiting = []
                os.fsync(fd)
            finally:
                os.close(fd)

    def answer(self, last: Any) -> Reply:
        """To the command `audit`."""
        data = b"".join([self._data(), *self._waiting])
        cut = "" if self._head == head_of(data) else "its last lines were removed or changed"
        most = last if isinstance(last, int) and 0 < last <= TOLD_MOST else TOLD_MOST
        return Reply(data=document(data, cut, most))


def result_of(reply: Reply) -> str:
    if reply.error is None:
        return "done"
    code, _, what, *_ = reply.error
    return f"{code}: {what}"[: 2 * LONG]


# ── arguments without secrets, and short ────────────────────────────────────────────────────────────────


def without_secrets(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """As they may stand in a log: long and nested values by size and digest, addresses without passwords."""
    return {str(name)[:LONG]: _shown(str(name), value) for name, value in list(arguments.items())[:50]}


def _shown(name: str, value: Any) -> Any:
    if SECRET.search(name):
        return "left out"
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, str) and len(value) <= LONG:
        return USERINFO.sub("://…@", value)
    if isinstance(value, list | tuple) and len(value) <= LISTED and not any(map(_is_nested, value)):
        return [_shown(name, one) for one in value]
    data = value if isinstance(value, bytes) else msgspec.json.encode(value, enc_hook=str)
    named = value.get("name") if isinstance(value, dict) else None
    name_of = {"name": named[:LONG]} if isinstance(named, str) else {}
    return {**name_of, "bytes": len(data), "sha256": hashlib.sha256(data).hexdigest()}


def _is_nested(value: Any) -> bool:
    return not isinstance(value, str | int | float | None)


def is_deed(command: str, arguments: Any, looking: frozenset[str], refused: HeadgateError | None) -> bool:
    """Is this recorded: whatever is refused, and what is more than to look? Of a package that is brought, its start."""
    if refused is not None:
        return True
    if command == "package_put":
        return isinstance(arguments, Mapping) and arguments.get("offset") == 0
    return command not in looking and command not in POLLED


class TurnedAway:
    """Keys that were not let in, and how often since they were recorded."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._told_ns: dict[str, int] = {}

    def again(self, key: str) -> None:
        """By any thread."""
        known = key in self._counts or len(self._counts) < KEYS_MOST
        name = key if known else "others"
        self._counts[name] = self._counts.get(name, 0) + 1

    def due(self, now_ns: int) -> list[tuple[str, int]]:
        """(key, times) to be recorded now."""
        self._told_ns = {key: at for key, at in self._told_ns.items() if now_ns - at < AGAIN_NS}
        room = KEYS_MOST - len(self._told_ns)
        due = [key for key in list(self._counts) if key not in self._told_ns][: max(0, room)]
        self._told_ns |= dict.fromkeys(due, now_ns)
        return [(key, self._counts.pop(key)) for key in due]
