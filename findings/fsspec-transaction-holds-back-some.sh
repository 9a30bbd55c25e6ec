#!/usr/bin/env bash
# fsspec: what a transaction holds back depends on the call and on the store
#
# Guess     Within `with fs.transaction:` nothing that is written appears before the end, and nothing at all when the
#           body raises.
# Fact      So it is with `open(…, "wb")`, on all three. `pipe_file` is held back in a folder and in memory, and is
#           there at once in S3; `put_file` in memory only; `cp_file` nowhere. What was there at once stays when the
#           body raises. No call says that it takes no part. `put_file(…, mode="create")`, too: a file that is there
#           is refused in S3 and in memory (FileExistsError), and is overwritten in a folder.
# Versions  s3fs and fsspec 2026.9.0, moto 5.2.5 (the store, on loopback), Python 3.11
# Date      2026-11-30
# Source    this script; fsspec's "Features" says that writing is deferred until the end, all files or none, that not
#           all file systems support it, and shows `open` alone
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check s3fs==2026.9.0 fsspec==2026.9.0 'moto[s3]==5.2.5' \
    flask==3.1.3 flask-cors==6.0.5
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1
timeout 120 tools/bin/python - 2>store.log <<'PYTHON'
import contextlib
import os
import sys

import fsspec
from moto.server import ThreadedMotoServer

store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
store.start()
host, port = store.get_host_and_port()
s3 = fsspec.filesystem("s3", client_kwargs={"endpoint_url": f"http://{host}:{port}"}, use_listings_cache=False)
s3.mkdir("bucket")
here = os.getcwd()
with open("source", "wb") as file:
    file.write(b"data")


def opened(files, name, _):
    with files.open(name, "wb") as file:
        file.write(b"data")


CALLS = {
    "open": opened,
    "pipe_file": lambda files, name, _: files.pipe_file(name, b"data"),
    "put_file": lambda files, name, _: files.put_file("source", name),
    "cp_file": lambda files, name, there: files.cp_file(there, name),
}


def held(files, folder, call):
    """Is it there within the transaction, and after the body raised?"""
    files.pipe_file(f"{folder}/there", b"data")
    name, within = f"{folder}/{call}", None
    with contextlib.suppress(KeyError), files.transaction:
        CALLS[call](files, name, f"{folder}/there")
        within = files.exists(name)
        raise KeyError("the rest")
    return within, files.exists(name)


def created(files, folder):
    try:
        files.put_file("source", f"{folder}/there", mode="create")
    except FileExistsError:
        return "refused"
    return "overwritten"


found = {}
for kind, files, folder in (
    ("a folder", fsspec.filesystem("file"), here),
    ("memory", fsspec.filesystem("memory"), "/d"),
    ("S3", s3, "bucket/d"),
):
    found[kind] = {call: held(files, folder, call) for call in CALLS} | {"create": created(files, folder)}
    print(f"{kind}: {found[kind]}")
store.stop()
NO, AT_ONCE = (False, False), (True, True)
wanted = {
    "a folder": {"open": NO, "pipe_file": NO, "put_file": AT_ONCE, "cp_file": AT_ONCE, "create": "overwritten"},
    "memory": {"open": NO, "pipe_file": NO, "put_file": NO, "cp_file": AT_ONCE, "create": "refused"},
    "S3": {"open": NO, "pipe_file": AT_ONCE, "put_file": AT_ONCE, "cp_file": AT_ONCE, "create": "refused"},
}
sys.exit(found != wanted)
PYTHON
