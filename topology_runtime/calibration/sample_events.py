"""Events for profiling a task alone: lines of a file or made ones, in the form that the task takes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.logic import Source

LINES_MOST = 1000  # of a file: rows are played again and again
SENSORS = 50


def made(position: int) -> str:
    """A line of made sensor events, always the same at the same position."""
    return json.dumps(
        {
            "id": position,
            "sensor": f"s{position % SENSORS}",
            "value": round(20 + (position * 7919 % 1000) / 100, 2),
            "time_ms": 1_700_000_000_000 + 250 * position,
        }
    )


def _json(position: int, line: str) -> Any:
    return json.loads(line)


FORMS: dict[str, Callable[[int, str], Any]] = {
    "text": lambda position, line: line,
    "json": _json,
    "number": lambda position, line: position,
    "pair": lambda position, line: (position, line),
    "bytes": lambda position, line: line.encode(),
}


class SampleEvents(Source):
    """Endless events. path: a file with one per line (none: made ones); form: one of FORMS."""

    def __init__(self, form: str = "text", path: str | None = None) -> None:
        self._row = FORMS[form]
        self._lines = lines_of(Path(path)) if path is not None else None

    def read(self, position: int, limit: int) -> Sequence[Any]:
        return [self._row(p, self._line(p)) for p in range(position, position + limit)]

    def _line(self, position: int) -> str:
        if self._lines is None:
            return made(position)
        return self._lines[position % len(self._lines)]


def lines_of(path: Path) -> list[str]:
    """The first lines of a file, empty ones left out. Raises InvalidInput."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = [line.rstrip("\r\n") for line, _ in zip(file, range(LINES_MOST), strict=False)]
    except OSError as error:
        raise InvalidInput(f"cannot read the events {path}", cause=error.strerror) from error
    kept = [line for line in lines if line.strip()]
    if not kept:
        raise InvalidInput(
            f"cannot read the events {path}", cause="it has no lines", hint="one event per line"
        )
    return kept
