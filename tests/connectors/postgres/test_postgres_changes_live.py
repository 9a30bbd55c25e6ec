"""Changes of PostgreSQL by logical decoding, on a real server; its plugin test_decoding says the same."""

from __future__ import annotations

import contextlib
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headgate.topology_runtime.api.logic import Context
from headgate.topology_runtime.connectors.databases.pgoutput import lsn_of
from headgate.topology_runtime.connectors.databases.postgres_changes import PostgresChanges
from headgate.topology_runtime.errors import InvalidInput, ServiceAway
from headgate.topology_runtime.testing.conformance.patience import until
from real_services import Postgres

pytestmark = pytest.mark.live
OF_TEST_DECODING = {"INSERT": "insert", "UPDATE": "update", "DELETE": "delete", "TRUNCATE": "truncate"}


class Shop:
    """A table with a publication and a slot of its own name, and sources of them."""

    def __init__(self, server: Postgres, table: str = "id int primary key, note text") -> None:
        assert server.login is not None
        self.server, self.password = server, server.login.password
        self.name = f"shop_{secrets.token_hex(4)}"
        self._sources: list[PostgresChanges] = []
        self.query(f"create table NAME_ ({table}); create publication NAME_ for table NAME_")

    def query(self, text: str, *, alone: bool = False) -> list[tuple[Any, ...]]:
        """alone: each statement by itself, as some have to be."""
        with psycopg.connect(self.server.url, password=self.password, autocommit=alone) as connection:
            cursor = connection.execute(text.replace("NAME_", self.name))  # type: ignore[arg-type]
            return cursor.fetchall() if cursor.description is not None else []

    def source(self, **given: Any) -> PostgresChanges:
        names = {"slot": self.name, "publication": self.name, "password": self.password}
        found = PostgresChanges(self.server.url, **names | given)
        self._sources.append(found)
        found.open(Context("shop", 0, 0, 1, ""))
        return found

    def begun(self, offset: int | None = None, **given: Any) -> PostgresChanges:
        found = self.source(**given)

        def sought() -> bool:
            try:
                found.seek(offset)
            except ServiceAway as away:  # the server has not noticed yet that the last reader is gone
                assert "is active for PID" in (away.cause or "")
                return False
            return True

        until(sought, "for the slot to be free")
        return found

    def confirmed(self) -> int:
        ((lsn,),) = self.query(
            "select confirmed_flush_lsn from pg_replication_slots where slot_name = 'NAME_'"
        )
        return lsn_of(lsn)

    def close(self) -> None:
        for source in self._sources:
            source.close()
        slots = "from pg_replication_slots where slot_name like 'NAME_%'"
        until(lambda: not self.query(f"select {slots} and active"), "for the slots to be free")
        self.query(f"select pg_drop_replication_slot(slot_name) {slots}")


@pytest.fixture
def shop(postgres: Postgres) -> Iterator[Shop]:
    found = Shop(postgres)
    yield found
    found.close()


def take(source: PostgresChanges, count: int) -> list[tuple[int, Any]]:
    found: list[tuple[int, Any]] = []

    def more() -> bool:
        with contextlib.suppress(ServiceAway):  # tried again, as a run does
            found.extend(source.poll(1000))
        return len(found) >= count

    until(more, lambda: f"for {count} rows; {len(found)} came")
    return found


def short(row: dict[str, Any]) -> str:
    """As test_decoding writes it, but for types and values."""
    values = row["row"] if row["row"] is not None else row["old"]
    names = [*(values or {}), *row["unchanged"]]
    return f"{row['op']} {row['table']} {' '.join(sorted(names))}".rstrip()


def short_of(line: str) -> list[str]:
    """Of a line of test_decoding."""
    tables, op, rest = re.fullmatch(r"table (.*?): (\w+): (.*)", line, re.DOTALL).groups()  # type: ignore[union-attr]
    rest = rest.partition("new-tuple: ")[2] or rest
    names = " ".join(sorted(re.findall(r"(\w+)\[[a-z ]+(?:\[\])?\]:", rest)))
    return [f"{OF_TEST_DECODING[op]} {table} {names}".rstrip() for table in tables.split(", ")]


# ── what changes are ────────────────────────────────────────────────────────────────────────────────────


def test_changes_are_those_that_another_plugin_tells(shop: Shop) -> None:
    shop.query("alter table NAME_ alter note set storage external")
    source = shop.begun()
    shop.query("select pg_create_logical_replication_slot('NAME__told', 'test_decoding')")
    shop.query("insert into NAME_ values (1, repeat('x', 5000)), (2, 'b')")
    shop.query("alter table NAME_ add column price numeric; update NAME_ set price = 1.50 where id = 1")
    shop.query("update NAME_ set id = 3 where id = 2; delete from NAME_ where id = 3")
    shop.query("alter table NAME_ rename note to remark; alter table NAME_ replica identity full")
    shop.query("insert into NAME_ values (4, 'ä', 'NaN'); delete from NAME_ where id = 4; truncate NAME_")
    told = shop.query("select data from pg_logical_slot_get_changes('NAME__told', null, null)")
    lines = [line for (line,) in told if line.startswith("table")]
    rows = [row for _, row in take(source, len(lines))]
    assert [short(row) for row in rows] == [one for line in lines for one in short_of(line)]
    assert rows[2]["row"] == {"id": 1, "price": "1.50"} and rows[2]["unchanged"] == ["note"]
    assert rows[3]["old"] == {"id": 2}
    assert rows[6]["old"] == {"id": 4, "remark": "ä", "price": "NaN"}


