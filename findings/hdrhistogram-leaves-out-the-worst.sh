#!/usr/bin/env bash
# hdrhistogram: what took longer than the histogram was made for is left out of counts and quantiles
#
# Guess     A latency above the highest one that an `HdrHistogram` was made for raises, or counts in the last bucket, as
#           in Prometheus (+Inf): so an overload shows at least as "as long as the histogram goes".
# Fact      `record_value` gives False and counts nothing. Of 100 rows, of which 10 took twice as long as the histogram
#           goes, it knows 90, and its 99th percentile and maximum are those of the quick ones. To add a histogram that
#           goes further raises, and only if it has such a value: so it works until the first slow row.
# Versions  hdrhistogram 0.10.3, Python 3.11
# Date      2026-11-30
# Source    this script; the package's docstring of record_value says "True if the value has been recorded"
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check hdrhistogram==0.10.3
timeout 60 tools/bin/python - <<'PYTHON'
import sys

from hdrh.histogram import HdrHistogram

MINUTE_MS = 60_000
rows = HdrHistogram(1, MINUTE_MS, 2)
said = [rows.record_value(ms) for ms in [10] * 90 + [2 * MINUTE_MS] * 10]


def added(slowest_ms):
    all_rows, further = HdrHistogram(1, MINUTE_MS, 2), HdrHistogram(1, 60 * MINUTE_MS, 2)
    further.record_value(slowest_ms)
    try:
        all_rows.add(further)
    except IndexError:
        return "IndexError"
    return all_rows.get_total_count()


found = {
    "rows said to be counted": sum(said),
    "rows counted": rows.get_total_count(),
    "99th percentile, ms": rows.get_value_at_percentile(99),
    "longest, ms": rows.get_max_value(),
    "a wider one added, nothing slow in it": added(10),
    "a wider one added, one slow row in it": added(30 * MINUTE_MS),
}
for name, what in found.items():
    print(f"{name}: {what}")
sys.exit(list(found.values()) != [90, 90, 10, 10, 1, "IndexError"])
PYTHON
