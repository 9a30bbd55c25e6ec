"""One reader for all text: however it is packed and encoded, the lines are those that Python itself finds."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tracemalloc
from collections.abc import Callable
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headgate.topology_runtime.connectors.text_files import LINE_MOST_BYTES, LineReader, stream, text_of
from headgate.topology_runtime.errors import BadRow, InvalidInput
from headgate.topology_runtime.worker.links.frame_encoding import ROW_BYTES_MOST

PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gzip": gzip.compress,
    "zstd": lambda data: pa.Codec("zstd").compress(data, asbytes=True),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
}
ENCODED = ["utf-8", "utf-8-sig", "utf-16"]


def lines(data: bytes, step: int = 7) -> list[Any]:
    opened, base = stream(io.BytesIO(data), "file")
    reader = LineReader(opened, "file", base or 0)
    found = []
    while some := reader.take(step):
        found += [line if isinstance(line, BadRow) else text_of(line, at, "file") for at, line in some]
    return found


@pytest.mark.parametrize("packed", PACKED)
@pytest.mark.parametrize("encoding", ENCODED)
@settings(max_examples=10)
@given(
    texts=st.lists(
        st.text(st.characters(exclude_characters="\r\n\0", codec="utf-8"), max_size=9), max_size=20
    )
)
def test_lines_are_those_that_were_written(packed: str, encoding: str, texts: list[str]) -> None:
    for end, last in product(("\n", "\r\n"), ("", "last")):
        whole = "".join(text + end for text in texts) + last
        assert lines(PACKED[packed](whole.encode(encoding))) == [*texts, *filter(None, [last])]


@pytest.mark.parametrize("packed", ["gzip", "zstd", "bzip2", "xz"])
def test_parts_packed_one_after_the_other_are_one_file(packed: str) -> None:
    """As `cat a.gz b.gz` makes them; the cut may be in the middle of a line."""
    pack = PACKED[packed]
    assert lines(pack(b"one\ntw") + pack(b"o\nthree")) == ["one", "two", "three"]


@pytest.mark.parametrize("packed", ["gzip", "zstd", "bzip2", "xz"])
@pytest.mark.parametrize("part", [0.2, 0.5, 0.99])
def test_what_ends_too_early_says_so_after_the_lines_before(packed: str, part: float) -> None:
    written = [str(number * 7919 % 100_003) for number in range(60_000)]
    data = PACKED[packed]("\n".join(written).encode())
    *whole, broken = lines(data[: int(len(data) * part)], 4096)
    assert whole == written[: len(whole)] and (whole or part < 0.5 or packed == "bzip2")
    assert isinstance(broken, BadRow) and "ends in the middle" in str(broken)


def test_a_line_may_be_as_long_as_a_row_and_a_longer_one_is_named_with_both_sizes() -> None:
    longest, longer = b"x" * LINE_MOST_BYTES, b"y" * (LINE_MOST_BYTES * 3)
    first, second, third = lines(b"\n".join([longest, longer, b"z"]))
    assert first == longest.decode() and third == "z"
    assert f"{len(longer):,}" in str(second) and f"{LINE_MOST_BYTES:,}" in str(second)
    assert LINE_MOST_BYTES < ROW_BYTES_MOST


def test_a_long_line_is_not_kept_in_memory() -> None:
    class Long(io.RawIOBase):
        left = 1 << 28

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
            size = min(len(buffer), self.left)
            buffer[:size], self.left = b"x" * size, self.left - size
            return size

    reader = LineReader(io.BufferedReader(Long()), "file")
    tracemalloc.start()
    ((_, line),) = reader.take(1)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert isinstance(line, BadRow) and f"{1 << 28:,}" in str(line)
    assert peak_bytes < 8 * LINE_MOST_BYTES


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\xe9b"])
def test_bytes_that_are_no_text_are_named_with_their_place(bad: bytes) -> None:
    before, broken, after = lines(b"good\n" + bad + b"\nfine")
    assert (before, after) == ("good", "fine") and isinstance(broken, BadRow)
    at = 5 + (bad.index(0xE9) if 0xE9 in bad else 0)
    assert f"byte {at:,} of file" in str(broken)


@pytest.mark.parametrize("encoding", ["utf-32", "utf-16-le", "utf-16-be"])
def test_other_encodings_are_refused(encoding: str) -> None:
    with pytest.raises(InvalidInput, match="cannot read file"):
        lines("text\n".encode(encoding))


@given(st.lists(st.binary(max_size=5).filter(lambda part: b"\n" not in part), max_size=30), st.integers(1, 9))
def test_a_growing_file_gives_whole_lines_only(parts: list[bytes], step: int) -> None:
    """Written byte by byte, read in between."""
    whole = b"\n".join(parts)
    grown = io.BytesIO()
    reader = LineReader(grown, "file")
    found = []
    for at in range(0, len(whole), step):
        here = grown.tell()
        grown.seek(0, io.SEEK_END)
        grown.write(whole[at : at + step])
        grown.seek(here)
        found += [line for _, line in reader.take(1000, growing=True)]
    found += [line for _, line in reader.take(1000)]
    ended = [part.removesuffix(b"\r") for part in (parts if not whole or parts[-1] else parts[:-1])]
    assert found == (ended if whole else [])
