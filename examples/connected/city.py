"""Sensors of a city by MQTT: SQLite says where each one is, the mean of each district and minute goes to PostgreSQL.

    scripts/example city

That starts Mosquitto and PostgreSQL, sends readings and shows the table. `city_board.json` shows it in Grafana. With
services of your own: MQTT_URL, POSTGRES_URL, POSTGRES_PASSWORD and PLACES (an SQLite file, table `places`).
"""

import os
import sqlite3
from datetime import UTC, datetime
from typing import Any

from headgate import Context, Keyed, topology
from headgate.connectors import MqttSource, PostgresSink

Row = dict[str, Any]
Minutes = dict[int, list[float]]
KEPT = 60  # minutes of a district that readings may still come for


class AddDistrict:
    """{"at": 61.5, "sensor": "s1", "celsius": 20.5} gets the district of its sensor."""

    def open(self, context: Context) -> None:
        places = os.path.abspath(os.environ.get("PLACES", "places.sqlite"))
        self.places = sqlite3.connect(f"file:{places}?mode=ro", uri=True)

    def __call__(self, row: Row) -> Row:
        query = "select district from places where sensor = ?"
        for (district,) in self.places.execute(query, (row["sensor"],)):
            return {"district": district, "minute": int(row["at"] // 60), "celsius": float(row["celsius"])}
        raise LookupError(f"no place of {row['sensor']}")  # a dead letter


class Mean(Keyed):
    """State of a district: how many readings each of its newest minutes had, and their sum."""

    def new(self, key: str) -> Minutes:
        return {}

    def process(self, key: str, row: Row, state: Minutes) -> tuple[Minutes, list[Row]]:
        minute = row["minute"]
        if minute <= max(state, default=minute) - KEPT:
            raise ValueError(f"minute {minute} of {key} is over")
        count, total = state.get(minute, [0, 0.0])
        count, total = count + 1, total + row["celsius"]
        kept = {at: sums for at, sums in state.items() if at > minute - KEPT}
        mean = {"district": key, "minute": datetime.fromtimestamp(60 * minute, UTC), "readings": int(count)}
        return {**kept, minute: [count, total]}, [{**mean, "mean": round(total / count, 2)}]


flow = topology("city")
readings = flow.source(
    "readings",
    MqttSource,
    url=os.environ.get("MQTT_URL", "mqtt://127.0.0.1:1883"),
    topic="city/+/celsius",
    client_id="city",
)
places = flow.task("places", AddDistrict)
mean = flow.task("mean", Mean)
store = flow.task(
    "store",
    PostgresSink,
    url=os.environ.get("POSTGRES_URL", "postgresql://app@127.0.0.1:5432/app"),
    password="${ENV:POSTGRES_PASSWORD}",
    table="means",
    key=["district", "minute"],
    create=True,
)
readings >> places >> mean.by("district") >> store
