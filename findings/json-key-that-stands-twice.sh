#!/usr/bin/env bash
# JSON: of a key that stands twice in a row, engines take the first, the last, or neither
#
# Guess     `{"k": 1, "k": 2}` is 2 everywhere, as in Python and JavaScript.
# Fact      The last: Python, pandas, orjson, msgspec. The first: polars in files, SQLite's and DuckDB's JSON
#           operators. DuckDB's and pyarrow's readers of files refuse the row. polars itself takes the last in
#           `json_path_match`. So one line of JSON that a producer appended a field to, instead of replacing it, gives
#           the stream one value and the report over the same lines another one.
# Versions  duckdb 2.0.1, polars 2.1.0, pyarrow 26.0.1, pandas 3.1.1, orjson 3.13.0, msgspec 0.23.0, SQLite of Python
#           3.11
# Date      2026-11-30
# Source    this script; RFC 8259, section 4: names should be unique, and what becomes of others is unpredictable
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1 pandas==3.1.1 \
    orjson==3.13.0 msgspec==0.23.0
timeout 120 tools/bin/python - <<'PYTHON'
import json
import sqlite3
import sys

import duckdb
import msgspec
import orjson
import pandas
import polars
import pyarrow
import pyarrow.json

TEXT = '{"k": 1, "k": 2}'
with open("rows.json", "w") as file:
    file.write(TEXT + "\n")


def told(call):
    try:
        return int(call())
    except (duckdb.Error, pyarrow.ArrowInvalid):
        return "refused"


found = {
    "Python": told(lambda: json.loads(TEXT)["k"]),
    "orjson": told(lambda: orjson.loads(TEXT)["k"]),
    "msgspec": told(lambda: msgspec.json.decode(TEXT)["k"]),
    "pandas, a file": told(lambda: pandas.read_json("rows.json", lines=True)["k"][0]),
    "polars, a file": told(lambda: polars.read_ndjson("rows.json")["k"][0]),
    "polars, a path": told(lambda: polars.Series([TEXT]).str.json_path_match("$.k")[0]),
    "SQLite, ->>": told(lambda: sqlite3.connect(":memory:").execute("select ? ->> 'k'", [TEXT]).fetchone()[0]),
    "DuckDB, ->>": told(lambda: duckdb.execute("select ?::json ->> 'k'", [TEXT]).fetchone()[0]),
    "DuckDB, a file": told(lambda: duckdb.execute("from read_json('rows.json')").fetchone()[0]),
    "pyarrow, a file": told(lambda: pyarrow.json.read_json("rows.json")["k"][0].as_py()),
}
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "Python": 2,
    "orjson": 2,
    "msgspec": 2,
    "pandas, a file": 2,
    "polars, a file": 1,
    "polars, a path": 2,
    "SQLite, ->>": 1,
    "DuckDB, ->>": 1,
    "DuckDB, a file": "refused",
    "pyarrow, a file": "refused",
}
sys.exit(found != wanted)
PYTHON
