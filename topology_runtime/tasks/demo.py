"""The built-in demo: events → parse → score and look-up → join → tag → archive.

    events ── parse ─┬─ score ───┬─ join ── tag ── archive
                     └─ lookup ──┘

`events` is this machine's own process telemetry, or a file of events. `score` computes, `lookup` waits
for a service (`tasks.service`), `join` brings an event's two rows together by its id.
"""

from __future__ import annotations

import os
from typing import Any

from headgate.topology_runtime.topology import Edge, Static, Task, Topology

HERE = "headgate.topology_runtime.tasks"
RATES_FILE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "taxi_day.csv")
RATE_SCALE = 0.006  # the day's most, 25,838 passengers a half hour, becomes 155 events/s
TIME_SCALE = 720.0  # a day becomes 120 s

SLOT_CORES, SLOT_MEMORY_BYTES = 0.12, 512 * 1024**2  # of its slots, unless told otherwise
SCORE_STEPS = 20_000  # about 2 ms of CPU
ARCHIVE_ROWS, ARCHIVE_S = 100, 0.5
# CPU that the tasks of fixed size need at the day's most, with a third to spare: 400 µs an event of
# telemetry (its spool included), 230 µs a line of a file, 85 µs a row archived, measured in a slot of 0.12
TELEMETRY_CORES, FILE_CORES, ARCHIVE_CORES = 0.08, 0.05, 0.02
MEMORY = 0.05  # of a slot, above the bare worker


def topology(service: str, input: str | None, directory: str, slot_cores: float = SLOT_CORES) -> Topology:
    """The demo's topology. service: "host:port" of the look-up service. input: a file of events, one
    per line, or None for telemetry. directory: where the archive goes. slot_cores: size of the slots
    that the source and the archive reserve a part of."""
    by_id: dict[str, Any] = {"grouping": "fields", "key": "id"}
    source = _static(TELEMETRY_CORES if input is None else FILE_CORES, slot_cores)
    sink = _static(ARCHIVE_CORES, slot_cores)
    return Topology(
        name="demo",
        tasks=(
            _events(input, source),
            Task("parse", run=f"{HERE}.parse:parse"),
            Task("score", run=f"{HERE}.score:Score", params={"steps": SCORE_STEPS}),
            Task("lookup", run=f"{HERE}.lookup:Lookup", params={"service": service}),
            Task("join", "hold", f"{HERE}.join:Join", {"fields": ["score", "weight"]}),
            Task("tag", run=f"{HERE}.tag:tag"),
            Task("archive", "hold", f"{HERE}.archive:Archive", _archive(directory), static=sink),
        ),
        edges=(
            Edge("events", "parse"),
            Edge("parse", "score"),
            Edge("parse", "lookup"),
            Edge("score", "join", **by_id),
            Edge("lookup", "join", **by_id),
            Edge("join", "tag", selectivity=0.5),  # two rows of an event become one
            Edge("tag", "archive"),
        ),
    )


def _events(input: str | None, static: Static) -> Task:
    if input is None:
        return Task("events", "source", f"{HERE}.telemetry:Telemetry", static=static)
    path = os.path.abspath(input)
    return Task("events", "source", f"{HERE}.file_lines:FileLines", {"path": path}, static=static)


def _archive(directory: str) -> dict[str, Any]:
    return {"directory": os.path.abspath(directory), "rows": ARCHIVE_ROWS, "seconds": ARCHIVE_S}


def _static(cores: float, slot_cores: float) -> Static:
    return Static(1, min(1.0, cores / slot_cores), MEMORY)


PLANNED = topology(
    "127.0.0.1:1", None, "archive"
)  # as `headgate plan demo` takes it: nothing of it is reached
