"""Requests per minute, by the time at which they were made: they come out of order, and some very late.

    headgate up examples/minutes.py:flow --rates 800 --seconds 6

One sees minutes.jsonl: a line for each service and minute, with how many requests there were, the slowest and the
95th percentile. A minute is given once no request from it is expected any more, 20 s of event time after its end. A
request that is later, by up to two hours, gives its minute again: the highest pane number counts.
"""

import os
from typing import Any

from headgate import Exhausted, Source, Static, topology, windows
from headgate.tasks import CollectToFile

REQUESTS, SERVICES = 3_000, ("cart", "login", "search")

Row = dict[str, Any]


def request(number: int) -> Row:
    """The number-th one that comes: two a second; up to 15 s late, and every 500th an hour."""
    late_s = 3600 if number % 500 == 499 else number * 7 % 15
    return {
        "service": SERVICES[number % 3],
        "made_s": 7200 + number / 2 - late_s,
        "ms": number * 37 % 211 + 1,
    }


class Requests(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= REQUESTS:
            raise Exhausted
        return [request(number) for number in range(position, min(position + limit, REQUESTS))]


flow = topology("minutes")
requests = flow.source("requests", Requests).timestamps("made_s", lateness=20)
minutes = flow.task(
    "minutes",
    windows.EventWindow,
    at="made_s",
    windows=windows.tumbling(60),
    aggregate=windows.several(
        requests=windows.count(), slowest=windows.max_of("ms"), p95=windows.quantile("ms", 0.95)
    ),
    late=2 * 3600,
).emits(0.05)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("minutes.jsonl"))
requests >> minutes.by("service") >> store