def test_offsets_say_the_order_of_changes_of_one_row_in_one_transaction(shop: Shop) -> None:
    source = shop.begun()
    shop.query(
        "insert into NAME_ values (7, 'a'); update NAME_ set note = 'b' where id = 7;"
        "update NAME_ set note = 'c' where id = 7; delete from NAME_ where id = 7"
    )
    rows = [row for _, row in take(source, 4)]
    assert len({row["lsn"] for row in rows}) == 1
    newest_last = sorted(rows[::-1], key=lambda row: row["offset"])
    assert [row["op"] for row in newest_last] == ["insert", "update", "update", "delete"]
    assert len({row["offset"] for row in rows}) == 4


def test_a_large_transaction_comes_whole_between_those_that_commit_around_it(shop: Shop) -> None:
    source = shop.begun()
    with psycopg.connect(shop.server.url, password=shop.password) as large:
        large.execute(f"insert into {shop.name} select n, 'x' from generate_series(1, 20000) n")  # type: ignore[arg-type]
        shop.query("insert into NAME_ values (-1, '')")
    shop.query("insert into NAME_ values (-2, '')")
    given = take(source, 20_002)
    assert [row["row"]["id"] for _, row in given] == [-1, *range(1, 20_001), -2]
    offsets = [at for at, _ in given]
    assert offsets == sorted(set(offsets))
    for number in (1, 10_000, 20_001):
        source.close()
        source = shop.begun(offsets[number - 1] + 1)
        assert take(source, 20_002 - number) == given[number:]


# ── what is done ────────────────────────────────────────────────────────────────────────────────────────


def test_the_slot_forgets_what_is_done_and_nothing_else(shop: Shop) -> None:
    source = shop.begun()
    for number in range(4):
        shop.query(f"insert into NAME_ values ({number}, '')")
    offsets = [at for at, _ in take(source, 4)]
    source.done(offsets[1] + 1)
    until(lambda: (source.poll(10), shop.confirmed() > offsets[1])[1], "for two rows to be confirmed")
    assert shop.confirmed() <= offsets[2]
    source.close()
    assert [at for at, _ in take(shop.begun(offsets[1] + 1), 2)] == offsets[2:]


