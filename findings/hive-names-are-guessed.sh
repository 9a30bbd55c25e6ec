#!/usr/bin/env bash
# duckdb, pyarrow, polars: what a folder `run=…` is called is guessed, by each otherwise, and two runs may become one
#
# Guess     A value in a folder's name is the text that stands there, or a number that stands for one name alone; the
#           three read the same names the same way.
# Fact      `run=007` and `run=7` are both 7 in pyarrow and polars: two runs are one in every group. DuckDB keeps these
#           apart, but reads `0x10` as 16, as pyarrow does; in polars it is text, and `1e5` is the number 100000.0. One
#           name that is no number makes all of them text: what another run is called changes a column's type.
#           With types (`hive_types_autocast=false`, a schema of pyarrow, `hive_schema` of polars) all say what stands
#           there.
# Versions  duckdb 2.0.1, pyarrow 26.0.1, polars 2.1.0, Python 3.11
# Date      2026-12-01
# Source    this script; each has the option in its documentation.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check duckdb==2.0.1 pyarrow==26.0.1 polars==2.1.0
tools/bin/python - <<'PYTHON'
import os
import shutil
import sys

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

TEXT = pa.schema([("run", pa.string())])


def read(*names):
    """(as guessed, as told) by duckdb, pyarrow and polars, in the order of the names."""
    shutil.rmtree("t", ignore_errors=True)
    for number, name in enumerate(names):
        os.makedirs(f"t/run={name}")
        pq.write_table(pa.table({"number": [number]}), f"t/run={name}/a.parquet")

    def by_duckdb(more):
        query = f"select run from read_parquet('t/*/*.parquet', hive_partitioning=true{more}) order by number"
        return [run for (run,) in duckdb.sql(query).fetchall()]

    def by_pyarrow(partitioning):
        return ds.dataset("t", partitioning=partitioning).to_table().sort_by("number")["run"].to_pylist()

    def by_polars(**more):
        found = pl.scan_parquet("t/*/*.parquet", hive_partitioning=True, **more).sort("number")
        return found.collect()["run"].to_list()

    guessed = by_duckdb(""), by_pyarrow("hive"), by_polars()
    told = (
        by_duckdb(", hive_types_autocast=false"),
        by_pyarrow(ds.partitioning(TEXT, flavor="hive")),
        by_polars(hive_schema={"run": pl.String}),
    )
    print(names, "duckdb", guessed[0], "pyarrow", guessed[1], "polars", guessed[2])
    return guessed, all(one == list(names) for one in told)


found = [read("007", "7"), read("0x10", "20"), read("1e5", "20"), read("20", "a")]
expected = [
    (["007", "7"], [7, 7], [7, 7]),
    ([16, 20], [16, 20], ["0x10", "20"]),
    (["1e5", "20"], ["1e5", "20"], [100000.0, 20.0]),
    (["20", "a"], ["20", "a"], ["20", "a"]),
]
print("with types all say what stands there:", all(right for _, right in found))
sys.exit(0 if [guessed for guessed, _ in found] == expected and all(right for _, right in found) else 1)
PYTHON
