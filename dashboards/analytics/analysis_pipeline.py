"""All of it: TRACE folders to `analysis.json`, `results/`, `models/` and `curated/` in the output folder. Results are
made in a draft and take the place of earlier ones as a whole."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from headgate.dashboards.analytics.analyses.all_analyses import Rows, answers
from headgate.dashboards.analytics.analyses.analysis_input import HELD, SECOND_US, AnalysisInput
from headgate.dashboards.analytics.analyses.earlier_run import ComparedWith
from headgate.dashboards.analytics.curation.trace_segments import JudgedFiles, Segment, judged
from headgate.dashboards.analytics.curation.unchanged_inputs import MARK, mark_of, reused_analysis
from headgate.dashboards.analytics.storage import trace_runs
from headgate.dashboards.analytics.storage.data_folders import DataPlace, place
from headgate.dashboards.analytics.storage.output_folder import ANALYSIS, disk_told, drafted, held
from headgate.dashboards.analytics.storage.result_tables import SCHEMA, TABLES, LeftOut, Residuals
from headgate.dashboards.analytics.storage.trace_runs import TraceRun
from headgate.dashboards.tables import duckdb_tables
from headgate.dashboards.tables.table_catalogue import needed, tables
from headgate.dashboards.tables.table_engines import EngineFailure, TableEngine, fill
from headgate.dashboards.tables.trace_files import RunFiles, damaged, widths_of, without
from headgate.topology_runtime.errors import InvalidInput
from headgate.topology_runtime.traces.arrow_schema import arrow_schema
from headgate.topology_runtime.traces.trace_tables import TABLES as RECORDED
from headgate.topology_runtime.wording import counted

STEPS = 11  # that `tell` hears of
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

KEPT = (
    "sum_bundles",
    "sum_slot_windows",
    "sum_rate_windows",
    "sum_recorded",
    "sum_members",
    "sum_threads",
)  # worked out once, others are made of them
MARTS = ("mart_bottlenecks", "mart_cost", "mart_skew", "mart_latency")  # that analyses read
ASKED = needed(" ".join((*(f"sum_{name}" for name in HELD), *MARTS, "sum_peaks")))
CURATED = ("topology", "run", "date")  # folders of a curated table
ON_SPARK = "local[*]"  # of what is not on this machine's disks

Tell = Callable[[str], None]


@dataclass(frozen=True)
class AnalysisSettings:
    """`master`: any Spark URL, None: DuckDB, in this process; `memory`: of it, or of Spark's driver; `spark`: more
    settings of Spark; `again`: nothing that an earlier analysis answered is used; `before`: what the runs are compared
    with."""

    master: str | None = None
    memory: str = "2g"
    strict: bool = False
    again: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)
    before: ComparedWith = ComparedWith()


@dataclass(frozen=True)
class AnalysisWork:
    """Where results go and how: the output folder, the draft in it, what was left out so far; `before`: what the runs
    are compared with."""

    to: DataPlace
    draft: DataPlace
    left: list[LeftOut]
    strict: bool
    tell: Tell
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
        with drafted(to) as draft:
            work = AnalysisWork(to, draft, left, settings.strict, tell, settings.before)
            with engine_of(settings, found, work) as engine:
                analysis, times = readable(engine, found, work)
            times = {
                "start": times["began"] - began_s,
                "curate": times["curate"],
                "analyse": times["analyse"],
            }
            analysis = write_analysis(draft, analysis, mark, times)
            tell("the report")
            finish(draft)
    return analysis


@contextmanager
def engine_of(
    settings: AnalysisSettings, found: Sequence[RunFiles], work: AnalysisWork
) -> Iterator[TableEngine]:
    """DuckDB; Spark when its URL is given, or files are not on this machine."""
    local = work.to.local and all(one.run.place.local for one in found)
    if settings.master is None and local:
        with duckdb_tables.working(Path(work.draft.path) / "engine", settings.memory) as engine:
            yield engine
        return
    from headgate.dashboards.analytics.storage.spark_session import session, tuned
    from headgate.dashboards.tables.spark_tables import SparkEngine

    work.tell("starting Spark, which takes some seconds")
    more = tuned(rows_of(found)["samples"]) | dict(settings.spark)
    log = (Path(work.to.path) if work.to.local else Path.cwd()) / "spark.log"
    with session(settings.master or ON_SPARK, settings.memory, log, more) as spark:
        yield SparkEngine(spark)


def readable(
    engine: TableEngine, found: Sequence[RunFiles], work: AnalysisWork
) -> tuple[dict[str, Any], dict[str, float]]:
    """(the analysis, times); once more without files whose pages cannot be read, if that is why it failed."""
    try:
        return whole(engine, found, work)
    except EngineFailure:
        bad = damaged(found)
        if not bad:
            raise
    work.left.extend(bad)
    if work.strict:
        refuse(work.left)
    return whole(engine, without(found, {why.file for why in bad}), work)


def whole(
    engine: TableEngine, found: Sequence[RunFiles], work: AnalysisWork
) -> tuple[dict[str, Any], dict[str, float]]:
    """Curated tables, results and models of all files; what analysis.json says, and how long that took."""
    began_s = time.monotonic()
    fill(engine, found, (), {"runs", *RECORDED})
    work.tell("curating")
    curate(engine, found, (work.draft if work.draft.local else work.to) / "curated")
    curated_s = time.monotonic()
    work.tell("adding up")
    fill(engine, found, (), ASKED - set(RECORDED), KEPT)
    analysis = analysed(input_of(engine, found), work)
    ended_s = time.monotonic()
    return analysis, {"began": began_s, "curate": curated_s - began_s, "analyse": ended_s - curated_s}


def curate(engine: TableEngine, found: Sequence[RunFiles], to: DataPlace) -> None:
    """The tables of all runs as files by topology, run and the day on which they begin. A segment that is one of these
    as it stands is linked; the rows of others (of other columns or types, or not on this machine) are written."""
    if to.is_folder():  # of an attempt that met a file which cannot be read
        to.delete_folder()
    rest = []
    for one in found:
        others = tuple(segment for segment in one.segments if not linked(one.run, segment, to))
        rest.append(replace(one, segments=others))
    for name, columns in RECORDED.items():
        if any(one.files(name) for one in rest):
            engine.read("rest", tables()[name], rest)
            query = f"""
