"""What the tasks of Nexmark's queries do; `queries.py` joins them. Times are milliseconds since 1970 UTC."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
from auction_events import Auctions, Columns

from headgate import Context, Exhausted, Keyed, Source, batched, keep_if

Row = dict[str, Any]
EURO, EVERY_AUCTION, SIDE_ROWS = 0.908, 123, 10_000
WINDOW_MS, SLIDE_MS, GAP_MS, DAY_MS = 10_000, 2_000, 10_000, 86_400_000
NEAR, CATEGORY = ("OR", "ID", "CA"), 10
CHEAP, DEAR = 10_000, 1_000_000


class Part:
    """Which rows of the events a source thread reads: every so many, from its own number on."""

    def __init__(self, kinds: list[str], **generator: Any) -> None:
        self.events, self.kinds = Auctions(**generator), kinds
        self.there = self.events.count(kinds)
        self.thread, self.threads = 0, 1

    def open(self, context: Context) -> None:
        self.thread, self.threads = context.partition, context.partitions

    def first(self, position: int) -> int:
        first = position * self.threads + self.thread
        if first >= self.there:
            raise Exhausted
        return first


class Events(Part, Source[Row]):
    """Events of some kinds, as rows."""

    def read(self, position: int, limit: int) -> list[Row]:
        return self.events.rows(self.kinds, self.first(position), limit, self.threads)


@batched(columns=True)
class EventColumns(Part, Source[Any]):
    """Events of one kind, as columns."""

    def read(self, position: int, limit: int) -> Any:
        return self.events.columns(self.kinds[0], self.first(position), limit, self.threads)


# ── sinks ───────────────────────────────────────────────────────────────────────────────────────


class Appending:
    """A file that threads of any process add to, a call's rows at once."""

    def __init__(self, path: str) -> None:
        self.path = path

    def open(self, context: Context) -> None:
        self.file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    def append(self, data: bytes) -> None:
        if os.write(self.file, data) != len(data):
            raise OSError(f"{self.path}: not all was written")

    def close(self) -> None:
        os.close(self.file)


@batched
class JsonLines(Appending):
    def __call__(self, rows: list[Row]) -> list[Row]:
        self.append(msgspec.json.Encoder().encode_lines(rows))
        return rows


@batched(columns=True)
class ArrowBatches(Appending):
    """Each call is a stream of Arrow, behind its length as eight bytes."""

    def __call__(self, columns: Columns) -> Columns:
        import pyarrow as pa

        text = pa.string()  # not to be found from the values, which are objects
        arrays = [pa.array(c, type=text if c.dtype == object else None) for c in columns.values()]
        batch = pa.RecordBatch.from_arrays(arrays, list(columns))
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, batch.schema) as stream:
            stream.write_batch(batch)
        data = out.getvalue()
        self.append(len(data).to_bytes(8, "little") + data.to_pybytes())
        return columns


# ── a row at a time ─────────────────────────────────────────────────────────────────────────────


def in_euros(bid: Row) -> Row:
    """q1"""
    return {**{n: bid[n] for n in ("auction", "bidder", "date_time", "extra")}, "price": bid["price"] * EURO}


@keep_if
def chosen(bid: Row) -> bool:
    """q2"""
    return bool(bid["auction"] % EVERY_AUCTION == 0)


def auction_and_price(bid: Row) -> Row:
    """q2"""
    return {"auction": bid["auction"], "price": bid["price"]}


def side_input() -> list[str]:
    """The table of q13: a value for each key from 0 on."""
    return [f"value-{key * 7 % SIDE_ROWS}" for key in range(SIDE_ROWS)]


class SideInput:
    """q13"""

    def __init__(self) -> None:
        self.values = side_input()

    def __call__(self, bid: Row) -> Row:
        told = {name: bid[name] for name in ("auction", "bidder", "price", "date_time")}
        return {**told, "value": self.values[bid["auction"] % SIDE_ROWS]}


# ── columns ─────────────────────────────────────────────────────────────────────────────────────


@batched(columns=True)
def columns_in_euros(bids: Columns) -> Columns:
    kept = {name: bids[name] for name in ("auction", "bidder", "date_time", "extra")}
    return {**kept, "price": bids["price"] * EURO}


@batched(columns=True)
@keep_if
def chosen_columns(bids: Columns) -> Any:
    return bids["auction"] % EVERY_AUCTION == 0


@batched(columns=True)
def auction_and_price_columns(bids: Columns) -> Columns:
    return {"auction": bids["auction"], "price": bids["price"]}


@batched(columns=True)
class SideInputColumns:
    def __init__(self) -> None:
        self.values = np.array(side_input(), dtype=object)

    def __call__(self, bids: Columns) -> Columns:
        told = {name: bids[name] for name in ("auction", "bidder", "price", "date_time")}
        return {**told, "value": self.values[bids["auction"] % SIDE_ROWS]}


