"""Text → flat rows: XML, SenML, any other JSON, or plain text, told apart by how the text begins.

A row is a flat dict: the event's own fields, numbers as numbers, and beside them `id`, `time_ms` (None when the event
has no time) and `subject` (the event's first text: a process, a taxi, a sensor). Where the event has such a field of
its own, that stays, and the added one is `event_id`, `event_time_ms` or `event_subject`.
"""

from __future__ import annotations

import binascii
import re
import time
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from itertools import islice
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

FIELDS_MOST = 200  # of one event; more are left out
LEAST_INT, MOST_INT = -(1 << 63), (1 << 64) - 1  # of a row
# no exponents, no leading zeros: names such as 12E34 and codes such as 007 stay text
_whole = re.compile(r"[+-]?(0|[1-9][0-9]{0,19})")
_decimal = re.compile(r"[+-]?((0|[1-9][0-9]{0,17})\.[0-9]*|\.[0-9]+)")
_long_text, _long_bytes = re.compile("[0-9]{19}"), re.compile(b"[0-9]{19}")
_stamped = re.compile(r"(\d{1,18}),(?=[{\[])")
_decode = msgspec.json.Decoder().decode


def parse(event: Event) -> dict[str, Any]:
    """(id, text) → flat row. Raises when the text looks like XML or JSON and is not."""
    name, text = event
    text = text.strip()
    stamp = _stamped.match(text)
    body = text[stamp.end() :] if stamp else text
    time_ms: Any = None
    if body.startswith("<"):
        fields = _apart(xml_fields(body))
    elif body.startswith(("{", "[")):
        fields, time_ms = _json_event(_decode(body))
    else:
        fields = {"text": body}
    if stamp:
        time_ms = int(stamp[1])
    subject = next((value for value in fields.values() if type(value) is str), "")
    row = {**fields, _free("id", fields): name}
    if time_ms is not None or "time_ms" not in fields:
        row[_free("time_ms", fields)] = time_ms
    row[_free("subject", fields)] = subject
    return row


def _free(name: str, fields: dict[str, Any]) -> str:
    """What an added field is called: the event may have such a field of its own."""
    if name in fields:
        name = f"event_{name}"
    while name in fields:
        name = f"_{name}"
    return name


def _json_event(value: Any) -> tuple[dict[str, Any], Any]:
    """(fields, time in ms) of a JSON value; of SenML the records by their names."""
    if isinstance(value, dict) and isinstance(value.get("e"), list):
        bare = {key: item for key, item in value.items() if key != "bt"}
        return _apart(json_fields(bare)), value.get("bt")
    if _is_pack(value):
        rows = list(resolved(value))
        at = value[0].get("bt", 0) + value[0].get("t", 0)
        fields = _apart((row["name"], row["value"]) for row in rows)
        return fields, round(at * 1000) if at >= ABSOLUTE_S else None
    return _apart(json_fields(value)), None


