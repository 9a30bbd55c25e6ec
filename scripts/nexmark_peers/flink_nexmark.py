"""Nexmark on PyFlink: SQL over CSV files (the package has no reader of Parquet), parallelism 1; `udf` says that what
q1, q2 and q13 compute is a function in Python, as what users write in a Python engine is. Results that only grow go
into its file sink as JSON, changes of those that change as Debezium's JSON."""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version

from pyflink.common import Configuration
from pyflink.table import DataTypes, EnvironmentSettings, TableEnvironment
from pyflink.table.udf import udf

from nexmark_peers import peer_run as peer

IN_PYTHON = peer.SETTINGS.get("mode") == "udf"
COLUMNS = {
    "person": "id BIGINT, name STRING, email STRING, credit_card STRING, city STRING, state STRING, "
    "date_time BIGINT, extra STRING",
    "auction": "id BIGINT, item STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time BIGINT, "
    "expires BIGINT, seller BIGINT, category BIGINT, extra STRING",
    "bid": "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time BIGINT, extra STRING",
    "side_input": "key BIGINT, `value` STRING",
}
TOLD = "auction, bidder, price, date_time"
HOP = (
    "SELECT auction, COUNT(*) AS bids, window_start, window_end FROM TABLE(HOP(TABLE bid, DESCRIPTOR(rowtime), "
    "INTERVAL '2' SECOND, INTERVAL '10' SECOND)) GROUP BY auction, window_start, window_end"
)
START = "CAST(TIMESTAMPDIFF(SECOND, TIMESTAMP '1970-01-01 00:00:00', {}) AS BIGINT) * 1000 AS window_start"


def tumbled(kind):
    return f"TABLE(TUMBLE(TABLE {kind}, DESCRIPTOR(rowtime), INTERVAL '10' SECOND))"


RANKS = {
    "": "",
    "rank1": "price < 10000",
    "rank2": "price >= 10000 AND price < 1000000",
    "rank3": "price >= 1000000",
}
STATISTICS = ", ".join(
    f"COUNT({what}) {f'FILTER (WHERE {where})' if where else ''} AS {rank or 'total'}_{name}"
    for what, name in (("*", "bids"), ("DISTINCT bidder", "bidders"), ("DISTINCT auction", "auctions"))
    for rank, where in RANKS.items()
)
IN_TIME = "auction A JOIN bid B ON B.auction = A.id AND B.date_time BETWEEN A.date_time AND A.expires"
GROWING = {  # columns of the sink, query
    "q0": (COLUMNS["bid"], "SELECT auction, bidder, price, channel, url, date_time, extra FROM bid"),
    "q1": (
        "auction BIGINT, bidder BIGINT, price DOUBLE, date_time BIGINT, extra STRING",
        "SELECT auction, bidder, {euros}, date_time, extra FROM bid",
    ),
    "q2": ("auction BIGINT, price BIGINT", "SELECT auction, price FROM bid WHERE {chosen}"),
    "q3": (
        "name STRING, city STRING, state STRING, auction BIGINT",
        "SELECT P.name, P.city, P.state, A.id FROM auction A JOIN person P ON A.seller = P.id "
        "WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')",
    ),
    "q5": (
        "window_start BIGINT, auction BIGINT, bids BIGINT",
        f"SELECT {START.format('A.window_start')}, A.auction, A.bids FROM ({HOP}) A JOIN (SELECT MAX(bids) AS most, "
        f"window_start, window_end FROM ({HOP}) GROUP BY window_start, window_end) M "
        "ON A.window_start = M.window_start AND A.window_end = M.window_end AND A.bids = M.most",
    ),
    "q7": (
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time BIGINT",
        f"SELECT B.auction, B.bidder, B.price, B.date_time FROM (SELECT {TOLD}, window_start, window_end FROM "
        f"{tumbled('bid')}) B JOIN (SELECT MAX(price) AS most, window_start, window_end FROM {tumbled('bid')} GROUP BY "
        "window_start, window_end) M ON B.window_start = M.window_start AND B.window_end = M.window_end "
        "AND B.price = M.most",
    ),
    "q8": (
        "id BIGINT, name STRING, window_start BIGINT",
        f"SELECT P.id, P.name, {START.format('P.window_start')} FROM (SELECT id, name, window_start, window_end FROM "
        f"{tumbled('person')} GROUP BY id, name, window_start, window_end) P JOIN (SELECT seller, window_start, "
        f"window_end FROM {tumbled('auction')} GROUP BY seller, window_start, window_end) A ON P.id = A.seller AND "
        "P.window_start = A.window_start AND P.window_end = A.window_end",
    ),
    "q11": (
        "bidder BIGINT, bids BIGINT, session_start BIGINT, session_end BIGINT",
        "SELECT bidder, COUNT(*), MIN(date_time), MAX(date_time) + 10000 FROM TABLE(SESSION(TABLE bid PARTITION BY "
        "bidder, DESCRIPTOR(rowtime), INTERVAL '9.999' SECOND)) GROUP BY bidder, window_start, window_end",
    ),  # it joins rows one gap apart
    "q13": (
        "auction BIGINT, bidder BIGINT, price BIGINT, date_time BIGINT, `value` STRING",
        f"SELECT {TOLD}, {{side}}",
    ),
}  # fmt: skip
STATISTICS_COLUMNS = ", ".join(
    f"{rank or 'total'}_{name} BIGINT" for name in ("bids", "bidders", "auctions") for rank in RANKS
)
CHANGING = {  # the same
    "q4": (
        "category BIGINT, price DOUBLE",
        "SELECT category, AVG(CAST(price AS DOUBLE)) FROM (SELECT A.id, A.category, MAX(B.price) AS price "
        f"FROM {IN_TIME} GROUP BY A.id, A.category) GROUP BY category",
    ),
    "q9": (
        "id BIGINT, item STRING, seller BIGINT, category BIGINT, expires BIGINT, bidder BIGINT, price BIGINT, "
        "date_time BIGINT",
        "SELECT id, item, seller, category, expires, bidder, price, date_time FROM (SELECT A.id, A.item, A.seller, "
        "A.category, A.expires, B.bidder, B.price, B.date_time, ROW_NUMBER() OVER (PARTITION BY A.id ORDER BY "
        f"B.price DESC, B.date_time, B.bidder) AS place FROM {IN_TIME}) WHERE place = 1",
    ),
    "q12": (  # its windows by PROCTIME give nothing that the end of the input cuts off
        "bidder BIGINT, bids BIGINT",
        "SELECT bidder, COUNT(*) FROM (SELECT bidder, UNIX_TIMESTAMP() / 10 AS seen FROM bid) GROUP BY bidder, seen",
    ),
    "q15": (
        f"`day` BIGINT, {STATISTICS_COLUMNS}",
        f"SELECT date_time / 86400000 AS `day`, {STATISTICS} FROM bid GROUP BY date_time / 86400000",
    ),
    "q16": (
        f"channel STRING, `day` BIGINT, `minute` BIGINT, {STATISTICS_COLUMNS}",
        "SELECT channel, date_time / 86400000, MAX(MOD(date_time / 60000, 1440)), "
        f"{STATISTICS} FROM bid GROUP BY channel, date_time / 86400000",
    ),
}


