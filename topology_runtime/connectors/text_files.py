"""The bytes of one text file as lines: gzip, bzip2, xz and zstd, byte order marks and UTF-16 told by its content.

    stream(file) → bytes, decompressed, in UTF-8, without a byte order mark → LineReader → (offset, line)

Offsets are the file's own where it is plain UTF-8, else those of the bytes that `stream` gives. What cannot be read
becomes a `BadRow` in its place, so that whoever reads lines can go on behind it.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import lzma
import zlib
from collections import deque
from collections.abc import Callable
from typing import Any, BinaryIO

from headgate.topology_runtime.errors import BadRow, InvalidInput

CHUNK_BYTES = 1 << 18
PACKED_BYTES = 1 << 13  # of packed data at once: what breaks takes so much before it along
LINE_MOST_BYTES = 768 * 1024 - 256  # a row has room for 768 KiB on the wire; the rest is for its number
MAGIC_MOST = 6
UTF16 = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
UTF32 = (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)

Line = tuple[int, bytes | BadRow]  # where it begins; what it says, without its end


def _zstd(file: BinaryIO) -> Any:
    import pyarrow

    return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, mode="r"), "zstd")


def _gzip(file: BinaryIO) -> Any:
    return gzip.GzipFile(fileobj=file)


FORMS: tuple[tuple[bytes, str, Callable[[BinaryIO], Any]], ...] = (
    (b"\x1f\x8b", "gzip", _gzip),
    (b"\x28\xb5\x2f\xfd", "zstd", _zstd),
    (b"BZh", "bzip2", bz2.BZ2File),
    (b"\xfd7zXZ\x00", "xz", lzma.LZMAFile),
)
BROKEN = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)  # what these say of data that ends early or is no such data


def form_of(file: BinaryIO) -> str:
    """How it is compressed, by its first bytes; "" where it is not. The file stands at its begin again."""
    start = file.read(MAGIC_MOST)
    file.seek(0)
    return next((name for magic, name, _ in FORMS if start.startswith(magic)), "")


def stream(file: BinaryIO, name: str) -> tuple[io.BufferedReader[Any], int | None]:
    """Its bytes, decompressed and in UTF-8; and how many bytes of the file come before them, None where they are not
    the file's own. Raises InvalidInput for what is no text in UTF-8 or UTF-16."""
    form = form_of(file)
    opened = next((open_(file) for _, known, open_ in FORMS if known == form), file)
    buffered = io.BufferedReader(_Raw(opened, PACKED_BYTES if form else CHUNK_BYTES), CHUNK_BYTES)
    try:
        start = buffered.peek(4)[:4]
    except BROKEN:
        return buffered, None  # said when lines are read
    encoding = UTF16.get(start[:2])
    zeros = encoding is None and b"\0" in start
    if odd := "UTF-32" if start.startswith(UTF32) else "UTF-16 without its mark, or no text" if zeros else "":
        raise InvalidInput(
            f"cannot read {name}", cause=f"it is no text in UTF-8: {odd}?", hint="convert it: iconv -t UTF-8"
        )
    if encoding is not None:
        buffered.read(2)
        return io.BufferedReader(_Raw(_Utf8(buffered, encoding)), CHUNK_BYTES), None
    mark = len(codecs.BOM_UTF8) if start.startswith(codecs.BOM_UTF8) else 0
    buffered.read(mark)
    return buffered, None if form else mark


class _Raw(io.RawIOBase):
    """Any object with `read`, as io's buffers want it. What broke stays broken: some say so once only."""

    def __init__(self, under: BinaryIO | _Utf8, most: int = CHUNK_BYTES) -> None:
        self._under, self._most = under, most
        self._broken: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._broken is not None:
            raise self._broken
        try:
            data = self._under.read(min(len(buffer), self._most))
        except BROKEN as error:
            self._broken = error
            raise
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._under.close()
        super().close()


