"""JSON text → its value, as a row."""

from __future__ import annotations

from typing import Any

import msgspec

_decode = msgspec.json.Decoder().decode


def parse_json(text: str | bytes | tuple[int | str, str]) -> Any:
    """The value of a JSON text; of an event (id, text) the pair (id, value). Raises when it is no JSON."""
    if isinstance(text, tuple):
        return text[0], _decode(text[1])
    return _decode(text)
