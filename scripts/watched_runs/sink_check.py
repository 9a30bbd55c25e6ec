"""What reached the sinks of a counted run, checked row by row while it runs, in little memory and disk.

Every number that was read must reach both sinks; more than once is a duplicate. The state of each key must
have had every row of that key (`Tally` of counted_tasks.py says which it had, and what it took again).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from watched_runs.counted_tasks import KEYS, Spans

SINKS = ("counts", "numbers")
SHOWN = 20


@dataclass
class Sink:
    """The rows of one sink so far."""

    rows: int = 0
    seen: Spans = field(default_factory=Spans)

    def add(self, number: int) -> None:
        self.rows += 1
        self.seen.add(number)

    def missing(self, emitted: int) -> list[int]:
        """Of the numbers below `emitted` the first that never came, and any that nobody had read."""
        holes = zip([0, *self.seen.ends], [*self.seen.starts, emitted], strict=True)
        found = [number for start, end in holes for number in range(start, min(end, start + SHOWN))]
        return found[:SHOWN]

    def verdict(self, emitted: int) -> dict[str, Any]:
        end = self.seen.ends[-1] if self.seen.ends else 0
        return {
            "rows": self.rows,
            "lost": emitted - self.seen.count,
            "duplicates": self.rows - self.seen.count,
            "first_lost": self.missing(emitted),
            "never_read": max(0, end - emitted),
        }


class Checker:
    """The sinks of one run whose only source thread reads 0, 1, 2 …"""

    def __init__(self) -> None:
        self.sinks = {name: Sink() for name in SINKS}
        self.applied = [0] * KEYS
        self.again = [0] * KEYS

    def take(self, sink: str, line: str) -> None:
        """One line of a sink's file."""
        numbers = [int(word) for word in line.split()]
        if sink == "numbers":
            (number,) = numbers
        else:
            key, number, applied, again = numbers
            self.applied[key] = max(self.applied[key], applied)
            self.again[key] = max(self.again[key], again)
        self.sinks[sink].add(number)

    def short(self, emitted: int) -> dict[int, int]:
        """Keys whose state never had all their rows → how many it lacked (less than 0: had too many)."""
        lacks = {key: len(range(key, emitted, KEYS)) - had for key, had in enumerate(self.applied)}
        return {key: rows for key, rows in lacks.items() if rows}

    def verdict(self, emitted: int) -> dict[str, Any]:
        """Of a run that is over and says that it read so many rows."""
        short = self.short(emitted)
        sinks = {name: sink.verdict(emitted) for name, sink in self.sinks.items()}
        wrong = any(one["lost"] or one["never_read"] for one in sinks.values())
        return {
            "whole": not short and not wrong,
            "rows_read": emitted,
            "sinks": sinks,
            "keys_short": short,
            "applied_again": sum(self.again),
        }

    @property
    def rows(self) -> int:
        return sum(sink.rows for sink in self.sinks.values())


class Segments:
    """Reads on in the files that the sinks write (counted_tasks.py), and takes away those that are over."""

    def __init__(self, folder: Path, checker: Checker) -> None:
        self.folder, self._checker = folder, checker
        self._read: dict[str, int] = {}

    def drain(self) -> None:
        names = sorted(entry.name for entry in os.scandir(self.folder))
        newest = {name.rpartition("-")[0]: name for name in names}
        for name in names:
            over = name not in newest.values() or not os.path.exists(f"/proc/{name.split('-')[1]}")
            self._read_on(name)
            if over:
                (self.folder / name).unlink()
                self._read.pop(name, None)

    def _read_on(self, name: str) -> None:
        """Whole lines that are new."""
        with open(self.folder / name, "rb") as file:
            file.seek(self._read.get(name, 0))
            whole, newline, _ = file.read().rpartition(b"\n")
        self._read[name] = self._read.get(name, 0) + len(whole) + len(newline)
        sink = name.partition("-")[0]
        for line in whole.decode().splitlines():
            self._checker.take(sink, line)
