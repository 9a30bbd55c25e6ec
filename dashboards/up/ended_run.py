"""What `headgate status` says of a run of `up` that has ended, from what it left in its state directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from headgate.dashboards.runs.open_windows import going_on, open_line, open_tasks
from headgate.dashboards.runs.run_places import RUNS
from headgate.dashboards.up.up_preparation import KEPT, SUMMARY, resumable, rows_left
from headgate.topology_runtime.errors import Unreachable
from headgate.topology_runtime.wording import counted


def has_ended(where: str | None) -> Unreachable | None:
    """The run in this state directory, or the newest one here. None: there is none, or it has not ended."""
    states = [Path(where)] if where is not None else [file.parent for file in RUNS.glob(f"*/{SUMMARY}")]
    found = [(state, summary) for state in states if (summary := _summary(state)) is not None]
    if not found:
        return None
    state, summary = max(found, key=lambda one: (one[0] / SUMMARY).stat().st_mtime_ns)
    left, opened = rows_left(summary), open_tasks(summary)
    faults = [f"{counted(left, 'row')} left: read, and not done"] * bool(left) + list(map(open_line, opened))
    hint = "start a new one: `headgate up`"
    if faults:
        at = state.absolute()
        hint = "; ".join(going_on(resumable(state).settings, at) if (state / KEPT).exists() else [_kept(at)])
    what = f"the run in {state} has ended: {summary['ended']}"
    return Unreachable(what, faults=faults, hint=hint)


def _kept(state: Path) -> str:
    """Of a run that `up` did not start."""
    return f"headgate checkpoint create NAME --state URL --state-dir {state}, with its URL (`up --state-to`)"


def _summary(state: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads((state / SUMMARY).read_bytes())
    except FileNotFoundError:
        return None
    return found if found.get("schema") == "headgate/run/v1" else None
