"""Nexmark on bytewax: one worker, rows from the generator by an own source that can be resumed, rows as dicts."""

from __future__ import annotations

import functools
import json
from datetime import UTC, datetime, timedelta
from importlib.metadata import version

import bytewax.operators as op
import bytewax.operators.windowing as win
from auction_events import Auctions
from bytewax.connectors.files import FileSink
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

from nexmark_peers import peer_run as peer
from nexmark_peers.peer_cells import kinds_of

FRAME = 512
KINDS = kinds_of(peer.QUERY)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TEN = timedelta(seconds=10)
STALL = timedelta(
    minutes=10
)  # the watermark goes on with the clock (findings/bytewax-in-order-rows-are-late.sh)


class Part(StatefulSourcePartition):
    def __init__(self, position):
        self.events, self.position = Auctions(**peer.GENERATOR), position or 0

    def next_batch(self):
        rows = self.events.rows(KINDS, self.position, FRAME)
        if not rows:
            raise StopIteration
        self.position += len(rows)
        return rows

    def snapshot(self):
        return self.position


class From(FixedPartitionedSource):
    def list_parts(self):
        return ["events"]

    def build_part(self, step_id, for_part, resume_state):
        return Part(resume_state)


def told(bid):
    return {name: bid[name] for name in ("auction", "bidder", "price", "date_time")}


def local_items(state, row):
    """State: who the person is, and auctions that came before."""
    who, waiting = state or (None, [])
    if row["kind"] == "auction":
        if who is None:
            return (None, [*waiting, row["id"]]), []
        return (who, []), [{**who, "auction": row["id"]}]
    who = {name: row[name] for name in ("name", "city", "state")}
    return (who, []), [{**who, "auction": number} for number in waiting]


def local(row):
    return row["category"] == 10 if row["kind"] == "auction" else row["state"] in ("OR", "ID", "CA")


def person_of(row):
    return str(row["seller"] if row["kind"] == "auction" else row["id"])


