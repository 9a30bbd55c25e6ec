"""Folders here and on a real S3 server: the scenarios of every connector, and what only an object store does."""

from __future__ import annotations

import gzip
import io
import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import boto3
import duckdb
import fsspec.asyn
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from botocore.client import BaseClient
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError
from patience import until

from headgate.testing import SinkUnderTest, SourceUnderTest, scenarios
from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors import remote_files
from headgate.topology_runtime.connectors.files import FilesSource
from headgate.topology_runtime.connectors.lake.folder_sink import FolderSink
from headgate.topology_runtime.connectors.lake.folder_source import FolderSource
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.testing.conformance.under_test import MISSING, UnderTest
from real_services import S3

pytestmark = pytest.mark.live
PLACE = "headgate.topology_runtime.connectors.lake"
LINE = 40  # so that rows are of one length, and lag is exact
Rows = Sequence[dict[str, Any]]


def client_of(server: S3) -> BaseClient:
    return boto3.client(
        "s3",
        endpoint_url=server.url,
        aws_access_key_id="test",
        aws_secret_access_key="test",
        region_name="us-east-1",
    )


def options_of(server: S3) -> dict[str, Any]:
    return {"key": "test", "secret": "test", "endpoint_url": server.url}


def lines_of(rows: Rows) -> bytes:
    return b"".join(json.dumps(row).encode().ljust(LINE) + b"\n" for row in rows)


# ── The scenarios of every connector ────────────────────────────────────────────────────────────────


class OnDisk(UnderTest):
    """A folder that all VMs see."""

    def start(self) -> None:
        self.lake = Path(self.folder) / self.name
        self.lake.mkdir()

    def params(self) -> dict[str, Any]:
        return {"folder": str(self.lake)}

    def missing(self) -> dict[str, Any]:
        return {"folder": str(Path(self.folder) / MISSING)}

    def put(self, name: str, data: bytes) -> None:
        (self.lake / f"{name}.tmp").write_bytes(data)
        os.rename(self.lake / f"{name}.tmp", self.lake / name)

    def names(self) -> list[str]:
        return [str(path.relative_to(self.lake)) for path in self.lake.rglob("*") if path.is_file()]

    def get(self, name: str) -> bytes:
        return (self.lake / name).read_bytes()

    def remove(self, name: str) -> None:
        (self.lake / name).unlink()


SERVERS: dict[str, S3] = {}  # of each class; it takes seconds to start one


@pytest.fixture(scope="module", autouse=True)
def servers_end() -> Iterator[None]:
    yield
    while SERVERS:
        SERVERS.popitem()[1].close()


class OnS3(UnderTest):
    """A bucket of a server in memory: what was there when it was killed is put there again."""

    def start(self) -> None:
        fsspec.asyn.get_loop()  # a thread that fsspec has for the whole process
        # Scenarios with a run of their own keep it while others kill the service.
        kind = f"{type(self).__name__} {Path(self.folder).name == 'service'}"
        if kind not in SERVERS:
            SERVERS[kind] = S3(Path(self.folder) / "service").start()
        self.service = SERVERS[kind]
        if not self.service.alive():
            self.service.start_again()
        self.client = client_of(self.service)
        self.client.create_bucket(Bucket=self.name)

    def kill(self) -> None:
        self.before = {name: self.get(name) for name in self.names()}
        self.service.kill()

    def start_again(self) -> None:
        self.service.start_again()
        self.client.create_bucket(Bucket=self.name)
        for name in sorted(self.before, reverse=True):  # a log is none before its first entry is there
            self.put(name, self.before[name])

    def params(self) -> dict[str, Any]:
        return {"folder": f"s3://{self.name}/lake", "options": options_of(self.service)}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"folder": f"s3://{MISSING}/lake"}

    def put(self, name: str, data: bytes) -> None:
        self.client.put_object(Bucket=self.name, Key=f"lake/{name}", Body=data)

    def names(self) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name, Prefix="lake/")
        return [one["Key"].removeprefix("lake/") for page in pages for one in page.get("Contents", ())]

    def get(self, name: str) -> bytes:
        return bytes(self.client.get_object(Bucket=self.name, Key=f"lake/{name}")["Body"].read())

    def remove(self, name: str) -> None:
        self.client.delete_object(Bucket=self.name, Key=f"lake/{name}")


