"""Keys that many rows of a task have: what the threads that send to it told, put together. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headgate.topology_runtime.key_counts import KeysSeen
from headgate.topology_runtime.topology import Topology

SHOWN_LEAST = 0.2  # of a task's rows


class HotKey(msgspec.Struct, frozen=True):
    """A key of a task, by the begin of its repr ("": not to be told), its range and its share of the task's rows."""

    task: str
    key: str
    key_range: int
    share: float

    @property
    def words(self) -> str:
        return f"key {self.key} (range {self.key_range})" if self.key else f"a key of range {self.key_range}"

    @property
    def sentence(self) -> str:
        return f"{self.share:.0%} of the rows of {self.task} are of {self.words}"


def hot_keys(seen: Iterable[KeysSeen], topology: Topology) -> tuple[HotKey, ...]:
    """Of each task the keys that have SHOWN_LEAST of its rows, the largest first. What a thread counted stands for all
    that it sent; a key is the same to all of them by its text and range."""
    rows: dict[str, int] = {}
    of_key: dict[tuple[str, str, int], float] = {}
    for one in seen:
        if not (0 <= one.edge < len(topology.edges) and 0 < one.looked_at <= one.rows):
            continue
        task = topology.edges[one.edge].target
        rows[task] = rows.get(task, 0) + one.rows
        for top in one.top:
            place = task, top.key, top.key_range
            of_key[place] = of_key.get(place, 0.0) + one.rows * min(top.rows, one.looked_at) / one.looked_at
    found = (HotKey(*place, count / rows[place[0]]) for place, count in of_key.items())
    return tuple(
        sorted((key for key in found if key.share >= SHOWN_LEAST), key=lambda key: (-key.share, key.task))
    )
