"""Tasks of the benchmark of back-pressure (scripts/bench_pressure.py)."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Sequence
from typing import Any

from headgate.topology_runtime.logic import Hold, Keyed, Source

ROWS_MOST = 1 << 26  # that are told apart
SLOW_KEY, KEYS = 0, 20


class Numbered(Source):
    """The row of a position is that position and a text."""

    def __init__(self, row_bytes: int = 10) -> None:
        self._text = "0123456789" * (row_bytes // 10)

    def read(self, position: int, limit: int) -> list[tuple[int, str]]:
        if len(self._text) == 10:
            return [(n, "0123456789") for n in range(position, position + limit)]
        return [(n, f"{n}{self._text}") for n in range(position, position + limit)]  # each a text of its own


def same(row: tuple[int, str]) -> tuple[int, str]:
    return row


class Grown:
    """Makes a large row of a small one, as who fetches a page does."""

    def __init__(self, row_bytes: int) -> None:
        self._text = "0123456789" * (row_bytes // 10)

    def __call__(self, row: tuple[int, str]) -> tuple[int, str]:
        return row[0], f"{row[0]}{self._text}"


class Thousands(Hold):
    """Keeps rows until there are ten thousand, or for seven seconds, then gives them on."""

    max_age_s = 7.0

    def ready(self, key: Any, rows: Sequence[tuple[int, str]]) -> bool:
        return len(rows) == 10_000

    def finish(self, key: Any, rows: Sequence[tuple[int, str]]) -> Sequence[tuple[int, str]]:
        return rows


def key_of(row: tuple[int, str]) -> int:
    return row[0] % KEYS


class SlowForOne(Keyed):
    """Passes rows on; of one key slowly."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def new(self, key: Any) -> int:
        return 0

    def process(self, key: Any, row: tuple[int, str], state: int) -> tuple[int, list[tuple[int, str]]]:
        if key == SLOW_KEY:
            time.sleep(self._pause_s)
        return state + 1, [row]


class Ticks:
    """A sink that counts how often each row came, in a file; it stands still while the file `stop` is there."""

    def __init__(self, folder: str, pause_s: float = 0.0) -> None:
        self._folder, self._pause_s = folder, pause_s

    def open(self, context: Any) -> None:
        fd = os.open(os.path.join(self._folder, "seen"), os.O_RDWR)
        self._seen = mmap.mmap(fd, ROWS_MOST)
        os.close(fd)
        self._stop = os.path.join(self._folder, "stop")

    def __call__(self, row: tuple[int, str]) -> None:
        number = row[0]
        if not number % 64 or self._pause_s:
            while os.path.exists(self._stop):
                time.sleep(0.05)
        if self._pause_s:
            time.sleep(self._pause_s)
        self._seen[number] = min(255, self._seen[number] + 1)
