"""What a report is made of: `analysis.json` and the result tables beside it. A table that is absent is empty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headgate.dashboards.analytics.results import SCHEMA, TABLES
from headgate.topology_runtime.errors import InvalidInput

Row = TypeVar("Row", bound=msgspec.Struct)


@dataclass(frozen=True)
class Analysis:
    """`document`: analysis.json as it is; `tables`: name → typed rows."""

    document: dict[str, Any]
    tables: dict[str, list[Any]]

    def rows(self, kind: type[Row], run: str | None = None) -> list[Row]:
        """The rows of a table, of one run if named."""
        name = next(name for name, its in TABLES.items() if its is kind)
        found: list[Row] = self.tables.get(name, [])
        return found if run is None else [row for row in found if getattr(row, "run", None) == run]

    @cached_property
    def runs(self) -> list[str]:
        """Every run that a table names, in the order of the analysis."""
        names = [row.run for rows in self.tables.values() for row in rows if hasattr(row, "run")]
        found = dict.fromkeys(names)
        order = self.document.get("runs")
        first = [run for run in order if run in found] if isinstance(order, list) else []
        return list(dict.fromkeys([*first, *found]))

    def epoch_name(self, run: str, epoch: int) -> str:
        """`3`; where there are several runs `2.3`: epoch 3 of the second."""
        return f"{epoch}" if len(self.runs) == 1 else f"{self.runs.index(run) + 1}.{epoch}"

    @property
    def epoch_axis(self) -> str:
        """What such names are."""
        return "epoch" if len(self.runs) == 1 else "run.epoch"


def read(folder: Path) -> Analysis:
    """The analysis in `folder`. Raises InvalidInput with every fault."""
    document = _json(folder / "analysis.json", dict[str, Any])
    if document.get("schema") != SCHEMA:
        raise InvalidInput(
            f"{folder / 'analysis.json'} is no analysis that this version reads",
            cause=f"its schema is {document.get('schema')!r}, not {SCHEMA!r}",
        )
    faults: list[str] = []
    tables: dict[str, list[Any]] = {}
    for name, kind in TABLES.items():
        path = folder / "results" / f"{name}.json"
        try:
            tables[name] = _json(path, list[kind]) if path.exists() else []  # type: ignore[valid-type]
        except InvalidInput as error:
            faults.append(f"{path.name}: {error.cause}")
    if faults:
        raise InvalidInput(
            f"the results in {folder} cannot be read", faults=faults, hint="run `headgate analyze` again"
        )
    return Analysis(document, tables)


def _json(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", cause=error.strerror) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read", cause=str(error)) from error
