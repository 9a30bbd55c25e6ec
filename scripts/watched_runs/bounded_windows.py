"""A flow whose input ends: sums of ten seconds and key, kept as keyed state and given by `finish`."""

from __future__ import annotations

import os
import sqlite3
from typing import Any

from headgate import Context, Keyed, topology
from headgate.tasks import FilesSource

Row = dict[str, Any]
State = dict[int, list[int]]
WINDOW_S = 10


def parse(line: str) -> Row:
    second, key, value = line.split(",")
    return {"window": int(second) // WINDOW_S, "key": key, "value": int(value)}


class Sums(Keyed):
    """State of a key: window → rows, their sum."""

    def new(self, key: str) -> State:
        return {}

    def process(self, key: str, row: Row, state: State) -> tuple[State, list[Row]]:
        there = state.setdefault(row["window"], [0, 0])
        there[0] += 1
        there[1] += row["value"]
        return state, []

    def finish(self, key: str, state: State) -> list[list[Any]]:
        return [[key, window, rows, total] for window, (rows, total) in sorted(state.items())]


class Results:
    """Each result once, however often it comes: another result of the same window and key is another row."""

    def __init__(self, path: str) -> None:
        self._path = path

    def open(self, context: Context) -> None:
        self._database = sqlite3.connect(self._path, timeout=60, isolation_level=None)
        self._database.execute("pragma journal_mode=wal")
        self._database.execute(
            "create table if not exists results (key, time_window, rows, total, unique (key, time_window, rows, total))"
        )

    def __call__(self, row: list[Any]) -> None:
        self._database.execute("insert or ignore into results values (?, ?, ?, ?)", row)

    def close(self) -> None:
        self._database.close()


flow = topology("bounded")
lines = flow.source("lines", FilesSource, path=os.environ.get("LINES", "lines.csv"), format="text")
(
    lines
    >> flow.task("parse", parse)
    >> flow.task("sums", Sums).by("key")
    >> flow.task("results", Results, path=os.environ.get("RESULTS", "results.db"))
)
