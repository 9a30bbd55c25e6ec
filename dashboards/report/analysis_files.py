"""What a report is made of: `analysis.json` and the result tables beside it. An absent table is empty."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from headgate.dashboards.analytics.storage.output_folder import default_output
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, TABLES
from headgate.dashboards.analytics.storage.trace_runs import MADE
from headgate.dashboards.tables.recorded_time import RecordedTime, recorded_time
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import RUN_FILE

Row = TypeVar("Row", bound=msgspec.Struct)
ANALYSIS = "analysis.json"


@dataclass(frozen=True)
class Analysis:
    """`document`: analysis.json as it is; `tables`: name → typed rows; `recorded`: by run, where its rows are there."""

    document: dict[str, Any]
    tables: dict[str, list[Any]]
    recorded: Mapping[str, RecordedTime] = field(default_factory=dict)

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
    document = _json(folder / ANALYSIS, dict[str, Any])
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
    return Analysis(document, tables, recorded_time(folder) if (folder / MADE).is_dir() else {})


def _json(path: Path, kind: Any) -> Any:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise InvalidInput(f"{path} cannot be read", cause=error.strerror) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} cannot be read", cause=str(error)) from error


def analysis_of(folder: Path) -> Path:
    """The folder of the analysis: this one, or that of the run. Raises InvalidInput."""
    if (folder / ANALYSIS).is_file():
        return folder
    if not (folder / RUN_FILE).is_file():
        what = "is neither an analysis nor a run" if folder.is_dir() else "does not exist"
        raise InvalidInput(f"{folder} {what}", hint=_near(folder))
    its = Path(default_output([str(folder)]))
    if not _is_of(its / ANALYSIS, folder.absolute()):
        raise InvalidInput(f"{folder} is not analysed yet", hint=f"run `headgate analyze {folder}`")
    return its


def _near(folder: Path) -> str:
    """What could have been meant."""
    runs = sorted(folder.glob(f"*/*/{RUN_FILE}")) + sorted(folder.glob(f"*/{RUN_FILE}"))
    if runs:
        return f"name one run, for example {runs[-1].parent}; or all: `headgate analyze {folder}`"
    return "name the folder of a trace (traces/TOPOLOGY/RUN) or of `headgate analyze`"


def _is_of(analysis: Path, trace: Path) -> bool:
    """Is it an analysis of this run alone, made after its last segment was written?"""
    try:
        runs = json.loads(analysis.read_bytes()).get("runs")
        made_s = analysis.stat().st_mtime
    except (OSError, ValueError, AttributeError):
        return False
    last_s = max((file.stat().st_mtime for file in trace.glob("*/*.parquet")), default=0.0)
    return made_s >= last_s and runs == [f"{trace.parent.name}/{trace.name}"]
