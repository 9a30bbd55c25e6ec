"""Parses XML documents that are in memory, with SAX: a task that computes (paper 0, section 5.2)."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from xml.sax import SAXException, make_parser
from xml.sax.handler import ContentHandler
from xml.sax.xmlreader import AttributesImpl

from headgate.topology_runtime.logic import any_thread
from headgate.topology_runtime.tasks.event_number import number_of

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
