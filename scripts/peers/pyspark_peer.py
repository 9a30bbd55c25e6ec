"""W1 to W4 on PySpark structured streaming, local[2], Python UDFs, ten batches into `foreachBatch`. In W2 and W3 rows
are dealt anew behind f1 (`repartition`), from the Python process of one task through the JVM to that of another.

Called with the work and how many rows. W3's come by a socket, a batch is what has come since the one before."""

from __future__ import annotations

import os
import sys
import time
from importlib.metadata import version
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from peers import work

NAME, TOTAL = sys.argv[1], int(sys.argv[2])
EACH = -(-TOTAL // 10)
FOLDER = Path(os.environ["HOME"])
ROW = StructType(
    [StructField("x", LongType()), StructField("y", DoubleType()), StructField("s", StringType())]
)


def made(number):
    return int(number), 0.5, "0123456789"


def tuples(spark):
    if NAME == "W3":
        source = spark.readStream.format("socket").option("host", "127.0.0.1")
        numbers = source.option("port", work.listen(TOTAL)).load()
    else:
        source = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", EACH)
        numbers = source.option("numPartitions", 2).load().where(f.col("value") < TOTAL)
    rows = f.udf(made, ROW)(f.col("value"))
    first = work.noted(work.f1)
    rows = numbers.select(f.udf(lambda row: first(tuple(row)), ROW)(rows).alias("row"))
    if NAME != "W1":
        rows = rows.repartition(2)
    row = f.col("row")
    for function in (work.f2, work.f3):
        row = f.udf(lambda row, do=function: do(tuple(row)), ROW)(row)
    return rows.select(row.alias("row")).select("row.*")


def counts(spark):
    pool = work.events()
    folder = FOLDER / "in"
    folder.mkdir()
    for at in range(0, TOTAL, EACH):
        some = [pool[n % work.POOL] for n in range(at, min(at + EACH, TOTAL))]
        Path(folder, f"{at:09d}").write_bytes(b"\n".join(some))
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
    user = f.udf(work.user_in, StringType())
    return rows.select(user("value").alias("user")).groupBy("user").count()


def main():
    os.environ["PYSPARK_PYTHON"] = sys.executable  # of its workers too
    spark = (
        SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false").config("spark.sql.warehouse.dir", str(FOLDER / "warehouse"))
        .getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    work.here()
    sink = work.SINKS[NAME](TOTAL)
    begun = []

    def batch(df, number):
        if not begun:
            begun.append(number)
            work.begin()
        if NAME in ("W1", "W2"):
            rows, of_them, _, _ = df.agg(f.count("x"), f.sum("x"), f.max("y"), f.max("s")).collect()[0]
            if rows:
                sink.add(rows, of_them)
            return
        for row in sorted(df.collect()):  # rows that were dealt anew have lost their order
            sink(row)

    writer = (counts if NAME == "W4" else tuples)(spark).writeStream.foreachBatch(batch)
    query = writer.outputMode("update").option("checkpointLocation", str(FOLDER / "checkpoint")).start()
    while not sink.done and query.isActive:
        time.sleep(0.05)
    if query.exception() is not None:
        sys.exit(f"error: {query.exception()}"[:2000])
    query.stop()
    delivery = "at least once into foreachBatch, state exactly once: checkpoints on"
    if NAME == "W4":
        delivery += "; a count per user and batch, not per event"
    work.tell(NAME, sink, version("pyspark"), delivery)


if __name__ == "__main__":
    main()
