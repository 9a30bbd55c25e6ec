"""Nexmark's queries that have windows, by event time: results come as soon as the watermark is past their window, and
what is over is forgotten. `queries.py` has the others, and these as plain state that is given at the end of the input.

    headgate up examples/nexmark/event_queries.py:q5_windows --rates 5000

Settings: as there.
"""

from __future__ import annotations

from typing import Any

import auction_tasks as t
import auction_windows as w
from auction_events import Auctions
from queries import GENERATOR, begun, into

from headgate import flat_map, windows

AT = {"at": "date_time", "unit": "ms"}


def timed(query: str, *kinds: str, events: Any = t.Events) -> tuple[Any, Any]:
    """A flow, and its source with timestamps."""
    flow, source = begun(f"{query}_windows", *kinds, events=events)
    return flow, source.timestamps("date_time", unit="ms", lateness=Auctions(**GENERATOR).lateness_s(kinds))


def highest(add: Any) -> Any:
    return windows.aggregate(w.none_yet, add, w.highest_of_both, w.rows_of_best)


q4_windows, events = timed("q4", "auction", "bid")
closed = q4_windows.task("winning", w.ClosedAuctions).emits(0.05)
average = q4_windows.task("average", t.AveragePrice).emits(0.01)
events >> closed.by(t.auction_of) >> average.by("category") >> into(q4_windows)

q9_windows, events = timed("q9", "auction", "bid")
events >> q9_windows.task("winning", w.ClosedAuctions).emits(0.05).by(t.auction_of) >> into(q9_windows)

q5_windows, bids = timed("q5", "bid", events=t.EventColumns)
counts = q5_windows.task("counts", windows.EventWindow, windows=windows.sliding(10, 2), **AT).emits(0.5)
hot = q5_windows.task(
    "hot", windows.EventWindow, at="end", unit="ms", windows=windows.tumbling(2), aggregate=highest(w.hotter)
).emits(0.01)
told = q5_windows.task("told", flat_map(w.hot_auctions))
bids >> counts.by("auction") >> hot.by("start") >> told >> into(q5_windows)

q7_windows, bids = timed("q7", "bid")
best = q7_windows.task(
    "highest", windows.EventWindow, windows=windows.tumbling(10), aggregate=highest(w.dearer), **AT
).emits(0.01)
told = q7_windows.task("told", t.told_of_bid)
bids >> told >> best.by(w.one_key) >> q7_windows.task("bids", flat_map(w.bids_of)) >> into(q7_windows)

q8_windows, events = timed("q8", "person", "auction")
events >> q8_windows.task("new", w.NewSellers).emits(0.1).by(t.person_of) >> into(q8_windows)

q11_windows, bids = timed("q11", "bid")
sessions = q11_windows.task("sessions", windows.EventWindow, windows=windows.session(10), **AT).emits(0.1)
bids >> sessions.by("bidder") >> q11_windows.task("told", w.told_session) >> into(q11_windows)

q12_windows, bids = timed("q12", "bid")
bids >> q12_windows.task("counts", w.BidsByClockTime).emits(0.1).by("bidder") >> into(q12_windows)