select {", ".join(f"t.{name}" for name in columns)}, r.topology, r.name as run,
  cast(cast(t.time as date) as string) as date
from rest t join runs r on r.run = t.run"""
            engine.write(query, to / name, CURATED)


def linked(run: TraceRun, segment: Segment, to: DataPlace) -> bool:
    """Is it a curated file now?"""
    ours = tuple((field.name, str(field.type)) for field in arrow_schema(segment.table))
    if not (to.local and segment.place.local and segment.shape == ours):
        return False
    date = datetime.fromtimestamp(segment.begin_us // SECOND_US, UTC).date().isoformat()
    of = zip(CURATED, (run.topology, run.name, date), strict=True)
    folder = Path(to.path, segment.table, *(f"{key}={quote(value, safe='')}" for key, value in of))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        os.link(segment.place.path, folder / segment.place.name)
    except OSError:  # another file system, or one without links
        shutil.copyfile(segment.place.path, folder / segment.place.name)
    return True


def input_of(
    engine: TableEngine, found: Sequence[RunFiles], memory: dict[Any, Any] | None = None
) -> AnalysisInput:
    """What the analyses are given; the engine knows the sums. `memory`: of a follower's earlier turns."""
    widths = widths_of(found)
    sums = {name: engine.ask(f"select * from sum_{name}") for name in HELD}
    begin_us = {one.run.key: begin_of(one) for one in found}
    runs = {one.run.key: one.run for one in found}
    return AnalysisInput(engine, runs, begin_us, widths, sums, found, {} if memory is None else memory)


def begin_of(one: RunFiles) -> int:
    """Time of its first sample; of a run without any, of its first row."""
    samples = [segment.begin_us for segment in one.segments if segment.table == "samples"]
    return min(samples or [segment.begin_us for segment in one.segments])


def rows_of(found: Sequence[RunFiles]) -> dict[str, int]:
    """By table."""
    counts = dict.fromkeys(RECORDED, 0)
    for one in found:
        for segment in one.segments:
            counts[segment.table] += segment.rows
    return counts


def write_analysis(
    draft: DataPlace, analysis: dict[str, Any], mark: str, seconds: Mapping[str, float]
) -> dict[str, Any]:
    """analysis.json, with what it was made of and how long that took."""
    whole = analysis | {MARK: mark, "seconds": {name: round(value, 3) for name, value in seconds.items()}}
    (draft / ANALYSIS).write(json.dumps(whole, indent=1, allow_nan=False).encode() + b"\n")
    return whole


def judged_runs(
    traces: Sequence[str | Path], strict: bool, files: JudgedFiles | None = None
) -> tuple[list[RunFiles], list[LeftOut]]:
    """(the runs of which something can be used, what is left out); `files`: judged before. Raises InvalidInput."""
    there, left = trace_runs.find([str(trace) for trace in traces])
    found = []
    for one in there:
        segments, why = judged(one, files)
        found.append(RunFiles(one, tuple(segments)))
        left += why
    if strict and left:
        refuse(left)
    if not any(one.files("samples") for one in found):
        raise InvalidInput("there are no samples that can be used", faults=_faults(left))
    return [one for one in found if one.segments], left


def analysed(asked: AnalysisInput, work: AnalysisWork) -> dict[str, Any]:
    """Results and models into the draft; what analysis.json says. Raises InvalidInput."""
    rows, more = answers(asked, work.draft, work.left, work.tell, work.before)
    if work.strict and len(rows["left_out"]) > 0:
        refuse(rows["left_out"])  # type: ignore[arg-type]
    _write_results(work.draft, rows)
    return summary(asked.files, rows, more, work.to)


def summary(found: Sequence[RunFiles], rows: Rows, more: dict[str, Any], to: DataPlace) -> dict[str, Any]:
    """`headgate/analysis/v1`."""
    counts = rows_of(found)
    data = {name: msgspec.to_builtins(list(of)) for name, of in rows.items()}
    growing = more["growing"]
    return {
        "schema": SCHEMA,
        "rows": counts["samples"],
        "rows_by_table": counts,
        "runs": [one.run.key for one in found],
        "without_models": [one.run.key for one in found if not one.run.models],
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


def refuse(left: Sequence[LeftOut]) -> None:
    raise InvalidInput(
        f"{counted(len(left), 'file')} cannot be used, and --set strict=yes leaves none out",
        faults=_faults(left),
        hint="without --set strict=yes they are listed and left out",
    )


def _faults(left: Sequence[LeftOut]) -> list[str]:
    return [f"{each.file}: {each.kind}: {each.reason}" for each in left]
