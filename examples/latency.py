"""A latency constraint: rows shall take at most 30 ms along a path, on average over 15 seconds.

    headgate up examples/latency.py:flow --rates 100 --seconds 30

Buffers save CPU and cost time. With `flow.latency(…)` the runtime watches the path and makes its buffers smaller when
the limit is not kept, as in the paper on Nephele's latency constraints; without it they stay as they are. `headgate
status` shows the constraint and what was measured; latency.jsonl has the rows, each with its `level`.
"""

import os
from typing import Any

from headgate import Exhausted, Source, Static, topology
from headgate.tasks import CollectToFile

ROWS = 3_000

Row = dict[str, Any]


class Frames(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= ROWS:
            raise Exhausted
        return [{"id": n, "light": n * 29 % 256} for n in range(position, min(position + limit, ROWS))]


def decode(row: Row) -> Row:
    return {**row, "light": row["light"] / 255}


def level(row: Row) -> Row:
    return {"id": row["id"], "level": "dark" if row["light"] < 0.3 else "bright"}


flow = topology("latency")
frames = flow.source("frames", Frames)
decoded = flow.task("decode", decode)
levels = flow.task("level", level)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("latency.jsonl"))
frames >> decoded >> levels >> store
flow.latency(frames, decoded, levels, store, limit_ms=30)
