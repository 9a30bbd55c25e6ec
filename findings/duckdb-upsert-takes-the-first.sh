#!/usr/bin/env bash
# DuckDB: of two rows with one key in one upsert the first stands
#
# Guess     `insert … on conflict (id) do update set v = excluded.v` takes its rows one after the other, as SQLite does,
#           so the last of a key stands; or it refuses two rows of one key, as PostgreSQL does ("cannot affect row a
#           second time").
# Fact      It takes the first row of each key in a statement and drops the others without a word, whether the key was
#           in the table before or not. A condition (`where excluded.v >= t.v`) is asked of the first alone. Sent as
#           statements of one row each, the last stands. A sink that writes rows in batches keeps old values.
# Versions  duckdb 2.0.1, SQLite of Python 3.11
# Date      2026-11-29
# Source    this script; pull request 14293 of duckdb/duckdb made such statements pass, which raised before.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check duckdb==2.0.1
tools/bin/python - <<'PYTHON'
import sqlite3
import sys

import duckdb

UPSERT = "insert into t as old values {} on conflict (id) do update set v = excluded.v{}"
NEWER = " where excluded.v >= old.v"
ROWS = [(1, 20), (2, 7), (1, 10), (1, 30)]  # of key 1 the last is also the greatest


def left(connect, at_once, condition="", there=()):
    """What the table holds of key 1."""
    database = connect(":memory:")
    database.execute("create table t (id integer primary key, v integer)")
    for row in there:
        database.execute("insert into t values (?, ?)", row)
    for first in range(0, len(ROWS), at_once):
        values = ", ".join(map(str, ROWS[first : first + at_once]))
        database.execute(UPSERT.format(values, condition))
    ((value,),) = database.execute("select v from t where id = 1").fetchall()
    return value


found = {}
for name, connect in (("duckdb", duckdb.connect), ("sqlite", sqlite3.connect)):
    found[name] = {
        "one by one": left(connect, 1),
        "together": left(connect, 4),
        "together, key was there": left(connect, 4, there=[(1, 5)]),
        "together, if newer": left(connect, 4, NEWER),
    }
    print(name, found[name])
wanted = {
    "duckdb": {"one by one": 30, "together": 20, "together, key was there": 20, "together, if newer": 20},
    "sqlite": {"one by one": 30, "together": 30, "together, key was there": 30, "together, if newer": 30},
}
print("duckdb", duckdb.__version__)
sys.exit(found != wanted)
PYTHON
