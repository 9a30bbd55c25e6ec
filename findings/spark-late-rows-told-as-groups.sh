#!/usr/bin/env bash
# Spark: a thousand late rows are told as one, and rows without a time as none
#
# Guess     `numRowsDroppedByWatermark` of a streaming query is the number of rows that were too late. A row whose time is
#           null stands in a group of its own, as in any GROUP BY, or counts as dropped.
# Fact      Rows are added up by window and key in each partition before any is looked at: a thousand late rows of one
#           window and key count as one. So an alarm on the number sleeps while nearly all of a stream is lost, and it rises with
#           the number of keys and partitions. Rows without a time are left out by `window` itself and counted by nothing,
#           in batch queries, too; `date_trunc` keeps them as a group.
# Versions  pyspark 4.3.0, Python 3.11, Java 17
# Date      2026-12-01
# Source    this script; the guide of Structured Streaming says "rows" of the metric, and in a note that an aggregate's input
#           may be added up before; nothing of null
#
# Needs Java, and a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyspark==4.3.0
cat >late.py <<'PY'
import json
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
made = made.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1")
spark = made.getOrCreate()
counts = []


def put(name, times):
    os.makedirs("in", exist_ok=True)
    with open(f"in/.{name}", "w") as file:
        file.writelines(json.dumps({"at": at, "key": "one"}) + "\n" for at in times)
    os.rename(f"in/.{name}", f"in/{name}.json")


def dropped():
    """Of what has come, as the query says it."""
    rows = spark.readStream.schema("at timestamp, key string").json("in").withWatermark("at", "1 second")
    windows = rows.groupBy(f.window("at", "10 seconds"), "key").count()
    query = windows.writeStream.option("checkpointLocation", "saved").trigger(availableNow=True)
    query = query.foreachBatch(lambda some, number: counts.extend(row["count"] for row in some.collect())).start()
    query.awaitTermination()
    return sum(state["numRowsDroppedByWatermark"] for step in query.recentProgress for state in step["stateOperators"])


put("first", ["2026-01-01 00:01:40"])
dropped()
put("late", ["2026-01-01 00:00:05"] * 1000)
late = dropped()
put("null", [None, None])
put("last", ["2026-01-01 00:05:00"])
null = dropped()
there = spark.read.schema("at timestamp, key string").json("in")
by_window = [there.groupBy(f.window("at", "10 seconds")).count().agg(f.sum("count")).collect()[0][0]]
by_minute = [there.groupBy(f.date_trunc("minute", "at")).count().agg(f.sum("count")).collect()[0][0]]
print(f"dropped: {late} of 1000 late rows, {null} of 2 without a time; counts {counts}")
print(f"of 1004 rows a batch query counts {by_window[0]} by window, {by_minute[0]} by date_trunc")
sys.exit((late, null, counts, by_window, by_minute) != (1, 0, [1], [1002], [1004]))
PY
TZ=UTC timeout 600 tools/bin/python late.py 2>spark.log || { tail -5 spark.log; exit 1; }
