"""All of it: TRACE folders to `analysis.json`, `results/`, `models/` and `curated/` in the output folder. Results are
made in a draft and take the place of earlier ones as a whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from headgate.dashboards.analytics.aggregation.aggregate_steps import asked_of, forget_aggregates
from headgate.dashboards.analytics.analyses.all_analyses import Rows, answers
from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith
from headgate.dashboards.analytics.curation.curated_tables import Curated, curate
from headgate.dashboards.analytics.curation.trace_segments import JudgedFiles, Segment, judged
from headgate.dashboards.analytics.curation.unchanged_inputs import MARK, mark_of, reused_analysis
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.output_folder import ANALYSIS, disk_told, drafted, held
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, TABLES, LeftOut, Residuals
from headgate.dashboards.analytics.storage.spark_session import LARGE, MEMORY, QUICK, QUICK_ROWS, session
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.wording import counted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STEPS = 21  # that `tell` hears of
TOLD = (  # result tables that are in the summary as they are
    "episodes",
    "leaks",
    "skewed_threads",
    "bottlenecks",
    "interference",
    "cost",
    "seasons",
    "refitted",
    "run_figures",
    "run_changes",
    "policies_tried",
)

Tell = Callable[[str], None]
Found = list[tuple[TraceRun, list[Segment]]]


@dataclass(frozen=True)
class AnalysisSettings:
    """`master`: any Spark URL; `memory`: of the driver; `spark`: more settings of Spark; `again`: nothing that an
    earlier analysis aggregated or answered is used; `before`: what the runs are compared with."""

    master: str = "local[*]"
    memory: str = MEMORY
    strict: bool = False
    again: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    before: ComparedWith = ComparedWith()


def run(
    traces: Sequence[str | Path],
    output: str | Path,
    settings: AnalysisSettings,
    tell: Tell = lambda step: None,
    finish: Callable[[DataPlace], None] = lambda draft: None,
) -> dict[str, Any]:
    """Analyse these traces into `output`; the analysis as `headgate/analysis/v1` has it. `finish` is given the draft of
    the results before they take the place of earlier ones.

    Raises InvalidInput when nothing can be used, or with `strict` when anything was left out; Conflict when another
    analysis writes to `output`."""
    began_s = time.monotonic()
    tell("judging files")
    found, left = judged_runs(traces, settings.strict)
    to, mark = place(output), mark_of(found, left, settings.before.mark)
    with disk_told(to), held(to):
        known = None if settings.again else reused_analysis(to, mark, settings.strict)
        if known is not None:
            tell("nothing has changed since it was analysed")
            return known
        if settings.again:
            forget_aggregates(to)
        tell("starting Spark, which takes some seconds")
        with drafted(to) as draft:
            with session(settings.master, settings.memory, log_of(to), tuned(found, settings)) as spark:
                started_s = time.monotonic()
                tell(f"curating (Spark started in {started_s - began_s:.1f} s)")
                curated = curate(spark, to / "curated", found, left)
                curated_s = time.monotonic()
                work = AnalysisWork(to, draft, left, settings.strict, tell, before=settings.before)
                analysis = analysed(spark, found, work, curated)
                ended_s = time.monotonic()
            times = {
                "start": started_s - began_s,
                "curate": curated_s - started_s,
                "analyse": ended_s - curated_s,
            }
            analysis = write_analysis(draft, analysis, mark, times)
            tell("the report")
            finish(draft)
    return analysis


def write_analysis(
    draft: DataPlace, analysis: dict[str, Any], mark: str, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """analysis.json, with what it was made of and how long that took."""
    whole = analysis | {MARK: mark, "seconds": {name: round(value, 3) for name, value in seconds.items()}}
    (draft / ANALYSIS).write(json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")
    return whole


def judged_runs(
    traces: Sequence[str | Path], strict: bool, files: JudgedFiles | None = None
) -> tuple[Found, list[LeftOut]]:
    """(the runs of which something can be used, what is left out); `files`: judged before. Raises InvalidInput."""
    there, left = trace_runs.find([str(trace) for trace in traces])
    found: Found = []
    for one in there:
        segments, why = judged(one, files)
        found.append((one, segments))
        left += why
    _check(found, left, strict)
    return [(one, segments) for one, segments in found if segments], left


def log_of(to: DataPlace) -> Path:
    """Where Spark's words go."""
    return (Path(to.path) if to.local else Path.cwd()) / "spark.log"


