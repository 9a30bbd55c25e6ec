"""What the code cites stands in the repository: sections of the protocol, stories, invariants, promises."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PROTOCOL = (ROOT / "docs" / "explanation" / "protocol.md").read_text("utf-8")
PROMISES = (ROOT / "docs" / "explanation" / "guarantees.md").read_text("utf-8")
PLACES = ("agent", "controller", "dashboards", "topology_runtime", "tests", "scripts")
SECTIONS = set(re.findall(r"^## (.+)$", PROTOCOL, re.M))
ROWS = re.compile(r"^\| ?([AB][1-9]|I[1-9]|P[1-9][0-9]?) ?\|", re.M)
KNOWN = {*ROWS.findall(PROTOCOL), *ROWS.findall(PROMISES)}


def texts() -> Iterator[tuple[Path, str]]:
    for place in PLACES:
        for path in sorted((ROOT / place).rglob("*.py")):
            if path != Path(__file__):
                yield path, path.read_text("utf-8")


def cited(pattern: str) -> Iterator[tuple[Path, str]]:
    for path, text in texts():
        for found in re.findall(pattern, text):
            yield path, found


def test_every_section_of_the_protocol_that_is_cited_is_there() -> None:
    found = list(cited(r"\(protocol: ([A-Z][A-Za-z ]*[a-z])"))
    assert found, "nothing cites the protocol"
    assert [(path, name) for path, name in found if name not in SECTIONS] == []


def test_every_story_invariant_and_promise_that_is_cited_is_there() -> None:
    pattern = r"(?:[Ss]tory |[Ss]tories |invariant |promise |\[)([ABIP][1-9][0-9]?)\b(?=[\]:,. )]|$)"
    found = list(cited(pattern))
    assert found, "nothing cites a story"
    assert [(path, name) for path, name in found if name not in KNOWN] == []


def test_no_text_is_cited_that_nobody_outside_can_read() -> None:
    """Design notes that are not part of the repository."""
    pattern = r"\((?:reliability|measurement|performance|contract|dashboards)(?::[^)]*|, [^)]*)?\)"
    assert list(cited(pattern)) == []
