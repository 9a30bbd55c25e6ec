"""From the records of the runs and the analysis of their traces to reproduction.json, the page and its pictures."""

from __future__ import annotations

import json
import platform
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from experiments.prediction_scores import at_speed, check_speeds
from experiments.reproducing.answers import latency_facts, plan_facts, slots_used, stable_rate
from experiments.reproducing.cells import Planner
from experiments.reproducing.page import page
from experiments.reproducing.pictures import draw
from experiments.reproducing.store import Record
from headgate.controller.knowledge.models import Model
from headgate.controller.knowledge.plan_data import plan_of
from headgate.controller.plan.predict import predict
from headgate.topology_runtime.calibration.speed import SLOT_SPEED

SCHEMA = "headgate/reproduction/v1"
NAME = "reproduction"
STEP = ("step", "offered_tps", "achieved_tps", "seconds", "slope", "queue_slope", "stable", "speed")
CELL = ("key", "section", "shape", "pair", "routing", "part")
RUN = ("trace", "seconds", "tuples", "load_before")

Rows = Sequence[Mapping[str, Any]]


def analysed(traces: Sequence[Path], to: Path, tell: Any) -> tuple[Rows, Rows]:
    """The steps of these runs, and what slots used in them, by the Spark pipeline."""
    from headgate.dashboards.analytics.pipeline import AnalysisSettings, run

    run([str(trace) for trace in traces], to, AnalysisSettings(), tell)
    found = (
        json.loads((to / "results" / f"{name}.json").read_text("utf-8")) for name in ("steps", "step_slots")
    )
    steps, slots = found
    return steps, slots


def data_of(head: Record, records: Sequence[Record], steps: Rows, slots: Rows, planner: Planner) -> Record:
    """The whole as plain data."""
    by_run, use = defaultdict(list), defaultdict(list)
    for row in steps:
        by_run[row["run"]].append(row)
    for row in slots:
        use[row["run"], row["step"]].append(row)
    cells = [_cell(record, by_run, use, planner) for record in records]
    counts = list(planner.slot_counts(head["shapes"]))
    whole = {"schema": SCHEMA, **head, "slot_counts": counts, "cells": cells}
    return json.loads(json.dumps(rounded(whole), allow_nan=False))  # type: ignore[no-any-return]


def _cell(record: Record, by_run: Mapping[str, Any], use: Mapping[Any, Any], planner: Planner) -> Record:
    of = {name: record.get(name) for name in CELL}
    if record.get("failed"):
        return of | {"failed": record["failed"]}
    plan, topology = plan_of(record["plan"]), planner.topologies[record["shape"]]
    run = "/".join(Path(record["trace"]).parts[-2:])
    mine = [judged(row, record["steps"]) for row in sorted(by_run.get(run, []), key=lambda row: row["step"])]
    found = stable_rate(mine)
    at, limit = found.pop("step"), plan.prediction.limited_by
    last = next((row for row in mine if row["step"] == at), None)
    done_tps = (last["achieved_tps"] or last["offered_tps"]) if last else 0.0
    measured, models = use.get((run, at), []), planner.of.models
    check_speeds(models, record.get("speed_of", SLOT_SPEED))
    now = models_at(models, found["speed"])
    at_speed = predict(topology, now, plan.placement, plan.vms, routing=plan.routing)
    return of | plan_facts(plan) | found | {name: record[name] for name in RUN} | {
        "limited_by_model": topology.by_name[limit].model_name if limit else None,
        "likely_tps": predict(topology, models, plan.placement, plan.vms, routing=plan.routing).likely_tps,
        "predicted_at_speed_tps": at_speed.rate_tps,
        "likely_at_speed_tps": at_speed.likely_tps,
        "steps": [{name: row[name] for name in STEP} for row in mine],
        "slots_used": slots_used(measured, done_tps, plan, topology, models, now) if last else [],
        "latency": latency_facts(last) if last and last["histogram"] else None,
    }  # fmt: skip


def models_at(models: Mapping[str, Model], speed: float | None) -> dict[str, Model]:
    """Models brought to this speed of the machine; None: as they are."""
    return {name: at_speed(model, speed) if speed else model for name, model in models.items()}


def judged(row: Mapping[str, Any], led: Rows) -> Record:
    """A step as the analysis has it, with what was seen of the queue while it was led: either may say that it did
    not keep up."""
    seen = led[row["step"]]
    stable = bool(seen["keeps_up"] and row["stable"] is not False)
    return {**row, "queue_slope": seen["slope"], "stable": stable, "speed": seen["speed"]}


def rounded(value: Any) -> Any:
    """Six digits are more than anything here is worth."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    return [rounded(each) for each in value] if isinstance(value, list | tuple) else value


def write(data: Record, folder: Path) -> Path:
    """reproduction.json, the page, its pictures; the page's path."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{NAME}.json").write_text(json.dumps(data, indent=1, allow_nan=False) + "\n", "utf-8")
    draw(data, folder)
    file = folder / f"{NAME}.md"
    file.write_text(page(data), "utf-8")
    return file


def machine() -> str:
    """This machine in a line."""
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    kernel = ".".join(platform.release().split(".")[:2])
    words = f"{len(names)} × {names[0]}" if names else platform.machine()
    return f"{words}, Linux {kernel}, Python {platform.python_version()}"
