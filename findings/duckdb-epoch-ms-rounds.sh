#!/usr/bin/env bash
# DuckDB 2: the milliseconds of a time lie in the next minute
#
# Guess     `epoch_ms(t)` gives the whole milliseconds since 1970, as 1.4 does: a window that is counted from it
#           (`epoch_ms(t) // 60000`) is the one of `time_bucket(interval '1 minute', t)`.
# Fact      Since 2.0 it rounds: from half a millisecond before a full minute on, a row is counted to the minute that
#           follows, one in 120,000 rows where times are spread evenly. `time_bucket`, `date_trunc` and `epoch_us`
#           cut; a cast to TIMESTAMP_MS or TIMESTAMP_S rounds, in 1.4, too. 1.4.4 cuts in `epoch_ms`, so one query
#           gives two answers before and behind an upgrade. `epoch_us(t) // 1000` is right in both.
# Versions  duckdb 2.0.1 and 1.4.4, Python 3.11
# Date      2026-11-30
# Source    this script
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
cat >minutes.py <<'PYTHON'
import duckdb

# every 100 µs of ten minutes
ROWS = "(select timestamp '2026-01-01' + to_microseconds(100 * i) as t from range(6000000) as s(i))"
BUCKET = "epoch_us(time_bucket(interval '1 minute', t)) // 60000000"
for name, minute in (
    ("epoch_ms", "epoch_ms(t) // 60000"),
    ("epoch_us", "epoch_us(t) // 1000 // 60000"),
    ("date_trunc", "epoch_us(date_trunc('minute', t)) // 60000000"),
    ("a cast to ms", "epoch_us(cast(cast(t as timestamp_ms) as timestamp)) // 60000000"),
    ("a cast to s", "epoch_us(cast(cast(t as timestamp_s) as timestamp)) // 60000000"),
):
    ((other,),) = duckdb.execute(f"select count(*) filter (where {minute} <> {BUCKET}) from {ROWS}").fetchall()
    print(f"{duckdb.__version__} {name}: {other} of 6000000 rows in another minute")
PYTHON
for version in 2.0.1 1.4.4; do
    python3 -m venv "$version"
    "$version/bin/pip" install -q --disable-pip-version-check "duckdb==$version"
    timeout 60 "$version/bin/python" minutes.py
done | tee seen.txt

cmp seen.txt - <<'SEEN'
2.0.1 epoch_ms: 50 of 6000000 rows in another minute
2.0.1 epoch_us: 0 of 6000000 rows in another minute
2.0.1 date_trunc: 0 of 6000000 rows in another minute
2.0.1 a cast to ms: 50 of 6000000 rows in another minute
2.0.1 a cast to s: 50000 of 6000000 rows in another minute
1.4.4 epoch_ms: 0 of 6000000 rows in another minute
1.4.4 epoch_us: 0 of 6000000 rows in another minute
1.4.4 date_trunc: 0 of 6000000 rows in another minute
1.4.4 a cast to ms: 50 of 6000000 rows in another minute
1.4.4 a cast to s: 50000 of 6000000 rows in another minute
SEEN
echo "as said above"
