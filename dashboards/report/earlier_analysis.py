"""The report of an analysis that is there already: `headgate analyze RUN|FOLDER --report-only`. Needs no Spark."""

from __future__ import annotations

import json
from pathlib import Path

from headgate.dashboards.analytics.storage.output_folder import default_output
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.trace_tables import RUN_FILE

ANALYSIS = "analysis.json"


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