def _apart(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
    """The first of these; a name that comes again is numbered: name, name.1, name.2."""
    fields: dict[str, Any] = {}
    for name, value in islice(pairs, FIELDS_MOST):
        key, number = name, 0
        while key in fields:
            number += 1
            key = f"{name}.{number}"
        fields[key] = value
    return fields


def value_of(text: str) -> int | float | str:
    """A number where the text is one, and nothing is lost by that.

    >>> value_of("12"), value_of("1.5"), value_of("007"), value_of("18446744073709551616")
    (12, 1.5, '007', '18446744073709551616')
    """
    if _whole.fullmatch(text):
        whole = int(text)
        return whole if LEAST_INT <= whole <= MOST_INT else text
    return float(text) if _decimal.fullmatch(text) else text


def _fitting(value: Any) -> Any:
    """A JSON value whose whole numbers fit a row: larger ones are text."""
    if isinstance(value, dict):
        return {key: _fitting(item) for key, item in value.items()}
    if isinstance(value, list):
        return list(map(_fitting, value))
    return str(value) if isinstance(value, int) and not LEAST_INT <= value <= MOST_INT else value


def xml_fields(text: str) -> Iterator[tuple[str, Any]]:
    """The root's attributes and every leaf element, by name. expat.ExpatError when it is no XML."""
    found: list[tuple[str, Any]] = []
    path: list[str] = []
    words: list[str] = []

    def start(tag: str, attributes: dict[str, str]) -> None:
        if not path:
            found.extend((key, value_of(value)) for key, value in attributes.items())
        path.append(tag)
        words.clear()

    def end(tag: str) -> None:
        path.pop()
        if leaf := "".join(words).strip():
            found.append((tag, value_of(leaf)))
        words.clear()

    parser = expat.ParserCreate()
    parser.StartElementHandler, parser.EndElementHandler = start, end
    parser.CharacterDataHandler = words.append
    parser.EntityDeclHandler = _no_entities
    parser.Parse(text, True)
    return iter(found)


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
    else:
        yield name or "value", _fitting(value)


def senml_fields(entries: list[Any]) -> Iterator[tuple[str, Any]]:
    """(n, v | sv | bv) of each SenML entry."""
    for entry in entries:
        value = next((entry[key] for key in ("v", "sv", "vb", "bv") if key in entry), None)
        yield str(entry.get("n", "")), value_of(value) if isinstance(value, str) else _fitting(value)


def parse_json(text: str | bytes | tuple[int | str, str]) -> Any:
    """The value of a JSON text; of an event (id, text) the pair (id, value). Raises when it is no JSON. Whole numbers
    of more than 64 bits are text."""
    if isinstance(text, tuple):
        return text[0], _value_in(text[1])
    return _value_in(text)


def _value_in(text: str | bytes) -> Any:
    value = _decode(text)
    long = _long_text if isinstance(text, str) else _long_bytes
    return _fitting(value) if long.search(text) else value  # type: ignore[arg-type]


# ── SenML (RFC 8428) → one row per record, with what the pack says once worked into each ────────────────

VERSION = 10  # of SenML
ABSOLUTE_S = 1 << 28  # times below are seconds from now
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9:./_-]*")
# the fields that the RFC names, and what they are
KINDS: dict[str, tuple[type, ...]] = {
    "bn": (str,), "bt": (int, float), "bu": (str,), "bv": (int, float), "bs": (int, float), "bver": (int,),
    "n": (str,), "u": (str,), "v": (int, float), "vs": (str,), "vb": (bool,), "vd": (str,), "s": (int, float),
    "t": (int, float), "ut": (int, float),
}  # fmt: skip
BASES = ("bn", "bt", "bu", "bv", "bs")
VALUES = ("v", "vs", "vb", "vd")
OLD_VALUES = (*VALUES, "sv", "bv")  # of the older form, {"e": […], "bt": …}
Record = dict[str, Any]


@flat_map
def parse_senml(text: str | bytes | tuple[int | str, str]) -> list[Record]:
    """The records of a pack (JSON; of an event (id, text) its text, the id in each row): {name, time_s,
    unit, value, sum}, None where a record has none; `vd` as bytes. Raises ValueError when it is no SenML."""
    if isinstance(text, tuple):
        name, body = text
        return [{"id": name, **record} for record in records(body)]
    return list(records(text))


def records(text: Any, now_s: Callable[[], float] = time.time) -> Iterator[Record]:
    """Each record resolved: what the bases say holds from where they stand on. now_s: for times that count from now."""
    if not isinstance(text, str | bytes):
        raise ValueError(f"SenML is text, not {shown(text)}")
    pack = _decode(text)
    if isinstance(pack, dict):
        return _older(pack)
    if not isinstance(pack, list) or not all(isinstance(record, dict) for record in pack):
        raise ValueError("SenML is a list of objects")
    return resolved(pack, now_s)


