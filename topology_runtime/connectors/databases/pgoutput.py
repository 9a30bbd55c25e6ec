"""The messages of pgoutput, PostgreSQL's plugin for logical decoding (protocol version 1), as rows.

Layout: PostgreSQL's manual, "Logical Replication Message Formats". Version 1 has each transaction whole, behind those
that committed before it; the server keeps large ones on its disk until then.

A row is a dict: `op` insert, update, delete or truncate; `table` schema.name; `row` its columns now (None: deleted,
truncated); `old` what is known of before (the columns of the replica identity, when they have changed or the row is
deleted; all with REPLICA IDENTITY FULL), else None; `unchanged` names of large columns that the server does not send
again, absent from `row`; `time` of the commit (UTC, seconds), `lsn` of its record. PostgresChanges adds `offset`, an
integer that rises from change to change, also within a transaction: the greatest of a key is its newest.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

from headgate.topology_runtime.connectors.databases.postgres_values import (
    ValueColumns,
    Values,
    bad_value,
    too_large,
)
from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.errors import BadRow

EPOCH_S = 946_684_800  # 2000-01-01
_BEGIN, _COMMIT = struct.Struct(">QqI"), struct.Struct(">BQQq")
_u32, _u16 = struct.Struct(">I").unpack_from, struct.Struct(">H").unpack_from
TEXT, NULL, UNCHANGED = b"tnu"  # kinds of values
OPS = {ord("I"): "insert", ord("U"): "update", ord("D"): "delete"}


def lsn_text(lsn: int) -> str:
    """
    >>> lsn_text(0x1_0152A548)
    '1/152A548'
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_of(text: str) -> int:
    """
    >>> lsn_of("1/152A548") == 0x1_0152A548
    True
    """
    high, low = text.split("/")
    return int(high, 16) << 32 | int(low, 16)


@dataclass(frozen=True)
class Relation:
    """A table as it was when a change was made. key: of its columns those of its replica identity."""

    name: str
    columns: ValueColumns
    key: ValueColumns


@dataclass(frozen=True)
class TransactionBegin:
    """The transaction whose record of commit is there."""

    lsn: int
    time_s: float


@dataclass(frozen=True)
class TransactionEnd:
    """Behind all changes of a transaction. end: behind its record."""

    end: int


class Decoder:
    """Of one stream, from its first message on."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._relations: dict[int, Relation] = {}
        self._time_s, self._lsn = 0.0, ""

    def count(self, data: bytes) -> int:
        """How many rows a message is, without looking at them."""
        return int(_u32(data, 1)[0]) if data[0] == ord("T") else int(data[0] in OPS)

    def take(self, data: bytes) -> TransactionBegin | TransactionEnd | list[Any]:
        """Of one message: the bounds of a transaction, or rows (most messages: one), BadRow in place of those that
        cannot be. ValueError for what is no message."""
        try:
            return self._take(data)
        except (struct.error, IndexError, KeyError, ValueError) as error:
            raise ValueError(f"no message of pgoutput: {data[:40]!r}") from error

    def _take(self, data: bytes) -> TransactionBegin | TransactionEnd | list[Any]:
        kind = data[0]
        if kind in OPS:
            return [self._change(kind, data) if len(data) <= MOST_BYTES else too_large(len(data))]
        if kind == ord("B"):
            lsn, time_us, _ = _BEGIN.unpack_from(data, 1)
            self._time_s, self._lsn = EPOCH_S + time_us / 1e6, lsn_text(lsn)
            return TransactionBegin(lsn, self._time_s)
        if kind == ord("C"):
            return TransactionEnd(_COMMIT.unpack_from(data, 1)[2])
        if kind == ord("R"):
            self._relate(data)
        elif kind == ord("T"):
            found = [self._relations[_u32(data, 6 + 4 * n)[0]] for n in range(self.count(data))]
            return [self._made("truncate", relation, None, None, []) for relation in found]
        elif kind not in b"OYM":  # origins, types and messages say nothing of rows
            raise ValueError("of unknown kind")
        return []

    def _relate(self, data: bytes) -> None:
        schema, at = _text(data, 5)
        table, at = _text(data, at)
        (count,) = _u16(data, at + 1)  # behind the replica identity
        at += 3
        names, oids, keys = list[str](), list[int](), list[int]()
        for place in range(count):
            if data[at] & 1:
                keys.append(place)
            name, at = _text(data, at + 1)
            names.append(name)
            oids.append(_u32(data, at)[0])
            at += 8  # with the type's modifier
        if at > len(data):
            raise IndexError
        columns = self._values.columns(names, oids)
        relation = Relation(f"{schema or 'pg_catalog'}.{table}", columns, columns.only(keys))
        self._relations[_u32(data, 1)[0]] = relation

    def _change(self, kind: int, data: bytes) -> Any:
        relation = self._relations[_u32(data, 1)[0]]
        part, at = data[5], 6
        old = row = None
        unchanged: list[str] = []
        if part in b"KO":
            old, _, at = _tuple(data, at, relation.columns if part == ord("O") else relation.key)
            if kind == ord("U"):
                at += 1  # N
        if kind != ord("D"):
            row, unchanged, at = _tuple(data, at, relation.columns)
        if at > len(data):
            raise IndexError
        return self._made(OPS[kind], relation, row, old, unchanged)

    def _made(self, op: str, relation: Relation, row: Any, old: Any, unchanged: list[str]) -> Any:
        for part in (row, old):
            if type(part) is BadRow:
                return BadRow(f"{op} of {relation.name} at {self._lsn}: {part.what}", cause=part.cause)
        return {
            "op": op,
            "table": relation.name,
            "row": row,
            "old": old,
            "unchanged": unchanged,
            "time": self._time_s,
            "lsn": self._lsn,
        }


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    return data[at:end].decode(), end + 1


def _tuple(data: bytes, at: int, columns: ValueColumns) -> tuple[Any, list[str], int]:
    """Values by their names, or a BadRow; names of those that are not sent again; where it ends."""
    if _u16(data, at)[0] != len(columns.each):
        raise IndexError
    begin = at = at + 2
    row: dict[str, Any] = {}
    unchanged: list[str] = []
    try:
        for name, load in columns.each:
            kind = data[at]
            if kind == TEXT:
                end = at + 5 + _u32(data, at + 1)[0]
                if load is not None:
                    row[name] = load(data[at + 5 : end])
                at = end
            elif kind == NULL:
                if load is not None:
                    row[name] = None
                at += 1
            elif kind == UNCHANGED:
                unchanged.append(name)
                at += 1
            else:
                raise IndexError
    except columns.bad as error:
        return bad_value(error), [], _end(data, begin, len(columns.each))
    return columns.checked(row), unchanged, at


def _end(data: bytes, at: int, values: int) -> int:
    """Of a tuple, whose values are not looked at."""
    for _ in range(values):
        at += 5 + _u32(data, at + 1)[0] if data[at] == TEXT else 1
    return at
