"""All of it: TRACE folders to `analysis.json`, `results/`, `models/` and `curated/` in the output folder. Results are
made in a draft and take the place of earlier ones as a whole."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dashboards.analytics import aggregates, trace_runs
from dashboards.analytics.asked import AnalysisInput
from dashboards.analytics.curate import Curated, curate
from dashboards.analytics.data_places import DataPlace, place
from dashboards.analytics.judging import Segment, judged
from dashboards.analytics.output_folder import ANALYSIS, disk_told, drafted, held
from dashboards.analytics.results import SCHEMA, TABLES, LeftOut, Residuals, StabilityAnswer
from dashboards.analytics.spark import MEMORY, QUICK, QUICK_ROWS, session
from dashboards.analytics.trace_runs import TraceRun
from topology_runtime.errors import InvalidInput
from topology_runtime.faults.words import counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STEPS = 18  # that `tell` hears of

Tell = Callable[[str], None]
Rows = dict[str, Sequence[msgspec.Struct]]
Found = list[tuple[TraceRun, list[Segment]]]


@dataclass(frozen=True)
class AnalysisSettings:
    """`master`: any Spark URL; `memory`: of the driver; `spark`: more settings of Spark."""

    master: str = "local[*]"
    memory: str = MEMORY
    strict: bool = False
    spark: Mapping[str, str] = field(default_factory=dict)


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
    there, left = trace_runs.find([str(trace) for trace in traces])
    found: Found = []
    for one in there:
        segments, why = judged(one)
        found.append((one, segments))
        left += why
    _check(found, left, settings.strict)
    found = [(one, segments) for one, segments in found if segments]
    to = place(output)
    with disk_told(to), held(to):
        tell("starting Spark, which takes some seconds")
        log = (Path(to.path) if to.local else Path.cwd()) / "spark.log"
        rows = sum(
            segment.rows for _, segments in found for segment in segments if segment.table == "samples"
        )
        tuned = (QUICK if rows < QUICK_ROWS else {}) | dict(settings.spark)
        with drafted(to) as draft:
            with session(settings.master, settings.memory, log, tuned) as spark:
                analysis = _analysed(spark, found, left, to, draft, settings.strict, tell, began_s)
            tell("the report")
            finish(draft)
    return analysis


def _analysed(
    spark: SparkSession,
    found: Found,
    left: list[LeftOut],
    to: DataPlace,
    draft: DataPlace,
    strict: bool,
    tell: Tell,
    began_s: float,
) -> dict[str, Any]:
    started_s = time.monotonic()
    tell(f"curating (Spark started in {started_s - began_s:.1f} s)")
    curated = curate(spark, to / "curated", found)
    left = left + curated.left
    if strict and curated.left:
        _refuse(left)
    curated_s = time.monotonic()
    asked = asked_of(spark, to, found, curated, tell)
    rows, more = answers(asked, draft, left, tell)
    _write_results(draft, rows)
    ended_s = time.monotonic()
    seconds = {"start": started_s - began_s, "curate": curated_s - started_s, "analyse": ended_s - curated_s}
    analysis = summary(found, curated, rows, more, to) | {
        "seconds": {name: round(value, 3) for name, value in seconds.items()}
    }
    if strict and len(rows["left_out"]) > 0:
        _refuse(rows["left_out"])  # type: ignore[arg-type]
    (draft / ANALYSIS).write(json.dumps(analysis, indent=1, allow_nan=False).encode() + b"\n")
    return analysis


def asked_of(spark: SparkSession, to: DataPlace, found: Found, curated: Curated, tell: Tell) -> AnalysisInput:
    """The aggregates, each made in one pass and written, so that analyses read small tables."""
    spans = {one.key: (min(s.begin_us for s in of), max(s.end_us for s in of)) for one, of in found}
    span_s = max((end - begin) / 1e6 for begin, end in spans.values())
    tables = aggregates.CuratedTables(spark, to / "curated", [one for one, _ in found], curated, span_s)
    frames: dict[str, DataFrame] = {name: tables.read(name) for name in ("samples", "slots", "latency")}

    def keep(name: str, frame: DataFrame) -> None:
        tell(f"aggregating: {name.replace('_', ' ')}")
        folder = (to / "aggregates" / name).uri
        frame.write.mode("overwrite").parquet(folder)
        frames[name] = spark.read.schema(frame.schema).parquet(folder)

    keep("bundles", aggregates.bundles(tables))
    keep("neighbours", aggregates.neighbours(frames["bundles"]))
    keep("slot_windows", aggregates.slot_windows(tables))
    keep("rate_windows", aggregates.rate_windows(tables))
    keep("latency_histogram", aggregates.latency_histogram(tables))
    keep("latency_windows", aggregates.latency_bins(tables, aggregates.STABILITY_WINDOW_S))
    if tables.bin_s == aggregates.STABILITY_WINDOW_S:
        frames["latency_bins"] = frames["latency_windows"]
    else:
        keep("latency_bins", aggregates.latency_bins(tables, tables.bin_s))
    keep("link_sums", aggregates.link_sums(tables))
    keep("link_seconds", aggregates.link_seconds(tables))
    begin_us = {key: begin for key, (begin, _) in spans.items()}
    by_key = {one.key: one for one, _ in found}
    return AnalysisInput(spark, by_key, begin_us, tables.window_s, tables.bin_s, frames)


def answers(
    asked: AnalysisInput, to: DataPlace, left: Iterable[LeftOut], tell: Tell
) -> tuple[Rows, dict[str, Any]]:
    """The rows of every result table, and what the summary has besides."""
    from dashboards.analytics.analyses import (
        bottlenecks,
        cost,
        episodes,
        interference,
        latency,
        load_steps,
        pairs,
        refit,
        replans,
        residuals,
        seasons,
        stability,
        tasks,
    )  # fmt: skip

    tell("stability")
    windows, growing = stability.windows(asked)
    hurt = episodes.episodes(asked)
    rows: Rows = {"episodes": hurt, "stability": [*stability.epochs(asked, hurt), *windows]}
    tell("predicted against actual")
    hard = residuals.tried(asked, hurt)
    rows["residuals"] = residuals.residuals(asked, hard)
    rows["rate_windows"], rows["slots_predicted"] = residuals.series(asked, hard), residuals.scatter(asked)
    rows["tasks_residuals"], rows["residual_map"] = tasks.tasks(asked), tasks.residual_map(asked)
    tell("latency and traffic")
    rows["latency_epochs"], rows["pairs"] = latency.epochs(asked), pairs.pairs(asked)
    tell("bottlenecks and interference")
    rows["bottlenecks"] = bottlenecks.bottlenecks(asked)
    rows["interference"] = interference.interference(asked)
    tell("cost and re-plans")
    rows["cost"] = cost.cost(asked)
    rows["replans"], torn = replans.replans(asked)
    tell("seasons and models")
    rows["seasons"], rows["forecast"] = seasons.seasons(asked)
    rows["refitted"] = refit.refit(asked, to / "models")
    rows["steps"], rows["step_slots"], no_steps = load_steps.steps(asked)
    rows["left_out"] = [*left, *torn, *no_steps]
    more = {
        "r2_epochs": residuals.r2_epochs(asked, hard),
        "latency_ms": latency.overall_ms(asked),
        "growing": growing,
    }
    return rows, more


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
        "stability": [_stability(row, growing) for row in rows["stability"] if _is_epoch(row)],
        "latency_ms": more["latency_ms"],
        "replans": [row for row in data["replans"] if row["reason"] != "start"],
        **{
            name: data[name]
            for name in ("episodes", "bottlenecks", "interference", "cost", "seasons", "refitted")
        },
        "models": (to / "models").path if to.local else (to / "models").uri,
        "output": to.path if to.local else to.uri,
        "left_out": data["left_out"],
    }


def _fit(rows: Sequence[Any], of: str, epochs: Mapping[str, float | None]) -> dict[str, Any]:
    mine: Residuals | None = next((row for row in rows if row.of == of and row.by == "all"), None)
    keys = ("r2", "r2_without_offset", "mae", "median_error", "p95_error", "worst_error", "n")
    numbers = {key: getattr(mine, key) if mine else None for key in keys} | ({} if mine else {"n": 0})
    return numbers | {"r2_epochs": epochs[of]}


def _is_epoch(row: Any) -> bool:
    return bool(row.scope == "epoch")


def _stability(row: Any, growing: Mapping[tuple[str, int], tuple[int, int]]) -> dict[str, Any]:
    found: StabilityAnswer = row
    grow, windows = growing.get((found.run, found.epoch), (0, 0))
    of = {name: getattr(found, name) for name in ("run", "epoch", "source", "sink", "from_s", "to_s")}
    of |= {
        name: getattr(found, name) for name in ("slope", "slope_low", "slope_high", "queue_slope", "stable")
    }
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
        f"{counted(len(left), 'file')} cannot be used, and --strict leaves none out",
        faults=_faults(left),
        hint="without --strict they are listed and left out",
    )


def _faults(left: Sequence[LeftOut]) -> list[str]:
    return [f"{each.file}: {each.kind}: {each.reason}" for each in left]
