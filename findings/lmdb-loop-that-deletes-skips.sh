#!/usr/bin/env bash
# lmdb: a loop that deletes by its cursor leaves every second row
#
# Guess     `for key, value in cursor: cursor.delete()` visits all rows and deletes them; a clean-up of old keys
#           deletes every key that is old.
# Fact      Five of ten are left, without an error: `delete` moves the cursor to the row behind, and the loop's next
#           step moves on from there, so each row behind a deleted one is neither seen nor deleted. Of old keys side
#           by side every second one stays. Deleting by the transaction (`txn.delete(key)`) in the same loop deletes
#           all; so does `while cursor.first(): cursor.delete()`.
# Versions  lmdb 3.0.0 (py-lmdb), Python 3.11
# Date      2026-11-30
# Source    this script; lmdb.h says that MDB_NEXT behind mdb_cursor_del gives the row behind the deleted one, which
#           is what the loop does not do
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check lmdb==3.0.0
timeout 60 tools/bin/python - <<'PYTHON'
import sys

import lmdb


def by_cursor(transaction, cursor):
    seen = 0
    for _ in cursor:
        seen += 1
        cursor.delete()
    return seen


def by_transaction(transaction, cursor):
    seen = 0
    for key, _ in cursor:
        seen += 1
        transaction.delete(key)
    return seen


def first_each_time(transaction, cursor):
    seen = 0
    while cursor.first():
        seen += 1
        cursor.delete()
    return seen


def old_ones(transaction, cursor):
    """Keys below 6, the six oldest."""
    seen = 0
    for key, _ in cursor:
        seen += 1
        if int(key) < 6:
            cursor.delete()
    return seen


found = {}
for clean in (by_cursor, by_transaction, first_each_time, old_ones):
    with lmdb.open(clean.__name__, map_size=1 << 20) as store:
        with store.begin(write=True) as transaction:
            for key in range(10):
                transaction.put(b"%d" % key, b"value")
        with store.begin(write=True) as transaction:
            seen = clean(transaction, transaction.cursor())
        with store.begin() as transaction:
            left = [int(key) for key in transaction.cursor().iternext(values=False)]
    found[clean.__name__] = (seen, left)
    print(f"{clean.__name__}: {seen} seen, left {left}")
wanted = {
    "by_cursor": (5, [1, 3, 5, 7, 9]),
    "by_transaction": (10, []),
    "first_each_time": (10, []),
    "old_ones": (7, [1, 3, 5, 6, 7, 8, 9]),
}
sys.exit(found != wanted)
PYTHON
