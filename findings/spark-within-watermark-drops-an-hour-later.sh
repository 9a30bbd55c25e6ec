#!/usr/bin/env bash
# Spark: dropDuplicatesWithinWatermark drops a row that comes an hour later, or keeps it, by what else comes
#
# Guess     With a watermark of ten seconds a second row of a key is a duplicate when its time is within ten seconds of the
#           first one's. One of an hour later is new.
# Fact      The key is known until the watermark has passed the first row's time by ten seconds, and a batch looks at the
#           watermark from before it. So the row of an hour later is dropped when it comes in the same batch as the first
#           one, or in the batch behind it. It is kept when another key's row has moved the watermark in a batch
#           before. "One alarm per key and ten seconds" loses alarms of quiet keys, and by how the input is cut.
# Versions  pyspark 4.3.0, Python 3.11, Java 17
# Date      2026-12-01
# Source    this script; the documentation promises that duplicates within the delay go, not that others stay
#
# Needs Java, and a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyspark==4.3.0
cat >within.py <<'PY'
import json
import os
import sys

from pyspark.sql import SparkSession

made = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
made = made.config("spark.sql.session.timeZone", "UTC").config("spark.sql.shuffle.partitions", "1")
spark = made.getOrCreate()
FIRST, LATER = ("quiet", "00:00:00"), ("quiet", "01:00:00")
OTHER = ("other", "00:30:00")


def kept(name, batches):
    """How many rows of `quiet` go on, of these batches one after the other."""
    os.makedirs(name)
    rows = spark.readStream.schema("key string, at timestamp").option("maxFilesPerTrigger", 1).json(name)
    found = []
    once = rows.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["key"])
    out = once.writeStream.foreachBatch(lambda some, number: found.extend(row["key"] for row in some.collect()))
    for number, batch in enumerate(batches):
        with open(f"{name}/.{number}", "w") as file:
            file.writelines(json.dumps({"key": key, "at": f"2026-01-01 {at}"}) + "\n" for key, at in batch)
        os.rename(f"{name}/.{number}", f"{name}/{number}.json")
        out.option("checkpointLocation", f"{name}-saved").trigger(availableNow=True).start().awaitTermination()
    return found.count("quiet")


found = {
    "together": kept("together", [[FIRST, LATER]]),
    "apart": kept("apart", [[FIRST], [LATER]]),
    "with another between": kept("between", [[FIRST], [OTHER], [LATER]]),
    "with another beside the first": kept("beside", [[FIRST, OTHER], [LATER]]),
}
print("rows of the key that are kept, of two that are an hour apart:", found)
sys.exit(list(found.values()) != [1, 1, 2, 2])
PY
TZ=UTC timeout 600 tools/bin/python within.py 2>spark.log || { tail -5 spark.log; exit 1; }
