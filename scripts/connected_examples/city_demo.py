"""Readings of twelve sensors in four districts, by MQTT."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import paho.mqtt.client as mqtt
import psycopg

from connected_examples.demo import Demo, Row
from real_services import Mosquitto, Postgres

DISTRICTS = ("harbour", "market", "park", "station")
SENSORS = 12
EVERY_S = 0.15  # between two readings


def reading(number: int) -> Row:
    at = round(number * EVERY_S, 2)
    return {"at": at, "sensor": f"s{number % SENSORS}", "celsius": 15 + number * 7 % 90 / 10}


NOBODY = 16  # MQTT 5: no matching subscribers


class City(Demo):
    needs = (Mosquitto, Postgres)
    about = "means of each district and minute, as PostgreSQL has them"

    def environment(self) -> Mapping[str, str]:
        login = self.services["postgres"].login
        assert login is not None
        return {
            "MQTT_URL": self.services["mosquitto"].url,
            "POSTGRES_URL": self.services["postgres"].url,
            "POSTGRES_PASSWORD": login.password,
            "PLACES": str(self.folder / "places.sqlite"),
        }

    def prepare(self) -> None:
        with closing(sqlite3.connect(self.folder / "places.sqlite")) as places, places:
            places.execute("create table places (sensor primary key, district)")
            rows = [(f"s{n}", DISTRICTS[n % len(DISTRICTS)]) for n in range(SENSORS)]
            places.executemany("insert into places values (?, ?)", rows)

    def send(self, first: int, count: int) -> None:
        """What nobody had subscribed to yet is sent again: the broker drops it, and says so."""
        broker = self.services["mosquitto"]
        client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
        dropped: set[int] = set()

        def told(client: Any, data: Any, number: int, code: Any, more: Any) -> None:
            if code.value == NOBODY:
                dropped.add(number)

        client.on_publish = told
        client.connect(broker.host, broker.port)
        client.loop_start()
        rows = list(map(reading, range(first, first + count)))
        while rows:
            dropped.clear()
            sent = [client.publish(f"city/{row['sensor']}/celsius", json.dumps(row), qos=1) for row in rows]
            for message in sent:
                message.wait_for_publish(30)
            rows = [row for row, message in zip(rows, sent, strict=True) if message.mid in dropped]
            time.sleep(0.1 * bool(rows))
        client.loop_stop()
        client.disconnect()

    def results(self, sent: int) -> list[Row] | None:
        service = self.services["postgres"]
        assert service.login is not None
        with psycopg.connect(service.url, password=service.login.password) as database:
            (made,) = database.execute("select to_regclass('means') is not null").fetchone() or (False,)
            if not made:
                return None
            minute = "to_char(minute at time zone 'UTC', 'HH24:MI')"
            query = f"select district, {minute}, readings, mean from means order by 2, 1"
            found = database.execute(query).fetchall()
        rows = [dict(zip(("district", "minute", "readings", "mean"), row, strict=True)) for row in found]
        return rows if sum(row["readings"] for row in rows) >= sent else None