class _Utf8:
    """A file in UTF-16, as UTF-8. Half a character becomes bytes that are no UTF-8, so that its line is named as one
    that cannot be read."""

    def __init__(self, under: BinaryIO, encoding: str) -> None:
        self._under = under
        self._decoder = codecs.getincrementaldecoder(encoding)("surrogatepass")
        self._left, self._over = b"", False

    def read(self, size: int) -> bytes:
        while len(self._left) < size and not self._over:
            data = self._under.read(CHUNK_BYTES)
            self._over = not data
            try:
                text = self._decoder.decode(data, final=self._over)
            except UnicodeDecodeError:  # an odd byte at the end
                text = "\udc00"
            self._left += text.encode("utf-8", "surrogatepass")
        given, self._left = self._left[:size], self._left[size:]
        return given

    def close(self) -> None:
        self._under.close()


class LineReader:
    """The lines of a stream from byte `at` on, where it stands.

    >>> LineReader(io.BytesIO(b"a\\r\\nb"), "x").take(5)
    [(0, b'a'), (3, b'b')]
    """

    def __init__(self, source: io.BufferedReader[Any] | io.BytesIO, name: str, at: int = 0) -> None:
        self._source, self._name = source, name
        self._ready: deque[Line] = deque()
        self._rest, self._rest_at = b"", at
        self._skipped = 0  # bytes of a line that is too long
        self.over = False  # has the stream ended?

    @property
    def at(self) -> int:
        """Where the next line begins."""
        return self._ready[0][0] if self._ready else self._rest_at

    def take(self, most: int, growing: bool = False) -> list[Line]:
        """The next lines, `most` at most; fewer at the end of what there is. growing: the file may grow, so what
        stands behind the last newline is no line yet."""
        while len(self._ready) < most and not self.over:
            if not self._read() and (growing or not self._end()):
                break
        return [self._ready.popleft() for _ in range(min(most, len(self._ready)))]

    def _read(self) -> bool:
        """False when there is nothing more for now."""
        try:
            chunk = self._source.read1(CHUNK_BYTES)  # what was read before an error is not lost then
        except BROKEN as error:
            self.over, self._rest, self._skipped = True, b"", 0  # half a line is none
            text = f"{self._name} ends in the middle of its compressed data, or that is damaged: {error}"
            self._ready.append(
                (self._rest_at, BadRow(text, hint="rows before it were read; get a whole copy"))
            )
            return False
        if not chunk:
            return False
        *lines, rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._put(line, 1)
        self._rest = rest
        if self._skipped + len(rest) > LINE_MOST_BYTES:  # kept as a length alone
            self._skipped, self._rest = self._skipped + len(rest), b""
        return True

    def _end(self) -> bool:
        """What stands behind the last newline, as the last line; False when there is none."""
        self.over = True
        if not self._rest and not self._skipped:
            return False
        rest, self._rest = self._rest, b""
        self._put(rest, 0)
        return True

    def _put(self, line: bytes, newline: int) -> None:
        begins, size = self._rest_at, self._skipped + len(line)
        self._rest_at, self._skipped = begins + size + newline, 0
        if size <= LINE_MOST_BYTES:
            self._ready.append((begins, line.removesuffix(b"\r")))
            return
        text = (
            f"a line of {size:,} bytes at byte {begins:,} of {self._name} is longer than a row may be, "
            f"{LINE_MOST_BYTES:,} bytes"
        )
        self._ready.append((begins, BadRow(text)))


def text_of(line: bytes, offset: int, name: str) -> str | BadRow:
    """The line as text; what is no UTF-8 is said with its place."""
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(
            f"byte 0x{line[error.start]:02x} at byte {offset + error.start:,} of {name} is no UTF-8",
            cause=f"the line that begins at byte {offset:,}: {line[:80]!r}",
            hint="convert the file to UTF-8 (iconv), or find what wrote this line",
        )
