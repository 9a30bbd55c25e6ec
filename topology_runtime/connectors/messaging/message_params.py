"""Params that sources and sinks of messages share: a format, and a topic with fields of the row in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from headgate.topology_runtime.connectors.formats.format import Format
from headgate.topology_runtime.connectors.formats.format_factory import open_format
from headgate.topology_runtime.errors import BadRow, InvalidInput

FIELD = re.compile(r"\{(\w+)\}")
ID = "headgate-id"  # where a message has the name of its row, if the service has no place of its own for it


def format_of(given: str | Mapping[str, Any]) -> Format:
    """From a param: the name of a format, or its options with its name as `format`. Raises InvalidInput."""
    if not isinstance(given, str | Mapping):
        raise InvalidInput("format: its name, or its options with its name as `format`")
    return open_format(given) if isinstance(given, str) else open_format(**given)


class PlaceOf:
    """The topic or subject of a row, from a text such as `plant/{machine}/state`.

    >>> PlaceOf("plant/{machine}/state", lambda text: "/" not in text)({"machine": 7})
    'plant/7/state'
    """

    def __init__(self, text: str, is_part: Callable[[str], bool]) -> None:
        """is_part: may it stand in place of a field?"""
        self._text, self._is_part = text, is_part
        self.fields = FIELD.findall(text)

    def __call__(self, row: Any) -> str:
        """Raises BadRow for a row without the field, or a value that cannot stand there."""
        return FIELD.sub(lambda found: self._part(row, found[1]), self._text) if self.fields else self._text

    def _part(self, row: Any, name: str) -> str:
        value = row.get(name) if isinstance(row, Mapping) else None
        if not isinstance(value, str | int) or not (part := str(value)) or not self._is_part(part):
            raise BadRow(f"$.{name}: cannot stand in {self._text}", cause=repr(value)[:200])
        return part