def test_a_slot_that_is_newer_than_its_publication_is_not_warned_of(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    shop.query("select pg_create_logical_replication_slot('NAME_', 'pgoutput')")
    shop.begun()
    assert capsys.readouterr().err == ""


def moved_on(shop: Shop, source: PostgresChanges, end: int) -> None:
    until(lambda: (source.poll(10), shop.confirmed() > end - 64)[1], "for the slot to move on")


def test_an_idle_slot_does_not_keep_the_log(shop: Shop) -> None:
    source = shop.begun()
    shop.query("create table NAME__other (n int)")
    shop.query("insert into NAME_ values (1, '')")
    ((at, _),) = take(source, 1)
    source.done(at + 1)
    shop.query("insert into NAME__other select generate_series(1, 10000)")
    moved_on(shop, source, lsn_of(shop.query("select pg_current_wal_lsn()")[0][0]))
    source.close()
    source = shop.begun(at + 1)
    shop.query("insert into NAME_ values (2, '')")
    assert take(source, 1)[0][1]["row"]["id"] == 2


def test_an_idle_slot_goes_on_however_often_it_is_opened(shop: Shop) -> None:
    """What is confirmed before any row came says, too, which row the run had last."""
    source = shop.begun()
    shop.query("create table NAME__other (n int); insert into NAME_ values (1, '')")
    ((at, _),) = take(source, 1)
    source.done(at + 1)
    for _ in range(3):
        shop.query("insert into NAME__other select generate_series(1, 1000)")
        end = lsn_of(shop.query("select pg_current_wal_lsn()")[0][0])
        moved_on(shop, source, end)
        source.close()
        source = shop.begun(at + 1)
    shop.query("insert into NAME_ values (2, '')")
    assert take(source, 1)[0][1]["row"]["id"] == 2


# ── slots that do not have what is due ──────────────────────────────────────────────────────────────────


def read_some(shop: Shop, **given: Any) -> int:
    """The offset to go on from, when rows are not confirmed."""
    source = shop.begun(**given)
    shop.query("insert into NAME_ values (1, ''), (2, '')")
    at = take(source, 2)[-1][0]
    source.close()
    until(
        lambda: shop.query("select from pg_replication_slots where slot_name = 'NAME_' and not active"),
        "free",
    )
    return at + 1


def refused(shop: Shop, offset: int | None) -> str:
    """What it says, at once or when it is asked for rows."""
    source = shop.source()
    with pytest.raises(InvalidInput) as error:
        source.seek(offset)
        until(lambda: source.poll(10), "for an error")
    return "\n".join(error.value.lines())


def test_a_slot_that_is_gone_is_told(shop: Shop) -> None:
    offset = read_some(shop)
    shop.query("select pg_drop_replication_slot('NAME_')")
    assert "is gone, and with it the changes" in refused(shop, offset)


def test_a_slot_that_was_moved_by_hand_is_told(shop: Shop) -> None:
    offset = read_some(shop)
    shop.query("insert into NAME_ values (3, '')")
    shop.query("select pg_replication_slot_advance('NAME_', pg_current_wal_lsn())")
    assert "does not have what the run read last" in refused(shop, offset)


def test_a_slot_of_another_plugin_is_refused(shop: Shop) -> None:
    shop.query("select pg_create_logical_replication_slot('NAME_', 'test_decoding')")
    assert "it is of plugin test_decoding" in refused(shop, None)


def test_a_missing_publication_is_named(shop: Shop) -> None:
    shop.query("drop publication NAME_")
    assert f"has no publication {shop.name}" in refused(shop, None)


def test_a_publication_that_is_newer_than_its_slot_is_told(
    shop: Shop, capsys: pytest.CaptureFixture[str]
) -> None:
    """Servers from 18 on would leave out what is before it, and say nothing to us."""
    shop.query("drop publication NAME_")
    shop.query("select pg_create_logical_replication_slot('NAME_', 'pgoutput')")
    shop.query("insert into NAME_ values (1, '')")
    shop.query("create publication NAME_ for table NAME_")
    assert "a slot that is older than its publication cannot read it" in refused(shop, None)
    assert (
        f"publication {shop.name} was made or altered when the slot was there already"
        in capsys.readouterr().err
    )


def test_a_server_that_gave_a_slot_up_is_told(service_folder: Path) -> None:
    with Postgres(service_folder) as server:
        shop = Shop(server)
        for setting in ("max_slot_wal_keep_size = '1MB'", "max_wal_size = '32MB'"):
            shop.query(f"alter system set {setting}", alone=True)
        shop.query("select pg_reload_conf()")
        offset = read_some(shop)
        for _ in range(3):
            shop.query("create table NAME__fill as select repeat('x', 1000) from generate_series(1, 20000)")
            shop.query("drop table NAME__fill; select pg_switch_wal()")
        shop.query("checkpoint", alone=True)
        assert "was given up by the server" in refused(shop, offset)
        shop.close()


def test_a_server_without_logical_decoding_is_told(service_folder: Path) -> None:
    with Postgres(service_folder) as server:
        shop = Shop(server)
        shop.query("alter system set wal_level = 'replica'", alone=True)
        server.stop()
        server.start_again()
        assert "wal_level" in refused(shop, None)


def test_a_user_without_the_right_is_told(shop: Shop) -> None:
    role = f"reader_{secrets.token_hex(4)}"
    shop.query("select pg_create_logical_replication_slot('NAME_', 'pgoutput')")
    shop.query(f"create role {role} login password 'pw'")
    url = shop.server.url.replace("headgate@", f"{role}@")
    source = PostgresChanges(url, slot=shop.name, publication=shop.name, password="pw")
    source.open(Context("shop", 0, 0, 1, ""))
    with pytest.raises(ServiceAway) as away:
        source.seek(None)
    assert "replication" in (away.value.cause or "")


def test_a_stream_that_was_not_asked_for_long_goes_on(shop: Shop) -> None:
    """The server ends it after wal_sender_timeout: rows come again from the slot."""
    shop.query("alter role headgate set wal_sender_timeout = '1s'", alone=True)
    try:
        source = shop.begun()
        shop.query("insert into NAME_ select n, repeat('x', 1000) from generate_series(1, 20000) n")
        given = take(source, 100)
        active = "select from pg_replication_slots where slot_name = 'NAME_' and active"
        until(lambda: not shop.query(active), "for the server to end the stream")
        with pytest.raises(ServiceAway):
            until(lambda: given.extend(source.poll(1000)), "for the source to notice")
        shop.query(
            "alter role headgate reset wal_sender_timeout", alone=True
        )  # or a busy machine ends it again
        source.seek(given[-1][0] + 1)
        given += take(source, 20_000 - len(given))
        assert [row["row"]["id"] for _, row in given] == list(range(1, 20_001))
    finally:
        shop.query("alter role headgate reset wal_sender_timeout", alone=True)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"slot": "Upper"}, "slot: a name"),
        ({"publication": []}, "publication: the name"),
        ({"user": "x"}, "there is no param 'user'"),
    ],
)
def test_params_that_cannot_be_are_refused(given: dict[str, Any], fault: str) -> None:
    params: dict[str, Any] = {"slot": "s", "publication": "p", **given}
    with pytest.raises(InvalidInput) as error:
        PostgresChanges("postgresql://u@h/d", **params)
    assert any(one.startswith(fault) for one in error.value.faults)
