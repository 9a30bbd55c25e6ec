"""Text → flat rows: XML, SenML, any other JSON, or plain text, told apart by how the text begins.

A row is a flat dict: `id`, `time_ms` (None when the event has no time), `subject` (the event's first
text: a process, a taxi, a sensor) and the event's own fields, numbers as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, TypeGuard
from xml.parsers import expat
from xml.sax import SAXException, make_parser
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

import msgspec

from headgate.topology_runtime.api.logic import any_thread, flat_map
from headgate.topology_runtime.tasks.ready_made import number_of
from headgate.topology_runtime.wording import shown

Event = tuple[int | str, str]

TIME_FIELDS = ("time_ms", "bt")
FIELDS_MOST = 200  # of one event; more are left out
# no exponents: names such as 12E34 stay text
_number = re.compile(r"[+-]?(\d{1,18}|\d{1,18}\.\d*|\.\d+)")
_stamped = re.compile(r"(\d{1,18}),(?=[{\[])")
_decode = msgspec.json.Decoder().decode


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
        fields = dict(_first(json_fields(_decode(body))))
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


def parse_json(text: str | bytes | tuple[int | str, str]) -> Any:
    """The value of a JSON text; of an event (id, text) the pair (id, value). Raises when it is no JSON."""
    if isinstance(text, tuple):
        return text[0], _decode(text[1])
    return _decode(text)


# ── SenML (RFC 8428) → one row per record, with what the pack says once worked into each ────────────────

VALUES = ("v", "vs", "vb", "vd", "sv", "bv")  # the last two: in the older form, {"e": […], "bt": …}
MEASURED = {
    "v",
    "vs",
    "vb",
    "vd",
    "sv",
    "s",
}  # a record without any of these, or `bv` and a name, is base fields alone


@flat_map
def parse_senml(text: str | bytes | tuple[int | str, str]) -> list[dict[str, Any]]:
    """The records of a pack (JSON; of an event (id, text) its text, the id in each row): {name, time_s,
    unit, value, sum}, None where a record has none. Raises ValueError when it is no SenML."""
    if isinstance(text, tuple):
        name, body = text
        return [{"id": name, **record} for record in records(body)]
    return list(records(text))


def records(text: Any) -> Iterator[dict[str, Any]]:
    """Each record resolved: base name, time, unit, value and sum hold from where they stand on."""
    if not isinstance(text, str | bytes):
        raise ValueError(f"SenML is text, not {shown(text)}")
    pack = _decode(text)
    if isinstance(pack, dict):
        first = {key: pack[key] for key in ("bn", "bt", "bu") if key in pack}
        entries = pack.get("e", [])
        pack = [first, *entries] if isinstance(entries, list) else None
    if not isinstance(pack, list) or not all(isinstance(record, dict) for record in pack):
        raise ValueError("SenML is a list of objects")
    base: dict[str, Any] = {}
    for record in pack:
        base.update({key: record[key] for key in ("bn", "bt", "bu", "bs") if key in record})
        if _is_number(record.get("bv")):
            base["bv"] = record["bv"]
        if not MEASURED.isdisjoint(record) or {"bv", "n"} <= record.keys():
            yield _resolved(record, base)


def _resolved(record: dict[str, Any], base: dict[str, Any]) -> dict[str, Any]:
    name = base.get("bn", ""), record.get("n", "")
    if not all(isinstance(part, str) for part in name) or not any(name):
        raise ValueError(f"{shown(name)} is no name of a SenML record")
    return {
        "name": "".join(name),
        "time_s": _sum(base, "bt", record, "t"),
        "unit": record.get("u", base.get("bu")),
        "value": _value(record, base.get("bv", 0)),
        "sum": _sum(base, "bs", record, "s") if record.get("s") is not None else None,
    }


def _sum(base: dict[str, Any], base_key: str, record: dict[str, Any], key: str) -> float:
    """Of two numbers, each 0 where it is not there."""
    first, second = base.get(base_key, 0), record.get(key, 0)
    if not (_is_number(first) and _is_number(second)):
        raise ValueError(f"{base_key} and {key} of SenML are numbers, not {shown((first, second))}")
    return first + second


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(record: dict[str, Any], base: float) -> Any:
    if _is_number(record.get("v")):
        return base + record["v"]
    return next((record[key] for key in VALUES if key in record), None)


# ── Parses XML documents that are in memory, with SAX: a task that computes (paper 0, section 5.2) ──────

OPEN, CLOSE = "<readings>", "</readings>"


@any_thread
class ParseXml:
    """For each row parses `documents` documents of about `document_bytes` in one pass each and gives
    {id, elements, characters}. The paper says neither number: these take about as long as its Java did
    (310 rows/s on one core)."""

    def __init__(self, documents: int = 16, document_bytes: int = 4096) -> None:
        if documents < 1 or document_bytes < 200:
            raise ValueError("documents: at least 1, document_bytes: at least 200")
        self._texts = texts(documents, document_bytes)
        self._reader = XmlReader()

    def __call__(self, row: Any) -> dict[str, int]:
        elements = characters = 0
        for text in self._texts:
            found = self._reader.read(text)
            elements += found.elements
            characters += sum(len(value) for _, value in found.leaves)
        return {"id": number_of(row), "elements": elements, "characters": characters}


class XmlReader:
    """A SAX parser that is used again for each document."""

    def __init__(self) -> None:
        self._content = Leaves()
        self._parser = self._made()

    def read(self, text: str) -> Leaves:
        """What is in the document; valid until the next one. SAXParseException when it is no XML."""
        try:
            self._parser.feed(text)
            self._parser.close()
        except SAXException:
            self._parser = self._made()  # the old one would go on where it stopped
            raise
        return self._content

    def _made(self) -> Any:
        parser = make_parser()
        parser.setContentHandler(self._content)
        return parser


class Leaves(ContentHandler):
    """Counts `elements`; keeps (name, text) of each leaf and each attribute in `leaves`."""

    def __init__(self) -> None:
        super().__init__()
        self.elements = 0
        self.leaves: list[tuple[str, str]] = []
        self._words: list[str] = []

    def startDocument(self) -> None:
        self.elements = 0
        self.leaves = []
        self._words = []

    def startElement(self, name: str, attrs: AttributesImpl) -> None:
        self.elements += 1
        self.leaves += [(f"{name}.{key}", value) for key, value in attrs.items()]
        self._words = []

    def characters(self, content: str) -> None:
        self._words.append(content)

    def endElement(self, name: str) -> None:
        if self._words and (text := "".join(self._words).strip()):
            self.leaves.append((name, text))
        self._words = []


@lru_cache(maxsize=8)
def texts(documents: int, document_bytes: int) -> tuple[str, ...]:
    """The documents, made once per process and shared by its threads."""
    return tuple(text_of(number, document_bytes) for number in range(documents))


def text_of(number: int, size_bytes: int) -> str:
    """A document of sensor readings, of at most `size_bytes` bytes and nearly so."""
    parts: list[str] = []
    left = size_bytes - len(OPEN) - len(CLOSE)
    while len(reading := _reading(number, len(parts))) <= left:
        parts.append(reading)
        left -= len(reading)
    return OPEN + "".join(parts) + CLOSE


def _reading(document: int, place: int) -> str:
    value = (document * 7919 + place * 104_729) % 100_000 / 100
    return (
        f'<reading sensor="s{place:05d}" unit="C"><time>{1_700_000_000 + place}</time>'
        f"<value>{value:09.2f}</value><note>ok &amp; within {place % 9} limits</note></reading>"
    )
