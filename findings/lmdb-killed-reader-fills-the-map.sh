#!/usr/bin/env bash
# LMDB: a reader that was killed keeps all that is written since, until the map is full
#
# Guess     A process that is killed (kill -9) while it reads holds nothing: LMDB survives crashes without recovery, and
#           its lock is given back by the kernel.
# Fact      Its snapshot stays in the table of readers. A writer that goes on replaces one value of 50,000 bytes fourteen
#           times in a map of 1 MiB, then MapFullError, each time, although nobody reads; 500 times and more without
#           such a reader. `env.reader_check()` (which no write calls) frees the place, and so does an open when
#           no other process has the store open. So a store of states with a reader beside it (a dashboard, a look) fills up
#           after one crash of that reader, until somebody calls that, or all are started again.
# Versions  lmdb 3.0.0 (py-lmdb), Python 3.11
# Date      2026-12-01
# Source    this script; LMDB's "Caveats" name stale readers, py-lmdb documents reader_check without saying when it is due
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check lmdb==3.0.0
cat >reader.py <<'PY'
import sys
import time

import lmdb

reading = lmdb.open("store", map_size=1 << 20).begin()
reading.get(b"state")
print("reads", flush=True)
time.sleep(60)
sys.exit(reading)
PY
timeout 60 tools/bin/python - <<'PYTHON'
import subprocess
import sys

import lmdb

MOST = 500
store = lmdb.open("store", map_size=1 << 20)


def writes():
    """How often one value is replaced before the map is full, MOST at most."""
    for n in range(MOST):
        try:
            with store.begin(write=True) as change:
                change.put(b"state", bytes([n % 256]) * 50_000)
        except lmdb.MapFullError:
            return n
    return MOST


alone = writes()
reader = subprocess.Popen([sys.executable, "reader.py"], stdout=subprocess.PIPE)
reader.stdout.readline()
reader.kill()
reader.wait()
beside, later = writes(), writes()
freed = store.reader_check()
print(f"writes: {alone} without a reader, {beside} and {later} after one was killed, {writes()} with {freed} freed")
sys.exit(not (alone == MOST and 0 < beside < 20 and later == 0 and freed == 1 and writes() == MOST))
PYTHON
