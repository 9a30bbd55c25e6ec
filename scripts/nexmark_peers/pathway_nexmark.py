"""Nexmark on pathway: CSV files by its own reader, which give changes of tables; in one process and thread. A column
cannot be called `id` there (that is the row's own name), so it is `id_`."""

from __future__ import annotations

import os
import time
from importlib.metadata import version

os.environ.setdefault("PATHWAY_THREADS", "1")

import pathway as pw

from nexmark_peers import peer_run as peer


class Persons(pw.Schema):
    id_: int
    name: str
    city: str
    state: str
    date_time: int


class Opened(pw.Schema):
    id_: int
    item: str
    date_time: int
    expires: int
    seller: int
    category: int


class Bids(pw.Schema):
    auction: int
    bidder: int
    price: int
    channel: str
    url: str
    date_time: int
    extra: str


def table(kind, schema):
    return pw.io.csv.read(
        str(peer.IN / kind), schema=schema, mode="streaming" if peer.SETTINGS["kept"] else "static",
        autocommit_duration_ms=int(peer.SETTINGS["interval_s"] * 1000), name=kind,
    )  # fmt: skip


def told(bids):
    return bids.select(pw.this.auction, pw.this.bidder, pw.this.price, pw.this.date_time)


def in_time():
    """Bids on auctions that were open."""
    auctions, bids = table("auction", Opened), table("bid", Bids)
    joined = auctions.join(bids, pw.left.id_ == pw.right.auction).select(
        pw.left.id_, pw.left.item, pw.left.seller, pw.left.category, pw.left.expires,
        opened=pw.left.date_time, bidder=pw.right.bidder, price=pw.right.price, date_time=pw.right.date_time,
    )  # fmt: skip
    return joined.filter((pw.this.date_time >= pw.this.opened) & (pw.this.date_time <= pw.this.expires))


def q3():
    persons = table("person", Persons).filter(
        (pw.this.state == "OR") | (pw.this.state == "ID") | (pw.this.state == "CA")
    )
    auctions = table("auction", Opened).filter(pw.this.category == 10)
    return auctions.join(persons, pw.left.seller == pw.right.id_).select(
        pw.right.name, pw.right.city, pw.right.state, auction=pw.left.id_
    )


def q4():
    best = (
        in_time()
        .groupby(pw.this.id_, pw.this.category)
        .reduce(pw.this.category, price=pw.reducers.max(pw.this.price))
    )
    return best.groupby(pw.this.category).reduce(pw.this.category, price=pw.reducers.avg(pw.this.price))


def q5():
    bids = table("bid", Bids)
    windows = pw.temporal.sliding(hop=2000, duration=10_000, origin=0)
    counted = bids.windowby(pw.this.date_time, window=windows, instance=pw.this.auction).reduce(
        window_start=pw.this._pw_window_start, auction=pw.this._pw_instance, bids=pw.reducers.count()
    )
    most = counted.groupby(pw.this.window_start).reduce(
        pw.this.window_start, most=pw.reducers.max(pw.this.bids)
    )
    return counted.join(
        most, pw.left.window_start == pw.right.window_start, pw.left.bids == pw.right.most
    ).select(pw.left.window_start, pw.left.auction, pw.left.bids)


