"""Alerts with hysteresis: an alert begins above 80 degrees and ends below 70, for each machine by itself.

    headgate up examples/alerts.py:flow --rates 1000 --seconds 6

One sees alerts.jsonl: a line when an alert of a machine begins and one when it ends, and none for values that swing
around 80. The state of a machine is whether its alert is on.
"""

import os
from typing import Any

from headgate import Exhausted, Keyed, Source, Static, topology
from headgate.tasks import CollectToFile

READINGS, MACHINES = 4_000, 8
ON, OFF = 80, 70

Row = dict[str, Any]


def reading(number: int) -> Row:
    """Each machine warms up to 100 degrees and cools down to 50, not quite smoothly."""
    machine, step = number % MACHINES, number // MACHINES
    swing = abs((step + machine * 13) % 100 - 50)  # 50 → 0 → 50
    return {"machine": f"m{machine}", "step": step, "degrees": 50 + swing + step * 7 % 5}


class Readings(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= READINGS:
            raise Exhausted
        return [reading(number) for number in range(position, min(position + limit, READINGS))]


class Alerts(Keyed):
    def new(self, key: Any) -> bool:
        return False

    def process(self, key: Any, row: Row, state: bool) -> tuple[bool, list[Row]]:
        now = row["degrees"] > (OFF if state else ON)
        return now, [{**row, "alert": "on" if now else "off"}] if now != state else []


flow = topology("alerts")
readings = flow.source("readings", Readings)
alerts = flow.task("alerts", Alerts).emits(0.02)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("alerts.jsonl"))
readings >> alerts.by("machine") >> store
