"""User code of `scripts/bench columns`: each task once by rows and once by columns or by lists of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headgate.topology_runtime.logic import Source, batched

WIDTH, FEATURES, MADE = 64, 16, 4096
WEIGHTS = np.linspace(-1.0, 1.0, FEATURES)
_waves = np.sin(np.arange(MADE)[:, None] * np.linspace(0.1, 6.4, WIDTH))
_waves.flags.writeable = False
_rows = [(n, wave) for n, wave in enumerate(_waves.tolist())]
_ids = np.arange(MADE)
_events = [{"id": n, "features": wave[:FEATURES]} for n, wave in _rows]


def _some(made: Sequence[Any], position: int, limit: int) -> Any:
    """`limit` of what was made before, so that a source costs next to nothing in either form."""
    start = position % (MADE - limit)
    return made[start : start + limit]


class Waves(Source):
    """(number, 64 floats) as rows."""

    def read(self, position: int, limit: int) -> Any:
        return _some(_rows, position, limit)


@batched(columns=True)
class WaveColumns(Source):
    """The same as columns."""

    def read(self, position: int, limit: int) -> Any:
        return _some(_ids, position, limit), _some(_waves, position, limit)


def mean(row: Any) -> Any:
    return row[0], float(np.mean(row[1]))


def mean_in_python(row: Any) -> Any:
    return row[0], sum(row[1]) / len(row[1])


@batched(columns=True)
def mean_of_columns(columns: Any) -> Any:
    return columns[0], columns[1].mean(axis=1)


class Events(Source):
    """Rows with 16 features each."""

    def read(self, position: int, limit: int) -> Any:
        return _some(_events, position, limit)


def score(row: dict[str, Any]) -> dict[str, Any]:
    return {"id": row["id"], "score": float(1 / (1 + np.exp(-(np.array(row["features"]) @ WEIGHTS))))}


@batched
def score_of_many(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    scores = 1 / (1 + np.exp(-(np.array([row["features"] for row in rows]) @ WEIGHTS)))
    return [{"id": row["id"], "score": score} for row, score in zip(rows, scores.tolist(), strict=True)]


@batched(columns=True)
def score_of_columns(columns: dict[str, Any]) -> dict[str, Any]:
    return {"id": columns["id"], "score": 1 / (1 + np.exp(-(columns["features"] @ WEIGHTS)))}


def count(row: Any) -> None:
    """A sink of rows."""


@batched(columns=True)
def count_columns(columns: Any) -> Any:
    """A sink of columns."""
    return columns
