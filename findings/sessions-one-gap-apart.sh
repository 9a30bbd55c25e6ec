#!/usr/bin/env bash
# Session windows: two rows exactly one gap apart, in bytewax, pathway and Spark
#
# Guess     A session window with a gap of ten seconds ends when no row came for ten seconds, so rows at 0 s and at 10 s
#           are two sessions, in every engine.
# Fact      One session in bytewax and Spark (and in Flink's SESSION table function, apache-flink 2.3.0, seen by hand):
#           spans [time, time + gap) that touch are joined, though no moment is in both. Two in pathway, whose `max_gap`
#           is below the least gap that splits. The three agree one millisecond (in pathway: one second) to either side.
#           So answers over whole seconds differ between engines, and a batch answer in SQL has to choose `>` or `>=`.
# Versions  bytewax 0.21.1, pathway 0.33.0, pyspark 4.3.0, Python 3.11, Java 17
# Date      2026-11-29
# Source    this script; none of their documentations says it
#
# Needs Java, and a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
for peer in bytewax==0.21.1 pathway==0.33.0 pyspark==4.3.0; do
    python3 -m venv "${peer%%=*}"
    "${peer%%=*}/bin/pip" install -q --disable-pip-version-check "$peer"
done

cat >in_bytewax.py <<'PY'
from datetime import UTC, datetime, timedelta

import bytewax.operators as op
import bytewax.operators.windowing as win
from bytewax.dataflow import Dataflow
from bytewax.testing import TestingSink, TestingSource, run_main

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
for seconds in (9.999, 10, 10.001):
    flow, found = Dataflow("gap"), []
    rows = op.input("in", flow, TestingSource([BEGIN, BEGIN + timedelta(seconds=seconds)]))
    clock = win.EventClock(lambda at: at, wait_for_system_duration=timedelta(hours=1))
    sessions = win.SessionWindower(timedelta(seconds=10))
    op.output("out", win.count_window("count", rows, clock, sessions, lambda at: "key").down, TestingSink(found))
    run_main(flow)
    print(f"bytewax: rows {seconds} s apart are {len(found)} sessions")
PY
cat >in_pathway.py <<'PY'
import pathway as pw

for seconds in (9, 10, 11):
    rows = pw.debug.table_from_rows(pw.schema_from_types(at=int), [(0,), (seconds,)])
    sessions = rows.windowby(pw.this.at, window=pw.temporal.session(max_gap=10)).reduce(n=pw.reducers.count())
    print(f"pathway: rows {seconds} s apart are {len(pw.debug.table_to_pandas(sessions))} sessions")
PY
cat >in_spark.py <<'PY'
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = made.config("spark.sql.shuffle.partitions", "1").getOrCreate()
for ms in (9999, 10000, 10001):
    rows = spark.createDataFrame([(0,), (ms,)], "at long").select(f.timestamp_millis("at").alias("at"))
    print(f"spark: rows {ms / 1000:g} s apart are", rows.groupBy(f.session_window("at", "10 seconds")).count().count(), "sessions")
PY
for engine in bytewax pathway pyspark; do
    timeout 200 "$engine/bin/python" "in_${engine#py}.py" 2>"$engine.log" || { tail -5 "$engine.log"; exit 1; }
done | tee seen.txt

cmp seen.txt - <<'SEEN'
bytewax: rows 9.999 s apart are 1 sessions
bytewax: rows 10 s apart are 1 sessions
bytewax: rows 10.001 s apart are 2 sessions
pathway: rows 9 s apart are 1 sessions
pathway: rows 10 s apart are 2 sessions
pathway: rows 11 s apart are 2 sessions
spark: rows 9.999 s apart are 1 sessions
spark: rows 10 s apart are 1 sessions
spark: rows 10.001 s apart are 2 sessions
SEEN
echo "as said above"
