"""The run that an analysis is compared with: the one of the same topology before it, or one that was named.

Its figures are those of its own analysis. Where it has none yet it is analysed first, if it was named, or is small."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from headgate.dashboards.analytics.curation.trace_segments import judged
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import place
from headgate.dashboards.analytics.storage.output_folder import ANALYSIS, default_output
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, PolicyTried, RunFigures
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.errors import HeadgateError, InvalidInput, UsageError
from headgate.topology_runtime.traces.trace_tables import RUN_FILE, TABLES
from headgate.topology_runtime.wording import counted

NOBODY = "none"
SMALL_ROWS = 3_000_000  # of samples: fewer are analysed in some seconds
Analyse = Callable[[TraceRun, str], object]  # a run, and the folder that its analysis goes to
Tell = Callable[[str], None]


@dataclass(frozen=True)
class ComparedWith:
    """Figures of the runs to compare with; named: whoever asked has said with which. policies: that were tried with the
    offer of the runs."""

    figures: tuple[RunFigures, ...] = ()
    named: bool = False
    policies: tuple[PolicyTried, ...] = ()

    @property
    def mark(self) -> str:
        """Changes with them."""
        known = [self.named, *self.figures, *self.policies]
        return msgspec.json.encode(known).decode() if self.figures or self.policies else ""


def compared_with(traces: Sequence[str], against: str | None, analyse: Analyse, tell: Tell) -> ComparedWith:
    """What the runs in these traces are compared with. Raises UsageError when `against` names no run or several; what
    else is wrong with a run that nobody named is told."""
    if against == NOBODY:
        return ComparedWith()
    if against is not None:
        runs, _ = trace_runs.find([against])
        if len(runs) != 1:
            raise UsageError(
                f"--set against={against}: {counted(len(runs), 'run')} can be read there, and it takes one",
                hint="name the folder of a run: traces/TOPOLOGY/RUN",
            )
        return ComparedWith((_figures(runs[0], analyse, tell),), named=True)
    found = before(traces)
    if found is None:
        return ComparedWith()
    try:
        if known(found) is None and not is_small(found):
            tell(
                f"not compared with {found.key}, the run before: it was not analysed (--set against does it)"
            )
            return ComparedWith()
        return ComparedWith((_figures(found, analyse, tell),))
    except HeadgateError as error:
        tell(f"not compared with {found.key}, the run before: {error.what}")
        return ComparedWith()


def before(traces: Sequence[str]) -> TraceRun | None:
    """The run of the same topology beside the only one in `traces` that began last before it."""
    runs, _ = trace_runs.find(list(traces))
    if len(runs) != 1 or (began_us := runs[0].started_us) is None:
        return None
    now = runs[0]
    beside = [
        child for child, folder in now.place.parent.children() if folder and (child / RUN_FILE).is_file()
    ]
    others = trace_runs.find([child.uri for child in beside])[0] if beside else []
    earlier = [
        other
        for other in others
        if other.topology == now.topology and (other.started_us or began_us) < began_us
    ]
    return max(earlier, key=lambda run: (run.started_us or 0, run.name), default=None)


def is_small(run: TraceRun) -> bool:
    """Is it analysed in some seconds?"""
    return sum(segment.rows for segment in judged(run)[0] if segment.table == "samples") < SMALL_ROWS


def _figures(run: TraceRun, analyse: Analyse, tell: Tell) -> RunFigures:
    found = known(run)
    if found is None:
        tell(f"analysing {run.key} first, to compare with")
        analyse(run, folder_of(run))
        found = known(run)
    if found is None:
        raise InvalidInput(f"the analysis of {run.key} has no figures of it", cause=folder_of(run))
    return found


def folder_of(run: TraceRun) -> str:
    return default_output([run.place.path if run.place.local else run.place.uri])


def known(run: TraceRun) -> RunFigures | None:
    """Its figures, if it was analysed, alone, since its last segment was written."""
    folder = place(folder_of(run))
    made_ns = next((ns for name, _, ns in folder.sizes() if name == ANALYSIS), None)
    try:
        analysis = json.loads((folder / ANALYSIS).read())
        rows = msgspec.json.decode((folder / "results" / "run_figures.json").read(), type=list[RunFigures])
    except (OSError, ValueError, msgspec.ValidationError):
        return None
    if not isinstance(analysis, dict) or (analysis.get("schema"), analysis.get("runs")) != (
        SCHEMA,
        [run.key],
    ):
        return None
    written_ns = max((ns for table in TABLES for _, _, ns in (run.place / table).sizes()), default=0)
    return rows[0] if len(rows) == 1 and made_ns is not None and made_ns >= written_ns else None
