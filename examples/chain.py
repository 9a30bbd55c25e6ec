"""A chain whose first edges carry most of the bytes: what the traffic-aware scheduling paper is about.

    headgate up examples/chain.py:flow --rates 300 --seconds 20 --mapper traffic --vms 2,2

`unpack` makes eight rows of 1 kB of each frame, `brief` makes them short again, `count` counts by camera. With --mapper
traffic, plans put tasks that send much to each other into one slot, by the bytes that were measured; `headgate explain`
says what moved, and `headgate status` where the tasks are. chain.jsonl has ["camera", count] lines.
"""

import os
from typing import Any

from headgate import Exhausted, Source, Static, flat_map, topology
from headgate.tasks import CollectToFile, CountByKey

FRAMES, PARTS, CAMERAS = 600, 8, 6

Row = dict[str, Any]


class Frames(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= FRAMES:
            raise Exhausted
        return [
            {"frame": n, "camera": f"c{n % CAMERAS}"} for n in range(position, min(position + limit, FRAMES))
        ]


@flat_map
def unpack(frame: Row) -> list[Row]:
    return [{**frame, "part": part, "pixels": bytes([part]) * 1024} for part in range(PARTS)]


def brief(part: Row) -> Row:
    return {"camera": part["camera"], "light": sum(part["pixels"]) // len(part["pixels"])}


flow = topology("chain")
frames = flow.source("frames", Frames)
unpacked = flow.task("unpack", unpack).emits(PARTS)
short = flow.task("brief", brief)
count = flow.task("count", CountByKey)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("chain.jsonl"))
frames >> unpacked >> short >> count.by("camera") >> store
