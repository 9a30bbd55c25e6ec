"""What a controller would like to know after it was killed, once a second and best effort: tallies.

A small file, replaced whole, not fsynced: a lost or torn one costs duplicates (sources resume at an
older position) and counts, never a tuple.
"""

from __future__ import annotations

import os
from pathlib import Path
from zlib import crc32

import msgspec

CRC_BYTES = 4


class SourceTally(msgspec.Struct, frozen=True, array_like=True):
    """A partition's highest known positions: read, all below done, done in all; and rows sent again. `apart`:
    (thread, emitted, acked, done) of those whose open positions are not counted in them. `again`: was a part
    of it read once more?"""

    task: str
    partition: int
    emitted: int
    acked: int
    done: int
    replayed: int
    apart: tuple[tuple[int, int, int, int], ...] = ()
    again: bool = False


class FinishedTally(msgspec.Struct, frozen=True):
    """Rows that reached sinks, of settled positions: `floors`: (source number, partition, settled below);
    `tasks`: (sink, rows, distinct rows) of those; `logs`: (sink, thread, incarnation, bytes read)."""

    floors: tuple[tuple[int, int, int], ...] = ()
    tasks: tuple[tuple[str, int, int], ...] = ()
    logs: tuple[tuple[str, int, int, int], ...] = ()


class Tallies(msgspec.Struct, frozen=True):
    """Counts of a run so far. `latency`: (sink, source, buckets). `dead`: of older versions.
    `planning_s`: (epoch, seconds from the beginning of the turn until the plan was journaled)."""

    wall_ns: int
    sources: tuple[SourceTally, ...] = ()
    latency: tuple[tuple[str, str, tuple[int, ...]], ...] = ()
    dead: tuple[tuple[str, int, int], ...] = ()
    planning_s: tuple[tuple[int, float], ...] = ()
    finished: FinishedTally | None = None
    unlogged: tuple[tuple[str, int, int], ...] = ()  # VM, boot, rows that are in no log


class Store:
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
