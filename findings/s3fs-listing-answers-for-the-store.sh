#!/usr/bin/env bash
# s3fs: after a listing, an object that somebody else writes is not there, and one that is gone is
#
# Guess     The cache of listings is what `ls` shows. `exists`, `info` and `open` are asked for one object, and ask
#           the store.
# Fact      Once its folder was listed, they are answered from the listing, until the process ends: `open` and `cat`
#           of an object that another client wrote raise FileNotFoundError, though it is there; `exists` of a removed
#           one is true, `info` has the old size; `open` of one that was written anew raises FileExpired at its first
#           read. `cat_file` of a known name and `find` ask the store. All `fsspec.filesystem("s3", …)` with the same
#           options in a process are one object with one cache, so a listing in one place counts in the others.
#           `use_listings_cache=False`, or `invalidate_cache()` before each question, asks the store.
# Versions  s3fs and fsspec 2026.9.0, moto 5.2.5 (the store, on loopback), Python 3.11
# Date      2026-11-30
# Source    this script; fsspec's "Features" says that `ls` "and anything that depends on it" is cached, not what that
#           is
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
import sys

import fsspec
from moto.server import ThreadedMotoServer

store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
store.start()
host, port = store.get_host_and_port()
WHERE = {"client_kwargs": {"endpoint_url": f"http://{host}:{port}"}}


def told(call, *arguments):
    try:
        return call(*arguments)
    except OSError as error:
        return type(error).__name__


def read(files, name):
    with files.open(name) as file:
        return file.read()


def seen(**options):
    """What a client that has listed the folder says of what another one did then."""
    ours = fsspec.filesystem("s3", skip_instance_cache=True, **WHERE, **options)
    other = fsspec.filesystem("s3", skip_instance_cache=True, **WHERE)
    for name in ("gone", "anew"):
        other.pipe_file(f"bucket/d/{name}", b"old")
    other.rm("bucket/d/new")
    ours.ls("bucket/d")
    other.rm("bucket/d/gone")
    other.pipe_file("bucket/d/anew", b"longer")
    other.pipe_file("bucket/d/new", b"new")
    answers = {
        "exists new": ours.exists("bucket/d/new"),
        "open new": told(read, ours, "bucket/d/new"),
        "cat new": told(ours.cat, "bucket/d/new"),
        "exists gone": ours.exists("bucket/d/gone"),
        "size anew": ours.info("bucket/d/anew")["size"],
        "open anew": told(read, ours, "bucket/d/anew"),
        "cat_file anew": told(ours.cat_file, "bucket/d/anew"),
        "found": [name.rpartition("/")[2] for name in sorted(ours.find("bucket/d"))],
    }
    ours.invalidate_cache()
    return answers | {"exists new, invalidated": ours.exists("bucket/d/new")}


fsspec.filesystem("s3", **WHERE).mkdir("bucket")
found = {"by default": seen(), "without the cache": seen(use_listings_cache=False)}
found["one object"] = fsspec.filesystem("s3", **WHERE) is fsspec.filesystem("s3", **WHERE)
store.stop()
for name, what in found.items():
    print(f"{name}: {what}")
true = {"exists new": True, "open new": b"new", "cat new": b"new", "exists gone": False, "size anew": 6,
        "open anew": b"longer", "cat_file anew": b"longer", "found": ["anew", "new"],
        "exists new, invalidated": True}
wanted = {
    "by default": true | {"exists new": False, "open new": "FileNotFoundError", "cat new": "FileNotFoundError",
                          "exists gone": True, "size anew": 3, "open anew": "FileExpired"},
    "without the cache": true,
    "one object": True,
}
sys.exit(found != wanted)
PYTHON
