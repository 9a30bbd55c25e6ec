"""The scenarios of headgate, over tables of SQLite. A database that somebody keeps locked is a service that is
away."""

import json
import sqlite3
from contextlib import closing

from headgate.testing import SinkUnderTest, SourceUnderTest, scenarios


class Database:
    lock = None

    def start(self):
        self.file = self.folder / "rows.sqlite"
        self.sql(
            f"create table {self.name} (offset integer primary key autoincrement, name text unique, body)"
        )
        self.sql("create table done (name text primary key, offset int)")

    def stop(self):
        if self.lock is not None:
            self.start_again()

    def kill(self):
        self.lock = sqlite3.connect(self.file, timeout=30, isolation_level=None)
        self.lock.execute("begin exclusive")

    def start_again(self):
        self.lock.close()
        self.lock = None

    def params(self):
        return {"database": str(self.file), "table": self.name}

    def missing(self):
        return self.params() | {"table": "nosuchplace"}

    def sql(self, statement, values=()):
        with closing(sqlite3.connect(self.file, timeout=30)) as connection, connection:
            return (
                connection.executemany(statement, values)
                if values
                else connection.execute(statement).fetchall()
            )

    def delete(self):
        self.sql(f"drop table {self.name}")


class TableSource(Database, SourceUnderTest):
    connector = "sqlite_tables:TableSource"

    def produce(self, rows, partition=0):
        self.sql(f"insert into {self.name} (body) values (?)", [(json.dumps(row),) for row in rows])

    def produce_bad(self):
        self.sql(f"insert into {self.name} (body) values (?)", [("{",)])

    def forget(self):
        self.sql(f"delete from {self.name}")
        self.sql(f"insert into {self.name} (body) values (?)", [("{}",)])

    def done(self, partition=0):
        return sum(offset - 1 for (offset,) in self.sql("select offset from done"))


class TableSink(Database, SinkUnderTest):
    connector = "sqlite_tables:TableSink"
    exactly_once = True

    def stored(self):
        return [
            json.loads(body)["n"] for (body,) in self.sql(f"select body from {self.name} order by offset")
        ]

    def bad_row(self):
        return {"n": 1, "text": float("nan")}


TestTableSource = scenarios(TableSource)
TestTableSink = scenarios(TableSink)
