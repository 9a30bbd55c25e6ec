"""Tables as sinks: each row once, whatever comes again; what is no row's fault costs no row."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pytest

from headgate.topology_runtime.api.logic import Context, RowId
from headgate.topology_runtime.connectors.databases.duckdb_sink import DuckdbSink
from headgate.topology_runtime.connectors.databases.sqlite_sink import SqliteSink
from headgate.topology_runtime.connectors.databases.table_sink import NAMES, TableSink, quoted
from headgate.topology_runtime.errors import BadRow, InvalidInput, ServiceAway

KINDS = {"sqlite": (SqliteSink, sqlite3.connect), "duckdb": (DuckdbSink, duckdb.connect)}


class Store:
    """A database file, its sinks, and another client of it."""

    def __init__(self, kind: str, path: Path) -> None:
        self.make, self._connect = KINDS[kind]
        self.kind, self.path = kind, str(path)
        self._sinks: list[TableSink] = []

    def sink(self, task: str = "store", **given: Any) -> TableSink:
        sink = self.make(self.path, **{"table": "t", **given})
        sink.open(Context(task, 1, 0, 1, ""))
        self._sinks.append(sink)
        return sink

    def close(self) -> None:
        for sink in self._sinks:
            sink.close()
        self._sinks.clear()

    def query(self, text: str) -> list[tuple[Any, ...]]:
        self.close()
        connection = self._connect(self.path)
        try:
            found = list(connection.execute(text).fetchall())
            connection.commit()
            return found
        finally:
            connection.close()


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    found = Store(request.param, tmp_path / "rows.db")
    yield found
    found.close()


def ids(first: int, count: int, run: str = "run") -> list[RowId]:
    return [RowId(run, "source", 0, first + n, 0) for n in range(count)]


def readings(first: int, count: int) -> list[dict[str, Any]]:
    return [{"id": n, "at": f"{n}", "value": n / 2} for n in range(first, first + count)]


def test_each_row_is_there_once_however_often_and_however_grouped_it_comes(store: Store) -> None:
    sink = store.sink()
    sink.write(readings(0, 10), ids(0, 10))
    sink.write(readings(5, 10), ids(5, 10))
    store.close()
    again = store.sink()  # as after a kill
    again.write(readings(0, 700), ids(0, 700))
    assert store.query("select count(*), count(distinct id), sum(value) from t") == [(700, 700, 349.5 * 350)]


def test_a_row_that_comes_twice_in_one_call_is_there_once(store: Store) -> None:
    """A call may have what was sent and what was sent again."""
    sink = store.sink()
    sink.write([*readings(0, 5), *readings(3, 5)], [*ids(0, 5), *ids(3, 5)])
    assert store.query("select count(*), count(distinct id) from t") == [(8, 8)]


def test_the_same_position_of_another_run_is_another_row(store: Store) -> None:
    sink = store.sink()
    for run in ("a", "b", "a"):
        sink.write(readings(0, 2), ids(0, 2, run))
    assert store.query("select count(*) from t") == [(4,)]


def test_sinks_that_share_a_database_each_get_every_row(store: Store) -> None:
    for task, table in (("raw", "t"), ("sums", "other")):
        sink = store.sink(task, table=table)
        sink.write(readings(0, 2), ids(0, 2))
        store.close()
    assert store.query("select (select count(*) from t), (select count(*) from other)") == [(2, 2)]


def test_with_a_key_the_newest_row_stands_and_a_replay_of_an_older_one_does_not_bring_it_back(
    store: Store,
) -> None:
    sink = store.sink(key=["id"])
    sink.write([{"id": 1, "value": 10}], ids(0, 1))
    sink.write([{"id": 1, "value": 20}, {"id": 2, "value": 5}], ids(1, 2))
    sink.write([{"id": 1, "value": 10}], ids(0, 1))
    assert store.query("select id, value from t order by id") == [(1, 20), (2, 5)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 300])
def test_of_many_rows_with_one_key_the_last_stands(store: Store, at_once: int) -> None:
    sink = store.sink(key=["id"])
    for first in range(0, 300, at_once):
        rows = [{"id": n % 3, "of": n} for n in range(first, min(first + at_once, 300))]
        sink.write(rows, ids(first, len(rows)))
    assert store.query("select id, of from t order by id") == [(0, 297), (1, 298), (2, 299)]


@pytest.mark.parametrize("at_once", [1, 2, 4, 300])
def test_a_row_that_others_overtook_replaces_none_of_them(store: Store, at_once: int) -> None:
    sink = store.sink(key=["id"], newest="version")
    rows = [{"id": n % 3, "version": n * 7 % 300, "of": n} for n in range(300)]
    for first in range(0, 300, at_once):
        sink.write(rows[first : first + at_once], ids(first, min(at_once, 300 - first)))
    wanted = [max((row["version"], row["of"]) for row in rows if row["id"] == key) for key in range(3)]
    assert store.query("select version, of from t order by id") == wanted


def test_of_two_rows_with_one_version_the_later_stands_and_one_without_replaces_none(store: Store) -> None:
    sink = store.sink(key=["id"], newest="version")
    for n, (version, of) in enumerate([(None, "a"), (1, "b"), (1, "c"), (None, "d"), (0, "e")]):
        sink.write([{"id": 1, "of": of, "version": version}], ids(n, 1))
    assert store.query("select of from t") == [("c",)]


@pytest.mark.parametrize(
    "given",
    [{"newest": "v"}, {"newest": "v", "key": ["v"]}, {"newest": "v", "key": ["k"], "columns": ["k"]},
     {"newest": 3, "key": ["k"]}],
)  # fmt: skip
def test_a_column_that_cannot_say_which_row_is_newest_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        SqliteSink("x.db", table="t", **given)


def test_rows_are_written_whole_or_not_at_all(store: Store) -> None:
    sink = store.sink(key=["id"])
    sink.write([{"id": 1, "value": 1}], ids(0, 1))
    with pytest.raises(Exception, match=r"(?i)null|constraint|mismatch|convert"):
        sink.write(
            [{"id": 2, "value": 2}, {"id": {"no": "number"}, "value": 3}, {"id": None, "value": 4}], ids(1, 3)
        )
    sink.write([{"id": 2, "value": 2}], ids(1, 1))
    assert store.query("select id from t order by id") == [(1,), (2,)]


def test_values_of_every_type_come_back(store: Store) -> None:
    at = datetime(2026, 11, 29, 12, 30, 1, 250000, UTC)
    row = {
        "a": 2**62,
        "b": 0.1,
        "c": "ä'\"",
        "d": b"\x00\xff",
        "e": True,
        "f": {"x": [1, None]},
        "g": at,
        "h": None,
    }
    store.sink().write([row], ids(0, 1))
    (found,) = store.query("select a, b, c, d, e, f, g, h from t")
    assert found[:4] == (2**62, 0.1, "ä'\"", b"\x00\xff") and bool(found[4]) is True
    assert found[5].replace(" ", "") == '{"x":[1,null]}' and found[7] is None
    assert str(found[6]).startswith("2026-11-29 ")


def test_tuples_need_columns_and_what_does_not_fit_them_is_named(store: Store) -> None:
    sink = store.sink(columns=["id", "value"])
    sink.write([(1, 2.0)], ids(0, 1))
    for row, said in (((1,), "2 columns"), ({"id": 1, "odd": 2}, "no column for 'odd'"), (7, "2 columns")):
        with pytest.raises(BadRow, match=said):
            sink.write([row], ids(1, 1))
    with pytest.raises(BadRow, match="no dicts"):
        store.sink().write([(1, 2)], ids(2, 1))


def test_a_missing_table_is_no_rows_fault(store: Store) -> None:
    sink = store.sink(create=False, columns=["id"])
    with pytest.raises(ServiceAway, match="does not take rows of t"):
        sink.write([(1,)], ids(0, 1))


def test_names_that_are_old_are_removed_and_fresh_ones_stay(store: Store) -> None:
    sink = store.sink()
    sink.write(readings(0, 5), ids(0, 5))
    old = "0" if store.kind == "sqlite" else "timestamp '2020-01-01'"
    store.query(f"update {NAMES} set written = {old} where name like '%/3/%' returning name")
    sink = store.sink()
    sink.write(readings(5, 1), ids(5, 1))
    assert sorted(name for (name,) in store.query(f"select name from {NAMES}")) == [
        f"store/{one}" for one in (*ids(0, 3), *ids(4, 2))
    ]


@pytest.mark.parametrize("given", [{"table": ""}, {"table": "x" * 64}, {"columns": ["a", ""]}, {"table": 7},
                                   {"columns": ["a"], "key": ["b"]}, {"table": "a\x00b"}])  # fmt: skip
def test_names_that_no_database_has_are_refused_at_once(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        SqliteSink("x.db", **{"table": "t", **given})


def test_names_are_quoted(store: Store) -> None:
    odd = 'sel"ect; drop'
    assert quoted("a.b") == '"a"."b"'
    sink = store.sink(table=odd.replace(".", ""))
    sink.write([{"or'der": 1, 'gr"oup': 2}], ids(0, 1))
    assert store.query(f"select * from {quoted(odd)}") == [(1, 2)]


def test_while_another_process_holds_the_file_rows_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from headgate.topology_runtime.connectors.databases import sqlite_sink

    monkeypatch.setattr(sqlite_sink, "BUSY_S", 0.01)
    store = Store("sqlite", tmp_path / "rows.db")
    sink = store.sink()
    sink.write(readings(0, 1), ids(0, 1))
    other = sqlite3.connect(store.path, isolation_level=None)
    other.execute("begin exclusive")
    with pytest.raises(ServiceAway, match="locked"):
        _raise_cause(lambda: sink.write(readings(1, 1), ids(1, 1)))
    other.execute("rollback")
    other.close()
    sink.write(readings(1, 1), ids(1, 1))
    assert store.query("select count(*) from t") == [(2,)]


def _raise_cause(call: Any) -> None:
    try:
        call()
    except ServiceAway as error:
        raise ServiceAway(f"{error.what}: {error.cause}") from error


def test_sinks_of_several_threads_and_processes_write_one_table(tmp_path: Path) -> None:
    store = Store("sqlite", tmp_path / "rows.db")
    sinks: Sequence[TableSink] = [store.sink() for _ in range(3)]
    for number, sink in zip(range(30), itertools.cycle(sinks), strict=False):
        sink.write(readings(number, 3), ids(number, 3))
    assert store.query("select count(*), count(distinct id) from t") == [(32, 32)]
