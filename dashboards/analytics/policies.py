"""What other policies would have done with what a run was offered: `headgate replay` is asked, its answers ranked."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from headgate.dashboards.analytics import trace_runs
from headgate.dashboards.analytics.run_figures import CARRIES, PolicyTried
from headgate.dashboards.analytics.trace_runs import TraceRun
from headgate.topology_runtime.errors import HeadgateError

DIFFERENT = 8  # what `replay` ends with when the run decides otherwise now
Tell = Callable[[str], None]


def policies_tried(traces: Sequence[str], names: str, tell: Tell) -> tuple[PolicyTried, ...]:
    """These policies with every run of the traces. Raises HeadgateError when no run could be replayed."""
    runs, _ = trace_runs.find(list(traces))
    found: list[PolicyTried] = []
    failed: HeadgateError | None = None
    for run in runs:
        try:
            found += ranked(run.key, _replayed(run, names))
        except HeadgateError as error:
            failed = error
            tell(f"no policy was tried with {run.key}: {error.cause}")
    if not found and failed is not None:
        raise failed
    return tuple(found)


def _replayed(run: TraceRun, names: str) -> dict[str, Any]:
    """What `headgate replay` says of it; its bars and words are on stderr. Raises HeadgateError."""
    if not run.place.local:
        raise HeadgateError("no policy can be tried", cause=f"{run.place.uri} is not on this machine")
    command = [
        sys.executable,
        "-P",
        "-m",
        "headgate.dashboards.cli",
        "replay",
        str(Path(run.place.path)),
        "--policy",
        names,
    ]
    done = subprocess.run([*command, "-o", "json"], stdout=subprocess.PIPE, check=False)
    if done.returncode not in (0, DIFFERENT):
        error = HeadgateError(
            "no policy can be tried", cause=f"`headgate replay` ended with {done.returncode}"
        )
        error.exit_code = done.returncode
        raise error
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def ranked(run: str, answer: dict[str, Any]) -> list[PolicyTried]:
    """The run's own line first, then the policies by their rank."""
    own, *others = (_row(run, row) for row in [answer["recorded"], *answer["policies"]])
    begun = sorted((row for row in others if row.why is None), key=_order)
    places = [msgspec.structs.replace(row, rank=place) for place, row in enumerate(begun, 1)]
    return [own, *places, *(row for row in others if row.why is not None)]


def _order(row: PolicyTried) -> tuple[bool, float, float, str]:
    short = row.violated_tuples > CARRIES * row.offered
    return short, row.violated_tuples if short else row.slot_hours, row.slot_hours, row.policy


def _row(run: str, row: dict[str, Any]) -> PolicyTried:
    names = ("slot_hours", "usd", "violations_s", "violated_tuples", "offered", "replans", "moves")
    numbers = {name: row[name] for name in (*names, "measured_s", "measured_tuples")}
    return PolicyTried(
        run=run, policy=row["policy"], rank=None, note=row.get("note"), why=row.get("error"), **numbers
    )
