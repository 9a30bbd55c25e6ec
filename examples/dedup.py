"""Drops events that came before: a sender that tries again sends some of them twice.

    headgate up examples/dedup.py:flow --rates 1000 --seconds 6

One sees dedup.jsonl: each id once. The state is a mark for each id; where ids are too many to keep, `DropSeen` of
headgate.tasks does it with Bloom filters of a fixed size.
"""

import os
from typing import Any

from headgate import Exhausted, Keyed, Source, Static, topology
from headgate.tasks import CollectToFile

EVENTS = 4_000

Row = dict[str, Any]


def event(number: int) -> Row:
    """Each fourth event is one of before, sent again."""
    return {"id": number // 2 if number % 4 == 3 else number, "value": number % 100}


class Events(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= EVENTS:
            raise Exhausted
        return [event(number) for number in range(position, min(position + limit, EVENTS))]


class FirstOnly(Keyed):
    """State of an id: has it come?"""

    def new(self, key: Any) -> bool:
        return False

    def process(self, key: Any, row: Row, state: bool) -> tuple[bool, list[Row]]:
        return True, [] if state else [row]


flow = topology("dedup")
events = flow.source("events", Events)
first = flow.task("first", FirstOnly).emits(0.8)
store = flow.task("store", CollectToFile, static=Static(), key="id", path=os.path.abspath("dedup.jsonl"))
events >> first.by("id") >> store
