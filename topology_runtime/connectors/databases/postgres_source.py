"""A table of PostgreSQL as a source: its rows in the order of a rising key, none left out because it commits late.

Keys are given out before their transactions commit, so 11 can be seen while 10 is still to come. Keys are read up to K,
the greatest one that was seen, only when every transaction that held a lock for writing into the table *after K was
seen* has ended. A statement that inserts takes this lock before it asks the sequence for a key, and keeps it until its
transaction ends: whoever may still bring a key below K is among them. Nobody is blocked by that, rollbacks leave holes
and nothing to wait for, and prepared transactions are waited for as well.

Snapshots (`pg_snapshot_xmin`) would not do: a transaction may have no id yet when it is given its first key.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

from headgate.topology_runtime.api.logic import Context, Exhausted, OffsetSource
from headgate.topology_runtime.connectors.databases.postgres_service import (
    PostgresAddress,
    connected,
    trouble,
)
from headgate.topology_runtime.connectors.databases.postgres_values import (
    SESSION,
    ValueColumns,
    Values,
    ValuesContext,
    too_large,
)
from headgate.topology_runtime.connectors.databases.table_sink import checked, quoted
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.errors import InvalidInput, ServiceAway

CALL_BYTES, CALL_ROWS, FIRST_ROWS = 4 << 20, 2000, 32  # of one answer, about; how many rows at first
FEW_ROWS, IN_FEWS = 8, 170_000  # that are read at once; from this libpq on it can
COUNT_MOST = 10_000  # rows that wait are counted up to here
SAY_AFTER_S = 60.0  # that an open transaction is waited for
# Of a table without statistics the server would sort all that is behind a key for each answer. A statement that has to
# sort all the same counts as so dear that it would be compiled first: half a second for a row.
BY_INDEX = {"enable_sort": "off", "enable_bitmapscan": "off", "jit": "off"}
ABOUT = """
select c.oid, c.relkind, a.atttypid::regtype::text, a.attnotnull, pg_is_in_recovery(),
  exists (select from pg_subscription_rel where srrelid = c.oid),
  exists (select from pg_index where indrelid = c.oid and indkey[0] = a.attnum and indpred is null and indisvalid),
  s.seqrelid::regclass::text, s.seqcache, s.seqincrement > 0 and not s.seqcycle,
  case when has_sequence_privilege(s.seqrelid, 'SELECT, USAGE') then pg_sequence_last_value(s.seqrelid) end
from pg_class c
left join pg_attribute a on a.attrelid = c.oid and a.attname = %s and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
left join pg_depend g on g.refclassid = 'pg_class'::regclass and (
  g.classid = 'pg_attrdef'::regclass and g.objid = d.oid and g.refobjid <> c.oid
  or g.classid = 'pg_class'::regclass and g.refobjid = c.oid and g.refobjsubid = a.attnum and g.deptype = 'i')
left join pg_sequence s on s.seqrelid = case g.refobjid when c.oid then g.objid else g.refobjid end
where c.oid = to_regclass(%s) order by s.seqrelid limit 1
"""
WRITERS = """
with recursive tables(oid) as (
  select %s::oid union select inhrelid from pg_inherits join tables on inhparent = tables.oid)
select virtualtransaction, pid from pg_locks
where locktype = 'relation' and granted and relation in (select oid from tables)
  and database = (select oid from pg_database where datname = current_database())
  and mode in ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
