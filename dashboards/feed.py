"""Pictures of a run as they change: live from a controller, or from a trace, alike.

for item in live("tcp://127.0.0.1:4711"):
    match item: Whole(document) | Change(delta) | Stale(silent_s)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from dashboards.feeding.items import Change, Document, Feed, Item, Stale, Whole
from dashboards.feeding.live_feed import LiveFeed
from dashboards.feeding.trace_feed import TraceFeed

__all__ = [
    "Change",
    "Document",
    "Feed",
    "Item",
    "LiveFeed",
    "Stale",
    "TraceFeed",
    "Whole",
    "from_trace",
    "live",
]

TURN_S = 0.5


def live(endpoint: str) -> Iterator[Item]:
    """The picture of the controller whose command port is `endpoint`, for as long as it is read."""
    return items_of(LiveFeed(endpoint))


def from_trace(folder: Path, speed: float = 1.0) -> Iterator[Item]:
    """The same of a recorded run, `speed` times as fast; ends with the trace. Raises InvalidInput."""
    feed = TraceFeed(folder, speed)
    return items_of(feed, lambda: feed.ended)


def items_of(feed: Feed, ended: Callable[[], bool] = lambda: False) -> Iterator[Item]:
    """Item after item until `ended()`; closes the feed when nobody reads on."""
    try:
        while not ended():
            item = feed.next(TURN_S)
            if item is not None:
                yield item
    finally:
        feed.close()
