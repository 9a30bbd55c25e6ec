"""Rows of a type: a msgspec Struct, dataclass, TypedDict or any type that msgspec knows. Rows stay plain values."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from typing import Any
from uuid import UUID

import msgspec

from headgate.topology_runtime.connectors.formats.format import Format, Row
from headgate.topology_runtime.connectors.formats.json_format import JsonFormat, located
from headgate.topology_runtime.errors import BadRow, InvalidInput

KEPT = (bytes, datetime, date, time, timedelta, Decimal, UUID)


def named(place: str, what: str) -> Any:
    """What "module:Name" means. Raises InvalidInput."""
    module, _, name = place.partition(":")
    if not module or not name:
        raise InvalidInput(f"{what} is {place!r}", hint='write "module:Name"')
    try:
        found: Any = import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as error:
        raise InvalidInput(f"cannot import {what} {place!r}", cause=str(error)) from error
    return found


class TypedRows(Format):
    """The rows of another format, looked at once: each must be what the type says, with its defaults filled in.
    The row is a plain dict with the type's fields: rows that are objects cannot go from process to process."""

    def __init__(self, under: Format, kind: Any) -> None:
        self._under, self._kind = under, kind
        json = isinstance(under, JsonFormat)
        self._json = (
            msgspec.json.Decoder(kind).decode if json else None
        )  # exact decimals, keys that are numbers
        self._kept = () if json else KEPT

    def _decode(self, data: bytes) -> Row:
        row = self._under.decode(data)
        try:
            json = self._json
            typed = json(data) if json else msgspec.convert(row, self._kind, builtin_types=KEPT)
        except msgspec.ValidationError as error:
            raise located(error) from error
        return msgspec.to_builtins(typed, builtin_types=KEPT)

    def close(self) -> None:
        self._under.close()

    def _encode(self, row: Row) -> bytes:
        try:
            typed = msgspec.convert(row, self._kind, builtin_types=KEPT)
        except msgspec.ValidationError as error:
            raise located(error) from error
        try:
            plain = msgspec.to_builtins(typed, builtin_types=self._kept, str_keys=self._json is not None)
        except (TypeError, ValueError, OverflowError) as error:
            raise BadRow(f"$: {error}") from error
        return self._under.encode(plain)
