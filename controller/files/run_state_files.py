"""The dead letters of a run on the controller's disk: JSON lines that are only appended, and written again when
most of them say nothing any more. What a full disk does not take waits, in order.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import msgspec

from headgate.controller.knowledge.dead_letters import DeadLetterQueue, DeadLetterRecord, records_of
from headgate.controller.knowledge.run_tallies import Tallies

SHORTEN_BYTES = 4 << 20  # a file that has grown by so much, and doubled, is written again

_json = msgspec.json.Encoder()


class DeadLetterFile:
    """The file at `path`; one writer."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._waiting: list[DeadLetterRecord] = []
        self._size = self._short = 0

    def read(self) -> tuple[DeadLetterRecord, ...]:
        """What is there; a torn last line is cut off. Raises OSError."""
        records, self._size = self._records()
        self._short = self._size
        return tuple(records)

    def _records(self, most_bytes: int | None = None) -> tuple[list[DeadLetterRecord], int]:
        """Whole lines of the first so many bytes, and how many bytes they are."""
        records, size = list[DeadLetterRecord](), 0
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return records, size
        for line in data[:most_bytes].split(b"\n")[:-1]:
            try:
                records += records_of([line])
            except msgspec.DecodeError:
                break  # of a disk that lost what it had not synced: what is before it is whole
            size += len(line) + 1
        return records, size

    def append(self, records: Sequence[DeadLetterRecord]) -> None:
        """Add these, and those that wait. Raises OSError: then they wait."""
        self._waiting += records
        data = b"".join(_json.encode(record) + b"\n" for record in self._waiting)
        if self._size + len(data) > 2 * self._short + SHORTEN_BYTES:
            self._replace(b"".join(_json.encode(record) + b"\n" for record in self.whole()))
        elif data:
            self._add(data)
        self._waiting = []

    def whole(self) -> tuple[DeadLetterRecord, ...]:
        """All there is, those that wait too, as short as can be. Raises OSError."""
        found = DeadLetterQueue()
        found.recall((*self._records(self._size)[0], *self._waiting))
        return found.whole()

    def _add(self, data: bytes) -> None:
        fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            at, left = self._size, memoryview(data)
            while left:
                written = os.pwrite(fd, left, at)
                at, left = at + written, left[written:]
            os.ftruncate(fd, at)
        finally:
            os.close(fd)
        self._size = at

    def _replace(self, data: bytes) -> None:
        new = self.path.with_name(self.path.name + ".new")
        new.write_bytes(data)
        os.replace(new, self.path)
        self._size = self._short = len(data)


# ── What a controller would like to know after it was killed, once a second and best effort: tallies ────
#
# A small file, replaced whole, not fsynced: a lost or torn one costs duplicates (sources resume at an
# older position) and counts, never a tuple.

CRC_BYTES = 4


class TallyFile:
    """The tallies kept at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._next = path.with_name(path.name + ".new")

    def keep(self, tallies: Tallies) -> None:
        """Replace what is kept; raises OSError."""
        data = msgspec.msgpack.encode(tallies)
        self._next.write_bytes(crc32(data).to_bytes(CRC_BYTES, "big") + data)
        os.replace(self._next, self.path)

    def remove(self) -> None:
        for path in (self.path, self._next):
            path.unlink(missing_ok=True)

    def read(self) -> Tallies | None:
        """What was kept last; None when there is nothing or it does not read."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return None
        body = data[CRC_BYTES:]
        if crc32(body).to_bytes(CRC_BYTES, "big") != data[:CRC_BYTES]:
            return None
        try:
            return msgspec.msgpack.decode(body, type=Tallies)
        except msgspec.DecodeError:
            return None