# ── joins by key ────────────────────────────────────────────────────────────────────────────────


@keep_if
def local(row: Row) -> bool:
    """q3"""
    return row["category"] == CATEGORY if row["kind"] == "auction" else row["state"] in NEAR


def person_of(row: Row) -> int:
    """Whom a person or an auction is about."""
    return int(row["seller"] if row["kind"] == "auction" else row["id"])


class LocalItems(Keyed[int, list[Any], Row, Row]):
    """q3. State: who the person is, and auctions that came before."""

    def new(self, key: int) -> list[Any]:
        return [None, []]

    def process(self, key: int, row: Row, state: list[Any]) -> tuple[list[Any], Iterable[Row]]:
        who, waiting = state
        if row["kind"] == "auction":
            if who is None:
                return [None, [*waiting, row["id"]]], []
            return state, [{**who, "auction": row["id"]}]
        who = {name: row[name] for name in ("name", "city", "state")}
        return [who, []], [{**who, "auction": number} for number in waiting]


class NewUsers(Keyed[int, list[Any], Row, Row]):
    """q8. State: who came and when, and the windows in which auctions were opened before that was known."""

    def new(self, key: int) -> list[Any]:
        return [None, []]

    def process(self, key: int, row: Row, state: list[Any]) -> tuple[list[Any], Iterable[Row]]:
        who, opened = state
        start = row["date_time"] // WINDOW_MS * WINDOW_MS
        if row["kind"] == "auction":
            opened = opened if start in opened else [*opened, start]
        else:
            who = {"id": key, "name": row["name"], "window_start": start}
        if who is not None and who["window_start"] in opened:
            return [{**who, "window_start": -1}, []], [who]  # told once
        return [who, opened], []


def auction_of(row: Row) -> int:
    return int(row["auction"] if row["kind"] == "bid" else row["id"])


TOLD_OF_AUCTIONS = ("id", "item", "seller", "category", "date_time", "expires")


class WinningBids(Keyed[int, list[Any], Row, Row]):
    """q9, and the first step of q4. State: the auction, its best bid, and bids that came before the auction was known.
    A bid is (-price, date_time, bidder): the least one wins."""

    def new(self, key: int) -> list[Any]:
        return [None, None, []]

    def process(self, key: int, row: Row, state: list[Any]) -> tuple[list[Any], Iterable[Row]]:
        auction, best, waiting = state
        if row["kind"] == "bid":
            bid = (-row["price"], row["date_time"], row["bidder"])
            if auction is None:
                return [None, None, [*waiting, bid]], []
            return [auction, better(auction, best, bid), []], []
        auction = {name: row[name] for name in TOLD_OF_AUCTIONS}
        for bid in waiting:
            best = better(auction, best, tuple(bid))
        return [auction, best, []], []

    def finish(self, key: int, state: list[Any]) -> Iterable[Row]:
        auction, best, _ = state
        if auction is None or best is None:
            return ()
        told = {name: auction[name] for name in TOLD_OF_AUCTIONS if name != "date_time"}
        return [{**told, "price": -best[0], "date_time": best[1], "bidder": best[2]}]


def better(auction: Row, best: Any, bid: Any) -> Any:
    """The better one of two bids, of which the second may have come too early or too late."""
    if not auction["date_time"] <= bid[1] <= auction["expires"]:
        return best
    return bid if best is None else min(tuple(best), bid)


class AveragePrice(Keyed[int, tuple[int, int], Row, Row]):
    """q4. State: the sum of prices, and how many."""

    def new(self, key: int) -> tuple[int, int]:
        return 0, 0

    def process(self, key: int, row: Row, state: tuple[int, int]) -> tuple[tuple[int, int], Iterable[Row]]:
        return (state[0] + row["price"], state[1] + 1), []

    def finish(self, key: int, state: tuple[int, int]) -> Iterable[Row]:
        return [{"category": key, "price": state[0] / state[1]}]


# ── windows ─────────────────────────────────────────────────────────────────────────────────────


class BidsOfAuction(Keyed[int, dict[int, int], Row, Row]):
    """q5, first step. State: bids of each two seconds; a window is five of them."""

    def new(self, key: int) -> dict[int, int]:
        return {}

    def process(self, key: int, row: Row, state: dict[int, int]) -> tuple[dict[int, int], Iterable[Row]]:
        pane = row["date_time"] // SLIDE_MS
        return {**state, pane: state.get(pane, 0) + 1}, []

    def finish(self, key: int, state: dict[int, int]) -> Iterable[Row]:
        panes = WINDOW_MS // SLIDE_MS
        counts: dict[int, int] = {}
        for pane, bids in state.items():
            for first in range(pane - panes + 1, pane + 1):
                counts[first] = counts.get(first, 0) + bids
        return [{"window_start": first * SLIDE_MS, "auction": key, "bids": n} for first, n in counts.items()]


