#!/usr/bin/env bash
# s3fs, pyarrow: a body that fails publishes what it has written
#
# Guess     In an object store a file appears when it is whole. A `with fs.open("s3://…", "wb")` whose body raises
#           uploads nothing, and a ParquetWriter whose body raises leaves no readable file: its footer is missing.
# Fact      `__exit__` closes, and closing completes. What was written so far becomes the object, also where it is a
#           multipart upload that could be aborted, and takes the place of the whole one from before. So with s3fs and
#           with pyarrow's own S3 file system. A ParquetWriter writes its footer, so the half is a Parquet file like
#           any other, here and there. A reader cannot tell. What keeps the half away: bytes made first and given to
#           `pipe_file`, or, with fsspec alone, `with fs.transaction:` around the body.
# Versions  s3fs and fsspec 2026.9.0, pyarrow 26.0.1, moto 5.2.5 (the store, on loopback), Python 3.11
# Date      2026-11-30
# Source    this script
#
# Needs a network that reaches PyPI. Ends with 1 when anything behaves otherwise than said above.
set -euo pipefail

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv tools
tools/bin/pip install -q --disable-pip-version-check s3fs==2026.9.0 fsspec==2026.9.0 pyarrow==26.0.1 'moto[s3]==5.2.5' \
    flask==3.1.3 flask-cors==6.0.5
export AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b AWS_DEFAULT_REGION=us-east-1
timeout 120 tools/bin/python - 2>store.log <<'PYTHON'
import contextlib
import sys

import fsspec
import pyarrow
import pyarrow.fs
import pyarrow.parquet
from moto.server import ThreadedMotoServer

store = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
store.start()
host, port = store.get_host_and_port()
s3 = fsspec.filesystem("s3", client_kwargs={"endpoint_url": f"http://{host}:{port}"}, use_listings_cache=False)
arrow = pyarrow.fs.S3FileSystem(
    access_key="a", secret_key="b", endpoint_override=f"{host}:{port}", scheme="http", region="us-east-1"
)
s3.mkdir("bucket")
WHOLE = b"x" * 1000
PART = 6 << 20
ROWS = pyarrow.table({"k": [1, 2]})


def left(opened, write):
    """The size of an object whose second writer failed after write()."""
    s3.pipe_file("bucket/object", WHOLE)
    with contextlib.suppress(KeyError), opened() as file:
        write(file)
        raise KeyError("the rest")
    return s3.info("bucket/object")["size"]


def in_transaction():
    s3.pipe_file("bucket/object", WHOLE)
    with contextlib.suppress(KeyError), s3.transaction, s3.open("bucket/object", "wb") as file:
        file.write(b"half")
        raise KeyError("the rest")
    return s3.info("bucket/object")["size"]


def rows_of_half(path, system):
    with contextlib.suppress(KeyError), pyarrow.parquet.ParquetWriter(path, ROWS.schema, filesystem=system) as writer:
        writer.write_table(ROWS)
        raise KeyError("the rest")
    return pyarrow.parquet.read_table(path, filesystem=system).num_rows


found = {
    "s3fs": left(lambda: s3.open("bucket/object", "wb"), lambda file: file.write(b"half")),
    "s3fs, three parts": left(
        lambda: s3.open("bucket/object", "wb", block_size=PART),
        lambda file: [file.write(b"x" * PART) for _ in range(3)],
    ),
    "pyarrow": left(lambda: arrow.open_output_stream("bucket/object"), lambda file: file.write(b"half")),
    "s3fs in a transaction": in_transaction(),
    "ParquetWriter, S3": rows_of_half("bucket/rows.parquet", arrow),
    "ParquetWriter, a folder": rows_of_half("rows.parquet", None),
}
store.stop()
for name, what in found.items():
    print(f"{name}: {what}")
wanted = {
    "s3fs": 4,
    "s3fs, three parts": 3 * PART,
    "pyarrow": 4,
    "s3fs in a transaction": len(WHOLE),
    "ParquetWriter, S3": 2,
    "ParquetWriter, a folder": 2,
}
sys.exit(found != wanted)
PYTHON