TIME = (
    ", rowtime AS TO_TIMESTAMP_LTZ(date_time, 3), WATERMARK FOR rowtime AS rowtime - INTERVAL '{late}' SECOND"
)


def begun_environment():
    settings = Configuration()
    for name, value in {
        "parallelism.default": "1",
        "table.local-time-zone": "UTC",
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "execution.checkpointing.interval": f"{peer.SETTINGS['interval_s']:g} s",
        "execution.checkpointing.dir": (peer.FOLDER / "state").as_uri(),
    }.items():
        settings.set_string(name, value)
    newest = sorted(peer.STATE.glob("*/chk-*/_metadata"), key=os.path.getmtime)
    if newest:  # after a kill
        settings.set_string("execution.state-recovery.path", newest[-1].parent.as_uri())
    made = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    environment = TableEnvironment.create(made)
    late = peer.SETTINGS["lateness_ms"] / 1000
    for kind, columns in COLUMNS.items():
        time = "" if kind == "side_input" else TIME.format(late=f"{late:g}")
        environment.execute_sql(
            f"CREATE TEMPORARY TABLE {kind} ({columns}{time}) WITH ('connector' = 'filesystem', "
            f"'path' = '{(peer.IN / kind).as_uri()}', 'format' = 'csv')"
        )
    return environment


def in_python(environment):
    """What q1, q2 and q13 compute, as functions of rows in Python."""
    side = [f"value-{key * 7 % peer.SIDE_ROWS}" for key in range(peer.SIDE_ROWS)]
    euros = udf(lambda price: price * 0.908, result_type=DataTypes.DOUBLE())
    chosen = udf(lambda auction: auction % 123 == 0, result_type=DataTypes.BOOLEAN())
    value = udf(lambda auction: side[auction % len(side)], result_type=DataTypes.STRING())
    for name, function in (("euros", euros), ("chosen", chosen), ("side_value", value)):
        environment.create_temporary_function(name, function)
    return {"euros": "euros(price)", "chosen": "chosen(auction)", "side": "side_value(auction) FROM bid"}


BY_SQL = {
    "euros": "price * CAST(0.908 AS DOUBLE)",
    "chosen": "MOD(auction, 123) = 0",
    "side": f"`value` FROM bid JOIN side_input ON MOD(auction, {peer.SIDE_ROWS}) = key",
}


def main():
    environment = begun_environment()
    pieces = in_python(environment) if IN_PYTHON else BY_SQL
    peer.tell(version("apache-flink"))
    growing = peer.QUERY in GROWING
    columns, query = (GROWING if growing else CHANGING)[peer.QUERY]
    form, place = ("json", peer.OUT) if growing else ("debezium-json", peer.FOLDER / "changes")
    environment.execute_sql(
        f"CREATE TEMPORARY TABLE store ({columns}) WITH ('connector' = 'filesystem', "
        f"'path' = '{place.as_uri()}', 'format' = '{form}')"
    )
    peer.begun()
    environment.execute_sql(f"INSERT INTO store {query.format(**pieces)}").wait()
    if not growing:
        write_changes(place)


def write_changes(place):
    """Each change as the row that came or went."""
    with (peer.OUT / "rows.jsonl").open("w") as file:
        for path in place.glob("part-*"):
            for line in path.open():
                change = json.loads(line)
                row = change["after"] or change["before"]
                file.write(json.dumps({**row, "diff": 1 if change["op"] == "c" else -1}) + "\n")


if __name__ == "__main__":
    main()
