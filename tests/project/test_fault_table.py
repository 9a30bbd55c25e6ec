"""docs/explanation/faults.md names a test for every fault, and each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "docs/explanation/faults.md").read_text("utf-8")
NAMED = re.compile(r"`((?:[\w/]+/)?(?:test_\w+\.py|…))(?:::(test_\w+))?`")


def test_every_test_that_the_table_names_is_there() -> None:
    file, missing = ROOT, []
    for path, test in NAMED.findall(TEXT):
        if path != "…":
            (file,) = (ROOT / path,) if "/" in path else ROOT.glob(f"tests/*/{path}")
        if not file.exists() or (test and f"def {test}(" not in file.read_text("utf-8")):
            missing.append((path, test))
    assert missing == []


def test_every_row_names_what_holds_it() -> None:
    table = TEXT.partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("|") and not line.startswith("|-")][1:]
    assert len(rows) >= 18
    assert [row for row in rows if "test_" not in row and "tests/" not in row] == []
