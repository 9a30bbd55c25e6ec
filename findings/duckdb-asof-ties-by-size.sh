#!/usr/bin/env bash
# DuckDB: which of two rows of one time an AsOf join takes depends on how many rows the other side has
#
# Guess     `l asof join r on l.k = r.k and l.t >= r.t`, where r has several rows of one time: one of them, the last
#           as in pandas and polars, and the same one for the same rows.
# Fact      Below 64 rows on the left it takes the first of them, from 64 on the last (in 2.0.1, with four threads and
#           10,000 rows, single rows get another one, in two of six runs, which this script leaves out). So a row is
#           joined otherwise when it is asked for alone: `where i = 7` around the join is moved into it, and changes
#           what is joined. `asof_loop_join_threshold` is the border. Who needs one answer makes the right side have
#           one row a time first.
# Versions  duckdb 2.0.1 and 1.4.4, polars 2.1.0, Python 3.11
# Date      2026-11-30
# Source    this script; duckdb_settings() names the threshold and says nothing of answers
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
cat >joins.py <<'PYTHON'
import duckdb

JOIN = "select l.i, r.v from l asof join r on l.k = r.k and l.t >= r.t"


def joined(rows, around="", threshold=None):
    """The numbers (0: the first of a time, 2: the last) that the left rows got."""
    database = duckdb.connect()
    database.execute("set threads = 1")
    if threshold is not None:
        database.execute(f"set asof_loop_join_threshold = {threshold}")
    at = "1 as k, timestamp '2026-01-01' + to_seconds({}) as t".format
    database.execute(f"create table l as select i, {at('i')} from range({rows}) as s(i)")
    database.execute(f"create table r as select {at('i // 3')}, i % 3 as v from range(300) as s(i)")
    return sorted({v for _, v in database.execute(f"select * from ({JOIN}) {around}").fetchall()})


found = {
    "63 rows": joined(63),
    "64 rows": joined(64),
    "64 rows, row 7 alone": joined(64, "where i = 7"),
    "63 rows, threshold 0": joined(63, threshold=0),
}
for name, numbers in found.items():
    print(f"{duckdb.__version__} {name}: {numbers}")
PYTHON
cat >polars_join.py <<'PYTHON'
import polars

left = polars.DataFrame({"t": [10]})
right = polars.DataFrame({"t": [10, 10, 10], "v": [0, 1, 2]})
print(f"polars {polars.__version__}: {left.join_asof(right, on='t')['v'].to_list()}")
PYTHON
{
    for version in 2.0.1 1.4.4; do
        python3 -m venv "$version"
        "$version/bin/pip" install -q --disable-pip-version-check "duckdb==$version"
        timeout 60 "$version/bin/python" joins.py
    done
    2.0.1/bin/pip install -q --disable-pip-version-check polars==2.1.0
    timeout 60 2.0.1/bin/python polars_join.py
} | tee seen.txt

cmp seen.txt - <<'SEEN'
2.0.1 63 rows: [0]
2.0.1 64 rows: [2]
2.0.1 64 rows, row 7 alone: [0]
2.0.1 63 rows, threshold 0: [2]
1.4.4 63 rows: [0]
1.4.4 64 rows: [2]
1.4.4 64 rows, row 7 alone: [0]
1.4.4 63 rows, threshold 0: [2]
polars 2.1.0: [2]
SEEN
echo "as said above"
