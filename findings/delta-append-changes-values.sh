#!/usr/bin/env bash
# deltalake: what is appended is changed to fit the table, and a transaction's version may go back
#
# Guess     An append whose column has another type is refused, as one with another column is (`schema_mode` left out).
#           A transaction with a version that its id has, or a lower one, is refused, too.
# Fact      A column of doubles, texts or truth values goes into one of whole numbers: 1.5 is 1, "7" is 7, true is 1, with
#           no word. Only what has no whole number at all (NaN, 1e300, "x") is refused. Transactions are compared by
#           their id alone, with what others committed meanwhile: from the newest state any version is taken, and
#           `transaction_version` goes back.
# Versions  deltalake 1.6.6, pyarrow 26.0.1, Python 3.11
# Date      2026-11-29
# Source    this script; Delta's protocol leaves it to writers to compare versions.
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check deltalake==1.6.6 pyarrow==26.0.1
tools/bin/python - <<'PYTHON'
import sys

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake


def appended(value):
    """What the table has in place of this value."""
    before = len(DeltaTable("t").file_uris())
    try:
        write_deltalake("t", pa.table({"n": [value]}), mode="append")
    except Exception as error:
        assert len(DeltaTable("t").file_uris()) == before
        return f"refused ({type(error).__name__})"
    return DeltaTable("t").to_pyarrow_table()["n"].to_pylist()[0]


def commit(table, version):
    try:
        transactions = CommitProperties(app_transactions=[Transaction("app", version)])
        write_deltalake(table, pa.table({"n": [0]}), mode="append", commit_properties=transactions)
    except Exception as error:
        return f"refused ({type(error).__name__})"
    return DeltaTable("t").transaction_version("app")


write_deltalake("t", pa.table({"n": [0]}))
values = [1.5, "7", True, float("nan"), 1e300, "x"]
found = [appended(value) for value in values]
for value, what in zip(values, found):
    print(f"{value!r:8} becomes {what}")
old = DeltaTable("t")
versions = [commit(DeltaTable("t"), 5), commit(old, 6), commit(DeltaTable("t"), 5), commit(DeltaTable("t"), 2)]
print("transactions 5, 6 from an old state, 5, 2:", versions)
right = found[:3] == [1, 7, 1] and all(str(what).startswith("refused") for what in found[3:])
sys.exit(0 if right and versions == [5, "refused (CommitFailedError)", 5, 2] else 1)
PYTHON
