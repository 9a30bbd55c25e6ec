"""User code of a counted run: imported by its workers, and by the checker of what comes out.

numbers (source) → keyed → tally (state per key) → counts (sink)
                 → batch (hold)                  → numbers (sink)
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.logic import Context, Keyed, OffsetSource, Window
from headgate.topology_runtime.errors import ServiceAway

KEYS = 40
SEGMENT_BYTES = 1 << 18  # then the sink begins the next file, and this one may be taken away


class Spans:
    """Which whole numbers there were, as spans [start, end): small as long as there are few holes."""

    def __init__(self, flat: Iterable[int] = ()) -> None:
        """`flat`: start, end, start, end …"""
        numbers = list(flat)
        self.starts, self.ends = numbers[::2], numbers[1::2]

    def flat(self) -> list[int]:
        return [edge for span in zip(self.starts, self.ends, strict=True) for edge in span]

    def add(self, number: int) -> bool:
        """False when it was there already."""
        at = bisect_right(self.starts, number)
        if at and number < self.ends[at - 1]:
            return False
        joins_before = at > 0 and self.ends[at - 1] == number
        joins_after = at < len(self.starts) and self.starts[at] == number + 1
        if joins_before and joins_after:
            self.ends[at - 1] = self.ends.pop(at)
            del self.starts[at]
        elif joins_before:
            self.ends[at - 1] = number + 1
        elif joins_after:
            self.starts[at] = number
        else:
            self.starts.insert(at, number)
            self.ends.insert(at, number + 1)
        return True

    @property
    def count(self) -> int:
        return sum(self.ends) - sum(self.starts)


TROUBLE = Path(__file__).parent / "trouble"
MEMORY_BYTES = 1 << 30  # more than a slot has


def keyed(number: int) -> tuple[int, int]:
    if number % 20 == 0 and (TROUBLE / "memory").exists():
        (TROUBLE / "memory").unlink()
        taken = bytearray(MEMORY_BYTES)
        time.sleep(5.0)
        del taken
    return number % KEYS, number


class Tally(Keyed):
    """Which rows of a key were applied to its state, and how many of them once more.

    Gives (key, number, different rows applied, rows applied again), this row included. A state that lost
    a row lacks it, one that took a row twice says so: neither can hide behind the other."""

    def open(self, context: Context) -> None:
        if (TROUBLE / "open").exists():
            raise ConnectionError("no database")

    def new(self, key: Hashable) -> list[Any]:
        return [0, Spans()]

    def process(self, key: Hashable, row: tuple[int, int], state: list[Any]) -> tuple[Any, Iterable[Any]]:
        again, applied = state
        if not applied.add(row[1] // KEYS):
            again += 1
        return [again, applied], [(row[0], row[1], applied.count, again)]

    def snapshot(self, state: list[Any]) -> Any:
        return [state[0], state[1].flat()]

    def restore(self, saved: Any) -> list[Any]:
        return [saved[0], Spans(saved[1])]


class Batch(Window):
    """Rows leave by the dozen, or when the oldest is two seconds old."""

    max_age_s = 2.0

    def __init__(self, rows: int = 12) -> None:
        self._rows = rows

    def ready(self, key: Hashable, rows: Sequence[int]) -> bool:
        return len(rows) >= self._rows

    def finish(self, key: Hashable, rows: Sequence[int]) -> Iterable[int]:
        return rows


class Log(OffsetSource):
    """0, 1, 2 … as they come, so many a second from when the file at `begun` was made, each at three times its offset.
    What is done is said in `begun`.done-PARTITION, and forgotten."""

    def __init__(self, begun: str, rate_tps: float) -> None:
        self._begun, self._rate_tps, self._next = Path(begun), rate_tps, 0

    def open(self, context: Context) -> None:
        self._done = self._begun.with_suffix(f".done-{context.partition}")

    def seek(self, offset: int | None) -> None:
        done = int(self._done.read_text()) if self._done.exists() else 0
        if (offset or 0) < done:
            raise LookupError(f"what is at {offset} is forgotten: all below {done} was done")
        self._next = -(-(offset or 0) // 3)

    def _there(self) -> int:
        if not self._begun.exists():
            return 0
        return int((time.time() - self._begun.stat().st_mtime) * self._rate_tps)

    def poll(self, limit: int) -> Sequence[tuple[int, int]]:
        first, self._next = self._next, max(self._next, min(self._there(), self._next + limit))
        return [(3 * number, number) for number in range(first, self._next)]

    def done(self, offset: int) -> None:
        written = self._done.with_suffix(".written")  # whole, whoever reads it or is killed
        written.write_text(str(offset))
        written.replace(self._done)

    def lag(self) -> int:
        return self._there() - self._next


class Segments:
    """A sink: one line per row into `folder`/NAME-PID-THREAD-NUMBER, a new file after `SEGMENT_BYTES`."""

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name
        self._fd, self._number, self._bytes = -1, 0, 0
        self._thread = 0

    def open(self, context: Context) -> None:
        self._thread = context.thread
        self._next()

    def _next(self) -> None:
        self.close()
        path = f"{self._folder}/{self._name}-{os.getpid()}-{self._thread}-{self._number:09}"
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        self._number, self._bytes = self._number + 1, 0

    def __call__(self, row: Any) -> Any:
        if (TROUBLE / "service").exists():
            raise ServiceAway("no store", cause="it is switched off")
        numbers = row if isinstance(row, tuple | list) else (row,)
        line = " ".join(map(str, numbers)).encode() + b"\n"
        written = os.write(self._fd, line)
        if written != len(line):
            raise OSError(f"{self._name}: wrote {written} of {len(line)} bytes")
        self._bytes += written
        if self._bytes >= SEGMENT_BYTES:
            self._next()
        return row

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
