#!/usr/bin/env bash
# fsspec: of several who write with mode="create", more than one is told that it was first
#
# Guess     `pipe_file(name, data, mode="create")` is for locks and commit files: of writers at the same time one makes
#           the file, and all others get FileExistsError, as with Python's own `open(name, "x")`.
# Fact      Where a file system has no way of its own (s3fs has: `If-None-Match`), it is `exists`, then an ordinary
#           write. In a folder of this machine, too: two and more of four threads return without an error, and the last
#           one's content stands. `open(name, "xb")` of the same file system has one winner each time.
# Versions  fsspec 2026.9.0, Python 3.11
# Date      2026-11-30
# Source    this script; found by a sink whose commits are such files: named by `file://`, its folder got rows twice.
#           AbstractFileSystem.pipe_file says "non-atomic but simple" in a comment, and nothing in its docstring
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check fsspec==2026.9.0
timeout 120 tools/bin/python - <<'PYTHON'
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import fsspec

WRITERS, ROUNDS = 4, 3000
files = fsspec.filesystem("file")
start = threading.Barrier(WRITERS)


def piped(name, data):
    files.pipe_file(name, data, mode="create")


def opened(name, data):
    with files.open(name, "xb") as file:
        file.write(data)


def won(write, name, number):
    start.wait()
    try:
        write(name, b"%d" % number)
    except FileExistsError:
        return False
    return True


def most_winners(write):
    """Of the rounds up to the first with two."""
    with ThreadPoolExecutor(WRITERS) as writers:
        for n in range(ROUNDS):
            name = os.path.abspath(f"{write.__name__}-{n}")
            winners = sum(writers.map(lambda number: won(write, name, number), range(WRITERS)))
            if winners != 1:
                return winners
    return 1


by_pipe, by_open = most_winners(piped), most_winners(opened)
print(f'pipe_file(mode="create"): {by_pipe} winners; open("xb"): {by_open}')
sys.exit(not (by_pipe > 1 and by_open == 1))
PYTHON
