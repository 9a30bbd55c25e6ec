"""Is what an analysis was made of still the same? Then its answers are told again, and nothing is read."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.analytics.storage.data_folders import DataPlace
from headgate.dashboards.analytics.storage.output_folder import ANALYSIS
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, TABLES, LeftOut
from headgate.dashboards.tables.trace_files import RunFiles

ROOT = Path(__file__).parents[3]
CODE = ("dashboards/analytics", "dashboards/report", "dashboards/tables", "topology_runtime/stability")
MARK = "made_of"  # its key in analysis.json


@lru_cache(maxsize=1)
def code_mark() -> str:
    """Changes with the code that analyses."""
    files = (
        file
        for of in CODE
        for kind in ("py", "jinja", "sql")
        for file in sorted((ROOT / of).rglob(f"*.{kind}"))
    )
    return _digest(file.read_text("utf-8") for file in files)


def mark_of(found: Sequence[RunFiles], left: Sequence[LeftOut], before: str = "") -> str:
    """Changes with the segments that are used, what is left out, the runs' other files, the code, and with `before`,
    which says what the runs are compared with."""
    return _digest(iter([*_words(found, left), *([before] if before else [])]))


def _words(found: Sequence[RunFiles], left: Sequence[LeftOut]) -> Iterator[str]:
    yield code_mark()
    yield from sorted(str(msgspec.structs.astuple(each)) for each in left)
    for one in found:
        yield one.run.place.uri
        yield from sorted(f"{s.table} {s.place.name} {s.digest}" for s in one.segments)
        yield from (f"{name} {size} {changed_ns}" for name, size, changed_ns in one.run.place.sizes())


def _digest(words: Iterator[str]) -> str:
    found = blake2b(digest_size=12)
    for word in words:
        found.update(word.encode() + b"\0")
    return found.hexdigest()


def reused_analysis(to: DataPlace, mark: str, strict: bool) -> dict[str, Any] | None:
    """The analysis that is there, if it was made of the same and is whole."""
    try:
        analysis: dict[str, Any] = json.loads((to / ANALYSIS).read())
        same = analysis["schema"] == SCHEMA and analysis[MARK] == mark
        refused = strict and analysis["left_out"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    tables = {child.name for child, _ in (to / "results").children()}
    return analysis if same and not refused and tables >= {f"{name}.json" for name in TABLES} else None
