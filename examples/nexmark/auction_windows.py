"""What the tasks of Nexmark's queries do that go by event time; `event_queries.py` joins them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from auction_tasks import TOLD_OF_AUCTIONS, WINDOW_MS, Row, better

from headgate import Time, Timed

US_OF_MS = 1000


class ClosedAuctions(Timed[int, list[Any], Row, Row]):
    """q9, and the first step of q4: an auction's best bid, once it has expired. State: as of `WinningBids`."""

    at, unit = "date_time", "ms"

    def new(self, key: int) -> list[Any]:
        return [None, None, []]

    def process(self, key: int, row: Row, state: list[Any], time: Time) -> tuple[list[Any], Iterable[Row]]:
        auction, best, waiting = state
        if row["kind"] == "bid":
            bid = (-row["price"], row["date_time"], row["bidder"])
            if auction is not None:
                return [auction, better(auction, best, bid), []], []
            time.set(time.at_us + 1)  # no auction that was open then comes any more
            return [None, None, [*waiting, bid]], []
        auction = {name: row[name] for name in TOLD_OF_AUCTIONS}
        for bid in waiting:
            best = better(auction, best, tuple(bid))
        time.set((row["expires"] + 1) * US_OF_MS, "closed")
        return [auction, best, []], []

    def on_timer(
        self, key: int, at: int, state: list[Any], time: Time
    ) -> tuple[list[Any] | None, Iterable[Row]]:
        auction, best, waiting = state
        if time.name != "closed":  # a bid on what is not there
            left = [bid for bid in waiting if bid[1] * US_OF_MS >= at]
            return (state if auction is not None else [None, None, left] if left else None), []
        if best is None:
            return None, []
        told = {name: auction[name] for name in TOLD_OF_AUCTIONS if name != "date_time"}
        return None, [{**told, "price": -best[0], "date_time": best[1], "bidder": best[2]}]


class BidsByClockTime(Timed[int, dict[int, int], Row, Row]):
    """q12. State: bids of each ten seconds of the clock that are not over."""

    at, unit = "date_time", "ms"

    def new(self, key: int) -> dict[int, int]:
        return {}

    def process(
        self, key: int, row: Row, state: dict[int, int], time: Time
    ) -> tuple[dict[int, int], Iterable[Row]]:
        window = time.clock_us // (WINDOW_MS * US_OF_MS)
        time.set_clock((window + 1) * WINDOW_MS * US_OF_MS)
        return {**state, window: state.get(window, 0) + 1}, []

    def on_timer(
        self, key: int, at: int, state: dict[int, int], time: Time
    ) -> tuple[dict[int, int] | None, Iterable[Row]]:
        window = at // (WINDOW_MS * US_OF_MS) - 1
        left = {other: bids for other, bids in state.items() if other != window}
        told = [{"bidder": key, "window": window, "bids": state[window]}] if window in state else []
        return left or None, told

    def finish(self, key: int, state: dict[int, int]) -> Iterable[Row]:
        return [{"bidder": key, "window": window, "bids": bids} for window, bids in state.items()]


def one_key(row: Row) -> str:
    return "all"


# ── q5 and q7: the rows with the highest value of a window ──────────────────────────────────────


def none_yet() -> list[Any]:
    return [None, []]


def hotter(best: list[Any], row: Row) -> list[Any]:
    return _higher(best, row["value"], [row])


def dearer(best: list[Any], bid: Row) -> list[Any]:
    return _higher(best, bid["price"], [bid])


def highest_of_both(best: list[Any], other: list[Any]) -> list[Any]:
    return _higher(best, other[0], other[1]) if other[1] else best


def _higher(best: list[Any], value: Any, rows: list[Row]) -> list[Any]:
    if best[0] is None or value > best[0]:
        return [value, rows]
    return [value, [*best[1], *rows]] if value == best[0] else best


def rows_of_best(best: list[Any]) -> list[Row]:
    rows: list[Row] = best[1]
    return rows


def hot_auctions(window: Row) -> list[Row]:
    """q5"""
    return [
        {"window_start": row["start"], "auction": row["key"], "bids": row["value"]} for row in window["value"]
    ]


def bids_of(window: Row) -> list[Row]:
    """q7"""
    rows: list[Row] = window["value"]
    return rows


# ── q8 ──────────────────────────────────────────────────────────────────────────────────────────


class NewSellers(Timed[int, list[Any], Row, Row]):
    """State: who came, and whether an auction was opened in the window of the key."""

    at, unit = "date_time", "ms"

    def new(self, key: int) -> list[Any]:
        return [None, []]

    def process(
        self, key: int, row: Row, state: list[Any], time: Time
    ) -> tuple[list[Any] | None, Iterable[Row]]:
        who, opened = state
        start = row["date_time"] // WINDOW_MS * WINDOW_MS
        time.set((start + WINDOW_MS) * US_OF_MS)
        if row["kind"] == "auction":
            opened = opened if start in opened else [*opened, start]
        else:
            who = {"id": key, "name": row["name"], "window_start": start}
        if who is not None and who["window_start"] in opened:
            return [{**who, "window_start": -1}, []], [who]  # told once
        return [who, opened], []

    def on_timer(
        self, key: int, at: int, state: list[Any], time: Time
    ) -> tuple[list[Any] | None, Iterable[Row]]:
        """A window is over: nothing of it is needed any more."""
        who, opened = state
        opened = [start for start in opened if (start + WINDOW_MS) * US_OF_MS > at]
        if who is not None and (who["window_start"] + WINDOW_MS) * US_OF_MS <= at:
            who = None
        return ([who, opened] if who or opened else None), []


# ── q11 ────────────────────────────────────────────────────────────────────────────────────────


def told_session(row: Row) -> Row:
    return {
        "bidder": row["key"],
        "bids": row["value"],
        "session_start": row["start"],
        "session_end": row["end"],
    }
