"""Values of PostgreSQL as rows have them: what JSON has a type for has it, bytea is bytes, all else is text as
PostgreSQL writes it: `12.50`, `2026-11-29 10:00:00+00`, `infinity`. Arrays are lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from headgate.topology_runtime.connectors.formats.format import MOST_BYTES
from headgate.topology_runtime.errors import BadRow
from headgate.topology_runtime.worker.rows.row_values import check

Load = Callable[[bytes], Any]
Errors = tuple[type[BaseException], ...]
OWN_TYPES = frozenset(
    {"bool", "int2", "int4", "int8", "oid", "float4", "float8", "bytea", "json", "jsonb"}
)  # those that have a type of JSON, or are bytes
SESSION = {  # how a server is to write values, whatever it is set to
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "postgres",
    "TimeZone": "UTC",
    "bytea_output": "hex",
    "extra_float_digits": "1",
}


@cache
def _adapters() -> Any:
    import psycopg
    from psycopg.adapt import AdaptersMap
    from psycopg.pq import Format

    made = AdaptersMap(psycopg.adapters)
    text = psycopg.adapters.get_loader(psycopg.adapters.types["text"].oid, Format.TEXT)
    assert text is not None
    for known in psycopg.adapters.types:
        if known.name not in OWN_TYPES:
            made.register_loader(known.oid, text)
    return made


JSON = frozenset(
    {114, 3802, 199, 3807}
)  # OIDs of json, jsonb and arrays of them: only these may not fit a row
FIXED = frozenset({16, 20, 21, 23, 26, 700, 701})  # … of types that are never large


BAD = BadRow, ValueError, RecursionError


class ValueColumns:
    """names, and what reads a value of each; None: nobody wants it. bad: what reading raises. doubtful: may rows not
    have what they hold? large: places of those that may be.

    >>> Values().columns(["n", "price", "tags"], [20, 1700, 1009]).row([b"7", b"1.50", b"{a,NULL}"])
    {'n': 7, 'price': '1.50', 'tags': ['a', None]}
    """

    def __init__(
        self, names: Sequence[str], loads: Sequence[Load | None], oids: Sequence[int], bad: Errors
    ) -> None:
        self.names, self.oids, self.bad = tuple(names), tuple(oids), bad
        self.each = tuple(zip(names, loads, strict=True))
        self.doubtful = not JSON.isdisjoint(oids)
        self.large = [place for place, oid in enumerate(oids) if oid not in FIXED]

    def only(self, places: Sequence[int]) -> ValueColumns:
        """Of these alone are values read."""
        loads = [load if place in places else None for place, (_, load) in enumerate(self.each)]
        return ValueColumns(self.names, loads, self.oids, self.bad)

    def row(self, values: Sequence[bytes | None]) -> Any:
        """A dict; or a BadRow, when rows cannot have it."""
        try:
            row = {
                name: None if value is None or load is None else load(value)
                for (name, load), value in zip(self.each, values, strict=True)
            }
            return self.checked(row)
        except self.bad as error:
            return bad_value(error)

    def checked(self, row: dict[str, Any]) -> Any:
        """Itself, or a BadRow."""
        if self.doubtful:
            try:
                check((row,))
            except (BadRow, RecursionError) as error:
                return bad_value(error)
        return row


def bad_value(error: BaseException) -> BadRow:
    return error if isinstance(error, BadRow) else BadRow(f"$: a value that rows cannot have: {error}")


def too_large(size: int) -> BadRow:
    return BadRow(f"$: {size:,} bytes are more than a row may have, {MOST_BYTES:,}")


class Values:
    """Texts of the server → values, by the OIDs of their types. A database's own types stay text. One a thread."""

    def __init__(self) -> None:
        from psycopg import DataError
        from psycopg.adapt import Transformer
        from psycopg.pq import Format

        self._transformer, self.bad = Transformer(ValuesContext()), (*BAD, DataError)
        self._text = Format.TEXT
        self._loads: dict[int, Load] = {}

    def columns(self, names: Sequence[str], oids: Sequence[int]) -> ValueColumns:
        return ValueColumns(names, [self._load(oid) for oid in oids], oids, self.bad)

    def _load(self, oid: int) -> Load:
        if oid not in self._loads:
            self._loads[oid] = self._transformer.get_loader(oid, self._text).load
        return self._loads[oid]


class ValuesContext:
    """For connections of psycopg whose rows are to have these values: its `context`."""

    connection = None

    @property
    def adapters(self) -> Any:
        return _adapters()
