"""W1 and W4 on pathway: a Python connector, functions by `apply`, counts by groupby.

Called with W1 or W4 and how many rows."""

from __future__ import annotations

import sys
import time
from importlib.metadata import version

import pathway as pw

from peers import work

FRAME = 512


class Numbers(pw.Schema):
    row: tuple[int, float, str]


class Events(pw.Schema):
    row: bytes


def main(name: str, total: int) -> None:
    read = work.numbers
    if name == "W4":
        pool = work.events()
        read = lambda at, most: work.read_events(pool, at, most)  # noqa: E731
    clock = {}

    class Rows(pw.io.python.ConnectorSubject):
        def run(self):
            clock["start"] = time.perf_counter()
            for at in range(0, total, FRAME):
                for row in read(at, min(FRAME, total - at)):
                    self.next(row=row)

    table = pw.io.python.read(Rows(), schema=Numbers if name == "W1" else Events, autocommit_duration_ms=50)
    if name == "W1":
        sink = work.Sum()
        for function in (work.f1, work.f2, work.f3):
            table = table.select(row=pw.apply_with_type(function, tuple[int, float, str], pw.this.row))

        def changed(key, row, time, is_addition):
            sink(row["row"])
    else:
        sink, parse = work.LastCounts(), work.parser("msgspec")
        parsed = table.select(event=pw.apply_with_type(parse, tuple[str, str, float], pw.this.row))
        table = parsed.select(user=pw.this.event[0])
        table = table.groupby(pw.this.user).reduce(pw.this.user, count=pw.reducers.count())

        def changed(key, row, time, is_addition):
            if is_addition:
                sink((row["user"], row["count"]))

    pw.io.subscribe(table, on_change=changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    seconds = time.perf_counter() - clock["start"]
    delivery = "at most once: no persistence; of W4 a count per user and commit (50 ms), not per event"
    work.tell(total, seconds, sink, version("pathway"), delivery)


main(sys.argv[1], int(sys.argv[2]))
