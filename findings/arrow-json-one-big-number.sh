#!/usr/bin/env bash
# pyarrow.json: one number beyond 64 bits with a sign makes doubles of the whole column
#
# Guess     `pyarrow.json.read_json` of whole numbers gives whole numbers; one that int64 cannot hold (hashes and ids
#           of 64 bits without a sign) is an error, or makes the column uint64, as with DuckDB and polars.
# Fact      The column becomes double without a word, and all its numbers beyond 2⁵³ lose their last digits: two ids
#           that differ by one are equal then. It depends on what else is in the read: the same row is exact in a file
#           without the big one. A `schema` of uint64 is exact.
# Versions  pyarrow 26.0.1, duckdb 2.0.1, polars 2.1.0, Python 3.11
# Date      2026-11-30
# Source    this script; pyarrow's "Reading JSON files" says that numbers become int64, and float64 "if a non-integer
#           is encountered"
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check pyarrow==26.0.1 duckdb==2.0.1 polars==2.1.0
timeout 120 tools/bin/python - <<'PYTHON'
import sys

import duckdb
import polars
import pyarrow
import pyarrow.json

SMALL = [2**53, 2**53 + 1]
BIG = [*SMALL, 2**63 + 1]
for name, ids in (("small", SMALL), ("big", BIG)):
    with open(f"{name}.json", "w") as file:
        file.writelines(f'{{"id": {one}}}\n' for one in ids)
TOLD = pyarrow.json.ParseOptions(explicit_schema=pyarrow.schema([("id", pyarrow.uint64())]))


def by_arrow(name, told=None):
    column = pyarrow.json.read_json(f"{name}.json", parse_options=told)["id"]
    return str(column.type), len(set(column.to_pylist()))


found = {
    "small, pyarrow": by_arrow("small"),
    "big, pyarrow": by_arrow("big"),
    "big, pyarrow, told": by_arrow("big", TOLD),
    "big, DuckDB": [one for (one,) in duckdb.execute("from read_json('big.json')").fetchall()] == BIG,
    "big, polars": polars.read_ndjson("big.json")["id"].to_list() == BIG,
}
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "small, pyarrow": ("int64", 2),
    "big, pyarrow": ("double", 2),
    "big, pyarrow, told": ("uint64", 3),
    "big, DuckDB": True,
    "big, polars": True,
}
sys.exit(found != wanted)
PYTHON
