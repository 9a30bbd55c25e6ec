#!/usr/bin/env bash
# DuckDB: a CSV that it wrote comes back with NULL for every empty text
#
# Guess     `copy … to 'a.csv'` writes an empty text as "" and NULL as nothing, so that reading can tell them apart,
#           as PostgreSQL's and polars' do.
# Fact      It writes them so, and reads both as NULL: by `read_csv`, by `copy … from`, into a NOT NULL column with an
#           error. `allow_quoted_nulls = false` (by default true) brings the empty text back. `export database` says
#           it in its own script, so `import database` is right. pyarrow makes empty texts of both.
# Versions  duckdb 2.0.1, polars 2.1.0, pyarrow 26.0.1, Python 3.11
# Date      2026-11-30
# Source    this script; the reference of DuckDB's CSV options has allow_quoted_nulls with its default
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
timeout 120 tools/bin/python - <<'PYTHON'
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow.csv

database = duckdb.connect()
database.execute("create table t (k integer, v varchar)")
database.execute("insert into t values (1, 'text'), (2, ''), (3, null)")
database.execute("copy t to 'a.csv'")
database.execute("export database 'whole' (format csv)")
database.execute("create table copied (k integer, v varchar)")
database.execute("copy copied from 'a.csv'")
database.execute("create table strict (k integer, v varchar not null)")
try:
    database.execute("insert into strict from read_csv('a.csv') where k = 2")
    refused = False
except duckdb.ConstraintException:
    refused = True
imported = duckdb.connect()
imported.execute("import database 'whole'")


def texts(rows):
    return [v for _, v in sorted(rows)]


found = {
    "file": Path("a.csv").read_text().splitlines()[2:],
    "read_csv": texts(database.execute("from read_csv('a.csv')").fetchall()),
    "copy from": texts(database.execute("from copied").fetchall()),
    "refused as not null": refused,
    "told": texts(database.execute("from read_csv('a.csv', allow_quoted_nulls = false)").fetchall()),
    "imported": texts(imported.execute("from t").fetchall()),
    "polars": polars.read_csv("a.csv")["v"].to_list(),
    "pyarrow": pyarrow.csv.read_csv("a.csv")["v"].to_pylist(),
}
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "file": ['2,""', "3,"],
    "read_csv": ["text", None, None],
    "copy from": ["text", None, None],
    "refused as not null": True,
    "told": ["text", "", None],
    "imported": ["text", "", None],
    "polars": ["text", "", None],
    "pyarrow": ["text", "", ""],
}
sys.exit(found != wanted)
PYTHON
