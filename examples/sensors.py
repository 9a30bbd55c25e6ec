"""Readings of sensors as SenML (RFC 8428): parsed, then the mean of the last ten values of each sensor.

    headgate up examples/sensors.py:flow --rates 500 --seconds 6

One sees sensors.jsonl: each record with the `mean` of its sensor. `parse_senml` and `SlidingMean` come with headgate.
"""

import json
import os

from headgate import Exhausted, Source, Static, topology
from headgate.tasks import CollectToFile, SlidingMean, parse_senml

PACKS = 1_000


def pack(number: int) -> str:
    """The number-th pack: the temperature and the humidity of one of ten rooms."""
    temperature = {
        "bn": f"room{number % 10}/",
        "bt": number,
        "n": "celsius",
        "u": "Cel",
        "v": 20 + number % 7,
    }
    humidity = {"n": "humidity", "u": "%RH", "v": 40 + number % 11}
    return json.dumps([temperature, humidity])


class Packs(Source):
    def read(self, position: int, limit: int) -> list[str]:
        if position >= PACKS:
            raise Exhausted
        return [pack(number) for number in range(position, min(position + limit, PACKS))]


flow = topology("sensors")
packs = flow.source("packs", Packs)
records = flow.task("parse", parse_senml).emits(2)
mean = flow.task("mean", SlidingMean, field="value", rows=10)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("sensors.jsonl"))
packs >> records >> mean.by("name") >> store
