"""Nexmark's queries as flows; what each of them answers is in `sql/`, over the same events.

    headgate up examples/nexmark/queries.py:q3 --rates 5000

One sees q3.jsonl. NEXMARK_EVENTS says how many events there are, NEXMARK_RATE how many of them are in a second of event
time, NEXMARK_DISORDER within how many rows their order is another, NEXMARK_OUT the folder of results. With
NEXMARK_SINK=folder these go into files that have each row once, also after a kill.
"""

from __future__ import annotations

import os
from typing import Any

import auction_tasks as t

from headgate import Static, topology
from headgate.connectors import FolderSink

EVENTS = int(os.environ.get("NEXMARK_EVENTS", "100000"))
GENERATOR: dict[str, Any] = {
    "events": EVENTS,
    "rate": float(os.environ.get("NEXMARK_RATE", "1000")),
    "disorder": int(os.environ.get("NEXMARK_DISORDER", "1")),
    "seed": int(os.environ.get("NEXMARK_SEED", "0")),
}
OUT = os.path.abspath(os.environ.get("NEXMARK_OUT", "."))


def begun(name: str, *kinds: str, events: Any = t.Events) -> tuple[Any, Any]:
    """A flow, and its source of these kinds of events."""
    flow = topology(name)
    return flow, flow.source("events", events, kinds=list(kinds), **GENERATOR)


def into(flow: Any) -> Any:
    """The sink of a flow."""
    if os.environ.get("NEXMARK_SINK") == "folder":
        folder = os.path.join(OUT, flow.name)
        return flow.task("store", FolderSink, static=Static(), folder=folder, batch_age_s=1.0)
    return flow.task("store", t.JsonLines, static=Static(), path=os.path.join(OUT, f"{flow.name}.jsonl"))


def begun_columns(name: str) -> tuple[Any, Any, Any]:
    """A flow, its source of bids and its sink, in columns."""
    flow, source = begun(name, "bid", events=t.EventColumns)
    path = os.path.join(OUT, f"{name}.arrows")
    return flow, source, flow.task("store", t.ArrowBatches, static=Static(), path=path)


q0, bids = begun("q0", "bid")
bids >> into(q0)

q1, bids = begun("q1", "bid")
bids >> q1.task("euros", t.in_euros) >> into(q1)

q2, bids = begun("q2", "bid")
bids >> q2.task("chosen", t.chosen).emits(0.01) >> q2.task("told", t.auction_and_price) >> into(q2)

q13, bids = begun("q13", "bid")
bids >> q13.task("side", t.SideInput) >> into(q13)

q0_columns, bids, store = begun_columns("q0_columns")
bids >> store

q1_columns, bids, store = begun_columns("q1_columns")
bids >> q1_columns.task("euros", t.columns_in_euros) >> store

q2_columns, bids, store = begun_columns("q2_columns")
chosen = q2_columns.task("chosen", t.chosen_columns).emits(0.01)
bids >> chosen >> q2_columns.task("told", t.auction_and_price_columns) >> store

q13_columns, bids, store = begun_columns("q13_columns")
bids >> q13_columns.task("side", t.SideInputColumns) >> store

q3, events = begun("q3", "person", "auction")
items = q3.task("items", t.LocalItems).emits(0.3)
events >> q3.task("local", t.local).emits(0.3) >> items.by(t.person_of) >> into(q3)

q8, events = begun("q8", "person", "auction")
events >> q8.task("new", t.NewUsers).emits(0.1).by(t.person_of) >> into(q8)

q9, events = begun("q9", "auction", "bid")
events >> q9.task("winning", t.WinningBids).emits(0.05).by(t.auction_of) >> into(q9)

q4, events = begun("q4", "auction", "bid")
winning, average = (
    q4.task("winning", t.WinningBids).emits(0.05),
    q4.task("average", t.AveragePrice).emits(0.01),
)
events >> winning.by(t.auction_of) >> average.by("category") >> into(q4)

q5, bids = begun("q5", "bid")
counts, hot = (
    q5.task("counts", t.BidsOfAuction).emits(0.5),
    q5.task("hot", t.Highest, field="bids").emits(0.01),
)
bids >> counts.by("auction") >> hot.by("window_start") >> into(q5)

q7, bids = begun("q7", "bid")
highest = q7.task("highest", t.Highest, field="price").emits(0.01)
bids >> q7.task("told", t.told_of_bid) >> highest.by(t.window_of) >> into(q7)

q11, bids = begun("q11", "bid")
bids >> q11.task("sessions", t.Sessions).emits(0.1).by("bidder") >> into(q11)

q12, bids = begun("q12", "bid")
bids >> q12.task("counts", t.BidsByClock).emits(0.1).by("bidder") >> into(q12)

q15, bids = begun("q15", "bid")
bids >> q15.task("statistics", t.BidStatistics).emits(0.01).by(t.day_of) >> into(q15)

q16, bids = begun("q16", "bid")
bids >> q16.task("statistics", t.BidStatistics).emits(0.01).by(t.channel_and_day) >> into(q16)