class FilesThatCome(SourceUnderTest):
    connector = f"{PLACE}.folder_source:FolderSource"
    flood = 1000, 10_000
    files = 0

    def params(self) -> dict[str, Any]:
        return super().params() | {"ready": 0}

    def produce(self, rows: Rows, partition: int = 0) -> None:
        self.add(lines_of(rows))

    def produce_bad(self) -> None:
        self.add(b'{"n": \n')

    def add(self, data: bytes) -> None:
        self.files += 1
        self.put(f"{self.files:04}.jsonl", data)

    def forget(self) -> None:
        for name in self.names():
            if name.endswith(".jsonl"):
                self.remove(name)
        self.produce([{"n": 0}])


class FolderOfFiles(FilesThatCome, OnDisk):
    pass


class BucketOfFiles(FilesThatCome, OnS3):
    pass


class EndingFolder(FolderOfFiles):
    """Of those that are there at the start."""

    def params(self) -> dict[str, Any]:
        return super().params() | {"end": "now"}

    def end(self) -> None:
        pass


class FilesThatAreWritten(SinkUnderTest):
    connector = f"{PLACE}.folder_sink:FolderSink"
    exactly_once = True

    def params(self) -> dict[str, Any]:
        return super().params() | {"batch_rows": 50, "batch_age_s": 0.2}

    def stored(self) -> list[int]:
        data = b"".join(self.get(name) for name in self.names() if not name.startswith("_headgate"))
        return [json.loads(line)["n"] for line in data.splitlines()]

    def bad_row(self) -> Any:
        return 7


class WrittenBucket(FilesThatAreWritten, OnS3):
    pass


class WrittenTable(OnS3, SinkUnderTest):
    """Of Delta Lake."""

    connector = f"{PLACE}.delta_sink:DeltaSink"
    exactly_once = True

    def options(self) -> dict[str, str]:
        login = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}
        return login | {"AWS_ENDPOINT_URL": self.service.url, "AWS_ALLOW_HTTP": "true"}

    def params(self) -> dict[str, Any]:
        table = f"s3://{self.name}/lake"
        return {"table": table, "options": self.options(), "batch_rows": 50, "batch_age_s": 0.2}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"table": f"s3://{MISSING}/lake"}

    def stored(self) -> list[int]:
        """Files of one commit are read in its order."""
        try:
            table = DeltaTable(f"s3://{self.name}/lake", storage_options=self.options())
        except TableNotFoundError:
            return []
        files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
        files.sort(key=lambda one: one["min.n"])
        return [n for one in files for n in pq.read_table(io.BytesIO(self.get(one["path"])))["n"].to_pylist()]

    def bad_row(self) -> Any:
        return 7


TestFolderOfFiles = pytest.mark.full(scenarios(FolderOfFiles))
TestBucketOfFiles = scenarios(BucketOfFiles)
TestWrittenBucket = pytest.mark.full(scenarios(WrittenBucket))
TestWrittenTable = scenarios(WrittenTable)


class TestEndingFolder:
    test_the_end_of_the_input_is_reported = scenarios(EndingFolder).test_the_end_of_the_input_is_reported
    made = scenarios(EndingFolder).made
    of = EndingFolder


# ── What only an object store does ──────────────────────────────────────────────────────────────────


@pytest.fixture
def bucket(s3: S3, request: pytest.FixtureRequest) -> tuple[BaseClient, str]:
    client = client_of(s3)
    name = f"bucket-{abs(hash(request.node.nodeid)) % 10**10}"
    client.create_bucket(Bucket=name)
    return client, name


def opened(url: str, server: S3, **given: Any) -> FolderSource:
    source = FolderSource(url, options=options_of(server), **given)
    source.open(Context("in", 1, 0, 1, ""))
    source.seek(None)
    return source