"""
PREPARED = "-1/"  # how transactions of PREPARE TRANSACTION are named among locks


class OpenWriters:
    """Transactions that may still write rows which were due before. Pure.

    One that prepares itself goes on under another name: when one is gone, every prepared one of now may be it.

    >>> writers = OpenWriters({"3/7", "4/2"})
    >>> writers = writers.look({"4/2", "-1/755", "5/1"})
    >>> sorted(writers.left), sorted(writers.look({"-1/755"}).left), sorted(writers.look({"5/1"}).left)
    (['-1/755', '4/2'], ['-1/755'], [])
    """

    def __init__(self, found: set[str]) -> None:
        self.left = set(found)

    def look(self, now: set[str]) -> OpenWriters:
        gone = self.left - now
        left = self.left & now
        if any(not name.startswith(PREPARED) for name in gone):
            left |= {name for name in now if name.startswith(PREPARED)}
        return OpenWriters(left)


class PostgresSource(OffsetSource[Any]):
    """Rows of a table by a key that rises, each once, also when its transaction commits late. For changes and deletes
    see PostgresChanges. Several threads share the rows by their keys.

    url, password, tls: as of PostgresSink. order_by: a column of whole numbers from 0 on, not null, with an index, each
    in one row, whose values the inserting statement takes from a sequence (identity, serial) with CACHE 1. Keys that a
    client makes, or asks for before it inserts, are not safe; keys_in_order: they are, since only ever one transaction
    at a time inserts. query: a select of what rows are to be, with the key; else all columns of the table. start:
    `earliest` or `latest`, when the run has read nothing yet. end: "now" ends behind the rows that are there; None
    follows for ever. poll_s: between two looks for more.

    Rows are dicts; values: see `postgres_values`. They stay as they are, and are deleted no sooner than some minutes
    after they were read; who writes them has `synchronous_commit` on. While a transaction that inserts is open, rows
    behind its first key wait (gauge `held_s`). Raises InvalidInput, or ServiceAway while the database does not answer.

    >>> PostgresSource("postgresql://app@127.0.0.1/shop", table="orders", order_by="id").table
    'orders'
    """

    reads_references = ("password",)

    def __init__(
        self,
        url: str,
        *,
        table: str,
        order_by: str,
        query: str | None = None,
        start: str = "earliest",
        end: str | None = None,
        poll_s: float = 0.2,
        keys_in_order: bool = False,
        **server: Any,
    ) -> None:
        faults = [] if start in ("earliest", "latest") else ["start: earliest or latest"]
        if end not in (None, "now"):
            faults.append("end: 'now', or left out")
        if not isinstance(poll_s, int | float) or not 0 < poll_s <= 3600:
            faults.append("poll_s: seconds, 0 to 3600")
        if query is not None and (not isinstance(query, str) or not query.strip()):
            faults.append("query: a select")
        if odd := sorted(server.keys() - {"password", "tls"}):
            faults.append(f"there is no param {odd[0]!r}")
        if faults:
            raise InvalidInput("invalid PostgresSource", faults=faults)
        self.table, self._key = checked("table", table), checked("column", order_by)
        self._address = PostgresAddress(url, **server)
        self._query = (query or f"select * from {quoted(table)}").rstrip("; \n").replace("%", "%%")
        self._start, self._ends, self._poll_s, self._in_order = start, end == "now", poll_s, keys_in_order
        self._where = f"table {table} at {self._address}"
        self._connection: Any = None
        self._values: Values | None = None
        self._at = self._safe = -1  # the last key that was given; those up to `_safe` are all there
        self._begin: int | None = None
        self._end: int | None = None
        self._bound, self._writers = -1, OpenWriters(set())  # to be safe once these have ended
        self._held_since_s = self._look_s = 0.0  # monotonic
        self._told = False
        self._rows = FIRST_ROWS

    # ── life ────────────────────────────────────────────────────────────────────────────────────

    def open(self, context: Context) -> None:
        self._thread, self._threads = context.partition, context.partitions
        self._held = context.metrics.gauge("held_s")
        self._values = Values()
        self._check()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _check(self) -> int | None:
        """The last key that the sequence has given, if it says so. Raises what is wrong with the table."""
        if self._connection is None or self._connection.closed:
            self._connection = connected(
                self._address, settings=SESSION | BY_INDEX, autocommit=True, context=ValuesContext()
            )
        found = self._ask(ABOUT, [self._key, quoted(self.table)]).fetchone()
        if found is None:
            raise InvalidInput(
                f"{self._where}: there is no such table", hint="create it, or look at its name"
            )
        oid, kind, column, not_null, standby, subscribed, indexed, sequence, cached, rises, last = found
        faults = []
        if column is None:
            faults.append(f"it has no column {self._key!r}")
        elif column not in ("smallint", "integer", "bigint") or not not_null:
            faults.append(f"column {self._key!r} is {column}: whole numbers that are not null are due")
        elif not indexed:
            faults.append(f"column {self._key!r} has no index that begins with it")
        elif not self._in_order and sequence is None:
            faults.append(f"column {self._key!r} has no sequence: see keys_in_order")
        elif not self._in_order and (cached != 1 or not rises):
            faults.append(f"sequence {sequence} is handed out in another order: cache 1, rising, no cycle")
        if kind not in ("r", "p"):
            faults.append("it is no table: of views, give what they read as `table`, and a `query`")
        if standby:
            faults.append("this server is a standby, which does not see who writes: ask its primary")
        if subscribed:
            faults.append("a subscription fills it, in an order of its own")
        if faults:
            hint = "PostgresChanges reads any table"
            raise InvalidInput(f"{self._where} cannot be read by its key", faults=faults, hint=hint)
        self._oid = oid
        return None if last is None else int(last)

    def _ask(self, statement: str, values: Sequence[Any] | None = None) -> Any:
        import psycopg

        try:
            return self._connection.execute(statement, values)
        except psycopg.Error as error:
            raise self._trouble(error) from error

    def _trouble(self, error: Any) -> InvalidInput | ServiceAway:
        import psycopg

        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            self.close()
        return trouble(self._where, self._address, error)

    # ── where to go on ──────────────────────────────────────────────────────────────────────────

    def seek(self, offset: int | None) -> None:
        last = self._check()
        if offset is None:
            if self._begin is None:
                self._begin = -1 if self._start == "earliest" else self._greatest()
            offset = self._begin + 1
        elif last is not None and last < offset - 1:
            raise InvalidInput(
                f"{self._where} was filled anew: its last key is {last:,}, and the run has read {offset - 1:,}",
                hint="start a new run, which reads it from its beginning",
            )
        if self._ends and self._end is None:
            self._end = self._greatest()
        self._at, self._safe, self._bound = offset - 1, offset - 1, -1

    def _greatest(self) -> int:
        """-1: there is none."""
        key = quoted(self._key)
        low, high = self._ask(f"select min({key}), max({key}) from {quoted(self.table)}").fetchone()
        if low is not None and low < 0:
            raise InvalidInput(f"{self._where} has key {low}", cause="keys from 0 on are due")
        return -1 if high is None else int(high)

    # ── rows ────────────────────────────────────────────────────────────────────────────────────

    def poll(self, limit: int) -> Sequence[tuple[int, Any]]:
        if self._end is not None and self._at >= self._end:
            raise Exhausted
        if self._at >= self._safe:
            now_s = time.monotonic()
            if now_s < self._look_s:
                return []
            self._look(now_s)
        return self._read(min(limit, self._rows)) if self._at < self._safe else []

    def _look(self, now_s: float) -> None:
        """Raise `_safe`, if that can be done."""
        if self._bound < 0:
            bound = self._greatest()
            if self._end is not None:
                bound = min(bound, self._end)
            if bound <= self._safe:
                self._look_s = now_s + self._poll_s
                return
            self._bound, self._held_since_s, self._told = bound, now_s, False
            self._writers = OpenWriters(set(self._holders()))  # no sooner than the key was seen
        else:
            self._writers = self._writers.look(set(self._holders()))
        held_s = now_s - self._held_since_s if self._writers.left else 0.0
        self._held.set(held_s)
        if self._writers.left:
            self._look_s = now_s + min(self._poll_s, max(0.01, held_s))
            if held_s > SAY_AFTER_S and not self._told:
                self._tell()
        else:
            self._safe, self._bound = self._bound, -1

    def _holders(self) -> dict[str, int | None]:
        """Transaction → process of the server."""
        return dict(self._ask(WRITERS, [self._oid]).fetchall())

    def _tell(self) -> None:
        self._told = True
        holders = self._holders()
        who = ", ".join(f"process {holders.get(one)}" for one in sorted(self._writers.left))
        text = f"{self._where}: rows behind key {self._safe:,} wait for open transactions: {who}"
        print(text, file=sys.stderr, flush=True)

    def _rows_behind(self) -> str:
        """The end of a select; values: the last key, the greatest."""
        key = f"rows.{quoted(self._key)}".replace("%", "%%")
        share = f" and mod({key}, {self._threads}) = {self._thread}" if self._threads > 1 else ""
        return f"from ({self._query}) rows where {key} > %s and {key} <= %s{share}"

    def _select(self, limit: int) -> str:
        key = f"rows.{quoted(self._key)}".replace("%", "%%")
        return f"select rows.*, {key} {self._rows_behind()} order by {key} limit {limit}"

    def _read(self, limit: int) -> list[tuple[int, Any]]:
        given: list[tuple[int, Any]] = []
        size, at = 0, self._safe
        with closing(self._answer(limit + 1)) as answer:
            for key, row, row_bytes in answer:
                if given and key == given[-1][0]:
                    hint = "each is due in one row"
                    raise InvalidInput(f"{self._where}: a key stands in two rows", hint=hint)
                if len(given) == limit or size >= CALL_BYTES:
                    at = given[-1][0]
                    break
                given.append((key, row))
                size += row_bytes
        self._at = at
        if given:
            self._rows = max(1, min(CALL_ROWS, CALL_BYTES * len(given) // max(size, 1)))
        return given

    def _answer(self, limit: int) -> Generator[tuple[int, Any, int], None, None]:
        """Key, row (BadRow for what cannot be one), bytes of what may be large in it. A few rows are in memory."""
        import psycopg

        assert self._values is not None
        few, at = FEW_ROWS if psycopg.pq.version() >= IN_FEWS else 1, self._at
        while True:
            cursor, result = self._connection.cursor(), None
            try:
                for values in cursor.stream(self._select(limit), [at, self._safe], size=few):
                    if cursor.pgresult is not result:
                        result, number = cursor.pgresult, 0
                        columns = self._columns(result)
                    yield values[-1], *_row_of(columns, values, result, number)
                    at, number = values[-1], number + 1
                return
            except (*self._values.bad, psycopg.Error) as error:
                if isinstance(error, psycopg.Error) and (
                    error.sqlstate or not isinstance(error, psycopg.DataError)
                ):
                    raise self._trouble(error) from error
            # a value cannot be read: value by value
            result = self._ask(self._select(2), [at, self._safe]).pgresult
            columns, last = self._columns(result), len(self._columns(result).names)
            keys = [int(result.get_value(number, last)) for number in range(result.ntuples)]
            for number in range(keys.count(keys[0])):
                parts = [result.get_value(number, place) for place in range(last)]
                size = sum(len(part) for part in parts if part is not None)
                yield keys[0], too_large(size) if size > MOST_BYTES else columns.row(parts), size
            at = keys[0]

    def _columns(self, result: Any) -> ValueColumns:
        places = range(result.nfields - 1)
        names = [result.fname(place).decode() for place in places]
        if len(set(names)) < len(names):
            raise InvalidInput(
                f"{self._where}: two columns of the query have one name", cause=str(names)[:200]
            )
        assert self._values is not None
        return self._values.columns(names, [result.ftype(place) for place in places])

    def lag(self) -> int | None:
        if self._connection is None:
            return None
        greatest = self._greatest()
        counted = f"select count(*) from (select {self._rows_behind()} limit {COUNT_MOST}) waiting"
        (rows,) = self._ask(counted, [self._at, greatest]).fetchone()
        return max(rows, (greatest - self._at) // self._threads) if rows == COUNT_MOST else int(rows)


def _row_of(columns: ValueColumns, values: Sequence[Any], result: Any, number: int) -> tuple[Any, int]:
    """One row of an answer, or a BadRow; bytes of those of its values that may be large."""
    size = 0
    for place in columns.large:
        value = values[place]
        if type(value) is not str:
            value = result.get_value(number, place)
        size += len(value) if value is not None else 0
    if size > MOST_BYTES:
        return too_large(size), size
    return columns.checked(dict(zip(columns.names, values, strict=False))), size
