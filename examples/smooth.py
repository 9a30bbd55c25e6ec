"""Takes the noise out of measured positions with a Kalman filter, one for each vehicle.

    headgate up examples/smooth.py:flow --rates 800 --seconds 6

One sees smooth.jsonl: each row with an `estimate` beside the noisy `metres`. `Kalman` comes with headgate; an edge with
`.by("vehicle")` gives it the rows of one vehicle in their order.
"""

import os
from typing import Any

from headgate import Exhausted, Source, Static, topology
from headgate.tasks import CollectToFile, Kalman

ROWS, VEHICLES = 2_000, 5


def position_of(number: int) -> dict[str, Any]:
    """A vehicle that stands still, measured with an error of up to 10 metres."""
    vehicle = number % VEHICLES
    return {"vehicle": f"v{vehicle}", "n": number, "metres": 100.0 * vehicle + number * 7919 % 21 - 10}


class Positions(Source):
    def read(self, position: int, limit: int) -> list[dict[str, Any]]:
        if position >= ROWS:
            raise Exhausted
        return [position_of(number) for number in range(position, min(position + limit, ROWS))]


flow = topology("smooth")
positions = flow.source("positions", Positions)
smooth = flow.task("smooth", Kalman, field="metres", drift=0.01, noise=36.0)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("smooth.jsonl"))
positions >> smooth.by("vehicle") >> store