def q7():
    bids = told(table("bid", Bids)).with_columns(window=pw.this.date_time // 10_000)
    most = bids.groupby(pw.this.window).reduce(pw.this.window, most=pw.reducers.max(pw.this.price))
    return bids.join(most, pw.left.window == pw.right.window, pw.left.price == pw.right.most).select(
        pw.left.auction, pw.left.bidder, pw.left.price, pw.left.date_time
    )


def q8():
    persons, auctions = table("person", Persons), table("auction", Opened)
    opened = auctions.select(pw.this.seller, window=pw.this.date_time // 10_000)
    opened = opened.groupby(pw.this.seller, pw.this.window).reduce(pw.this.seller, pw.this.window)
    persons = persons.with_columns(window=pw.this.date_time // 10_000)
    return persons.join(opened, pw.left.id_ == pw.right.seller, pw.left.window == pw.right.window).select(
        pw.left.id_, pw.left.name, window_start=pw.left.window * 10_000
    )


def q9():
    bids = in_time().with_columns(order=pw.make_tuple(-pw.this.price, pw.this.date_time, pw.this.bidder))
    best = bids.groupby(pw.this.id_).reduce(at=pw.reducers.argmin(pw.this.order))
    return bids.ix(best.at).select(
        pw.this.id_, pw.this.item, pw.this.seller, pw.this.category, pw.this.expires,
        pw.this.bidder, pw.this.price, pw.this.date_time,
    )  # fmt: skip


def q11():
    sessions = pw.temporal.session(max_gap=9_999)
    return (
        table("bid", Bids)
        .windowby(pw.this.date_time, window=sessions, instance=pw.this.bidder)
        .reduce(
            bidder=pw.this._pw_instance,
            bids=pw.reducers.count(),
            session_start=pw.reducers.min(pw.this.date_time),
            session_end=pw.reducers.max(pw.this.date_time) + 10_000,
        )
    )


def q12():
    """Windows of the clock of when a row is seen."""
    bids = table("bid", Bids).with_columns(window=clock(pw.this.auction))
    return bids.groupby(pw.this.window, pw.this.bidder).reduce(pw.this.bidder, bids=pw.reducers.count())


@pw.udf(deterministic=False)
def clock(auction: int) -> int:
    return int(time.time() // 10)


def statistics(*keys):
    bids = table("bid", Bids).with_columns(
        day=pw.this.date_time // 86_400_000, minute=pw.this.date_time // 60_000 % 1440
    )
    price = pw.this.price
    ranks = {
        "total": price >= 0,
        "rank1": price < 10_000,
        "rank2": (price >= 10_000) & (price < 1_000_000),
        "rank3": price >= 1_000_000,
    }
    told = {"minute": pw.reducers.max(pw.this.minute)} if "channel" in keys else {}
    for rank, where in ranks.items():
        told[f"{rank}_bids"] = pw.reducers.sum(pw.if_else(where, 1, 0))
        others = pw.reducers.max(pw.if_else(where, 0, 1))  # they count as one, which is called -1
        for what in ("bidder", "auction"):
            there = pw.reducers.count_distinct(pw.if_else(where, pw.this[what], -1))
            told[f"{rank}_{what}s"] = there - others
    return bids.groupby(*(pw.this[key] for key in keys)).reduce(*(pw.this[key] for key in keys), **told)


def q13():
    pairs = [(key, f"value-{key * 7 % peer.SIDE_ROWS}") for key in range(peer.SIDE_ROWS)]
    side = pw.debug.table_from_rows(pw.schema_from_types(key=int, value=str), pairs)
    bids = told(table("bid", Bids)).with_columns(key=pw.this.auction % peer.SIDE_ROWS)
    return bids.join(side, pw.left.key == pw.right.key).select(
        pw.left.auction, pw.left.bidder, pw.left.price, pw.left.date_time, pw.right.value
    )


def q1():
    bids = table("bid", Bids)
    return bids.select(bids.auction, bids.bidder, bids.date_time, bids.extra, price=bids.price * 0.908)


def q2():
    return table("bid", Bids).filter(pw.this.auction % 123 == 0).select(pw.this.auction, pw.this.price)


QUERIES = {
    "q0": lambda: table("bid", Bids), "q1": q1, "q2": q2, "q3": q3, "q4": q4, "q5": q5, "q7": q7, "q8": q8, "q9": q9,
    "q11": q11, "q12": q12, "q13": q13, "q15": lambda: statistics("day"), "q16": lambda: statistics("channel", "day"),
}  # fmt: skip

if __name__ == "__main__":
    found = QUERIES[peer.QUERY]()
    path = peer.OUT / f"rows-{len(list(peer.OUT.iterdir()))}.jsonl"  # it empties the file that it writes to
    pw.io.jsonlines.write(found, str(path))
    kept = None
    if peer.SETTINGS["kept"]:
        backend = pw.persistence.Backend.filesystem(str(peer.STATE))
        kept = pw.persistence.Config(backend, snapshot_interval_ms=int(peer.SETTINGS["interval_s"] * 1000))
    peer.tell(version("pathway"))
    peer.begun()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE, persistence_config=kept)