def tuned(found: Found, settings: AnalysisSettings) -> dict[str, str]:
    """Settings of Spark, by how much there is to do."""
    rows = sum(segment.rows for _, segments in found for segment in segments if segment.table == "samples")
    return (QUICK if rows < QUICK_ROWS else LARGE) | dict(settings.spark)


@dataclass(frozen=True)
class AnalysisWork:
    """Where results go and how: the output folder, the draft in it, what was left out so far. `apart`: of runs that go
    on; `before`: what they are compared with; `memory`: of earlier turns of a follower."""

    to: DataPlace
    draft: DataPlace
    left: list[LeftOut]
    strict: bool
    tell: Tell
    apart: bool = False
    before: ComparedWith = ComparedWith()
    memory: dict[Any, Any] = field(default_factory=dict)


def analysed(spark: SparkSession, found: Found, work: AnalysisWork, curated: Curated) -> dict[str, Any]:
    """Results and models into the draft; what analysis.json says. Raises InvalidInput."""
    left = work.left + curated.left
    if work.strict and curated.left:
        _refuse(left)
    asked = asked_of(spark, work.to, found, curated, work.tell, work.apart, work.memory)
    rows, more = answers(asked, work.draft, left, work.tell, work.before)
    if work.strict and len(rows["left_out"]) > 0:
        _refuse(rows["left_out"])  # type: ignore[arg-type]
    _write_results(work.draft, rows)
    return summary(found, curated, rows, more, work.to)


def summary(
    found: Found, curated: Curated, rows: Rows, more: dict[str, Any], to: DataPlace
) -> dict[str, Any]:
    """`headgate/analysis/v1`."""
    data = {name: msgspec.to_builtins(list(of)) for name, of in rows.items()}
    growing = more["growing"]
    return {
        "schema": SCHEMA,
        "rows": curated.rows["samples"],
        "rows_by_table": curated.rows,
        "runs": [one.key for one, _ in found],
        "without_models": [one.key for one, _ in found if not one.models],
        **{of: _fit(rows["residuals"], of, more["r2_epochs"]) for of in ("rate", "cpu", "memory")},
        "stability": [_stability(row, growing) for row in data["stability"] if row["scope"] == "epoch"],
        "latency_ms": more["latency_ms"],
        "slow_slots": [row for row in data["slot_speeds"] if row["slow"]],
        "disturbing_pairs": [row for row in data["pair_costs"] if row["disturbs"]],
        "replans": [row for row in data["replans"] if row["reason"] != "start"],
        **{name: data[name] for name in TOLD},
        "models": (to / "models").path if to.local else (to / "models").uri,
        "output": to.path if to.local else to.uri,
        "left_out": data["left_out"],
    }


def _fit(rows: Sequence[Any], of: str, epochs: Mapping[str, float | None]) -> dict[str, Any]:
    mine: Residuals | None = next((row for row in rows if row.of == of and row.by == "all"), None)
    keys = ("r2", "r2_without_offset", "mae", "median_error", "p95_error", "worst_error", "n")
    numbers = {key: getattr(mine, key) if mine else None for key in keys} | ({} if mine else {"n": 0})
    return numbers | {"r2_epochs": epochs[of]}


def _stability(row: dict[str, Any], growing: Mapping[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    grow, windows = growing.get((row["run"], row["epoch"]), (0, 0))
    of = {name: value for name, value in row.items() if name not in ("scope", "points")}
    return of | {"windows": windows, "windows_growing": grow}


def _write_results(to: DataPlace, rows: Rows) -> None:
    for name in TABLES:
        content = json.dumps(msgspec.to_builtins(list(rows[name])), allow_nan=False)
        (to / "results" / f"{name}.json").write(content.encode() + b"\n")


def _check(found: Found, left: list[LeftOut], strict: bool) -> None:
    if strict and left:
        _refuse(left)
    if not any(segment.table == "samples" for _, segments in found for segment in segments):
        raise InvalidInput("there are no samples that can be used", faults=_faults(left))


def _refuse(left: Sequence[LeftOut]) -> None:
    raise InvalidInput(
        f"{counted(len(left), 'file')} cannot be used, and --set strict=yes leaves none out",
        faults=_faults(left),
        hint="without --set strict=yes they are listed and left out",
    )


def _faults(left: Sequence[LeftOut]) -> list[str]:
    return [f"{each.file}: {each.kind}: {each.reason}" for each in left]