def test_sinks_at_the_same_time_write_each_row_once(s3: S3, bucket: tuple[BaseClient, str]) -> None:
    """The same rows from four writers, as after a re-plan; counted by DuckDB. What is away is tried again, as a thread
    of a run does."""
    client, name = bucket
    faults: list[str] = []

    def there(call: Callable[[], None]) -> bool:
        try:
            call()
        except ServiceAway as error:
            print(error, error.cause)
            return False
        return True

    def writer(seed: int) -> None:
        try:
            sink = FolderSink(f"s3://{name}/out", format="parquet", options=options_of(s3))
            until(lambda: there(lambda: sink.open(Context("out", 1, 0, 1, ""))))
            for first in range(seed * 7 % 20, 40, 10):
                ids = [RowId("run", "in", 0, n, 0) for n in range(first, first + 15)]
                rows = [{"id": one.position} for one in ids]
                until(partial(there, partial(sink.write, rows, ids)))
        except BaseException as error:
            faults.append(repr(error))

    threads = [threading.Thread(target=writer, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    found: Counter[int] = Counter()
    folder = Path(s3.folder) / name
    folder.mkdir()
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=name):
        for one in page["Contents"]:
            if "/_headgate/" not in one["Key"]:
                client.download_file(name, one["Key"], str(folder / os.path.basename(one["Key"])))
    found.update(n for (n,) in duckdb.sql(f"select id from '{folder}/*.parquet'").fetchall())
    assert set(found.values()) == {1} and len(found) >= 45


def test_files_that_others_put_later_are_seen(s3: S3, bucket: tuple[BaseClient, str]) -> None:
    """fsspec must not remember a listing."""
    client, name = bucket
    for n in range(12):
        client.put_object(Bucket=name, Key=f"in/{n:04}.txt", Body=f"{n}\n".encode())
    source = opened(f"s3://{name}/in", s3)
    found: list[Any] = []
    while given := source.poll(500):
        found += given
    client.put_object(Bucket=name, Key="in/.late.txt", Body=b"hidden\n")
    client.put_object(Bucket=name, Key="in/!late.txt", Body=b"late\n")
    until(lambda: found.extend(source.poll(500)) or len(found) > 12)  # it looks at most once a second
    assert sorted(row for _, row in found) == sorted([*map(str, range(12)), "late"])


def test_an_object_that_is_replaced_while_it_is_read_is_told(s3: S3, bucket: tuple[BaseClient, str]) -> None:
    client, name = bucket
    line = b"x" * 999 + b"\n"
    client.put_object(Bucket=name, Key="in/a.txt", Body=line * 40_000)
    source = opened(f"s3://{name}/in", s3)
    assert len(source.poll(100)) == 100
    client.put_object(Bucket=name, Key="in/a.txt", Body=line.replace(b"x", b"y") * 40_000)

    def to_its_end() -> None:
        while given := source.poll(1000):
            assert all(row[0] == "x" for _, row in given)

    with pytest.raises((InvalidInput, ServiceAway)):
        to_its_end()
    with pytest.raises(InvalidInput, match=r"cannot read .*a\.txt"):
        to_its_end()


def test_a_store_that_ends_while_a_file_is_read_costs_no_row(
    tmp_path: Path, service_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """FilesSource took half of what was packed for damaged, and went on behind it."""
    monkeypatch.setattr(remote_files, "BLOCK_BYTES", 1 << 20)  # of one answer
    with S3(service_folder) as server:
        for key, value in (("URL", server.url), ("S3_REGION", "")):
            monkeypatch.setenv(f"AWS_ENDPOINT_{key}", value)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        lines = [os.urandom(500).hex() for _ in range(8_000)]
        data = gzip.compress("\n".join(lines).encode(), 1)
        assert len(data) > 2 << 20

        def put() -> None:
            client = client_of(server)
            client.create_bucket(Bucket="bucket")
            client.put_object(Bucket="bucket", Key="a.txt.gz", Body=data)

        put()
        source = FilesSource("s3://bucket/a.txt.gz")
        source.open(Context("in", 1, 0, 1, ""))
        found = list(source.read(0, 10))
        server.kill()
        with pytest.raises((ServiceAway, InvalidInput)):
            while len(found) < len(lines):
                found += source.read(len(found), 1000)
        assert found == lines[: len(found)], "no row stands for what did not come"
