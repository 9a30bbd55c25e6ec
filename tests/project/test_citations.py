"""What the code cites stands in the repository: sections of the protocol, stories, invariants, promises."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from project_sources import nodes_of, text_of

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


# of users, and of what we depend on
THEIRS = {"file.py", "flow.py", "rows.py", "controller.py", "coverage.py"}


def comments_and_docstrings(path: Path) -> Iterator[str]:
    yield from re.findall(r"#.*", text_of(path))
    for node in nodes_of(path):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ast.get_docstring(node) or ""


def test_every_file_that_a_comment_names_is_there() -> None:
    known = {path.name for path, _ in texts()} | THEIRS
    named = re.compile(r"(?<![\w/{*])(?:\w+/)*([a-z_0-9]+\.py)\b")
    found = [
        (str(path.relative_to(ROOT)), name)
        for path, text in texts()
        if any(name not in known for name in re.findall(r"\b\w+\.py\b", text))
        for said in comments_and_docstrings(path)
        for name in named.findall(said)
    ]
    assert found, "nothing is looked at"
    assert [(path, name) for path, name in found if name not in known] == []


# ── docs/explanation/faults.md names a test for every fault, and each of them exists ────────────────────────────────

TEXT = (ROOT / "docs/explanation/faults.md").read_text("utf-8")
NAMED = re.compile(r"`((?:[\w/]+/)?(?:test_\w+\.py|…))(?:::(test_\w+))?`")


def test_every_test_that_the_table_names_is_there() -> None:
    file, missing = ROOT, []
    for path, test in NAMED.findall(TEXT):
        if path != "…":
            (file,) = (ROOT / path,) if "/" in path else ROOT.glob(f"tests/**/{path}")
        if not file.exists() or (test and f"def {test}(" not in file.read_text("utf-8")):
            missing.append((path, test))
    assert missing == []


def test_every_row_names_what_holds_it() -> None:
    table = TEXT.partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|-")][1:]
    assert len(rows) >= 18
    assert [row for row in rows if "test_" not in row and "tests/" not in row] == []
