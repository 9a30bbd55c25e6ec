"""Nexmark on Spark Structured Streaming: Parquet files, a part of them each batch; local[1]. Queries that add rows only
go into its file sink; sums, which change, into files that each batch writes anew."""

from __future__ import annotations

import shutil

import pyspark
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as f

from nexmark_peers import peer_run as peer

SPARK = (
    SparkSession.builder.master("local[1]")
    .appName("nexmark")
    .config("spark.ui.enabled", "false")
    .config("spark.sql.shuffle.partitions", "1")
    .config("spark.sql.session.timeZone", "UTC")
    .config("spark.driver.memory", "2g")
    .getOrCreate()
)


def table(kind):
    schema = SPARK.read.parquet(str(peer.IN / kind)).schema
    return SPARK.readStream.schema(schema).option("maxFilesPerTrigger", 4).parquet(str(peer.IN / kind))


def timed(kind):
    lateness = f"{peer.SETTINGS['lateness_ms']} milliseconds"
    return table(kind).withColumn("at", f.timestamp_millis("date_time")).withWatermark("at", lateness)


def q3():
    persons = table("person").where("state in ('OR', 'ID', 'CA')").select("id", "name", "city", "state")
    auctions = table("auction").where("category = 10").selectExpr("id as auction", "seller")
    return auctions.join(persons, f.expr("seller = id")).select("name", "city", "state", "auction")


def q8():
    window = "date_time div 10000 * 10000"
    persons = table("person").selectExpr("id", "name", f"{window} as window_start")
    opened = timed("auction").selectExpr("seller", f"{window} as start", "at")
    opened = opened.dropDuplicates(["seller", "start"])
    return persons.join(opened, f.expr("seller = id and start = window_start")).select(
        "id", "name", "window_start"
    )


def q11():
    """It joins rows one gap apart."""
    sessions = timed("bid").groupBy(f.session_window("at", "9999 milliseconds"), "bidder")
    return sessions.agg(
        f.count("*").alias("bids"),
        f.min("date_time").alias("session_start"),
        (f.max("date_time") + 10_000).alias("session_end"),
    ).drop("session_window")


def q9():
    """Auctions and bids as one stream: what comes from a join of two cannot be kept whole (complete mode)."""
    auctions = table("auction").selectExpr(
        "id", "struct(item, seller, category, expires, date_time as opened) as it", "null as bid"
    )
    bids = table("bid").selectExpr(
        "auction as id", "null as it", "struct(-price as low, date_time, bidder) as bid"
    )
    both = auctions.unionByName(bids).groupBy("id")
    found = both.agg(f.first("it", ignorenulls=True).alias("it"), f.collect_list("bid").alias("bids"))
    best = "array_min(filter(bids, b -> b.date_time between it.opened and it.expires)) as best"
    return (
        found.selectExpr("id", "it", best)
        .where("best is not null")
        .selectExpr(
            "id", "it.item", "it.seller", "it.category", "it.expires",
            "best.bidder", "-best.low as price", "best.date_time",
        )
    )  # fmt: skip


def average(rows):
    return rows.groupBy("category").agg(f.avg("price").alias("price"))


def q5():
    counts = timed("bid").groupBy(f.window("at", "10 seconds", "2 seconds"), "auction")
    return counts.agg(f.count("*").alias("bids"))


def hot(rows):
    most = rows.withColumn("most", f.max("bids").over(Window.partitionBy("window")))
    return most.where("bids = most").selectExpr(
        "unix_millis(window.start) as window_start", "auction", "bids"
    )


def q7():
    bids = timed("bid").groupBy(f.window("at", "10 seconds")).agg(
        f.max("price").alias("most"), f.collect_list(f.struct("auction", "bidder", "price", "date_time")).alias("bids")
    )  # fmt: skip
    return bids.selectExpr("inline(filter(bids, b -> b.price = most))")


def q12():
    windows = table("bid").groupBy(f.window(f.current_timestamp(), "10 seconds"), "bidder")
    return windows.agg(f.count("*").alias("bids")).drop("window")


RANKS = {
    "total": "true",
    "rank1": "price < 10000",
    "rank2": "price between 10000 and 999999",
    "rank3": "price >= 1000000",
}


def statistics(*keys):
    """`count(distinct …)` of a stream is refused; a set is not."""
    told = {
        f"{rank}_{name}": f.expr(f"size(collect_set({what}) filter (where {where}))")
        for rank, where in RANKS.items()
        for what, name in (("bidder", "bidders"), ("auction", "auctions"))
    }
    told |= {f"{rank}_bids": f.expr(f"count(*) filter (where {where})") for rank, where in RANKS.items()}
    if "channel" in keys:
        told["minute"] = f.expr("max(date_time div 60000 % 1440)")
    bids = table("bid").withColumn("day", f.expr("date_time div 86400000"))
    return bids.groupBy(*keys).agg(*(one.alias(name) for name, one in told.items()))


def q13():
    pairs = [(key, f"value-{key * 7 % peer.SIDE_ROWS}") for key in range(peer.SIDE_ROWS)]
    side = f.broadcast(SPARK.createDataFrame(pairs, "key long, value string"))
    return (
        table("bid")
        .join(side, f.expr(f"auction % {peer.SIDE_ROWS} = key"))
        .select("auction", "bidder", "price", "date_time", "value")
    )


ADDED = {
    "q0": lambda: table("bid").select("auction", "bidder", "price", "channel", "url", "date_time", "extra"),
    "q1": lambda: table("bid").selectExpr(
        "auction", "bidder", "price * cast(0.908 as double) as price", "date_time", "extra"
    ),
    "q2": lambda: table("bid").where("auction % 123 = 0").select("auction", "price"),
    "q3": q3, "q8": q8, "q13": q13,
}  # fmt: skip
CHANGED = {  # query, and what is made of all its rows behind each batch
    "q4": (q9, average), "q5": (q5, hot), "q7": (q7, None), "q9": (q9, None), "q11": (q11, None), "q12": (q12, None),
    "q15": (lambda: statistics("day"), None), "q16": (lambda: statistics("channel", "day"), None),
}  # fmt: skip


def anew(rows, number):
    """All rows so far, in place of those of the batch before."""
    made = CHANGED[peer.QUERY][1]
    (made(rows) if made else rows).write.mode("overwrite").json(str(peer.FOLDER / "next"))
    shutil.rmtree(peer.OUT / "all", ignore_errors=True)
    (peer.FOLDER / "next").rename(peer.OUT / "all")


def main():
    peer.begun()
    if peer.QUERY in ADDED:
        writer = ADDED[peer.QUERY]().writeStream.format("json").option("path", str(peer.OUT))
    else:
        writer = CHANGED[peer.QUERY][0]().writeStream.outputMode("complete").foreachBatch(anew)
    writer.option("checkpointLocation", str(peer.STATE)).trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    peer.tell(pyspark.__version__)
    main()
