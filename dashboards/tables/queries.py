"""One query: only reading, in a thread of its own so that Ctrl-C is heard, and its errors in words."""

from __future__ import annotations

import queue
import re
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headgate.dashboards.tables.catalogue import tables
from headgate.topology_runtime.errors import HeadgateError, InvalidInput
from headgate.topology_runtime.faults.words import did_you_mean

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

BATCH_ROWS = 5_000
AHEAD = 4  # batches that wait to be printed
LISTS_THEM = "`headgate sql TRACE --tables` lists tables and columns"
UNKNOWN = re.compile(
    r'(?:Table with name|Referenced (?:column|table)|column (?:with name|named))\s+"?([^\s"!]+)"?', re.I
)


OF_QUERIES = (
    "Parser",
    "Binder",
    "Catalog",
    "Permission",
    "Conversion",
    "OutOfRange",
    "NotImplemented",
    "Syntax",
)


class DamagedPage(Exception):
    """It may be that a file cannot be read, though its footer could: the query itself is not at fault."""


def answer(connection: duckdb.DuckDBPyConnection, query: str) -> tuple[list[str], Iterator[pa.RecordBatch]]:
    """(names of the columns, rows in batches as they are worked out). Raises InvalidInput, DamagedPage."""
    import duckdb

    try:
        found = connection.extract_statements(query)
        if len(found) != 1 or found[0].type != duckdb.StatementType.SELECT:
            raise only_reads(len(found))
        relation = connection.sql(f"select * from (\n{found[0].query.strip().rstrip(';')}\n) answer")
    except duckdb.Error as error:
        raise _in_words(error, query) from error
    return list(relation.columns), _batches(connection, relation, query)


def only_reads(statements: int) -> InvalidInput:
    what = "there is no query in it" if statements == 0 else "only one query that reads is answered"
    return InvalidInput(
        what,
        cause=None if statements == 0 else "a trace is never written to, and one answer has one table",
        hint="begin with `select`, `with`, `describe` or `summarize`",
    )


def _batches(
    connection: duckdb.DuckDBPyConnection, relation: duckdb.DuckDBPyRelation, query: str
) -> Iterator[pa.RecordBatch]:
    """Worked out by a thread: DuckDB itself does not hear of Ctrl-C while it works."""
    import duckdb

    waiting: queue.Queue[pa.RecordBatch | BaseException | None] = queue.Queue(AHEAD)
    over = threading.Event()

    def put(item: pa.RecordBatch | BaseException | None) -> None:
        while not over.is_set():
            try:
                return waiting.put(item, timeout=0.1)
            except queue.Full:
                continue

    def work() -> None:
        try:
            for batch in relation.to_arrow_reader(BATCH_ROWS):
                put(batch)
                if over.is_set():
                    return
            put(None)
        except BaseException as error:  # told to whoever waits for the rows
            put(error)

    thread = threading.Thread(target=work, name="query", daemon=True)
    thread.start()
    try:
        while (item := waiting.get()) is not None:
            if isinstance(item, duckdb.Error | OSError):
                raise _in_words(item, query) from item
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        over.set()
        connection.interrupt()
        thread.join()


def _in_words(error: Exception, query: str) -> HeadgateError | DamagedPage:
    """What DuckDB says, with near names where one is not known."""
    text = str(error)
    kind, _, rest = text.partition(": ")
    lines = [line for line in rest.splitlines() if line.strip()]
    cause = lines[0] if lines else text
    if not type(error).__name__.startswith(OF_QUERIES):
        return DamagedPage(cause)
    at = next((n for n, line in enumerate(lines) if line.startswith("LINE ")), None)
    where = f", at {lines[at].partition(': ')[2].strip()[:80]!r}" if at is not None else ""
    hint = LISTS_THEM
    if "PermissionException" in type(error).__name__ or kind == "Permission Error":
        hint = "a query reads the trace's tables, and no other file"
    elif match := UNKNOWN.search(cause):
        word = match.group(1).rpartition(".")[2]
        hint = f"{near_name(word, query)}{LISTS_THEM}"
    return cannot(cause + where, hint)


def cannot(cause: str, hint: str = LISTS_THEM) -> InvalidInput:
    return InvalidInput("the query cannot be answered", cause=cause, hint=hint)


def near_name(word: str, query: str) -> str:
    """` did you mean …?` of the tables, and of the columns of those that the query names."""
    every = tables()
    words = set(re.findall(r"\w+", query.lower()))
    known = [*every, *(c.name for name in every.keys() & words for c in every[name].columns)]
    near = did_you_mean(word, known).strip(" ;,")
    return f"{near}; " if near else ""
