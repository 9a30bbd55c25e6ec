"""PostgreSQL behind the scenarios: a table on a server that all share, and a slot with its changes."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import psycopg

from headgate.testing import SourceUnderTest
from headgate.topology_runtime.testing.conformance.patience import until
from headgate.topology_runtime.testing.conformance.under_test import MISSING, WRONG_SECRET
from real_services import Postgres

PLACE = "headgate.topology_runtime.connectors.databases"


class OnServer(SourceUnderTest):
    running: ClassVar[list[Callable[[], Postgres]]] = []
    flood = 2_000, 10_000

    def start(self) -> None:
        self.server = self.running[-1]()
        assert self.server.login is not None
        self.password = self.server.login.password
        self.query(f"create table {self.name} (n bigint primary key, text text not null)")

    def kill(self) -> None:
        self.server.kill()

    def start_again(self) -> None:
        self.server.start_again()

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url, password=self.password) as connection:
            cursor = connection.execute(text)  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description is not None else []

    def produce(self, rows: Sequence[dict[str, Any]], partition: int = 0) -> None:
        text = f"copy {self.name} (n, text) from stdin"
        with (
            psycopg.connect(self.server.url, password=self.password) as connection,
            connection.cursor().copy(text) as copy,  # type: ignore[arg-type]
        ):
            for row in rows:
                copy.write_row((row["n"], row["text"]))

    def wrong_secret(self) -> dict[str, Any]:
        return self.params() | {"password": WRONG_SECRET}

    def delete(self) -> None:
        self.query(f"drop table {self.name}")


class Table(OnServer):
    connector = f"{PLACE}.postgres_source:PostgresSource"
    more: ClassVar[dict[str, Any]] = {}

    def start(self) -> None:
        super().start()
        self.query(f"alter table {self.name} add column id bigint generated always as identity unique")

    def params(self) -> dict[str, Any]:
        found = {"url": self.server.url, "table": self.name, "order_by": "id"}
        return found | {"password": self.password} | self.more

    def missing(self) -> dict[str, Any]:
        return self.params() | {"table": MISSING}

    def end(self) -> None:
        self.more = {"end": "now"}  # type: ignore[misc]

    def produce_bad(self) -> None:
        self.query(f"insert into {self.name} (n, text) values (-1, repeat('x', 1000000))")


class Changes(OnServer):
    connector = f"{PLACE}.postgres_changes:PostgresChanges"

    def start(self) -> None:
        super().start()
        self.query(f"create publication {self.name} for table {self.name}")
        self.query(f"select pg_create_logical_replication_slot('{self.name}', 'pgoutput')")

    def params(self) -> dict[str, Any]:
        found = {"url": self.server.url, "slot": self.name, "publication": self.name}
        return found | {"password": self.password}

    def missing(self) -> dict[str, Any]:
        return self.params() | {"publication": MISSING}

    def number(self, row: Any) -> int:
        return int(row["row"]["n"])

    def text(self, row: Any) -> str:
        return str(row["row"]["text"])

    def produce_bad(self) -> None:
        self.query(f"insert into {self.name} (n, text) values (-1, repeat('x', 1000000))")

    def delete(self) -> None:
        self.query(f"drop publication {self.name}")
        self.query(f"insert into {self.name} values ({secrets.randbelow(1 << 40) + (1 << 40)}, '')")

    def forget(self) -> None:
        """A slot made anew has no row of before."""
        self.drop_slot()
        self.query(f"select pg_create_logical_replication_slot('{self.name}', 'pgoutput')")

    def stop(self) -> None:
        if hasattr(self, "server"):
            self.server = self.running[-1]()
            self.drop_slot()

    def drop_slot(self) -> None:
        slot = f"from pg_replication_slots where slot_name = '{self.name}'"
        self.query(f"select pg_terminate_backend(active_pid) {slot} and active")
        until(lambda: not self.query(f"select {slot} and active"), "for the slot to be free")
        self.query(f"select pg_drop_replication_slot(slot_name) {slot}")
