"""The audit log of a controller as text: JSON lines, each chained to the one before by its SHA-256. Pure.

A command is one line when it is asked, before it is done, and one with its result. `hash` is that of the line with an
empty `hash`; `before` is the hash of the line before. So a line that was changed, removed or put in is found by whoever
reads; lines cut off at the end are found by the controller that wrote them, and by whoever kept a later hash.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec.structs import replace

FILE = "audit.jsonl"  # in the controller's folder
SCHEMA = "headgate/audit/v1"
TOLD_MOST = 10_000  # commands in one answer


class AuditLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """who "": the result of line `of`."""

    n: int
    time: str
    who: str = ""
    key: str = ""
    command: str = ""
    arguments: dict[str, Any] = {}
    of: int = 0
    result: str = ""
    before: str = ""
    hash: str = ""


encode_line = msgspec.json.Encoder().encode
_line = msgspec.json.Decoder(AuditLine)


def sealed(line: AuditLine) -> AuditLine:
    return replace(line, hash=hashlib.sha256(encode_line(replace(line, hash=""))).hexdigest())


def lines_of(data: bytes) -> tuple[list[AuditLine], int, str]:
    """The lines that can be read, how many bytes are whole lines, and the first fault of the chain ("" when whole)."""
    found, fault, before = list[AuditLine](), "", ""
    size = data.rfind(b"\n") + 1
    for number, text in enumerate(data[:size].split(b"\n")[:-1], 1):
        try:
            line = _line.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError):
            fault, before = fault or f"line {number} cannot be read", ""
            continue
        if encode_line(sealed(line)) != text:
            fault = fault or f"line {number} was changed"
        elif line.before != before or line.n != len(found) + 1:
            fault = fault or f"before line {number} lines were removed, added or moved"
        found.append(line)
        before = line.hash
    return found, size, fault


def head_of(data: bytes) -> str:
    found, _, _ = lines_of(data)
    return found[-1].hash if found else ""


def document(data: bytes, cut: str = "", most: int = TOLD_MOST) -> dict[str, Any]:
    """What the log says: a row for each command. fault: where its chain is broken, None when it is whole."""
    found, _, fault = lines_of(data)
    rows = list(_rows(found))
    return {
        "schema": SCHEMA,
        "lines": len(found),
        "head": found[-1].hash if found else "",
        "fault": fault or cut or None,
        "commands": rows[-most:],
    }


def _rows(lines: list[AuditLine]) -> Iterator[dict[str, Any]]:
    results = {line.of: line for line in lines if line.of}
    for line in lines:
        if line.of:
            continue
        done = results.get(line.n)
        yield {
            "n": line.n,
            "time": line.time,
            "who": line.who,
            "key": line.key,
            "command": line.command,
            "arguments": line.arguments,
            "result": line.result or (done.result if done is not None else "no answer"),
        }
