"""A table of PostgreSQL by its key, on a real server: rows whose transactions commit late, and what is refused."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.topology_runtime.api.logic import Context, Exhausted
from headgate.topology_runtime.connectors.databases.postgres_source import BY_INDEX, PostgresSource
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway
from headgate.topology_runtime.testing.conformance.patience import until
from real_services import Postgres

pytestmark = pytest.mark.live
LOOKS = 20  # at a source that must not give more


class Orders:
    """A table of its own, writers, and sources of it."""

    def __init__(self, server: Postgres) -> None:
        assert server.login is not None
        self.server, self.password = server, server.login.password
        self.table = f"orders_{secrets.token_hex(4)}"
        self._open: list[Any] = []

    def connection(self, **more: Any) -> psycopg.Connection[Any]:
        found = psycopg.connect(self.server.url, password=self.password, **more)
        self._open.append(found)
        return found

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.server.url, password=self.password) as connection:
            cursor = connection.execute(text.replace("TABLE_", self.table))  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description is not None else []

    def insert(self, connection: psycopg.Connection[Any], *notes: str) -> None:
        for note in notes:
            connection.execute(f"insert into {self.table} (note) values (%s)", [note])  # type: ignore[arg-type]

    def source(self, partition: int = 0, partitions: int = 1, **given: Any) -> PostgresSource:
        more = {"table": self.table, "order_by": "id", "password": self.password, "poll_s": 0.01, **given}
        found = PostgresSource(self.server.url, **more)
        self._open.append(found)
        found.open(Context("orders", partition, partition, partitions, ""))
        return found

    def begun(self, **given: Any) -> PostgresSource:
        found = self.source(**given)
        found.seek(None)
        return found

    def close(self) -> None:
        for one in self._open:
            one.close()


@pytest.fixture
def orders(postgres: Postgres) -> Iterator[Orders]:
    found = Orders(postgres)
    found.query("create table TABLE_ (id bigint generated always as identity primary key, note text)")
    yield found
    found.close()


def notes(given: Any) -> list[str]:
    return [row["note"] for _, row in given]


def take(source: PostgresSource, count: int) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []

    def more() -> bool:
        found.extend(source.poll(100))
        return len(found) >= count

    until(more, lambda: f"for {count} rows; {len(found)} came")
    return found


def gives_nothing(source: PostgresSource) -> bool:
    return all(not source.poll(100) for _ in range(LOOKS))


# ── late commits ────────────────────────────────────────────────────────────────────────────────────────


def test_a_row_that_commits_late_comes_before_those_behind_it(orders: Orders) -> None:
    source, late, other = orders.begun(), orders.connection(), orders.connection(autocommit=True)
    orders.insert(other, "first")
    assert notes(take(source, 1)) == ["first"]
    orders.insert(late, "late")
    orders.insert(other, "behind")
    assert gives_nothing(source)
    late.commit()
    assert notes(take(source, 2)) == ["late", "behind"]


def test_a_key_that_was_rolled_back_is_a_hole(orders: Orders) -> None:
    source, late, other = orders.begun(), orders.connection(), orders.connection(autocommit=True)
    orders.insert(late, "never")
    orders.insert(other, "behind")
    assert gives_nothing(source)
    late.rollback()
    assert take(source, 1) == [(2, {"id": 2, "note": "behind"})]


def test_a_key_given_to_a_transaction_that_has_no_id_yet_is_waited_for(orders: Orders) -> None:
    """It would be passed over by who reads below `pg_snapshot_xmin`."""
    orders.query(
        "create function TABLE__wait() returns trigger language plpgsql as $$ begin "
        "if new.note = 'late' then perform pg_advisory_xact_lock(7351); end if; return new; end $$; "
        "create trigger wait before insert on TABLE_ for each row execute function TABLE__wait()"
    )
    source, gate, other = orders.begun(), orders.connection(), orders.connection(autocommit=True)
    gate.execute("select pg_advisory_xact_lock(7351)")
    orders.insert(other, "first")  # of 32 keys the sequence asks for an id once
    assert notes(take(source, 1)) == ["first"]
    late = orders.connection(autocommit=True)
    late.pgconn.send_query(f"insert into {orders.table} (note) values ('late')".encode())
    waits = f"select backend_xid from pg_stat_activity where pid = {late.info.backend_pid} and wait_event = 'advisory'"
    until(lambda: orders.query(waits) == [(None,)], "for the insert to wait, without an id")
    orders.insert(other, "behind")
    assert gives_nothing(source)
    gate.commit()
    assert notes(take(source, 2)) == ["late", "behind"]


def test_writers_that_begin_later_are_not_waited_for(orders: Orders) -> None:
    """So rows come though there is always a transaction that is open."""
    source = orders.begun()
    first, second, third = (orders.connection() for _ in range(3))
    orders.insert(first, "first")
    orders.insert(second, "second")
    first.commit()
    assert gives_nothing(source)  # the second may have had an earlier key
    orders.insert(third, "third")
    second.commit()
    assert notes(take(source, 1)) == ["first"]


def test_a_partition_that_is_written_by_itself_is_waited_for(orders: Orders) -> None:
    orders.query(
        "drop table TABLE_; create sequence TABLE__keys; create table TABLE_ (id bigint not null default "
        "nextval('TABLE__keys'), note text) partition by range (id); create index on TABLE_ (id); "
        "create table TABLE__1 partition of TABLE_ for values from (0) to (1000)"
    )
    source, late, other = orders.begun(), orders.connection(), orders.connection(autocommit=True)
    late.execute(f"insert into {orders.table}_1 (note) values ('late')")  # type: ignore[arg-type]
    orders.insert(other, "behind")
    assert gives_nothing(source)
    late.commit()
    assert notes(take(source, 2)) == ["late", "behind"]


def test_a_prepared_transaction_is_waited_for(service_folder: Path) -> None:
    with Postgres(service_folder) as server:
        orders = Orders(server)
        with orders.connection(autocommit=True) as connection:
            connection.execute("alter system set max_prepared_transactions = 5")
        server.stop()
        server.start_again()
        orders.query("create table TABLE_ (id bigint generated always as identity primary key, note text)")
        source, late, other = orders.begun(), orders.connection(), orders.connection(autocommit=True)
        late.tpc_begin("late")
        orders.insert(late, "late")
        orders.insert(other, "behind")
        assert gives_nothing(source)
        late.tpc_prepare()
        assert gives_nothing(source)
        late.tpc_commit()
        assert notes(take(source, 2)) == ["late", "behind"]
        orders.close()


# ── what is read ────────────────────────────────────────────────────────────────────────────────────────


def test_threads_share_the_rows(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) select n::text from generate_series(1, 100) n")
    each = []
    for thread in range(3):
        source = orders.source(thread, 3, end="now")
        source.seek(None)
        each.append([at for at, _ in all_of(source)])
    assert sorted(key for keys in each for key in keys) == list(range(1, 101))
    assert all(len(keys) > 30 for keys in each)


def all_of(source: PostgresSource) -> list[tuple[int, Any]]:
    found, over = list[tuple[int, Any]](), list[bool]()

    def ended() -> bool:
        try:
            found.extend(source.poll(100))
        except Exhausted:
            over.append(True)
        return bool(over)

    until(ended, "for the end")
    return found


def test_it_ends_behind_the_rows_of_now_though_more_come(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) values ('a'), ('b')")
    source = orders.begun(end="now")
    orders.query("insert into TABLE_ (note) values ('c')")
    assert notes(all_of(source)) == ["a", "b"]


def test_latest_begins_behind_the_rows_of_now(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) values ('before')")
    source = orders.begun(start="latest")
    orders.query("insert into TABLE_ (note) values ('new')")
    assert notes(take(source, 1)) == ["new"]


def test_a_query_says_what_rows_are(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) values ('5%'), ('none'), ('7%')")
    what = "id, upper(note) as note, 1.50 as price, now() - now() as age"
    query = f"select {what} from {orders.table} where note like '%\\%'"
    source = orders.begun(query=query, end="now")
    assert [(at, row["note"], row["price"], row["age"]) for at, row in all_of(source)] == [
        (1, "5%", "1.50", "00:00:00"),
        (3, "7%", "1.50", "00:00:00"),
    ]


def test_waiting_rows_are_counted_and_not_their_keys(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) select n::text from generate_series(1, 100) n")
    orders.query("delete from TABLE_ where id % 2 = 0")
    source = orders.begun()
    assert source.lag() == 50
    take(source, 50)
    assert source.lag() == 0


# ── what is refused, and what is waited for ─────────────────────────────────────────────────────────────

TABLES = {
    "it has no column 'id'": "create table TABLE_ (other bigint)",
    "column 'id' is text: whole numbers": "create table TABLE_ (id text primary key)",
    "column 'id' is bigint: whole numbers that are not null": "create table TABLE_ (id bigint)",
    "column 'id' has no index": "create table TABLE_ (id bigint generated always as identity)",
    "column 'id' has no sequence": "create table TABLE_ (id bigint primary key)",
    "is handed out in another order: cache 1": "create table TABLE_ (id bigint generated always as identity "
    "(cache 20) primary key)",
    "it is no table": "create view TABLE_ as select 1::bigint as id",
}


@pytest.mark.parametrize("fault", list(TABLES))
def test_a_table_that_cannot_be_read_in_order_is_refused(orders: Orders, fault: str) -> None:
    orders.query("drop table TABLE_; " + TABLES[fault])
    with pytest.raises(InvalidInput) as refused:
        orders.source()
    assert any(one.startswith(fault) or fault in one for one in refused.value.faults), refused.value.faults


def test_no_more_is_held_at_once_when_rows_become_large(orders: Orders) -> None:
    """What small ones let expect: thousands in an answer. All of it was held, and a worker ran out of memory."""
    orders.query("insert into TABLE_ (note) select 'small' from generate_series(1, 40)")
    orders.query("insert into TABLE_ (note) select repeat('x', 700000) from generate_series(1, 30)")
    orders.query("insert into TABLE_ (note) values (repeat('x', 9000000)), ('last')")
    source, keys = orders.begun(), list[int]()
    while len(keys) < 72:
        given = source.poll(1000)
        assert len(given) <= 40 and sum(len(row["note"]) for _, row in given if isinstance(row, dict)) < 6e6
        keys += [key for key, _ in given]
    assert keys == list(range(1, 73))


def test_a_value_that_no_row_can_have_is_a_bad_row_in_its_place(orders: Orders) -> None:
    orders.query("alter table TABLE_ add column more jsonb")
    deep = "(repeat('[', 3000) || repeat(']', 3000))::jsonb"
    orders.query(f"insert into TABLE_ (more) values ('1'), ('2'), ({deep}), ({deep}), ('5')")
    given = take(orders.begun(), 5)
    assert [type(row) is BadRow for _, row in given] == [False, False, True, True, False]
    assert [key for key, _ in given] == [1, 2, 3, 4, 5]


def test_keys_that_come_twice_are_an_error(orders: Orders) -> None:
    orders.query(
        "drop table TABLE_; create table TABLE_ (id int not null, note text); create index on TABLE_ (id)"
    )
    orders.query("insert into TABLE_ values (1, 'a'), (2, 'b'), (2, 'c')")
    source = orders.begun(keys_in_order=True)
    with pytest.raises(InvalidInput, match="a key stands in two rows"):
        take(source, 3)


def test_no_statement_is_compiled_by_the_server(orders: Orders) -> None:
    """Half a second for each look at a table, and on a busy machine more than the eight that a statement has."""
    explained = "explain (analyze, format json) select * from TABLE_ order by note".replace(
        "TABLE_", orders.table
    )
    session = " ".join(f"-c {name}={value}" for name, value in BY_INDEX.items())
    settings = orders.connection(options=session)
    ((plan,),) = settings.execute(explained).fetchall()  # type: ignore[call-overload]
    assert plan[0]["Plan"]["Node Type"] == "Sort" and "JIT" not in plan[0]


def test_a_table_that_was_filled_anew_is_told(orders: Orders) -> None:
    orders.query("insert into TABLE_ (note) select '' from generate_series(1, 10)")
    at = take(orders.begun(), 10)[-1][0]
    orders.query("truncate TABLE_ restart identity; insert into TABLE_ (note) values ('new')")
    with pytest.raises(InvalidInput, match="was filled anew: its last key is 1, and the run has read 10"):
        orders.source().seek(at + 1)


def test_a_right_that_is_taken_away_is_waited_for(orders: Orders) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    orders.query(f"create role {role} login password 'pw'; grant select on TABLE_ to {role}")
    source = PostgresSource(orders.server.url.replace("headgate@", f"{role}@"), table=orders.table, order_by="id",
                            password="pw", poll_s=0.01)  # fmt: skip
    source.open(Context("orders", 0, 0, 1, ""))
    source.seek(None)
    orders.query("insert into TABLE_ (note) values ('a')")
    first = take(source, 1)
    orders.query(f"revoke select on TABLE_ from {role}; insert into TABLE_ (note) values ('b')")
    with pytest.raises(ServiceAway) as away:
        take(source, 1)
    assert "permission denied" in (away.value.cause or "")
    orders.query(f"grant select on TABLE_ to {role}")
    source.seek(first[0][0] + 1)
    assert notes(take(source, 1)) == ["b"]
    source.close()


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"start": "now"}, "start: earliest or latest"),
        ({"end": "later"}, "end: 'now'"),
        ({"poll_s": 0}, "poll_s: seconds"),
        ({"query": " "}, "query: a select"),
        ({"user": "x"}, "there is no param 'user'"),
    ],
)
def test_params_that_cannot_be_are_refused(given: dict[str, Any], fault: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        PostgresSource("postgresql://u@h/d", table="t", order_by="id", **given)
    assert any(one.startswith(fault) for one in refused.value.faults)