def new_sellers(state, row):
    """State: who the person is, who is told once, and the windows in which auctions were opened."""
    who, told_once, opened = state or (None, False, [])
    if row["kind"] == "auction":
        opened = [*opened, row["date_time"] // 10_000]
    else:
        who = {"id": row["id"], "name": row["name"], "window_start": row["date_time"] // 10_000 * 10_000}
    if who is None or told_once or who["window_start"] // 10_000 not in opened:
        return (who, told_once, opened), []
    return (who, True, []), [who]


def auction_of(row):
    return str(row["auction"] if row["kind"] == "bid" else row["id"])


def with_bids(found, row):
    """An auction, and all bids on it."""
    auction, bids = found
    return (auction, [*bids, row]) if row["kind"] == "bid" else (row, bids)


def winner(found):
    """The best bid on an auction while it was open, if there is one."""
    auction, bids = found[1]
    begin, end = (auction["date_time"], auction["expires"]) if auction else (1, 0)
    best = min(
        (
            (-bid["price"], bid["date_time"], bid["bidder"])
            for bid in bids
            if begin <= bid["date_time"] <= end
        ),
        default=None,
    )
    if best is None:
        return None
    kept = ("id", "item", "seller", "category", "expires")
    return {**{n: auction[n] for n in kept}, "price": -best[0], "date_time": best[1], "bidder": best[2]}


def average(found):
    category, prices = found
    return {"category": int(category), "price": sum(prices) / len(prices)}


def highest_by(name):
    """The rows with the highest value in a column."""

    def highest(best, row):
        if not best or row[name] > best[0][name]:
            return [row]
        return [*best, row] if row[name] == best[0][name] else best

    return highest


def both(one, other):
    return functools.reduce(highest_by("price"), other, one)


def counted(found):
    """Windows are numbered from 1970 on."""
    auction, (window, bids) = found
    return {"window_start": window * 2000, "auction": int(auction), "bids": bids}


def add_bid(ranks, bid):
    """The last minute with a bid; of each rank of prices how many bids, their bidders and auctions."""
    rank = ranks[1 + (bid["price"] >= 10_000) + (bid["price"] >= 1_000_000)]
    ranks[0] = max(ranks[0], bid["date_time"] // 60_000 % 1440)
    rank[0] += 1
    rank[1].add(bid["bidder"])
    rank[2].add(bid["auction"])
    return ranks


def statistics(found):
    key, (minute, *ranks) = found
    *channel, day = key.split()
    row = {"day": int(day), "minute": minute, "channel": " ".join(channel)} if channel else {"day": int(day)}
    row["total_bids"] = sum(rank[0] for rank in ranks)
    row |= {f"rank{n}_bids": rank[0] for n, rank in enumerate(ranks, 1)}
    for at, name in ((1, "bidders"), (2, "auctions")):
        row[f"total_{name}"] = len(set().union(*(rank[at] for rank in ranks)))
        row |= {f"rank{n}_{name}": len(rank[at]) for n, rank in enumerate(ranks, 1)}
    return row


def session(state, bid):
    first, last, bids = state or (bid["date_time"], bid["date_time"], 0)
    return min(first, bid["date_time"]), max(last, bid["date_time"]), bids + 1


def merged(one, other):
    if one is None or other is None:
        return one or other
    return min(one[0], other[0]), max(one[1], other[1]), one[2] + other[2]


def by_row(rows):
    side = [f"value-{key * 7 % peer.SIDE_ROWS}" for key in range(peer.SIDE_ROWS)]
    if peer.QUERY == "q1":
        kept = ("auction", "bidder", "date_time", "extra")
        return op.map("euros", rows, lambda b: {**{n: b[n] for n in kept}, "price": b["price"] * 0.908})
    if peer.QUERY == "q2":
        chosen = op.filter("chosen", rows, lambda b: b["auction"] % 123 == 0)
        return op.map("told", chosen, lambda b: {"auction": b["auction"], "price": b["price"]})
    if peer.QUERY == "q13":
        return op.map("side", rows, lambda b: {**told(b), "value": side[b["auction"] % peer.SIDE_ROWS]})
    return rows


def by_key(rows):
    if peer.QUERY in ("q3", "q8"):
        if peer.QUERY == "q3":
            rows = op.filter("local", rows, local)
        keyed = op.key_on("person", rows, person_of)
        found = op.stateful_map("join", keyed, local_items if peer.QUERY == "q3" else new_sellers)
        return op.flatten("items", op.key_rm("rows", found))
    if peer.QUERY in ("q4", "q9"):
        keyed = op.key_on("auction", rows, auction_of)
        won = op.filter_map("winner", op.fold_final("bids", keyed, lambda: (None, []), with_bids), winner)
        if peer.QUERY == "q9":
            return won
        keyed = op.map("price", won, lambda row: (str(row["category"]), row["price"]))
        return op.map(
            "average", op.fold_final("prices", keyed, list, lambda all_, one: [*all_, one]), average
        )
    channel = "{channel} " if peer.QUERY == "q16" else ""
    keyed = op.key_on("day", rows, lambda bid: f"{channel}{bid['date_time'] // 86_400_000}".format(**bid))
    found = op.fold_final("add", keyed, lambda: [0, *([0, set(), set()] for _ in range(3))], add_bid)
    return op.map("statistics", found, statistics)


def by_window(rows):
    clock = win.EventClock(
        ts_getter=lambda bid: EPOCH + timedelta(milliseconds=bid["date_time"]),
        wait_for_system_duration=timedelta(milliseconds=peer.SETTINGS["lateness_ms"]) + STALL,
    )
    if peer.QUERY == "q5":
        windower = win.SlidingWindower(TEN, timedelta(seconds=2), EPOCH)
        counts = win.count_window("count", rows, clock, windower, lambda bid: str(bid["auction"]))
        keyed = op.key_on(
            "window", op.map("counted", counts.down, counted), lambda row: str(row["window_start"])
        )
        hot = op.fold_final("hot", keyed, list, highest_by("bids"))
        return op.flatten("rows", op.key_rm("hottest", hot))
    if peer.QUERY == "q7":
        windower = win.TumblingWindower(TEN, EPOCH)
        keyed = op.key_on("all", op.map("told", rows, told), lambda _: "all")
        best = win.fold_window("best", keyed, clock, windower, list, highest_by("price"), both, ordered=False)
        return op.flatten("bids", op.map("bids_of", best.down, lambda found: found[1][1]))
    if peer.QUERY == "q12":
        windower = win.TumblingWindower(TEN, EPOCH)
        counts = win.count_window("count", rows, win.SystemClock(), windower, lambda bid: str(bid["bidder"]))
        return op.map("told", counts.down, lambda found: {"bidder": int(found[0]), "bids": found[1][1]})
    windower = win.SessionWindower(TEN - timedelta(milliseconds=1))  # it joins rows one gap apart
    keyed = op.key_on("bidder", rows, lambda bid: str(bid["bidder"]))
    found = win.fold_window("sessions", keyed, clock, windower, lambda: None, session, merged, ordered=False)
    return op.map("told", found.down, told_session)


WAYS = {
    **dict.fromkeys(("q0", "q1", "q2", "q13"), by_row),
    **dict.fromkeys(("q3", "q4", "q8", "q9", "q15", "q16"), by_key),
    **dict.fromkeys(("q5", "q7", "q11", "q12"), by_window),
}


def told_session(found):
    bidder, (_, (first, last, bids)) = found
    return {"bidder": int(bidder), "bids": bids, "session_start": first, "session_end": last + 10_000}


if __name__ == "__main__":
    flow = Dataflow("nexmark")
    rows = WAYS[peer.QUERY](op.input("events", flow, From()))
    lines = op.map("lines", rows, lambda row: ("", json.dumps(row)))
    op.output("store", lines, FileSink(peer.OUT / "rows.jsonl"))
    recovery = interval = None  # states are copied at the end of each epoch, also where nothing is kept
    if peer.SETTINGS["kept"]:
        interval = timedelta(seconds=peer.SETTINGS["interval_s"])
        if not peer.STATE.exists():
            peer.STATE.mkdir()
            init_db_dir(peer.STATE, 1)
        recovery = RecoveryConfig(str(peer.STATE), backup_interval=timedelta(seconds=0))
    peer.begun()
    cluster_main(flow, [], 0, epoch_interval=interval, recovery_config=recovery)
    peer.tell(version("bytewax"))
