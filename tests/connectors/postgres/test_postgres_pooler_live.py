"""PostgreSQL behind PgBouncer, which gives each transaction to any of its connections to the server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors.databases.postgres_sink import PostgresSink
from headgate.topology_runtime.connectors.databases.postgres_source import PostgresSource
from headgate.topology_runtime.testing.conformance.patience import until
from real_services import Postgres
from real_services.service import Login, Service

pytestmark = pytest.mark.live


class PgBouncer(Service):
    """One connection to `server`, for all clients."""

    name = debian = "pgbouncer"
    run_as = "postgres"

    def __init__(self, folder: Path, server: Postgres) -> None:
        assert server.login is not None
        super().__init__(folder, login=server.login)
        self.login: Login = server.login
        self.server = server

    @property
    def url(self) -> str:
        return f"postgresql://{self.login.user}@{self.address}/{self.server.database}?sslmode=disable"

    @classmethod
    def check_installed(cls) -> None:
        cls.program("pgbouncer")

    def prepare(self) -> None:
        users = self.write("users", f'"{self.login.user}" "{self.login.password}"\n')
        lines = [
            "[databases]",
            f"{self.server.database} = host={self.server.host} port={self.server.port}",
            "[pgbouncer]",
            f"listen_addr = {self.host}",
            f"listen_port = {self.port}",
            "unix_socket_dir =",
            "auth_type = plain",
            f"auth_file = {users}",
            "pool_mode = transaction",
            "default_pool_size = 1",
            "ignore_startup_parameters = options",
        ]
        self.write("pgbouncer.ini", "\n".join(lines) + "\n")

    def commands(self) -> Mapping[str, list[str]]:
        return {"pgbouncer": [self.program("pgbouncer"), "--quiet", str(self.folder / "pgbouncer.ini")]}

    def answers(self) -> bool:
        with self.connection():
            return True


@pytest.fixture
def pooler(postgres: Postgres, service_folder: Path) -> Iterator[PgBouncer]:
    if why := PgBouncer.missing():
        pytest.skip(why)
    with PgBouncer(service_folder, postgres) as found:
        yield found


def query(pooler: PgBouncer, text: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(pooler.server.url, password=pooler.login.password) as connection:
        cursor = connection.execute(text)  # type: ignore[arg-type]
        return cursor.fetchall() if cursor.description else []


def test_clients_behind_a_pooler_do_not_run_each_others_statements(pooler: PgBouncer) -> None:
    """Each client's driver numbers its prepared statements from 0, and the pooler's connection knows them all: rows
    went into the table of the other sink."""
    tables = ["pooled_a", "pooled_b"]
    sinks = [
        PostgresSink(pooler.url, table=name, create=True, password=pooler.login.password) for name in tables
    ]
    for sink in sinks:
        sink.open(Context(sink.table, 1, 0, 1, ""))
    for n in range(12):  # the driver prepares what came five times
        for place, sink in enumerate(sinks):
            sink.write([{"n": 100 * place + n}], [RowId("run", sink.table, 0, n, 0)])
    for sink in sinks:
        sink.close()
    found = [query(pooler, f"select count(*), min(n), max(n) from {name}") for name in tables]
    assert found == [[(12, 0, 11)], [(12, 100, 111)]]


def test_sources_behind_a_pooler_read_their_own_tables(pooler: PgBouncer) -> None:
    sources = []
    for name in ("read_a", "read_b"):
        query(pooler, f"create table {name} (id bigint generated always as identity primary key, place text)")
        query(pooler, f"insert into {name} (place) select '{name}' from generate_series(1, 20)")
        source = PostgresSource(pooler.url, table=name, order_by="id", password=pooler.login.password)
        source.open(Context(name, 1, 0, 1, ""))
        source.seek(None)
        sources.append(source)
    given: dict[str, list[Any]] = {source.table: [] for source in sources}

    def read() -> bool:
        for source in sources:
            given[source.table] += [row["place"] for _, row in source.poll(2)]
        return all(len(rows) == 20 for rows in given.values())

    until(read, lambda: f"for all rows, not {given}")
    for source in sources:
        source.close()
        assert given[source.table] == [source.table] * 20