def resolved(pack: list[Record], now_s: Callable[[], float] = time.time) -> Iterator[Record]:
    """The records of a pack as RFC 8428 has them. Raises ValueError."""
    base: Record = {}
    version, now = pack[0].get("bver", VERSION) if pack else VERSION, None
    for record in pack:
        _check_record(record, version)
        base.update({key: record[key] for key in BASES if key in record})
        if not any(key in record for key in (*VALUES, "s")) and not {"bv", "n"} <= record.keys():
            continue  # bases alone
        time_s = base.get("bt", 0) + record.get("t", 0)
        if time_s < ABSOLUTE_S:
            now = now_s() if now is None else now
            time_s += now
        name = base.get("bn", "") + record.get("n", "")
        if not NAME.fullmatch(name):
            raise ValueError(f"{shown(name)} is no name of a SenML record")
        yield {
            "name": name,
            "time_s": _fitting(time_s),
            "unit": record.get("u", base.get("bu")),
            "value": _value(record, base),
            "sum": _fitting(base.get("bs", 0) + record.get("s", 0))
            if "s" in record or "bs" in base
            else None,
        }


def _check_record(record: Record, version: int) -> None:
    """ValueError for what RFC 8428 does not allow."""
    for key, value in record.items():
        kinds = KINDS.get(key)
        if kinds is None and key.endswith("_"):
            raise ValueError(f"the SenML field {shown(key)} has to be understood, and is not known")
        if kinds is not None and type(value) not in kinds:
            raise ValueError(f"{key} of SenML is {shown(value)}")
    if not 0 < version <= VERSION:
        raise ValueError(f"SenML of version {version} is not known: at most {VERSION}")
    if record.get("bver", version) != version:
        raise ValueError(f"records of SenML have the versions {version} and {record['bver']}")
    values = [key for key in VALUES if key in record]
    if len(values) > 1:
        raise ValueError(f"a SenML record has several values: {', '.join(values)}")


def _value(record: Record, base: Record) -> Any:
    if "vd" in record:
        text = record["vd"]
        try:
            return b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError(f"vd of SenML is no base64: {shown(text)}") from error
    if "vs" in record or "vb" in record:
        return record.get("vs", record.get("vb"))
    return _fitting(base.get("bv", 0) + record.get("v", 0)) if "v" in record or "bv" in base else None


def _is_pack(value: Any) -> bool:
    """Is it SenML rather than a list of something else?"""
    if not (isinstance(value, list) and value and all(isinstance(record, dict) for record in value)):
        return False
    named = not {"n", "bn"}.isdisjoint(value[0])
    return named and any(key in record for record in value for key in (*VALUES, "s", "bv"))


# ── the older form ──────────────────────────────────────────────────────────────────────────────────


def _older(pack: Record) -> Iterator[Record]:
    """{"bn": …, "bt": …, "bu": …, "e": [{"n": …, "v" | "sv" | "bv": …}]}, as devices sent it before the RFC; times stay
    as they are. Raises ValueError."""
    entries = pack.get("e", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError("SenML is a list of objects")
    for entry in entries:
        value = next((entry[key] for key in OLD_VALUES if key in entry), None)
        total = entry.get("s")
        if value is None and total is None:
            continue
        name = pack.get("bn", ""), entry.get("n", "")
        if not all(isinstance(part, str) for part in name) or not any(name):
            raise ValueError(f"{shown(name)} is no name of a SenML record")
        times = pack.get("bt", 0), entry.get("t", 0)
        if not all(map(_is_number, (*times, 0 if total is None else total))):
            raise ValueError(f"times and sums of SenML are numbers, not {shown((*times, total))}")
        yield {
            "name": "".join(name),
            "time_s": _fitting(sum(times)),
            "unit": entry.get("u", pack.get("bu")),
            "value": _fitting(value),
            "sum": _fitting(total),
        }


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
