"""docs/reference/connectors.md: which scenario each connector is tried with, written down by
`python -P scripts/makers/write_scenarios_page.py`; a test compares.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.testing.conformance.needs import PREFIX, lacking, scenarios_of
from headgate.topology_runtime.testing.conformance.under_test import SinkUnderTest, SourceUnderTest

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "connectors"
PAGE = ROOT / "docs" / "reference" / "connectors.md"
HEAD = """# Connectors and their scenarios

Each scenario is a test against the real service ([test a
pipeline](../how-to/test-a-pipeline.md#a-source-or-sink-of-your-own)). ✓: it passes; –: the
connector has no such thing, or its own tests try it. `scripts/test` runs those of connectors
without *, `scripts/test full` all. The tests: `tests/connectors`, class `Test…`, method `test_` and
the words of the scenario.
"""


def classes() -> Iterator[type[Any]]:
    """All that `scenarios` made for connectors of this project."""
    for file in sorted(TESTS.rglob("test_*_live.py")):
        if "= scenarios(" not in (text := file.read_text("utf-8")) and "(scenarios(" not in text:
            continue
        before = list(sys.path)
        sys.path[:0] = [str(file.parent), str(TESTS)]
        try:
            module = importlib.import_module(file.stem)
        finally:
            sys.path[:] = before
        for name, found in vars(module).items():
            if name.startswith("Test") and isinstance(getattr(found, "of", None), type):
                yield found


def page(made: Sequence[type[Any]]) -> str:
    parts = [HEAD]
    for title, kind in (("Sources", SourceUnderTest), ("Sinks", SinkUnderTest)):
        of_kind = [tests for tests in made if issubclass(tests.of, kind)]
        parts.append(f"## {title}\n\n{_table(of_kind)}")
    return "\n".join(parts)


def _table(made: Sequence[type[Any]]) -> str:
    """A column for each connector, whatever the number of classes that try it."""
    columns: dict[str, list[type[Any]]] = {}
    for tests in made:
        columns.setdefault(tests.of.connector.rpartition(":")[2], []).append(tests)
    names = sorted(columns)
    shown = [name + "*" * all(map(_is_full, columns[name])) for name in names]
    scenarios = {name: function for tests in made for name, function in scenarios_of(tests)}
    lines = ["|".join(["|scenario", *shown, ""]), "|---" * (len(names) + 1) + "|"]
    for name, function in scenarios.items():
        cells = ["✓" if any(not lacking(t.of, function) for t in columns[one]) else "–" for one in names]
        lines.append("|".join([f"|{_words(name)}", *cells, ""]))
    return "\n".join(lines) + "\n"


def _words(scenario: str) -> str:
    return scenario.removeprefix(PREFIX).replace("_", " ").replace(" vm ", " VM ")


def _is_full(tests: type[Any]) -> bool:
    return any(mark.name == "full" for mark in getattr(tests, "pytestmark", ()))


if __name__ == "__main__":
    sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests")]
    PAGE.write_text(page(list(classes())), "utf-8")
