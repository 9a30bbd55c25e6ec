"""W1 to W4 on pathway: a Python connector, functions by `apply`, counts by groupby.

Called with the work and how many rows. W1 and W4 run in one process, W2 and W3 in two (`pathway spawn -n 2`), over
which pathway spreads rows by key: what the source gives, and again between f1 and f2. Its sinks are in the first."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pathway as pw

from peers import work

NAME, TOTAL = sys.argv[1], int(sys.argv[2])
FRAME = 512


class Numbers(pw.Schema):
    row: tuple[int, float, str]


class Events(pw.Schema):
    row: bytes


class Rows(pw.io.python.ConnectorSubject):
    def run(self):
        if NAME == "W3":
            for row in work.in_time(TOTAL):
                self.next(row=row)
                self.commit()
            return
        pool = work.events() if NAME == "W4" else []
        work.begin()
        for at in range(0, TOTAL, FRAME):
            many = min(FRAME, TOTAL - at)
            for row in work.read_events(pool, at, many) if pool else work.numbers(at, many):
                self.next(row=row)


def mapped(table, function):
    return table.select(row=pw.apply_with_type(function, tuple[int, float, str], pw.this.row))


def tuples(rows):
    rows = mapped(rows, work.f1)
    if NAME != "W1":
        rows = rows.with_id_from(pw.this.row)
    return mapped(mapped(rows, work.noted(work.f2)), work.f3)


def counts(rows):
    parse = work.parser("msgspec")
    parsed = rows.select(event=pw.apply_with_type(parse, tuple[str, str, float], pw.this.row))
    users = parsed.select(user=pw.this.event[0]).groupby(pw.this.user)
    counted = users.reduce(pw.this.user, count=pw.reducers.count())
    return counted.select(row=pw.make_tuple(pw.this.user, pw.this.count))


def main():
    rows = pw.io.python.read(
        Rows(),
        schema=Events if NAME == "W4" else Numbers,
        autocommit_duration_ms=None if NAME == "W3" else 50,
    )
    sink = work.SINKS[NAME](TOTAL)

    def changed(key, row, time, is_addition):
        if is_addition:
            sink(row["row"])

    pw.io.subscribe(counts(rows) if NAME == "W4" else tuples(rows), on_change=changed)
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    if os.environ.get("PATHWAY_PROCESS_ID", "0") == "0":
        delivery = "at most once: no persistence"
        if NAME == "W4":
            delivery += "; a count per user and commit (50 ms), not per event"
        work.tell(NAME, sink, version("pathway"), delivery)


if NAME in ("W1", "W4") or "PATHWAY_PROCESSES" in os.environ:
    main()
else:
    spawn = [str(Path(sys.executable).with_name("pathway")), "spawn", "-n", "2"]
    spawn += ["--first-port", str(work.free_port()), sys.executable, "-P", *sys.argv]
    sys.exit(subprocess.run(spawn).returncode)
