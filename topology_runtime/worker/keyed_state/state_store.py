"""The scratch store of a thread's states: a file of SQLite that nobody else opens and that nothing has to outlive. It
has no name in its folder once it is open, so it is gone with its thread, however that ends (docs/decisions/0101).

Each change is a transaction whose journal is in memory: a disk that is full takes none of it, and what was there before
can still be read. Nothing is synced.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress

from headgate.topology_runtime.worker.keyed_state.kept_states import Name

FOLDER = "overflow"
CACHE_KB = 8192  # of its pages, in this process
ASKED_MOST = 256  # names in one question
HASH_BITS = 53  # of a row's number; the upper ones are the range
PUT = """insert into states values (?, ?, ?)
    on conflict (id) do update set state = excluded.state where name = excluded.name"""
OVERFLOW_HINT = "free the disk, or raise --set state-in-memory-mb"


class SqliteStates:
    """The store of thread `thread` of `task`, under its VM's directory. hash_of: a name's; two names with the same one
    cannot both be here. most_pages: of its file; 0: as many as the disk has room for."""

    def __init__(
        self,
        directory: str,
        task: str,
        thread: int,
        hash_of: Callable[[bytes], int] = hash,
        most_pages: int = 0,
    ) -> None:
        self._folder = os.path.join(directory, FOLDER)
        self.path = os.path.join(self._folder, f"{task}~{thread}.sqlite")
        self._hash_of, self._most_pages = hash_of, most_pages
        self.database: sqlite3.Connection | None = None

    def put(self, records: Sequence[tuple[int, bytes, bytes]], gone: Sequence[Name]) -> Collection[Name]:
        rows = sorted((self._id(key_range, name), name, state) for key_range, name, state in records)
        with self._change() as database:
            if gone:
                going = [(self._id(*name), name[1]) for name in gone]
                database.executemany("delete from states where id = ? and name = ?", going)
            put = database.executemany(PUT, rows)
            if put.rowcount == len(rows):
                return ()
            there = {found[:2] for found in self._rows(database, [row[0] for row in rows], "id")}
        return {(row[0] >> HASH_BITS, row[1]) for row in rows if (row[0], row[1]) not in there}

    def get(self, names: Sequence[Name]) -> list[tuple[int, bytes, bytes]]:
        if self.database is None:
            return []
        with self._raises(f"{self.path}: "):
            return self._rows(self.database, [self._id(*name) for name in names], f"id >> {HASH_BITS}")

    def of(self, key_range: int) -> Iterator[tuple[int, bytes, bytes]]:
        if self.database is None:
            return
        with self._raises(f"{self.path}: "):
            for name, state in self.database.execute(
                "select name, state from states where id between ? and ?", _ids(key_range)
            ):
                yield key_range, name, state

    def drop(self, key_range: int) -> None:
        if self.database is not None:
            with self._change() as database:
                database.execute("delete from states where id between ? and ?", _ids(key_range))

    def _id(self, key_range: int, name: bytes) -> int:
        return key_range << HASH_BITS | (self._hash_of(name) & ((1 << HASH_BITS) - 1))

    def _rows(
        self, database: sqlite3.Connection, ids: Sequence[int], first: str
    ) -> list[tuple[int, bytes, bytes]]:
        found: list[tuple[int, bytes, bytes]] = []
        for begin in range(0, len(ids), ASKED_MOST):
            some = list(ids[begin : begin + ASKED_MOST])
            width = 1 << (len(some) - 1).bit_length()  # so that there are few statements
            some += some[-1:] * (width - len(some))
            marks = ",".join("?" * width)
            asked = f"select {first}, name, state from states where id in ({marks})"
            found += database.execute(asked, some).fetchall()
        return found

    def clear(self) -> None:
        database, self.database = self.database, None
        if database is not None:
            with suppress(sqlite3.Error):  # it is given up, in whatever state it is
                database.close()

    @contextmanager
    def _raises(self, what: str = "") -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise OSError(f"{what}{error}") from error

    @contextmanager
    def _change(self) -> Iterator[sqlite3.Connection]:
        with self._raises():
            if self.database is None:
                self.database = self._opened()
            self.database.execute("begin")
            try:
                yield self.database
                self.database.execute("commit")
            except BaseException:
                if self.database.in_transaction:
                    self.database.execute("rollback")
                raise

    def _opened(self) -> sqlite3.Connection:
        """A new file, whose name goes at once."""
        os.makedirs(self._folder, exist_ok=True)
        with suppress(FileNotFoundError):
            os.unlink(self.path)
        database = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in (
                "locking_mode = exclusive",
                "journal_mode = memory",
                "synchronous = off",
                f"cache_size = -{CACHE_KB}",
            ):
                database.execute(f"pragma {pragma}")
            if self._most_pages:
                database.execute(f"pragma max_page_count = {self._most_pages}")
            database.execute("create table states (id integer primary key, name blob, state blob)")
            os.unlink(self.path)
        except BaseException:
            database.close()
            raise
        return database


def _ids(key_range: int) -> tuple[int, int]:
    return key_range << HASH_BITS, ((key_range + 1) << HASH_BITS) - 1
