"""The built-in demo: readings → parse → a mean of each sensor; of one reading in fifty also a score and a look-up.

    readings ── parse ─┬─ mean
                       └─ sample ── score ── lookup ── archive

`readings` are made, or are the lines of a file. `mean` keeps state per sensor. `score` computes, `lookup` waits for a
service (`tasks.lookup_service`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from headgate.topology_runtime.api.cluster import SLOT_CORES
from headgate.topology_runtime.api.logic import flat_map
from headgate.topology_runtime.api.topology import Edge, Static, Task, Topology
from headgate.topology_runtime.tasks.row_sources import Numbered

HERE = "headgate.topology_runtime.tasks"
SHIPPED = Path(__file__).resolve().parents[1] / "examples"
RATES_FILE = str(SHIPPED / "demo_rates.csv")
MODELS = SHIPPED / "demo_models"  # for slots of SLOT_CORES

SENSORS, LINES = 500, 4096
SAMPLE = 50  # one reading in so many is scored and looked up
SCORE_STEPS = 4_000  # about 0.4 ms of CPU
LOOKUP_MS = 5.0
ARCHIVE_ROWS, ARCHIVE_S = 10, 0.02
# CPU that the tasks of fixed size need at the highest rate: 23 µs a reading, 170 µs a row archived
SOURCE_CORES, ARCHIVE_CORES = 0.13, 0.03
MEMORY = 0.05  # of a slot, above the bare worker


class Readings(Numbered):
    """(number, JSON text) of made readings of `SENSORS` sensors; the same number is always the same reading."""

    def read(self, position: int, limit: int) -> Sequence[tuple[int, str]]:
        lines = texts()
        return [(number, lines[number % LINES]) for number in self.numbers(position, limit)]


@cache
def texts() -> list[str]:
    """What the readings say: each sensor swings slowly around a level of its own."""
    return [
        f'{{"sensor":"s{n * 7 % SENSORS:03d}","celsius":{15 + n * 7 % SENSORS % 20 + n * 31 % 97 / 40:.2f},'
        f'"humidity":{40 + n * 13 % 41}}}'
        for n in range(LINES)
    ]


@flat_map
def sample(row: dict[str, Any]) -> list[dict[str, Any]]:
    """One row in `SAMPLE`."""
    return [row] if row.get("event_id", row["id"]) % SAMPLE == 0 else []


def topology(service: str, input: str | None, directory: str, slot_cores: float = SLOT_CORES) -> Topology:
    """The demo's topology. service: "host:port" of the look-up service. input: a file of events, one
    per line, or None for made readings. directory: where the archive goes. slot_cores: size of the slots
    that the source and the archive reserve a part of."""
    archive = {"directory": os.path.abspath(directory), "rows": ARCHIVE_ROWS, "seconds": ARCHIVE_S}
    sink = _static(ARCHIVE_CORES, slot_cores)
    return Topology(
        name="demo",
        tasks=(
            _readings(input, _static(SOURCE_CORES, slot_cores)),
            Task("parse", run=f"{HERE}.parsers:parse"),
            Task(
                "mean",
                "keyed",
                f"{HERE}.stateful:SlidingMean",
                {"field": "celsius"},
                state="keyed",
                side_effects=False,
            ),
            Task("sample", "flat_map", f"{HERE}.demo:sample"),
            Task("score", run=f"{HERE}.computing:Score", params={"steps": SCORE_STEPS}),
            Task("lookup", run=f"{HERE}.waiting:Lookup", params={"service": service}),
            Task("archive", "hold", f"{HERE}.sinks:Archive", archive, static=sink),
        ),
        edges=(
            Edge("readings", "parse"),
            Edge("parse", "mean", grouping="fields", key="subject"),
            Edge("parse", "sample"),
            Edge("sample", "score", selectivity=1 / SAMPLE),
            Edge("score", "lookup"),
            Edge("lookup", "archive"),
        ),
    )


def _readings(input: str | None, static: Static) -> Task:
    if input is None:
        return Task("readings", "source", f"{HERE}.demo:Readings", static=static)
    path = os.path.abspath(input)
    return Task(
        "readings", "source", f"{HERE}.row_sources:FileLines", {"path": path, "repeat": True}, static=static
    )


def _static(cores: float, slot_cores: float) -> Static:
    return Static(1, min(1.0, cores / slot_cores), MEMORY)


# as `headgate plan demo` takes it: nothing of it is reached
PLANNED = topology("127.0.0.1:1", None, "archive")
