"""Tables of SQLite as a source and a sink: rows are JSON in column `body`, their offset is their rowid."""

import json
import sqlite3

from headgate import OffsetSource, ServiceAway, Sink


class Table:
    connection = None

    def __init__(self, database, table):
        self.database, self.table = database, table

    def sql(self, statement, *values, many=None):
        """In one transaction; a database that is locked is a service that is away."""
        try:
            if self.connection is None:
                self.connection = sqlite3.connect(self.database, isolation_level="immediate", timeout=1.0)
            with self.connection as one:
                call = one.executemany if many else one.execute
                return call(statement.format(table=self.table), many or values).fetchall()
        except sqlite3.Error as error:
            self.close()  # and rolled back
            if "no such table" in str(error):
                raise LookupError(f"there is no table {self.table!r} in {self.database}") from error
            raise ServiceAway(f"cannot use {self.database}", cause=str(error)) from error

    def close(self):
        one, self.connection = self.connection, None
        if one is not None:
            one.close()


class TableSource(Table, OffsetSource):
    def seek(self, offset):
        ((first, last),) = self.sql("select coalesce(min(rowid), 0), coalesce(max(rowid), 0) from {table}")
        if offset is not None and not first <= offset <= last + 1:
            raise LookupError(f"{self.table} has rows {first} to {last}, none from {offset} on")
        self.next = first if offset is None else offset

    def poll(self, limit):
        found = self.sql(
            "select rowid, body from {table} where rowid >= ? order by 1 limit ?", self.next, limit
        )
        self.next = found[-1][0] + 1 if found else self.next
        return [(offset, self.decoded(body)) for offset, body in found]

    def decoded(self, body):
        try:
            return json.loads(body)
        except ValueError as error:
            return error

    def done(self, offset):
        self.sql("insert or replace into done values ('{table}', ?)", offset)

    def lag(self):
        return self.sql("select count(*) from {table} where rowid >= ?", self.next)[0][0]


class TableSink(Table, Sink):
    def write(self, rows, ids):
        named = [(str(name), json.dumps(row, allow_nan=False)) for name, row in zip(ids, rows, strict=True)]
        self.sql("insert or ignore into {table} (name, body) values (?, ?)", many=named)
