"""W1 and W4 on PySpark structured streaming, local[2], Python UDFs. Called with W1 or W4 and how many rows."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from peers import work

BATCHES = 10
ROW = StructType(
    [StructField("x", LongType()), StructField("y", DoubleType()), StructField("s", StringType())]
)


def main(name: str, total: int, folder: str) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of its workers too
    spark = (
        SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", folder + "/warehouse").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    clock, each = {}, -(-total // BATCHES)
    if name == "W1":
        sink = work.Sum()
        rows = (
            spark.readStream.format("rate-micro-batch")
            .option("rowsPerBatch", each)
            .option("numPartitions", 2)
        )
        rows = rows.load().where(f.col("value") < total)
        made = f.udf(lambda n: (n, 0.5, "0123456789"), ROW)(f.col("value"))
        for function in (work.f1, work.f2, work.f3):
            made = f.udf(lambda row, do=function: do(tuple(row)), ROW)(made)
        table = rows.select(made.alias("row")).select("row.*")

        def batch(df, number):
            clock.setdefault("start", time.perf_counter())
            found = df.agg(f.count("x"), f.sum("x"), f.max("s")).collect()[0]
            sink.rows, sink.total = sink.rows + found[0], sink.total + (found[1] or 0)
            clock["end"] = time.perf_counter()

        writer = table.writeStream.foreachBatch(batch)
        done = lambda: sink.rows >= total  # noqa: E731
    else:
        sink, pool = work.LastCounts(), work.events()
        Path(folder, "in").mkdir()
        for at in range(0, total, each):
            some = [pool[n % work.POOL] for n in range(at, min(at + each, total))]
            Path(folder, "in", f"{at:09d}").write_bytes(b"\n".join(some))
        rows = spark.readStream.option("maxFilesPerTrigger", 1).text(folder + "/in")
        user = f.udf(work.user_in, StringType())
        table = rows.select(user("value").alias("user")).groupBy("user").count()

        def batch(df, number):
            clock.setdefault("start", time.perf_counter())
            for row in df.collect():
                sink((row["user"], row["count"]))
            clock["end"] = time.perf_counter()

        writer = table.writeStream.outputMode("update").foreachBatch(batch)
        done = lambda: sum(sink.counts.values()) >= total  # noqa: E731
    query = writer.option("checkpointLocation", folder + "/checkpoint").start()
    while not done() and query.isActive:
        time.sleep(0.05)
    if query.exception() is not None:
        sys.exit(f"error: {query.exception()}"[:2000])
    query.stop()
    delivery = "at least once into foreachBatch, state exactly once: checkpoints on"
    work.tell(total, clock["end"] - clock["start"], sink, version("pyspark"), delivery)


with tempfile.TemporaryDirectory() as made_folder:
    main(sys.argv[1], int(sys.argv[2]), made_folder)
