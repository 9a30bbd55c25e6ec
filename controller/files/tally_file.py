"""What a controller would like to know after it was killed, once a second and best effort: tallies.

A small file, replaced whole, not fsynced: a lost or torn one costs duplicates (sources resume at an
older position) and counts, never a tuple.
"""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import msgspec

from headgate.controller.knowledge.tallies import Tallies

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
