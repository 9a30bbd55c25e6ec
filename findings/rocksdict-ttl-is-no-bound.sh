#!/usr/bin/env bash
# rocksdict: with_ttl hides nothing, and its store is read wrongly without it
#
# Guess     In a store of `AccessType.with_ttl(1)` a value that is older than a second is not there. Opened without
#           with_ttl later, the same store gives its values, or an error.
# Fact      An old value is given until a compaction drops it, which nobody promises: three seconds old it is there
#           for `get`, `in` and `items()`, also after a flush, a close and another open. So counters that "expire" go
#           on being counted. Each value has its time in four bytes behind it; opened without with_ttl these belong to
#           the value: 1 is read as a number of ten digits, bytes are four longer. No error at open.
# Versions  rocksdict 0.3.29, Python 3.11
# Date      2026-11-30
# Source    this script; RocksDB's wiki (Time to Live) says that reads may give expired entries, rocksdict nothing
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check rocksdict==0.3.29
timeout 60 tools/bin/python - <<'PYTHON'
import sys
import time

from rocksdict import AccessType, Rdict

TTL = {"access_type": AccessType.with_ttl(1)}
store = Rdict("store", **TTL)
store["count"] = 1
store["bytes"] = b"text"
time.sleep(3)
found = {"after three seconds": (store.get("count"), "count" in store, len(list(store.items())))}
store.flush()
store.close()

store = Rdict("store")
found["without with_ttl"] = (store["count"] >> 32, len(store["bytes"]))
store.close()

store = Rdict("store", **TTL)
found["opened again"] = store.get("count")
store.compact_range(None, None)
found["compacted"] = store.get("count")
store.close()
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {"after three seconds": (1, True, 2), "without with_ttl": (1, 8), "opened again": 1, "compacted": None}
sys.exit(found != wanted)
PYTHON
