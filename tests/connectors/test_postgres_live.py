"""PostgreSQL as a sink, on a real server: each row once over kills of it; what is no row's fault is waited for."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors.databases.postgres_sink import PostgresSink
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from real_services import Postgres

pytestmark = pytest.mark.live


class Orders:
    """A table of its own, and another client of the same database."""

    def __init__(self, server: Postgres) -> None:
        assert server.login is not None
        self.server, self.password = server, server.login.password
        self.table = f"orders_{secrets.token_hex(4)}"
        self.sinks: list[PostgresSink] = []

    def sink(self, password: str = "", **given: Any) -> PostgresSink:
        more = {"table": self.table, "password": password or self.password, **given}
        sink = PostgresSink(self.server.url, **more)
        self.sinks.append(sink)
        sink.open(Context(self.table, 1, 0, 1, ""))
        return sink

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url, password=self.password) as connection:
            cursor = connection.execute(text.replace("TABLE_", self.table))  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description else []


@pytest.fixture
def orders(postgres: Postgres) -> Iterator[Orders]:
    found = Orders(postgres)
    yield found
    for sink in found.sinks:
        sink.close()


def ids(first: int, count: int) -> list[RowId]:
    return [RowId("run", "source", 0, first + n, 0) for n in range(count)]


def rows(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "items": {"n": [n]}, "note": "ä" * (n % 3)} for n in range(first, first + count)]


def test_each_row_is_there_once_though_the_server_is_killed_and_rows_come_again(orders: Orders) -> None:
    sink = orders.sink(create=True)
    sink.write(rows(0, 100), ids(0, 100))
    orders.server.kill()
    with pytest.raises(ServiceAway) as away:
        sink.write(rows(100, 100), ids(100, 100))
    assert orders.password not in str(away.value.lines())
    orders.server.start_again()
    sink.write(rows(50, 150), ids(50, 150))
    assert orders.query("select count(*), count(distinct id), sum((items->'n'->>0)::int) from TABLE_") == [
        (200, 200, 199 * 100)
    ]


def test_two_threads_may_write_the_same_rows(orders: Orders) -> None:
    first, second = orders.sink(create=True, key=["id"]), orders.sink(create=True, key=["id"])
    for start in range(0, 90, 30):
        first.write(rows(start, 40), ids(start, 40))
        second.write(rows(start, 40), ids(start, 40))
    assert orders.query("select count(*), max(id) from TABLE_") == [(100, 99)]


def test_of_rows_that_the_table_does_not_take_nothing_is_left(orders: Orders) -> None:
    orders.query("create table TABLE_ (id bigint check (id < 100), items jsonb, note varchar(2))")
    sink = orders.sink()
    for bad in ({"id": 100, "items": {}, "note": ""}, {"id": 1, "items": {}, "note": "long"}):
        with pytest.raises(psycopg.Error) as refused:
            sink.write([*rows(0, 2), bad], ids(0, 3))
        assert refused.value.sqlstate is not None and refused.value.sqlstate[:2] in ("22", "23")
    sink.write(rows(0, 2), ids(0, 2))
    assert orders.query("select count(*) from TABLE_") == [(2,)]


def test_a_missing_table_column_or_right_is_waited_for(orders: Orders) -> None:
    sink = orders.sink()
    with pytest.raises(ServiceAway, match="does not take rows"):
        sink.write(rows(0, 1), ids(0, 1))
    orders.query("create table TABLE_ (id bigint, items jsonb)")
    with pytest.raises(ServiceAway) as away:
        sink.write(rows(0, 1), ids(0, 1))
    assert 'column "note"' in (away.value.cause or "")
    orders.query("alter table TABLE_ add column note text")
    sink.write(rows(0, 1), ids(0, 1))
    assert orders.query("select count(*) from TABLE_") == [(1,)]


@pytest.mark.parametrize(
    ("make", "bad"),
    [
        ("create table TABLE_ (id bigint, ok boolean)", {"ok": 7}),
        (
            "create function F_() returns trigger language plpgsql as "
            "$$ begin if not new.ok then raise exception 'never'; end if; return new; end $$;"
            "create table TABLE_ (id bigint, ok boolean);"
            "create trigger F_ before insert on TABLE_ for each row execute function F_()",
            {"ok": False},
        ),
        (
            "create table T_ (id bigint, ok boolean); "
            "create view TABLE_ as select * from T_ where ok with check option",
            {"ok": False},
        ),
    ],
    ids=["type", "trigger", "view"],
)
def test_a_row_of_another_type_or_that_a_rule_of_the_database_refuses_is_bad(
    orders: Orders, make: str, bad: dict[str, Any]
) -> None:
    """Waiting for it would hold all others up."""
    orders.query(make.replace("F_", f"f_{orders.table}").replace(" T_", f" t_{orders.table}"))
    sink = orders.sink()
    with pytest.raises(psycopg.Error):
        sink.write([{"id": 1, "ok": True}, {"id": 2, **bad}], ids(0, 2))
    sink.write([{"id": 1, "ok": True}], ids(0, 1))
    assert orders.query("select count(*) from TABLE_") == [(1,)]


def test_a_server_that_became_a_standby_is_connected_to_anew(orders: Orders) -> None:
    """Its connections may outlive it; behind the same address there is another one now."""
    orders.query("create table TABLE_ (id bigint)")
    user = orders.query("create user TABLE_ superuser password 'p'") or orders.table
    orders.query("alter user TABLE_ set default_transaction_read_only = on")
    server = orders.server.url.replace("//headgate@", f"//{user}@")
    sink = PostgresSink(server, table=orders.table, password="p")
    orders.sinks.append(sink)
    sink.open(Context(orders.table, 1, 0, 1, ""))
    with pytest.raises(ServiceAway) as away:
        sink.write([{"id": 1}], ids(0, 1))
    assert "read-only" in (away.value.cause or "")
    orders.query("alter user TABLE_ reset default_transaction_read_only")
    sink.write([{"id": 1}], ids(0, 1))
    assert orders.query("select count(*) from TABLE_") == [(1,)]


def test_a_wrong_password_is_named_and_not_shown(orders: Orders) -> None:
    with pytest.raises(ServiceAway) as away:
        orders.sink(password="wr0ng-secret")
    said = " ".join(away.value.lines())
    assert "password authentication failed" in said and "wr0ng-secret" not in said


@pytest.mark.parametrize(
    "url",
    [
        "http://x/y",
        "postgresql://h:1",
        "postgresql://u:s3cret@h/d",
        "postgresql://u@h/d?password=s3cret",
        "postgresql://h?password=s3cret",
        "host=h dbname=d password=s3cret",
    ],
)
def test_addresses_that_cannot_be_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        PostgresSink(url, table="t")
    assert "s3cret" not in " ".join(refused.value.lines())
