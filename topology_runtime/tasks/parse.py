"""Text → flat rows: XML, SenML, any other JSON, or plain text, told apart by how the text begins.

A row is a flat dict: `id`, `time_ms` (None when the event has no time), `subject` (the event's first
text: a process, a taxi, a sensor) and the event's own fields, numbers as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.parsers import expat

import msgspec

Event = tuple[int | str, str]

TIME_FIELDS = ("time_ms", "bt")
FIELDS_MOST = 200  # of one event; more are left out
# no exponents: names such as 12E34 stay text
_number = re.compile(r"[+-]?(\d{1,18}|\d{1,18}\.\d*|\.\d+)")
_stamped = re.compile(r"(\d{1,18}),(?=[{\[])")
_decode_json = msgspec.json.Decoder().decode


def parse(event: Event) -> dict[str, Any]:
    """(id, text) → flat row. Raises when the text looks like XML or JSON and is not."""
    name, text = event
    text = text.strip()
    stamp = _stamped.match(text)
    time_ms: Any = int(stamp[1]) if stamp else None
    body = text[stamp.end() :] if stamp else text
    if body.startswith("<"):
        fields = dict(_first(xml_fields(body)))
    elif body.startswith(("{", "[")):
        fields = dict(_first(json_fields(_decode_json(body))))
    else:
        fields = {"text": body}
    inside = [fields.pop(key, None) for key in TIME_FIELDS]
    time_ms = next((at for at in (time_ms, *inside) if at is not None), None)
    subject = next((value for value in fields.values() if type(value) is str), "")
    return {**fields, "id": name, "time_ms": time_ms, "subject": subject}


def _first(pairs: Iterator[tuple[str, Any]]) -> Iterator[tuple[str, Any]]:
    return (pair for _, pair in zip(range(FIELDS_MOST), pairs, strict=False))


def value_of(text: str) -> int | float | str:
    """A number where the text is one."""
    if _number.fullmatch(text):
        return float(text) if "." in text else int(text)
    return text


def xml_fields(text: str) -> Iterator[tuple[str, Any]]:
    """The root's attributes and every leaf element, by name. expat.ExpatError when it is no XML."""
    found: dict[str, Any] = {}
    path: list[str] = []
    words: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not path:
            found.update((key, value_of(value)) for key, value in attributes.items())
        path.append(tag)
        words.clear()

    def end(tag: str) -> None:
        path.pop()
        if leaf := "".join(words).strip():
            found[tag] = value_of(leaf)
        words.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = words.append
    parser.EntityDeclHandler = _no_entities
    parser.Parse(text, True)
    return iter(found.items())


def _no_entities(*declaration: Any) -> None:
    raise ValueError("an XML event declares an entity")  # a few of them can stand for gigabytes


def json_fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Leaves of a JSON value by dotted name; SenML entries by their own names."""
    if isinstance(value, dict):
        entries = value.get("e") if not name else None
        if isinstance(entries, list):
            yield from senml_fields(entries)
        for key, item in value.items():
            if item is not entries or entries is None:
                yield from json_fields(item, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for place, item in enumerate(value):
            yield from json_fields(item, f"{name}.{place}" if name else str(place))
    elif isinstance(value, int) and not -(2**63) <= value < 2**63:
        yield name, float(value)  # rows have 64-bit numbers
    else:
        yield name or "value", value


def senml_fields(entries: list[Any]) -> Iterator[tuple[str, Any]]:
    """(n, v | sv | bv) of each SenML entry."""
    for entry in entries:
        value = next((entry[key] for key in ("v", "sv", "vb", "bv") if key in entry), None)
        yield str(entry.get("n", "")), value_of(value) if isinstance(value, str) else value
