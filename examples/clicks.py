"""Clicks become sessions: the clicks of one user without a break of more than 30 minutes belong together.

    headgate up examples/clicks.py:flow --rates 800 --seconds 6

One sees clicks.jsonl: a line for each session that ended, with its user, start, end and clicks. A session ends when the
next click of its user comes later than the break; the session that goes on is kept as state.
"""

import os
from typing import Any

from headgate import Exhausted, Keyed, Source, Static, topology
from headgate.tasks import CollectToFile

CLICKS, USERS, BREAK_S = 3_000, 40, 30 * 60

Row = dict[str, Any]


def click(number: int) -> Row:
    """The number-th click: users come again and again, and every now and then one makes a long pause."""
    pause = number // 500 * 3600
    return {"user": f"u{number * 7 % USERS}", "time_s": number * 10 + pause, "page": f"/p{number % 9}"}


class Clicks(Source):
    def read(self, position: int, limit: int) -> list[Row]:
        if position >= CLICKS:
            raise Exhausted
        return [click(number) for number in range(position, min(position + limit, CLICKS))]


class Sessions(Keyed):
    """State of a user: the session that goes on, or None."""

    def new(self, key: Any) -> Row | None:
        return None

    def process(self, key: Any, row: Row, state: Row | None) -> tuple[Row, list[Row]]:
        time_s = row["time_s"]
        if state is not None and time_s - state["end_s"] <= BREAK_S:
            return {**state, "end_s": time_s, "clicks": state["clicks"] + 1}, []
        begun = {"user": key, "start_s": time_s, "end_s": time_s, "clicks": 1}
        return begun, [] if state is None else [state]


flow = topology("clicks")
clicks = flow.source("clicks", Clicks)
sessions = flow.task("sessions", Sessions).emits(0.1)
store = flow.task("store", CollectToFile, static=Static(), path=os.path.abspath("clicks.jsonl"))
clicks >> sessions.by("user") >> store
