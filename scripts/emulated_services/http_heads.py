"""The little of HTTP/1.1 that our services read: a request's head and where its body ends."""

from __future__ import annotations

from dataclasses import dataclass

BACKLOG = 512  # connections that wait to be taken
HEAD_MOST_BYTES = 64 * 1024
PIECE_BYTES = 256 * 1024  # of an answer, passed on at once
LENGTH_MOST_DIGITS = 18
END = b"\r\n\r\n"
REASONS = {
    200: "OK", 206: "Partial Content", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed",
    411: "Length Required", 416: "Range Not Satisfiable", 431: "Request Header Fields Too Large",
    502: "Bad Gateway",
}  # fmt: skip


class RequestRefused(Exception):
    """A request that cannot be served; `status`: its answer."""

    def __init__(self, status: int) -> None:
        super().__init__(REASONS[status])
        self.status = status


@dataclass(frozen=True)
class Head:
    """`fields`: by lower-case name."""

    method: str
    path: str
    fields: dict[str, str]

    @property
    def body_bytes(self) -> int:
        """Bytes that follow the head. Raises Refused when that is not said plainly."""
        if "transfer-encoding" in self.fields:
            raise RequestRefused(411)
        text = self.fields.get("content-length", "0")
        if not _is_size(text):
            raise RequestRefused(400)
        return int(text)


def head_of(data: bytes) -> Head:
    """The head in `data`, up to its empty line. Raises Refused when it is none."""
    first, *lines = data.decode("latin-1").removesuffix("\r\n\r\n").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or not words[2].startswith("HTTP/1."):
        raise RequestRefused(400)
    fields: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise RequestRefused(400)
        fields[name.lower()] = value.strip()
    return Head(words[0], words[1], fields)


def answer_head(status: int, size_bytes: int, kind: str = "text/plain", *more: str) -> bytes:
    """The head of an answer with a body of this size."""
    lines = [f"HTTP/1.1 {status} {REASONS[status]}", f"Content-Length: {size_bytes}", f"Content-Type: {kind}"]
    return "\r\n".join([*lines, *more, "", ""]).encode("latin-1")


def refusal(status: int) -> bytes:
    """A whole answer that says no and closes the connection."""
    text = f"{REASONS[status]}\n".encode()
    return answer_head(status, len(text), "text/plain", "Connection: close") + text


def range_of(text: str | None, size_bytes: int) -> tuple[int, int] | None:
    """(first, end) of a `Range` field with one range; None: everything. Raises Refused(416)."""
    if text is None or not text.startswith("bytes=") or "," in text:
        return None
    first, dash, last = text.removeprefix("bytes=").strip().partition("-")
    if not dash or not all(_is_size(each or "0") for each in (first, last)) or not first + last:
        return None
    if not first:
        start, end = max(0, size_bytes - int(last)), size_bytes
    else:
        start, end = int(first), min(size_bytes, int(last) + 1) if last else size_bytes
    if start >= end:
        raise RequestRefused(416)
    return start, end


def _is_size(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= LENGTH_MOST_DIGITS
