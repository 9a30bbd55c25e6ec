"""Tables and folders as targets: the scenarios of every sink."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import duckdb
import psycopg
import pytest

from headgate.testing import SinkUnderTest, scenarios
from headgate.topology_runtime.testing.conformance.under_test import MISSING, WRONG_SECRET, NumberedRow
from real_services import Postgres

pytestmark = pytest.mark.live
PLACE = "headgate.topology_runtime.connectors"


class SqliteSink(SinkUnderTest):
    """It is away while another program holds its lock."""

    connector = f"{PLACE}.databases.sqlite_sink:SqliteSink"
    exactly_once = True

    def start(self) -> None:
        self.path = Path(self.folder) / "rows.sqlite"
        with sqlite3.connect(self.path) as database:
            database.execute("create table taken (n integer check (n >= 0), text)")

    def params(self) -> dict[str, Any]:
        return {"path": str(self.path), "table": "taken"}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"table": MISSING, "create": False}

    def delete(self) -> None:
        self.query("drop table taken")

    def bad_row(self) -> NumberedRow:
        return {"n": -1, "text": "refused by a constraint"}

    def stored(self) -> list[int]:
        return [n for (n,) in self.query("select n from taken order by rowid")]

    def query(self, text: str) -> list[Any]:
        database = sqlite3.connect(self.path, timeout=60)
        try:
            with database:
                return database.execute(text).fetchall()
        finally:
            database.close()

    def kill(self) -> None:
        self.holder = sqlite3.connect(self.path, timeout=60, isolation_level=None, check_same_thread=False)
        self.holder.execute("begin exclusive")

    def start_again(self) -> None:
        self.holder.rollback()
        self.holder.close()


class DuckdbSink(SinkUnderTest):
    """One process opens the file: what is in it is read from a copy."""

    connector = f"{PLACE}.databases.duckdb_sink:DuckdbSink"
    exactly_once = True

    def start(self) -> None:
        self.path = Path(self.folder) / "rows.duckdb"
        with duckdb.connect(str(self.path)) as database:
            database.execute("create table taken (n integer check (n >= 0), text varchar)")

    def params(self) -> dict[str, Any]:
        return {"path": str(self.path), "table": "taken"}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"table": MISSING, "create": False}

    def bad_row(self) -> NumberedRow:
        return {"n": -1, "text": "refused by a constraint"}

    def stored(self) -> list[int]:
        copy = self.path.with_name("copy.duckdb")
        for end in ("", ".wal"):
            there = self.path.with_name(self.path.name + end)
            copy.with_name(copy.name + end).write_bytes(there.read_bytes() if there.exists() else b"")
        if not copy.with_name(copy.name + ".wal").stat().st_size:
            copy.with_name(copy.name + ".wal").unlink()
        with duckdb.connect(str(copy)) as database:
            return [n for (n,) in database.execute("select n from taken order by rowid").fetchall()]


class PostgresSink(SinkUnderTest):
    connector = f"{PLACE}.databases.postgres_sink:PostgresSink"
    exactly_once = True

    def start(self) -> None:
        if why := Postgres.missing():
            pytest.skip(why)
        self.place = Path(tempfile.mkdtemp(prefix="headgate-services-"))  # of a user that is not root
        self.place.chmod(0o711)
        self.service = Postgres(self.place / "service").start()
        self.query("create table taken (place bigserial, n integer check (n >= 0), text text)")

    def stop(self) -> None:
        if hasattr(self, "service"):
            self.service.close()
            shutil.rmtree(self.place)

    def kill(self) -> None:
        self.service.kill()

    def start_again(self) -> None:
        self.service.start_again()

    @property
    def password(self) -> str:
        assert self.service.login is not None
        return self.service.login.password

    def params(self) -> dict[str, Any]:
        return {"url": self.service.url, "password": self.password, "table": "taken"}

    def wrong_secret(self) -> dict[str, Any]:
        return self.params() | {"password": WRONG_SECRET}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"table": MISSING}

    def delete(self) -> None:
        self.query("drop table taken")

    def bad_row(self) -> NumberedRow:
        return {"n": -1, "text": "refused by a constraint"}

    def stored(self) -> list[int]:
        return [n for (n,) in self.query("select n from taken order by place")]

    def query(self, text: str) -> list[Any]:
        with psycopg.connect(self.service.url, password=self.password) as connection:
            cursor = connection.execute(text)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


class FolderSink(SinkUnderTest):
    """It is away while the folder takes no files: another user's, for whom is not root, or not there."""

    connector = f"{PLACE}.lake.folder_sink:FolderSink"
    exactly_once = True

    def start(self) -> None:
        self.path = Path(self.folder) / "rows"

    def params(self) -> dict[str, Any]:
        return {"folder": str(self.path), "batch_age_s": 0.1}

    def bad_row(self) -> Any:
        return "no dict"

    def stored(self) -> list[int]:
        """Files in the order of their names: a file for each call."""
        files = sorted(self.path.glob("*.jsonl"))
        return [json.loads(line)["n"] for file in files for line in file.read_text().splitlines()]


TestSqliteSink = scenarios(SqliteSink)
TestDuckdbSink = pytest.mark.full(scenarios(DuckdbSink))
TestPostgresSink = scenarios(PostgresSink)
TestFolderSink = scenarios(FolderSink)
