"""The body of a request as rows: one JSON value, a JSON array or lines of JSON, also compressed."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import msgspec

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.errors import BadRow

JSON, LINES = "application/json", "application/x-ndjson"
LINES_TOO = (LINES, "application/ndjson", "application/jsonl", "application/x-jsonlines")
BLANK = b" \t\r\n"
GZIP = 16 + zlib.MAX_WBITS
ROW_TEXT_MOST = 400


class RequestRefused(Exception):
    """A request that is not taken. status: of HTTP."""

    def __init__(self, status: int, why: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(why)
        self.status, self.why, self.headers = status, why, dict(headers or {})


def kind_of(headers: Mapping[str, str]) -> str:
    """JSON or LINES. Raises RequestRefused for what this source does not read."""
    kind, _, more = headers.get("content-type", "").lower().partition(";")
    kind, charset = kind.strip(), more.partition("charset=")[2].partition(";")[0].strip(' "')
    if charset not in ("", "utf-8", "utf8", "us-ascii"):
        raise RequestRefused(415, "the text must be UTF-8")
    if headers.get("content-encoding", "identity").lower() not in ("identity", "gzip", "x-gzip"):
        raise RequestRefused(415, "Content-Encoding must be gzip, or none")
    if kind in LINES_TOO:
        return LINES
    if kind == JSON or (kind.startswith("application/") and kind.endswith("+json")):
        return JSON
    raise RequestRefused(415, f"Content-Type must be {JSON}, or {LINES} for a row on each line")


def plain(body: bytes, headers: Mapping[str, str], most: int) -> bytes:
    """What is in it, at most so many bytes. Raises RequestRefused."""
    if headers.get("content-encoding", "identity").lower() == "identity":
        return body
    found = bytearray()
    try:
        while body:  # each part that was compressed by itself
            part = zlib.decompressobj(GZIP)
            found += part.decompress(body, most + 1 - len(found))
            if len(found) > most:
                raise RequestRefused(413, f"the body has more than {most:,} bytes, decompressed")
            if not part.eof:
                raise RequestRefused(400, "the gzip data is cut short")
            body = part.unused_data
    except zlib.error as error:
        raise RequestRefused(400, "the body is no gzip data") from error
    return bytes(found)


def rows_of(body: bytes, kind: str, format: Format, rows_most: int) -> list[Any]:
    """All rows, or RequestRefused with the place of the first that is none."""
    if kind == LINES:
        lines = [(f"line {n}: $", line) for n, line in enumerate(body.split(b"\n"), 1) if line.strip(BLANK)]
    elif body.lstrip(BLANK)[:1] == b"[":
        try:
            items = msgspec.json.decode(body, type=list[msgspec.Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RequestRefused(400, f"$: no JSON: {error}"[:ROW_TEXT_MOST]) from error
        lines = [(f"$[{n}]", bytes(item)) for n, item in enumerate(items)]
    else:
        lines = [("$", body)]
    if len(lines) > rows_most:
        raise RequestRefused(413, f"{len(lines):,} rows are more than {rows_most:,}")
    return [_row(format, place, line) for place, line in lines]


def _row(format: Format, place: str, data: bytes) -> Any:
    try:
        return format.decode(data)
    except BadRow as error:
        raise RequestRefused(400, (place + error.what.removeprefix("$"))[:ROW_TEXT_MOST]) from error