class Highest(Keyed[int, tuple[Any, list[Row]], Row, Row]):
    """The rows with the highest value of one field: q7, and the second step of q5."""

    def __init__(self, field: str) -> None:
        self.field = field

    def new(self, key: int) -> tuple[Any, list[Row]]:
        return None, []

    def process(
        self, key: int, row: Row, state: tuple[Any, list[Row]]
    ) -> tuple[tuple[Any, list[Row]], Iterable[Row]]:
        highest, rows = state
        value = row[self.field]
        if highest is None or value > highest:
            return (value, [row]), []
        return ((highest, [*rows, row]) if value == highest else state), []

    def finish(self, key: int, state: tuple[Any, list[Row]]) -> Iterable[Row]:
        return state[1]


def told_of_bid(bid: Row) -> Row:
    """q7"""
    return {name: bid[name] for name in ("auction", "bidder", "price", "date_time")}


def window_of(bid: Row) -> int:
    return int(bid["date_time"] // WINDOW_MS)


class Sessions(Keyed[int, list[list[int]], Row, Row]):
    """q11. State: sessions as [first, last, bids], which grow together."""

    def new(self, key: int) -> list[list[int]]:
        return []

    def process(self, key: int, row: Row, state: list[list[int]]) -> tuple[list[list[int]], Iterable[Row]]:
        first = last = row["date_time"]
        bids, others = 1, []
        for session in state:
            if session[0] - GAP_MS < last and first < session[1] + GAP_MS:
                first, last, bids = min(first, session[0]), max(last, session[1]), bids + session[2]
            else:
                others.append(session)
        return [*others, [first, last, bids]], []

    def finish(self, key: int, state: list[list[int]]) -> Iterable[Row]:
        return [
            {"bidder": key, "bids": bids, "session_start": first, "session_end": last + GAP_MS}
            for first, last, bids in state
        ]


class BidsByClock(Keyed[int, dict[int, int], Row, Row]):
    """q12. State: bids of each ten seconds of the clock."""

    def new(self, key: int) -> dict[int, int]:
        return {}

    def process(self, key: int, row: Row, state: dict[int, int]) -> tuple[dict[int, int], Iterable[Row]]:
        window = time.time_ns() // (WINDOW_MS * 1_000_000)
        return {**state, window: state.get(window, 0) + 1}, []

    def finish(self, key: int, state: dict[int, int]) -> Iterable[Row]:
        return [{"bidder": key, "window": window, "bids": bids} for window, bids in state.items()]


def day_of(bid: Row) -> int:
    return int(bid["date_time"] // DAY_MS)


def channel_and_day(bid: Row) -> str:
    """A text: keys that are tuples would come to `process` one by one."""
    return f"{bid['channel']} {bid['date_time'] // DAY_MS}"


class BidStatistics(Keyed[Any, list[Any], Row, Row]):
    """q15 and q16. State: the last minute with a bid, and of each rank of prices how many bids, their bidders and
    auctions. Many rows in one call, so that large states are copied once for all of them."""

    def new(self, key: Any) -> list[Any]:
        return [0, *([0, {}, {}] for _ in range(3))]

    def process(self, key: Any, row: Row, state: list[Any]) -> tuple[list[Any], Iterable[Row]]:
        found = {key: state}
        self.process_all([key], [row], found)
        return found[key], []

    def process_all(
        self, keys: Sequence[Any], rows: Sequence[Row], states: dict[Any, list[Any]]
    ) -> tuple[list[Row], Sequence[int]]:
        copies: dict[Any, list[Any]] = {}
        for key, row in zip(keys, rows, strict=True):
            state = copies.get(key)
            if state is None:
                minute, *ranks = states[key]
                state = copies[key] = [minute, *([n, dict(one), dict(other)] for n, one, other in ranks)]
            price = row["price"]
            rank = state[1 + (price >= CHEAP) + (price >= DEAR)]
            state[0] = max(state[0], row["date_time"] // 60_000 % 1440)
            rank[0] += 1
            rank[1][row["bidder"]] = rank[2][row["auction"]] = None
        states.update(copies)
        return [], [0] * len(rows)

    def finish(self, key: Any, state: list[Any]) -> Iterable[Row]:
        minute, *ranks = state
        if isinstance(key, int):
            told: Row = {"day": key}
        else:
            channel, _, day = key.rpartition(" ")
            told = {"channel": channel, "day": int(day), "minute": minute}
        told["total_bids"] = sum(bids for bids, _, _ in ranks)
        told |= {f"rank{n}_bids": rank[0] for n, rank in enumerate(ranks, 1)}
        for at, name in ((1, "bidders"), (2, "auctions")):
            told[f"total_{name}"] = len(set().union(*(rank[at] for rank in ranks)))
            told |= {f"rank{n}_{name}": len(rank[at]) for n, rank in enumerate(ranks, 1)}
        return [told]
